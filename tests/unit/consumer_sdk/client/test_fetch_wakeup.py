"""Wake-ups of librdkafka's wait for records; red when a release of confluent-kafka changes what they use."""

import threading
from time import monotonic
from typing import Any

import pytest

from trimtab.consumer_sdk.client.fair_consumer import FairConsumer
from trimtab.consumer_sdk.client.fair_lock import FairLock
from trimtab.consumer_sdk.client.membership_events import EventInbox

WAIT_S = 0.19
CALLS = 40


@pytest.fixture
def consumer() -> Any:
    """Return a consumer that finds no broker, so that nothing but a wake-up ends its waits."""
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    return FairConsumer(config, FairLock())


def test_a_wakeup_ends_the_next_wait(consumer: Any) -> None:
    """An event that comes just before the wait is not noticed after it; each wake-up ends one wait."""
    assert consumer.is_wakeable
    begun = monotonic()
    for _ in range(CALLS):
        consumer.wake()
        consumer.consume(500, WAIT_S)
    woken = monotonic() - begun
    begun = monotonic()
    consumer.consume(500, WAIT_S)
    assert woken < CALLS * WAIT_S / 2
    assert monotonic() - begun > WAIT_S / 2
    consumer.close()


def test_calls_and_events_of_other_threads_end_the_wait(consumer: Any) -> None:
    """None of them waits until the fetch has timed out."""
    inbox, stop = EventInbox(consumer.wake), threading.Event()
    waits: list[float] = []

    def read() -> None:
        while not stop.is_set():
            begun = monotonic()
            consumer.consume(500, WAIT_S)
            waits.append(monotonic() - begun)

    thread = threading.Thread(target=read)
    thread.start()
    begun = monotonic()
    for _ in range(CALLS):
        consumer.assignment()
        seen = len(waits)
        inbox.append(Any)
        while len(waits) == seen and thread.is_alive():
            threading.Event().wait(0.001)
    took = monotonic() - begun
    stop.set()
    thread.join()
    assert took < CALLS * WAIT_S / 2
    assert len(inbox) == CALLS
    consumer.close()


def test_a_closed_consumer_is_not_woken(consumer: Any) -> None:
    """Its handle is gone: a late call of another thread must not reach it."""
    consumer.close()
    consumer.wake()
    assert not consumer.is_wakeable
