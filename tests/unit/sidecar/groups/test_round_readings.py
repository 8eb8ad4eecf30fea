"""Threads of groups use the offsets and sizes of a round while others are asked for."""

from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.groups.round_readings import RoundReadings
from trimtab.sidecar.groups.shared_brokers import GroupSamplerView, SharedSampler
from trimtab.sidecar.kafka.cluster_client import ClusterMetadata, PartitionOffsets

T = TopicPartition("t", 0)
METADATA = ClusterMetadata({T: 1})


class Offsets:
    """Stand-in for an answered request."""

    def collect(self, partitions: list[TopicPartition]) -> PartitionOffsets:
        return PartitionOffsets(dict.fromkeys(partitions, 5))

    def peek(self, _: TopicPartition) -> int:
        return 5


def test_beginnings_are_known_where_ends_are() -> None:
    """A group that comes between the two requests would take its lag for unknown."""
    between, goes_on = Event(), Event()

    def request_beginnings(_: Any) -> Offsets:
        between.set()
        assert goes_on.wait(30)
        return Offsets()

    cluster: Any = SimpleNamespace(
        request_end_offsets=lambda _: Offsets(), request_beginning_offsets=request_beginnings
    )
    readings = RoundReadings(cluster, METADATA)
    found: list[PartitionOffsets] = []
    first = Thread(target=lambda: readings.request_topics(["t"]))
    second = Thread(target=lambda: found.append(readings.collect_beginnings([T])))
    first.start()
    assert between.wait(30)
    second.start()
    second.join(0.1)
    goes_on.set()
    first.join()
    second.join()
    assert [offsets.values for offsets in found] == [{T: 5}]


def test_a_sample_that_is_taken_while_it_is_stored_is_complete() -> None:
    """Its number tells a group that it has all of it."""
    taken: list[Any] = []
    number = 0

    class Batches(dict[TopicPartition, list[int]]):
        def items(self) -> Any:
            other = Thread(target=lambda: taken.append(sampler.take_batches(["t"], number)))
            other.start()
            other.join(0.1)
            yield from super().items()

    stub: Any = SimpleNamespace(sample_batches=lambda *_: Batches({T: [7]}), errors={}, close=lambda: None)
    sampler = SharedSampler(stub, Ticking())
    cluster: Any = SimpleNamespace(
        request_end_offsets=lambda _: Offsets(), request_beginning_offsets=lambda _: Offsets()
    )
    readings = RoundReadings(cluster, METADATA)
    readings.request_topics(["t"])
    sampler.sample_topics(readings, 1e9)
    sampler._batches["deleted"] = {}
    sampler.sample_topics(readings, 0)
    assert set(sampler._batches) == {"t"}
    number = taken[0][0] if taken else 0
    later = sampler.take_batches(["t"], number)
    assert {**(taken[0][1] if taken else {}), **later[1]} == {T: [7]}


def test_what_could_not_be_sampled_is_an_error_until_it_is_sampled() -> None:
    """A group gets the errors of its own topics, as of the last pass."""
    stub: Any = SimpleNamespace(sample_batches=lambda *_: {}, errors={"t": "denied", "other": "denied"})
    shared = SharedSampler(stub, Ticking())
    view = GroupSamplerView(shared)
    view.sample_batches({T: 5}, {T: 0}, {T: 1}, 0.0)
    assert view.errors == {"t": "denied"}
    stub.errors = {}
    view.sample_batches({T: 5}, {T: 0}, {T: 1}, 0.0)
    assert view.errors == {}


def test_the_sampler_is_told_which_topics_are_asked_for() -> None:
    """It forgets the errors of the others."""
    told: list[Any] = []
    stub: Any = SimpleNamespace(sample_batches=lambda *a: told.append(a[2]) or {}, errors={})
    cluster: Any = SimpleNamespace(
        request_end_offsets=lambda _: Offsets(), request_beginning_offsets=lambda _: Offsets()
    )
    readings = RoundReadings(cluster, ClusterMetadata({T: 1, TopicPartition("unread", 0): 1}))
    readings.request_topics(["t"])
    SharedSampler(stub, Ticking()).sample_topics(readings, 1e9)
    assert told == [{T: 1}]
