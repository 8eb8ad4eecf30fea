"""Heartbeats between two rounds, and librdkafka's metadata before a partition starts."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition
from kafka.coordinator.heartbeat import Heartbeat

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.fetch_control import resolve_start_offsets, warm_up_connections
from trimtab.consumer_sdk.consumer.partition_state import PartitionState
from trimtab.consumer_sdk.membership.classic.adaptive_heartbeat import AdaptiveHeartbeat


def heartbeat_intervals(configured_ms: int, count: int) -> list[float]:
    """Return the heartbeat intervals (ms) after a round that another one follows."""
    heartbeat = AdaptiveHeartbeat(Heartbeat(heartbeat_interval_ms=configured_ms, session_timeout_ms=45_000))
    heartbeat.shorten_interval()
    intervals: list[float] = []
    for _ in range(count):
        intervals.append(heartbeat.config["heartbeat_interval_ms"])
        heartbeat.sent_heartbeat()
    return intervals


def test_heartbeats_start_close_together_and_spread_out() -> None:
    """The second round is noticed after at most a third of the revocation's duration."""
    intervals = heartbeat_intervals(250, 20)
    assert intervals[0] == 10
    assert intervals[-1] == 250
    for number, interval in enumerate(intervals[1:], start=1):
        assert interval <= sum(intervals[:number]) * 0.3 + 10.001
        assert interval >= intervals[number - 1]
    assert sum(i < 250 for i in intervals) == 13


def test_a_shorter_heartbeat_interval_is_kept() -> None:
    """No interval is longer than the setting."""
    assert heartbeat_intervals(8, 3) == [8, 8, 8]


class Data:
    """Fake of librdkafka's consumer; records the requested metadata."""

    def __init__(self, *assigned: str, silent: bool = False) -> None:
        self.assigned, self.silent = assigned, silent
        self.metadata_requests: list[str | None] = []
        self.offsets: list[tuple[str, int]] = []

    def assignment(self) -> list[RawPartition]:
        return [RawPartition(topic, 0) for topic in self.assigned]

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> None:  # noqa: ARG002 - the interface
        self.metadata_requests.append(topic)
        if self.silent:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def committed(self, partitions: list[RawPartition], timeout: float = 0) -> list[RawPartition]:  # noqa: ARG002 - the interface
        if self.silent:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.offsets += [(p.topic, p.partition) for p in partitions]
        return partitions


@pytest.mark.parametrize(
    ("assigned", "started", "metadata_requests"),
    [(("a",), ("a",), []), (("a",), ("b",), ["b"]), ((), ("a", "b"), [None])],
)
def test_the_leaders_of_a_new_topic_are_known_before_it_starts(
    assigned: tuple[str, ...], started: tuple[str, ...], metadata_requests: list[str | None]
) -> None:
    """librdkafka would look them up to a second later; topics that it reads need no lookup."""
    data: Any = Data(*assigned)
    resolve_start_offsets(data, PartitionState(), [TopicPartition(topic, 1) for topic in started])
    assert data.metadata_requests == metadata_requests


def test_the_data_plane_connects_during_the_join() -> None:
    """It requests metadata, and a committed offset, which needs a connection to the coordinator."""
    data: Any = Data()
    warm_up_connections(data, ["^pattern.*", "b", "a"])
    assert (data.metadata_requests, data.offsets) == ([None], [("a", 0)])


def test_partitions_start_without_metadata() -> None:
    """Brokers that do not answer delay no assignment."""
    data: Any = Data(silent=True)
    warm_up_connections(data, ["a"])
    assert [p.topic for p in resolve_start_offsets(data, PartitionState(), [TopicPartition("a", 0)])] == ["a"]
