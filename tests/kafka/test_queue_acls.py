"""The least ACLs of a kmq queue: with exactly these, workers and trackers do all that they do."""

import logging
import re
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Producer

from secured import Right, Secured
from trimtab.assignor.clock import SystemClock
from trimtab.consumer_sdk.queues import open_queue
from trimtab.consumer_sdk.queues.settings import settings
from trimtab.consumer_sdk.queues.tracker import Tracker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

CONTROL = ("consumer.metadata", "monitor.writeSpeed")
MARKERS, DEAD = "jobs.queued.markers", "jobs.queued.dead"
BOTH: tuple[Right, ...] = (
    *(("topic", name, "read") for name in ("jobs", *CONTROL)),
    *(("topic", name, "create") for name in (MARKERS, DEAD)),
    ("topic", MARKERS, "write"),
    ("topic", MARKERS, "describe_configs"),
)
WORKER: tuple[Right, ...] = (*BOTH, ("group", "queued", "read"))
TRACKER: tuple[Right, ...] = (
    *BOTH,
    ("group", "queued-redeliver", "read"),
    ("topic", MARKERS, "read"),
    ("topic", MARKERS, "delete"),
    ("topic", "jobs", "write"),
    ("topic", DEAD, "write"),
)


@pytest.fixture(scope="module")
def broker(guarded_broker: Secured) -> Secured:
    """A broker whose user may do nothing but what a test grants."""
    guarded_broker.make_topics(("jobs", *CONTROL))
    return guarded_broker


@pytest.fixture
def granted(broker: Secured) -> Iterator[Any]:
    """Grant rights instead of those that were granted before."""
    given: list[Right] = []

    def grant(rights: tuple[Right, ...]) -> None:
        while given:
            broker.take(given.pop())
        given.extend(rights)
        broker.grant(rights)

    yield grant
    for right in given:
        broker.take(right)


def config(broker: Secured) -> dict[str, Any]:
    least = {"trimtab.queue.timeout": "1 s", "trimtab.queue.max.deliveries": 2}
    return {**broker.client(), "group.id": "queued", **least}


def received(broker: Secured) -> list[int]:
    """Receive what there is and acknowledge what is delivered again; return the deliveries."""
    clock, found = SystemClock(), list[int]()
    deadline = clock.monotonic() + 30
    with open_queue("kmq", "jobs", config(broker)) as queue:
        while not found and clock.monotonic() < deadline:
            for message in queue.receive(10, 0.5):
                found.append(message.delivery)
                if message.delivery > 1:
                    message.ack()
        assert queue.flush()
    return found


def tracked(broker: Secured, wait: Callable[..., None]) -> None:
    """Run a tracker until something was redelivered."""
    stop, tracker = Event(), Tracker(settings("jobs", config(broker)))
    thread = Thread(target=tracker.run, args=(stop,))
    thread.start()
    try:
        wait(lambda: tracker.counts.redelivered, 40)
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def test_a_queue_needs_these_rights(
    broker: Secured, granted: Any, eventually: Callable[..., None], caplog: Any
) -> None:
    """A worker dies with a message, a tracker brings it back, a worker acknowledges it."""
    producer = Producer({"bootstrap.servers": broker.broker.bootstrap})
    producer.produce("jobs", b"hello", partition=0)
    assert producer.flush(20) == 0
    with caplog.at_level(logging.WARNING):
        granted(WORKER)
        assert received(broker) == [1]
        granted(TRACKER)
        tracked(broker, eventually)
        granted(WORKER)
        assert received(broker) == [2]
    assert not re.search("allowed|authoriz|grant", caplog.text)
