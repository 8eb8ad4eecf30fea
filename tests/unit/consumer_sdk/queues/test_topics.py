"""A queue's topics are checked at the start."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.errors import QueueTopicMismatchError
from trimtab.consumer_sdk.queues.settings import parse_queue_settings
from trimtab.consumer_sdk.queues.topics import prepare_queue_topics

MARKERS = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"}
QUEUE = parse_queue_settings("orders", {"bootstrap.servers": "localhost:1", "group.id": "g"})


def finished(result: Any) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_result(result)
    return answer


def cluster(**partitions: int) -> AdminClient:
    """Return a client with metadata of the messages' and dead-letter topics."""
    names = {"messages": QUEUE.topic, "dead": QUEUE.dead_letter_topic, "markers": QUEUE.markers_topic}

    def list_topics(topic: str, **_: Any) -> Any:
        (count,) = [count for name, count in partitions.items() if names[name] == topic]
        shape = {number: SimpleNamespace(replicas=[1]) for number in range(count)}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=shape)})

    def create_partitions(new: list[NewPartitions], **_: Any) -> Any:
        answer: Future[None] = Future()
        answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
        return {new[0].topic: answer}

    return cast("AdminClient", SimpleNamespace(list_topics=list_topics, create_partitions=create_partitions))


def test_dead_letters_with_fewer_partitions_are_named() -> None:
    """If they cannot be added, the error says how: dead letters of these partitions could never be stored."""
    with pytest.raises(QueueTopicMismatchError, match=r"'orders.g.dead' has 1 partition .* has 2.*--alter"):
        prepare_queue_topics(cluster(messages=2, dead=1), QUEUE, SystemClock(), with_markers=False)


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ("message.timestamp.type", "CreateTime"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
    ],
)
def test_markers_of_another_configuration_are_refused(config: str, value: str) -> None:
    """Compaction keeps one marker of a queue: messages in flight at a crash would be lost."""
    client = cluster(messages=2, dead=2, markers=2)
    answer = finished({n: SimpleNamespace(value=v) for n, v in {**MARKERS, config: value}.items()})
    client.describe_configs = Mock(return_value={"markers": answer})
    with pytest.raises(QueueTopicMismatchError, match=rf"'orders.g.markers' has {config}={value}; set it to"):
        prepare_queue_topics(client, QUEUE, SystemClock(), with_markers=True)


@pytest.mark.parametrize("dead", [2, 3])
def test_dead_letters_may_have_more_partitions(dead: int) -> None:
    """A topic shared by several queues has the partitions of the largest."""
    assert prepare_queue_topics(cluster(messages=2, dead=dead), QUEUE, SystemClock(), with_markers=False) == 2
