"""Stuck partitions: overdue for a whole window without a commit, and their load."""

import json
from collections.abc import Iterable

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.measurement.load_estimator import LoadEstimate, LoadEstimator
from trimtab.sidecar.measurement.record_sizes import SampledBatch
from trimtab.sidecar.measurement.write_rate import OffsetReadings
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.settings.settings import load_settings

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
STEP = 10.0
RATE = 500  # records of 10 bytes each step
SPEED = 500.0
CAPACITY = 1_000.0


@pytest.fixture
def estimator() -> LoadEstimator:
    """Return an estimator with windows of 20 s, consumption windows of 60 s and a grace of 15 s."""
    given = {"bootstrap": "b:1", "group": "g", "capacity": CAPACITY, "window": 20, "interval": 10}
    made = LoadEstimator(load_settings(None, {**given, "scale_up_evaluation_window": 60}))
    made.learn_record_sizes({p: [SampledBatch(1, 10, 1, 10)] for p in (A, B)})
    return made


def turns(
    estimator: LoadEstimator, begin: int, count: int, reader: str = "one", *, moving: Iterable[object] = ()
) -> LoadEstimate:
    """Write to both partitions while one member owns both and commits only `moving`."""
    group = ObservedGroup(GroupState.STABLE, (ObservedMember(reader, reader, frozenset({A, B})),))
    found: list[LoadEstimate] = []
    for turn in range(begin, begin + count):
        written = RATE * turn
        commits = {p: written if p in moving else 0 for p in (A, B)}
        readings = OffsetReadings((A, B), dict.fromkeys((A, B), written), {A: 0, B: 0}, commits)
        found.append(estimator.estimate_load(STEP * turn, readings, group))
    return found[-1]


def test_a_partition_without_progress_is_stuck(estimator: LoadEstimator) -> None:
    """It is stuck after a whole overdue window, and its required rate stays the same."""
    before = turns(estimator, 0, 8, moving=[B])
    assert before.stuck_partitions == frozenset()
    after = turns(estimator, 8, 1, moving=[B])
    assert after.stuck_partitions == {A}
    assert (after.write_rates[A].required_bytes_per_s or 0) > SPEED
    assert after.write_rates[A].backlog_bytes == RATE * 8 * 10


def test_a_commit_ends_being_stuck(estimator: LoadEstimator) -> None:
    """The first commit ends it."""
    turns(estimator, 0, 3, moving=[A, B])
    assert turns(estimator, 3, 7).stuck_partitions == {A, B}
    readings = OffsetReadings((A, B), {A: 5000, B: 5000}, {A: 0, B: 0}, {A: 10, B: 0})
    group = ObservedGroup(GroupState.STABLE, (ObservedMember("one", "one", frozenset({A, B})),))
    assert estimator.estimate_load(STEP * 10, readings, group).stuck_partitions == {B}


def test_a_new_owner_gets_a_whole_window(estimator: LoadEstimator) -> None:
    """A partition with a new owner, or without one, is not stuck."""
    turns(estimator, 0, 3, moving=[A, B])
    assert turns(estimator, 3, 7).stuck_partitions == {A, B}
    assert turns(estimator, 10, 6, "two").stuck_partitions == frozenset()
    assert turns(estimator, 16, 1, "two").stuck_partitions == {A, B}
    unowned = OffsetReadings((A, B), {A: 9000, B: 9000}, {A: 0, B: 0}, {A: 0, B: 0})
    assert (
        estimator.estimate_load(200.0, unowned, ObservedGroup(GroupState.EMPTY)).stuck_partitions
        == frozenset()
    )


def test_a_quiet_partition_is_not_stuck_by_its_first_record(estimator: LoadEstimator) -> None:
    """Without writes the absence of commits proves nothing."""
    group = ObservedGroup(GroupState.STABLE, (ObservedMember("one", "one", frozenset({A})),))
    for turn in range(10):
        estimator.estimate_load(STEP * turn, OffsetReadings((A,), {A: 100}, {A: 0}, {A: 100}), group)
    found = estimator.estimate_load(STEP * 10, OffsetReadings((A,), {A: 2000}, {A: 0}, {A: 100}), group)
    assert found.stuck_partitions == frozenset()


def test_small_records_weigh_more_than_their_bytes() -> None:
    """Two partitions of 5 kB/s: 10-byte records cost what record-cost says, large ones hardly more."""
    given = {"bootstrap": "b:1", "group": "g", "capacity": "1 MB/s", "window": 20, "interval": 10}
    weights: dict[str, tuple[float | None, ...]] = {}
    for cost in ("0", "190 B"):
        made = LoadEstimator(load_settings(None, {**given, "record-cost": cost}))
        made.learn_record_sizes({A: [SampledBatch(1, 10, 1, 10)], B: [SampledBatch(1, 5_000, 1, 5_000)]})
        for turn in range(4):
            ends = {A: 5_000 * turn, B: 10 * turn}
            readings = OffsetReadings((A, B), ends, {A: 0, B: 0}, ends)
            found = made.estimate_load(STEP * turn, readings, ObservedGroup(GroupState.EMPTY)).write_rates
        weights[cost] = (found[A].weight, found[B].weight)
    assert weights == {"0": (5_000.0, 5_000.0), "190 B": (100_000.0, 5_190.0)}


def test_a_learned_cost_weighs_small_records_more() -> None:
    """Two consumers at equal bytes/s, of which the one with small records works ten times as long."""
    given = {"bootstrap": "b:1", "group": "g", "capacity": "1 MB/s", "window": 20, "interval": 10}
    made = LoadEstimator(load_settings(None, {**given, "learn-record-cost": True}))
    made.learn_record_sizes({A: [SampledBatch(1, 100, 1, 100)], B: [SampledBatch(1, 10_000, 1, 10_000)]})
    owners = (ObservedMember("1", "one", frozenset({A})), ObservedMember("2", "two", frozenset({B})))
    weights: list[tuple[float | None, ...]] = []
    for turn in range(60):
        ends, metadata = {A: 1_000 * turn, B: 10 * turn}, dict[TopicPartition, str]()
        for partition, seconds in ((A, 1.0), (B, 0.1)):
            told = {"handling": seconds * turn, "uptime": STEP * turn, "opened": 1.7e9}
            metadata[partition] = json.dumps(told)
        readings = OffsetReadings((A, B), ends, {A: 0, B: 0}, ends, commit_metadata=metadata)
        found = made.estimate_load(STEP * turn, readings, ObservedGroup(GroupState.STABLE, owners))
        weights.append((found.write_rates[A].weight, found.write_rates[B].weight))
    assert weights[5] == (10_000.0, 10_000.0)
    assert found.learned.record_cost is not None
    assert found.learned.record_cost.is_used
    small, large = (weight or 0.0 for weight in weights[-1])
    assert small / large == pytest.approx(10, rel=0.01)
    assert small + large == pytest.approx(20_000)
    assert found.record_weights.record > 0
    written = {p: (found.write_rates[p].bytes_per_s or 0.0) / found.byte_weights[p] for p in (A, B)}
    assert written == pytest.approx({A: 10_000.0, B: 10_000.0})


@pytest.mark.parametrize("first", [0, 12, 29])
def test_rare_commits_are_neither_a_backlog_nor_stuck(estimator: LoadEstimator, first: int) -> None:
    """A group that commits every 300 s, observed from different times of that interval."""
    group = ObservedGroup(GroupState.STABLE, (ObservedMember("one", "one", frozenset({A, B})),))
    found: list[LoadEstimate] = []
    for turn in range(first, first + 150):
        ends = dict.fromkeys((A, B), RATE * turn)
        commits = dict.fromkeys((A, B), RATE * (turn - turn % 30))
        readings = OffsetReadings((A, B), ends, {A: 0, B: 0}, commits)
        found.append(estimator.estimate_load(STEP * turn, readings, group))
    assert not any(one.stuck_partitions for one in found)
    required = [load.required_bytes_per_s for one in found[1:] for load in one.write_rates.values()]
    assert set(required) == {SPEED}
    told = found[-1].learned.rare_commits
    assert told is not None
    assert told.format_line() == "Commits: every 290 s, as learned; backlog younger than 362 s is not overdue"
    assert found[-1].consumption_rates[A] == pytest.approx(SPEED, rel=0.35)


def test_rare_commits_that_are_not_punctual_show_a_rate_and_what_is_stuck(estimator: LoadEstimator) -> None:
    """Each interval differs a little from the last: what was read in the others still counts."""
    group = ObservedGroup(GroupState.STABLE, (ObservedMember("one", "one", frozenset({A, B})),))
    at, found = {30 * n + n % 2 * 2 for n in range(12)}, list[LoadEstimate]()
    last = 0
    for turn in range(300):
        last = turn if turn in at else last
        commits = {A: RATE * min(last, 150), B: RATE * last}
        ends = dict.fromkeys((A, B), RATE * turn)
        found.append(
            estimator.estimate_load(STEP * turn, OffsetReadings((A, B), ends, {A: 0, B: 0}, commits), group)
        )
    assert found[149].consumption_rates[A] == pytest.approx(SPEED, rel=0.35)
    assert found[-1].stuck_partitions == {A}
    assert found[-1].consumption_rates[B] == pytest.approx(SPEED, rel=0.35)


def test_a_group_that_never_commits_is_stuck_at_last(estimator: LoadEstimator) -> None:
    """A consumer that hangs from the start shows no interval; ten minutes in all, at a window of 30 s."""
    told = turns(estimator, 0, 30).learned.rare_commits
    assert told is not None
    assert told.format_line().startswith(
        "Commits: how often is not known yet; until two have been seen backlog younger"
    )
    assert turns(estimator, 30, 20).stuck_partitions == {A, B}


def test_one_stuck_partition_is_no_rare_commit(estimator: LoadEstimator) -> None:
    """The others show how often the group commits."""
    turns(estimator, 0, 3, moving=[A, B])
    found = turns(estimator, 3, 20, moving=[B])
    assert found.learned.rare_commits is None
    assert found.stuck_partitions == {A}


def test_a_partition_that_waits_for_its_turn_is_not_stuck(estimator: LoadEstimator) -> None:
    """Beside a slow sink a consumer works for long on what it has fetched of another partition."""
    group = ObservedGroup(GroupState.STABLE, (ObservedMember("one", "one", frozenset({A, B})),))
    stuck: dict[float, frozenset[TopicPartition]] = {}
    for turn in range(60):
        ends, commits = dict.fromkeys((A, B), 20_000 + turn), {A: 0, B: 50 * turn}
        readings = OffsetReadings((A, B), ends, {A: 0, B: 0}, commits)
        found = estimator.estimate_load(STEP * turn, readings, group)
        stuck[STEP * turn] = found.stuck_partitions
    assert not any(found for time, found in stuck.items() if time < 400)
    assert stuck[STEP * 59] == {A}  # not for ever
