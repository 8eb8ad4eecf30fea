"""The group monitor: at which time a reading counts as taken."""

from collections.abc import Iterable
from typing import ClassVar

import pytest

from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.decision.scale_to_zero import is_idle
from trimtab.sidecar.kafka.broker_client import GroupCommits
from trimtab.sidecar.kafka.cluster_client import ClusterMetadata, PartitionOffsets
from trimtab.sidecar.measurement.record_sizes import SampledBatch
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

A = TopicPartition("t", 0)


class Slow(Ticking):
    """Brokers of one partition, written at 10 records/s, that answer slowly."""

    others = 0.0  # seconds of every answer but that of the end offsets
    read = frozenset[TopicPartition]()

    def fetch_cluster_metadata(self) -> ClusterMetadata:
        self.now += self.others
        return ClusterMetadata({A: 1})

    def describe_group(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        return ObservedGroup(GroupState.STABLE, (ObservedMember("1", "one", self.read),)), ()

    def fetch_group_commits(self, _: Iterable[TopicPartition]) -> GroupCommits:
        self.now += self.others
        return GroupCommits()

    def fetch_end_offsets(self, _: Iterable[TopicPartition]) -> PartitionOffsets:
        self.now += 2.0
        return PartitionOffsets({A: int(10 * (self.now - 1.0))})

    def fetch_beginning_offsets(self, _: Iterable[TopicPartition]) -> PartitionOffsets:
        self.now += self.others
        return PartitionOffsets({A: 0})

    def explain_missing_topic(self, topic: str) -> str:
        return topic

    transactional = frozenset[str]()
    errors: ClassVar = {"t": "denied"}

    def find_producer(self, *_: object) -> None: ...

    def fetch_log_sizes(self, *_: object) -> PartitionOffsets:
        self.now += self.others
        return PartitionOffsets({})

    def sample_batches(self, *_: object) -> dict[TopicPartition, list[SampledBatch]]:
        self.now += self.others
        return {A: [SampledBatch(1, 100, 1, 100)]}


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch, slow: Slow) -> GroupMonitor:
    settings = {"bootstrap": "localhost:1", "group": "g", "topics": "t", "capacity": "1 MB/s"}
    monitor = GroupMonitor(load_settings(None, {**settings, "target": "none"}), slow)
    monitor.close()
    monkeypatch.setattr(monitor, "_brokers", slow)
    monkeypatch.setattr(monitor, "_described", slow)
    monkeypatch.setattr(monitor, "_sampler", slow)
    return monitor


def test_a_partition_without_metadata_is_unknown(slow: Slow, monitor: GroupMonitor) -> None:
    """A revoked right does not make an owned partition vanish, so no consumer is removed for it."""
    slow.read = frozenset({A, TopicPartition("hidden", 3)})
    found = monitor.measure()
    assert found.load.write_rates[TopicPartition("hidden", 3)].bytes_per_s is None
    assert not is_idle(found.load.write_rates)


def test_what_could_not_be_sampled_is_an_error(monitor: GroupMonitor) -> None:
    """The sampler says why a size is unknown."""
    assert monitor.measure().errors == ("denied",)


def test_a_slow_answer_does_not_distort_the_write_rate(slow: Slow, monitor: GroupMonitor) -> None:
    """End offsets count at the time of their own request, however long the others take."""
    monitor.measure()
    for slow.others in (8.0, 0.0, 6.0):
        found = monitor.measure()
        slow.now += 5.0
    assert found.load.write_rates[A].bytes_per_s == pytest.approx(1000.0)
