"""Partitions added to a queue's topic are served, and stop no other, on a real broker."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from support.queued import receive_messages, sorted_values
from trimtab.consumer_sdk.queues import MessageQueue
from trimtab.consumer_sdk.queues.kmq import kmq_queue
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

pytestmark = pytest.mark.broker

Open = Callable[..., MessageQueue]


@pytest.fixture
def add_partition(admin: AdminClient, write: Any, eventually: Any) -> Callable[[str], None]:
    """Give a topic of one partition a second one, and write a message to each."""

    def add(topic: str) -> None:
        for added in admin.create_partitions([NewPartitions(topic, 2)]).values():
            added.result(30)
        eventually(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 2)
        write(topic, "old")
        write(topic, "new", partition=1)

    return add


@pytest.fixture
def count_partitions(admin: AdminClient, config: dict[str, Any]) -> Callable[[str], list[int]]:
    """Count the partitions of a queue's markers and dead letters."""

    def count(topic: str) -> list[int]:
        settings = parse_queue_settings(topic, config)
        names = (settings.markers_topic, settings.dead_letter_topic)
        return [len(admin.list_topics(name, timeout=10).topics[name].partitions) for name in names]

    return count


def test_partitions_added_to_the_topic_are_added_to_the_queues_topics(
    open_queue: Open,
    start_tracker: Any,
    topic: Any,
    add_partition: Any,
    count_partitions: Any,
    eventually: Any,
) -> None:
    """A running worker receives their messages, and the tracker redelivers and dead-letters them."""
    name = topic(partitions=1)
    tracker = start_tracker(name, timeout="5 s")
    queue = open_queue("kmq", name, timeout="5 s")
    queue.receive(1, 3)
    add_partition(name)
    assert sorted_values(receive_messages(queue, 2)) == ["new", "old"]
    redelivered = receive_messages(queue, 2)
    assert sorted((m.value, m.delivery) for m in redelivered) == [(b"new", 2), (b"old", 2)]
    for message in redelivered:
        message.reject()
    eventually(lambda: tracker.counts.dead_lettered == 2)
    assert count_partitions(name) == [2, 2]


@pytest.mark.parametrize("kind", ["kmq", "ordered"])
def test_a_worker_starts_after_partitions_were_added(
    open_queue: Open, topic: Any, add_partition: Any, kind: str
) -> None:
    """Topics that Trimtab has created get the partitions that they lack."""
    name = topic(partitions=1)
    open_queue(kind, name).close()
    add_partition(name)
    assert sorted_values(receive_messages(open_queue(kind, name), 2)) == ["new", "old"]


def test_a_partition_without_markers_waits_alone(
    open_queue: Open, topic: Any, add_partition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the markers topic cannot get a new partition, the messages of the others are delivered."""
    name = topic(partitions=1)
    queue = open_queue("kmq", name)
    queue.receive(1, 3)
    add_missing = kmq_queue.topics.add_missing_partitions
    monkeypatch.setattr(kmq_queue, "TOPIC_CHECK_INTERVAL_S", 0.5)
    monkeypatch.setattr(kmq_queue.topics, "add_missing_partitions", lambda *_, **__: 0)
    add_partition(name)
    assert sorted_values(receive_messages(queue, 2, seconds=6)) == ["old"]
    monkeypatch.setattr(kmq_queue.topics, "add_missing_partitions", add_missing)
    assert sorted_values(receive_messages(queue, 1)) == ["new"]
