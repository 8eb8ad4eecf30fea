"""The simulation: backlogs, the contenders without Trimtab, and conclusions from runs."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from trimtab.assignor import (
    UNASSIGNED,
    Heuristic,
    InvalidProblemError,
    PackingProblem,
    RandomWalk,
    TopicPartition,
    UnknownHeuristicError,
    WriteRateStream,
)
from trimtab.assignor.analysis.simulation import (
    Contender,
    RunSummary,
    SettingCandidate,
    SimulationSetup,
    average_summaries,
    default_contender_names,
    parse_contender,
    parse_contenders,
    recommend_setting,
    run_simulation,
    summarize_runs,
)
from trimtab.assignor.analysis.simulation.backlog_model import PartitionBacklogs, share_capacity
from trimtab.assignor.analysis.simulation.lag_autoscaler import LagAutoscaler
from trimtab.assignor.analysis.simulation.range_assignor import place_ranges
from trimtab.assignor.analysis.streams.replay import lower_bounds
from trimtab.assignor.model import FloatArray, IntArray
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs


def stream(*rows: Sequence[float], topic: str = "a") -> WriteRateStream:
    names = tuple(TopicPartition(topic, p) for p in range(len(rows[0])))
    return WriteRateStream(names, np.array(rows, dtype=np.float64))


def queues(*rows: Sequence[float], **settings: float) -> PartitionBacklogs:
    return PartitionBacklogs(stream(*rows).rates, SimulationSetup(**settings))


def ints(*values: int) -> IntArray:
    return np.array(values, dtype=np.int32)


NOT_PAUSED = np.array([False])
PAUSED = np.array([True])


@pytest.mark.parametrize(
    ("demands", "given"),
    [
        ([10, 20, 30], [10, 20, 30]),
        ([10, 60, 90], [10, 45, 45]),
        ([50, 50, 50], [100 / 3] * 3),
        ([0, 300, 0], [0, 100, 0]),
    ],
)
def test_a_consumer_is_shared_max_min(demands: list[float], given: list[float]) -> None:
    """No partition gets more than its demand; the rest is shared equally by the others."""
    items = np.array(demands, dtype=np.float64)
    assert share_capacity(ints(0, 0, 0), items, 100.0) == pytest.approx(given)
    both = share_capacity(ints(0, 1, 0, 1, 0, 1), np.repeat(items, 2), 100.0)
    assert both[0::2] == pytest.approx(given)
    assert both[1::2] == pytest.approx(given)


def test_sharing_wastes_nothing() -> None:
    """Each consumer hands out its whole capacity, or the whole demand."""
    rng = np.random.default_rng(3)
    owner = rng.integers(0, 20, 300).astype(np.int32)
    demands = rng.exponential(10, 300) * (rng.random(300) < 0.8)
    got = share_capacity(owner, demands, 100.0)
    assert (got <= demands + 1e-9).all()
    assert np.bincount(owner, got) == pytest.approx(np.minimum(np.bincount(owner, demands), 100))


def test_nothing_is_late_below_the_capacity() -> None:
    """A load below the capacity is read as it arrives."""
    line = queues([50], [100])
    assert line.advance_tick(ints(0), NOT_PAUSED).tolist() == [0]
    assert line.backlog.tolist() == [0]
    assert line.oldest_ages.tolist() == [0]


def test_an_overload_becomes_late_when_the_oldest_byte_is() -> None:
    """At twice the capacity the lag passes 10 s after 20 s, and is 15 s old after 30 s."""
    line = queues([0], [200])
    assert line.advance_tick(ints(0), NOT_PAUSED) == pytest.approx([200 * 10])
    assert line.backlog == pytest.approx([100 * 30])
    assert line.oldest_ages == pytest.approx([15])


def test_a_long_pause_is_late_until_the_backlog_is_read() -> None:
    """Paused for 15 s at half the capacity: late from the 10th to the 20th second."""
    line = queues([0], [50], pause=15)
    assert line.advance_tick(ints(0), PAUSED) == pytest.approx([50 * 10])
    assert line.backlog == pytest.approx([0], abs=1e-6)


def test_spare_capacity_reads_the_backlog() -> None:
    """Beside a partition of 40 bytes/s nothing is left for the backlog; alone, 40 bytes/s are."""
    line = PartitionBacklogs(stream([0, 0], [60, 40]).rates, SimulationSetup(tick=6, pause=3))
    line.advance_tick(ints(0, 0), np.array([True, False]))
    assert line.backlog == pytest.approx([180, 0])
    line = PartitionBacklogs(stream([0, 0], [60, 0]).rates, SimulationSetup(tick=6, pause=3))
    line.advance_tick(ints(0, 0), np.array([True, False]))
    assert line.backlog == pytest.approx([60, 0])


def test_an_unassigned_partition_piles_up_and_an_absent_one_is_forgotten() -> None:
    """A partition without a reader piles up; an absent one returns empty."""
    line = queues([10], [10], [np.nan], [10])
    line.advance_tick(ints(UNASSIGNED), NOT_PAUSED)
    assert line.backlog == pytest.approx([300])
    assert line.oldest_ages == pytest.approx([30])
    line.advance_tick(ints(UNASSIGNED), NOT_PAUSED)
    assert line.backlog == pytest.approx([0])
    assert line.advance_tick(ints(0), NOT_PAUSED).tolist() == [0]


def test_the_range_assignor_is_kafkas() -> None:
    """Per topic the first members get one more, consecutively; others may stay idle."""
    problem = PackingProblem(
        weight=np.ones(9),
        owner=np.full(9, UNASSIGNED, dtype=np.int32),
        topic=ints(0, 0, 0, 0, 0, 0, 0, 1, 1),
        lag=np.zeros(9),
        capacity=np.ones(3),
        subscribed=np.ones((2, 3), dtype=np.bool_),
    )
    assert place_ranges(problem).tolist() == [0, 0, 0, 1, 1, 2, 2, 0, 1]


def test_the_autoscaler_tolerates_a_tenth() -> None:
    """Within 10 % of the threshold nothing changes; beyond, desired = ceil(lag / threshold)."""
    assert LagAutoscaler(100.0, 10, 50).decide_replicas(0, 1099) == 10
    assert LagAutoscaler(100.0, 10, 50).decide_replicas(0, 1101) == 12


def test_the_autoscaler_grows_in_bounds() -> None:
    """It at most doubles or adds four, per 15 s, up to the number of partitions."""
    assert LagAutoscaler(1.0, 1, 500).decide_replicas(0, 1e9) == 5
    assert LagAutoscaler(1.0, 100, 500).decide_replicas(0, 1e9) == 200
    assert LagAutoscaler(1.0, 100, 150).decide_replicas(0, 1e9) == 150


def test_the_autoscaler_shrinks_to_the_highest_of_five_minutes() -> None:
    """After the lag is gone, replicas stop only when the window no longer holds it."""
    scaler = LagAutoscaler(100.0, 10, 50)
    lags = [1000, 0, 500, *[0] * 12]
    assert [scaler.decide_replicas(30.0 * n, lag) for n, lag in enumerate(lags)] == [
        *[10] * 10,  # the ten of second 0 counts until second 299
        *[5] * 2,
        *[1] * 3,
    ]
    assert LagAutoscaler(100.0, 10, 50).decide_replicas(0, 0) == 1


def test_the_autoscaler_syncs_every_15_seconds() -> None:
    """Ticks in between change nothing; a longer tick allows the growth of all its periods."""
    scaler = LagAutoscaler(100.0, 10, 500)
    lags = ((0, 1000), (10, 5000), (15, 2000), (45, 1e9))
    assert [scaler.decide_replicas(at, lag) for at, lag in lags] == [10, 10, 20, 80]


def test_contenders_have_names() -> None:
    """Every heuristic with its presets and the three contenders without Trimtab; others are refused."""
    every_contender = [c.name for c in parse_contenders(["all"])]
    assert {*default_contender_names(), "sticky", "lag-aware", "range", "keda:sticky"} < set(every_contender)
    assert [c.name for c in parse_contenders(())] == list(default_contender_names())
    assert not parse_contender("range").is_trimtab_setting
    assert parse_contender("keda").eager
    for unknown in ("keda:nope", "nope"):
        with pytest.raises(UnknownHeuristicError):
            parse_contender(unknown)


def test_a_decision_gets_the_backlog_of_the_last_one() -> None:
    """A decision gets the unread bytes at its tick: the loop is closed."""
    seen: list[list[float]] = []

    def look(problem: PackingProblem) -> IntArray:
        seen.append(problem.lag.tolist())
        return np.zeros(len(problem.lag), dtype=np.int32)

    run_simulation(
        Contender("look", Heuristic("look", look, "", "")), stream([0], [200], [0]), SimulationSetup()
    )
    assert seen == [[0], [pytest.approx(3000)], [pytest.approx(0)]]


def test_a_decision_takes_effect_at_the_next_tick() -> None:
    """Overload, lateness and the pause of a move show at the tick after the decision."""
    run = run_simulation(parse_contender("mbf"), stream([60, 30], [60, 60], [60, 60]), SimulationSetup())
    assert run.consumers.tolist() == [1, 2, 2]
    assert run.moved.tolist() == [0, 1, 0]
    assert run.r_score.tolist() == [0, 0.6, 0]
    assert run.overloaded.tolist() == [0, 1, 0]
    assert run.rebalanced.tolist() == [False, True, False]
    assert (run.started.tolist(), run.stopped.tolist()) == ([0, 1, 0], [0, 0, 0])
    assert run.arrived.tolist() == [0, 3600, 3600]


def test_only_packers_have_packing_scores() -> None:
    """A contender that does not pack by capacity has no CBS and does not affect the others'."""
    walk = RandomWalk(15, partitions=40, ticks=30).generate_stream(np.random.default_rng(0))
    runs = {
        n: run_simulation(parse_contender(n), walk, SimulationSetup())
        for n in ("bfd", "sticky", "keda", "range")
    }
    found = summarize_runs(runs, SimulationSetup(), lower_bounds(walk, 100.0))
    assert found["bfd"].cbs_percent == 0
    assert (found["bfd"].over_l2_percent or 0) >= 0
    for name in ("sticky", "keda", "range"):
        assert found[name].cbs_percent is None
        assert found[name].over_l2_percent is None


def test_late_traffic_on_the_papers_walk() -> None:
    """Tight packing is late, loose packing is not: the figures of docs/simulate.md hold."""
    walk = RandomWalk(15).generate_stream(np.random.default_rng(11))
    late = {
        name: summarize_runs({name: run}, SimulationSetup(), lower_bounds(walk, 100.0))[name].late_percent
        for name in ("bfd", "mwf")
        for run in [run_simulation(parse_contender(name), walk, SimulationSetup())]
    }
    assert late == {"bfd": pytest.approx(33.3, abs=0.5), "mwf": pytest.approx(2.37, abs=0.1)}


def summary(r: float = 1.0, cbs: float | None = 0.0, hours: float = 1.0, late: float = 0.0) -> RunSummary:
    return RunSummary(cbs, r, 0, 0, None, hours, late, 0, 0, 0, 0, 0, late, 0, 0, late)


def test_means_keep_the_worst_lag() -> None:
    """Every figure is a mean except the worst lag; a figure that one run lacks is None."""
    both = average_summaries([summary(1, None, late=3), summary(3, 1, late=5)])
    assert (both.mean_r, both.cbs_percent, both.late_percent, both.worst_lag_s) == (2, None, 4, 5)


def test_the_cheapest_within_the_limit_is_recommended() -> None:
    """Consumer-hours decide among those within the limit; within 1 % late traffic does."""
    tight = SettingCandidate("tight", 1.0, summary(hours=90, late=20))
    calm = SettingCandidate("calm", 0.9, summary(hours=100, late=0.9))
    calmer = SettingCandidate("calmer", 0.85, summary(hours=100.5, late=0.1))
    loose = SettingCandidate("loose", 0.7, summary(hours=130, late=0))
    found = recommend_setting([tight, calm, calmer, loose], 1.0)
    assert found is not None
    assert found.within_limit
    assert found.chosen == calmer
    assert "tight at headroom 1, takes 90.0 consumer-hours, but 20.00 % is late" in found.reason
    assert "3 of 4 simulated settings" in found.reason
    alone = recommend_setting([calm], 1.0)
    assert alone is not None
    assert alone.reason.startswith("the one simulated setting keeps late traffic at 1 % or less")
    none = recommend_setting([tight], 1.0)
    assert none is not None
    assert none.reason.startswith("the one simulated setting does not keep late traffic at 1 %")
    assert not none.within_limit
    assert none.chosen == tight
    assert recommend_setting([], 1.0) is None


def test_a_full_tie_goes_to_the_default() -> None:
    """If all figures are equal, the default setting wins."""
    tied = [SettingCandidate(name, 1.0, summary()) for name in ("mbf", "steady:balanced", "wf")]
    found = recommend_setting(tied, 1.0)
    assert found is not None
    assert found.chosen.name == "steady:balanced"


@pytest.mark.parametrize(("hours", "shown"), [(431.2, "431.2"), (4.312, "4.31"), (0.025, "0.025")])
def test_few_hours_have_more_digits(hours: float, shown: str) -> None:
    """Consumer-hours of short streams differ in the second or third decimal."""
    found = recommend_setting([SettingCandidate("mbf", 1.0, summary(hours=hours))], 1.0)
    assert found is not None
    assert f" {shown} consumer-hours" in found.reason


def test_cores_change_no_figure() -> None:
    """Two processes give the same figures as one, in the requested order."""
    streams = [RandomWalk(15, 20, 20).generate_stream(np.random.default_rng(seed)) for seed in (1, 2)]
    jobs = [SimulationJob(n, name, share) for name in ("mbf", "keda") for share in (1, 0.9) for n in (0, 1)]
    one = run_jobs(jobs, streams, SimulationSetup(), 1, lambda _: None)
    finished: list[SimulationJob] = []
    two = run_jobs(jobs, streams, SimulationSetup(), 2, finished.append)
    assert list(one) == list(two) == jobs
    assert sorted(finished) == sorted(jobs)
    for job in jobs:
        assert all(np.array_equal(a, b) for a, b in zip(figures(one[job]), figures(two[job]), strict=True))


def figures(run: object) -> list[FloatArray]:
    return [getattr(run, name) for name in ("consumers", "r_score", "late", "mean_lag", "started")]


@pytest.mark.parametrize("name", ["capacity", "tick", "late", "threshold", "headroom", "pause"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_an_invalid_setup_is_refused(name: str, value: float) -> None:
    """It raises InvalidProblemError, which names the figure."""
    with pytest.raises(InvalidProblemError, match=name):
        replace(SimulationSetup(), **{name: value})


def test_a_stream_of_one_tick_is_simulated() -> None:
    """Without a second tick nothing is late and no rate divides by zero."""
    one = stream([60, 60])
    run = run_simulation(parse_contender("mbf"), one, SimulationSetup())
    found = summarize_runs({"mbf": run}, SimulationSetup(), lower_bounds(one, 100.0))["mbf"]
    assert (found.mean_consumers, found.late_percent, found.moves_per_hour) == (2, 0, 0)
