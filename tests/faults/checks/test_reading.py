"""What the checker of a round takes for the records that a topic holds."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from faults.broker import read_numbers, read_to_ends, read_with_kafka_python

NUMBERS = {(0, 0): 0, (0, 1): 1, (0, 3): 3}  # 2: the marker of the first transaction


@pytest.fixture
def open_transaction(bootstrap: str, topic: Callable[..., str]) -> tuple[str, Producer]:
    """A topic with two committed records, and one of a transaction that is still open behind them."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in (0, 1):
        producer.produce(name, b"x", f"0/{number}", partition=0)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(name, b"x", "0/3", partition=0)
    producer.flush(30)
    return name, producer


@pytest.mark.broker
def test_a_transaction_that_ends_late_is_read(bootstrap: str, open_transaction: tuple[str, Producer]) -> None:
    """A broker that comes back commits it after the check has begun: the last stable offset is no end."""
    topic, producer = open_transaction
    with ThreadPoolExecutor() as pool:
        read = [
            pool.submit(reader, bootstrap, topic, 2, "read_committed")
            for reader in (read_numbers, read_with_kafka_python)
        ]
        with pytest.raises(TimeoutError):
            read[0].result(5)
        producer.commit_transaction(30)
        assert read[0].result(60) == NUMBERS
        assert read[1].result(60) == NUMBERS.keys()


def event(code: int, offset: int = -1001) -> Any:
    """Return an event of partition 0."""
    error = KafkaError(code)
    return SimpleNamespace(error=lambda: error, partition=lambda: 0, offset=lambda: offset)


def record(offset: int) -> Any:
    key = b"0/%d" % offset
    return SimpleNamespace(error=lambda: None, partition=lambda: 0, offset=lambda: offset, key=lambda: key)


class Events:
    """A consumer that returns these events, one a call, and nothing afterwards."""

    def __init__(self, *events: Any) -> None:
        self._events = list(events)

    def consume(self, _most: int, _seconds: float) -> list[Any]:
        return [self._events.pop(0)] if self._events else []


def test_only_the_end_of_the_log_ends_the_reading() -> None:
    """Neither an error that passes nor an end below the log's."""
    ends = (event(KafkaError._PARTITION_EOF, 1), event(KafkaError._PARTITION_EOF, 2))
    lost = event(KafkaError._TRANSPORT)
    consumer = Events(lost, record(0), ends[0], lost, record(1), ends[1], record(7))
    assert read_to_ends(consumer, {0: 2, 1: 0}) == {(0, 0): 0, (0, 1): 1}


def test_a_log_that_does_not_go_on_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check fails, instead of counting the records behind as lost."""
    monkeypatch.setattr("faults.broker.SILENCE_SECONDS", 0.0)
    with pytest.raises(TimeoutError, match="partition 0"):
        read_to_ends(Events(record(0)), {0: 2})
