"""What is stuck: late and read for long, in vain; and that it weighs as ever."""

from collections.abc import Iterable

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.measurement.measurement import Gauge, Gauged
from trimtab.sidecar.measurement.observation import GroupState, GroupView, Reader
from trimtab.sidecar.measurement.write_rate import Readings
from trimtab.sidecar.settings.settings import load

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
STEP = 10.0
RATE = 500  # records of 10 bytes each step
SPEED = 500.0
CAPACITY = 1_000.0


@pytest.fixture
def gauge() -> Gauge:
    """Windows of 20 s, of consumption 60 s; what waits for 15 s is late."""
    given = {"bootstrap": "b:1", "group": "g", "capacity": CAPACITY, "window": 20, "interval": 10}
    made = Gauge(load(None, {**given, "effect_window": 60}))
    made.learn({A: [10], B: [10]})
    return made


def turns(
    gauge: Gauge, begin: int, count: int, reader: str = "one", *, moving: Iterable[object] = ()
) -> Gauged:
    """Let both be written, and one member read both but commit only what is `moving`."""
    group = GroupView(GroupState.STABLE, (Reader(reader, reader, frozenset({A, B})),))
    found: list[Gauged] = []
    for turn in range(begin, begin + count):
        written = RATE * turn
        commits = {p: written if p in moving else 0 for p in (A, B)}
        readings = Readings((A, B), dict.fromkeys((A, B), written), {A: 0, B: 0}, commits)
        found.append(gauge.take(STEP * turn, readings, group))
    return found[-1]


def test_what_is_read_in_vain_is_stuck(gauge: Gauge) -> None:
    """Not before it has been late for a whole window; what it asks for stays the same."""
    before = turns(gauge, 0, 8, moving=[B])
    assert before.stuck == frozenset()
    after = turns(gauge, 8, 1, moving=[B])
    assert after.stuck == {A}
    assert (after.speeds[A].needed_bytes_per_s or 0) > SPEED
    assert after.speeds[A].backlog_bytes == RATE * 8 * 10


def test_who_gets_past_it_is_not_stuck(gauge: Gauge) -> None:
    """The first commit ends it."""
    assert turns(gauge, 0, 9).stuck == {A, B}
    readings = Readings((A, B), {A: 4500, B: 4500}, {A: 0, B: 0}, {A: 10, B: 0})
    group = GroupView(GroupState.STABLE, (Reader("one", "one", frozenset({A, B})),))
    assert gauge.take(STEP * 9, readings, group).stuck == {B}


def test_a_new_reader_has_its_time(gauge: Gauge) -> None:
    """Whoever has just got a partition, or has none, is not said to be stuck with it."""
    assert turns(gauge, 0, 9).stuck == {A, B}
    assert turns(gauge, 9, 6, "two").stuck == frozenset()
    assert turns(gauge, 15, 1, "two").stuck == {A, B}
    nobody = Readings((A, B), {A: 9000, B: 9000}, {A: 0, B: 0}, {A: 0, B: 0})
    assert gauge.take(200.0, nobody, GroupView(GroupState.EMPTY)).stuck == frozenset()


def test_a_quiet_partition_is_not_stuck_by_its_first_record(gauge: Gauge) -> None:
    """That nothing was committed while nothing came is no sign of anything."""
    group = GroupView(GroupState.STABLE, (Reader("one", "one", frozenset({A})),))
    for turn in range(10):
        gauge.take(STEP * turn, Readings((A,), {A: 100}, {A: 0}, {A: 100}), group)
    found = gauge.take(STEP * 10, Readings((A,), {A: 2000}, {A: 0}, {A: 100}), group)
    assert found.stuck == frozenset()
