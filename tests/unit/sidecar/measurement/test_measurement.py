"""What is stuck: late and read for long, in vain; and that it weighs as ever."""

from collections.abc import Iterable

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.measurement.measurement import LoadEstimate, LoadEstimator
from trimtab.sidecar.measurement.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.measurement.write_rate import OffsetReadings
from trimtab.sidecar.settings.settings import load_settings

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
STEP = 10.0
RATE = 500  # records of 10 bytes each step
SPEED = 500.0
CAPACITY = 1_000.0


@pytest.fixture
def gauge() -> LoadEstimator:
    """Windows of 20 s, of consumption 60 s; what waits for 15 s is late."""
    given = {"bootstrap": "b:1", "group": "g", "capacity": CAPACITY, "window": 20, "interval": 10}
    made = LoadEstimator(load_settings(None, {**given, "scale_up_evaluation_window": 60}))
    made.learn_record_sizes({A: [10], B: [10]})
    return made


def turns(
    gauge: LoadEstimator, begin: int, count: int, reader: str = "one", *, moving: Iterable[object] = ()
) -> LoadEstimate:
    """Let both be written, and one member read both but commit only what is `moving`."""
    group = ObservedGroup(GroupState.STABLE, (ObservedMember(reader, reader, frozenset({A, B})),))
    found: list[LoadEstimate] = []
    for turn in range(begin, begin + count):
        written = RATE * turn
        commits = {p: written if p in moving else 0 for p in (A, B)}
        readings = OffsetReadings((A, B), dict.fromkeys((A, B), written), {A: 0, B: 0}, commits)
        found.append(gauge.estimate_load(STEP * turn, readings, group))
    return found[-1]


def test_what_is_read_in_vain_is_stuck(gauge: LoadEstimator) -> None:
    """Not before it has been late for a whole window; what it asks for stays the same."""
    before = turns(gauge, 0, 8, moving=[B])
    assert before.stuck_partitions == frozenset()
    after = turns(gauge, 8, 1, moving=[B])
    assert after.stuck_partitions == {A}
    assert (after.write_rates[A].required_bytes_per_s or 0) > SPEED
    assert after.write_rates[A].backlog_bytes == RATE * 8 * 10


def test_who_gets_past_it_is_not_stuck(gauge: LoadEstimator) -> None:
    """The first commit ends it."""
    assert turns(gauge, 0, 9).stuck_partitions == {A, B}
    readings = OffsetReadings((A, B), {A: 4500, B: 4500}, {A: 0, B: 0}, {A: 10, B: 0})
    group = ObservedGroup(GroupState.STABLE, (ObservedMember("one", "one", frozenset({A, B})),))
    assert gauge.estimate_load(STEP * 9, readings, group).stuck_partitions == {B}


def test_a_new_reader_has_its_time(gauge: LoadEstimator) -> None:
    """Whoever has just got a partition, or has none, is not said to be stuck with it."""
    assert turns(gauge, 0, 9).stuck_partitions == {A, B}
    assert turns(gauge, 9, 6, "two").stuck_partitions == frozenset()
    assert turns(gauge, 15, 1, "two").stuck_partitions == {A, B}
    nobody = OffsetReadings((A, B), {A: 9000, B: 9000}, {A: 0, B: 0}, {A: 0, B: 0})
    assert gauge.estimate_load(200.0, nobody, ObservedGroup(GroupState.EMPTY)).stuck_partitions == frozenset()


def test_a_quiet_partition_is_not_stuck_by_its_first_record(gauge: LoadEstimator) -> None:
    """That nothing was committed while nothing came is no sign of anything."""
    group = ObservedGroup(GroupState.STABLE, (ObservedMember("one", "one", frozenset({A})),))
    for turn in range(10):
        gauge.estimate_load(STEP * turn, OffsetReadings((A,), {A: 100}, {A: 0}, {A: 100}), group)
    found = gauge.estimate_load(STEP * 10, OffsetReadings((A,), {A: 2000}, {A: 0}, {A: 100}), group)
    assert found.stuck_partitions == frozenset()
