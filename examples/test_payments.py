"""How to test a handler: through 100 simulated histories, and on a real broker.

python -m pytest examples/test_payments.py
"""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from trimtab.consumer_sdk import Consumer
from trimtab.testing import RecordId


class Payments:
    """The application: books each payment once, whatever is delivered again."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("CREATE TABLE payments (topic, part, offset, amount, UNIQUE (topic, part, offset))")

    def book(self, message: Any) -> None:
        """Book the payment of a record."""
        place = message.topic(), message.partition(), message.offset()
        self.db.execute("INSERT OR IGNORE INTO payments VALUES (?, ?, ?, ?)", (*place, int(message.value())))

    def list_booked(self) -> Iterable[RecordId]:
        """Return the records that are booked."""
        return [RecordId(*row) for row in self.db.execute("SELECT topic, part, offset FROM payments")]


def open_handler(payments: Payments) -> Callable[[Any], None]:
    """Return the handler of one worker; the database outlives it."""
    return payments.book


def test_every_payment_is_booked_once(simulated_group: Any) -> None:
    """Workers crash, freeze, lose their connection, come and go."""
    report = simulated_group(open_handler, store=Payments, effects=Payments.list_booked, histories=100)
    report.check_exactly_once()


def open_loop(payments: Payments) -> Callable[[Any, Any], None]:
    """Return the loop of one worker, for applications that poll by themselves."""

    def run(consumer: Any, stop: Any) -> None:
        while not stop.is_set():
            messages = [m for m in consumer.consume(20, timeout=0.5) if m.error() is None]
            for message in messages:
                payments.book(message)
            if messages:
                consumer.commit(asynchronous=False)

    return run


def test_the_loop_books_every_payment_once(simulated_group: Any) -> None:
    """The same for a loop of the application's own; only its database knows what it has handled."""
    report = simulated_group(worker=open_loop, store=Payments, effects=Payments.list_booked, histories=10)
    report.check_exactly_once()


def test_payments_of_a_real_topic_are_booked(kafka_topics: Any, kafka_group: str) -> None:
    """The same handler, on a broker."""
    topic = kafka_topics(partitions=2)
    records = kafka_topics.produce_stream(topic, 100)
    payments = Payments()
    config = {
        "bootstrap.servers": kafka_topics.bootstrap,
        "group.id": kafka_group,
        "auto.offset.reset": "earliest",
    }
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while len(list(payments.list_booked())) < len(records):
            for message in consumer.consume(100, timeout=1.0):
                payments.book(message)
    assert {tuple(r) for r in payments.list_booked()} == {tuple(r[:3]) for r in records}
