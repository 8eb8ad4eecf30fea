"""What is stuck: read for long, in vain; and that its backlog asks for nobody."""

from collections.abc import Iterable

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.gauge import Gauge, Gauged
from trimtab.sidecar.observation import GroupState, GroupView, Reader
from trimtab.sidecar.settings import load
from trimtab.sidecar.speeds import Readings

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
    """Not before a whole window; from then on only what is written to it counts."""
    before = turns(gauge, 0, 6, moving=[B])
    assert before.stuck == frozenset()
    assert (before.speeds[A].needed_bytes_per_s or 0) > SPEED
    after = turns(gauge, 6, 1, moving=[B])
    assert after.stuck == {A}
    assert after.speeds[A].needed_bytes_per_s == pytest.approx(SPEED)
    assert after.speeds[A].backlog_bytes == RATE * 6 * 10


def test_who_gets_past_it_is_not_stuck(gauge: Gauge) -> None:
    """The first commit ends it, and the backlog counts again."""
    assert turns(gauge, 0, 8).stuck == {A, B}
    readings = Readings((A, B), {A: 4000, B: 4000}, {A: 0, B: 0}, {A: 10, B: 0})
    group = GroupView(GroupState.STABLE, (Reader("one", "one", frozenset({A, B})),))
    found = gauge.take(STEP * 8, readings, group)
    assert found.stuck == {B}
    assert (found.speeds[A].needed_bytes_per_s or 0) > SPEED
    assert found.speeds[B].needed_bytes_per_s == pytest.approx(SPEED)


def test_a_new_reader_has_its_time(gauge: Gauge) -> None:
    """Whoever has just got a partition, or has none, is not said to be stuck with it."""
    assert turns(gauge, 0, 8).stuck == {A, B}
    assert turns(gauge, 8, 5, "two").stuck == frozenset()
    assert turns(gauge, 13, 2, "two").stuck == {A, B}
    nobody = Readings((A, B), {A: 9000, B: 9000}, {A: 0, B: 0}, {A: 0, B: 0})
    assert gauge.take(200.0, nobody, GroupView(GroupState.EMPTY)).stuck == frozenset()
