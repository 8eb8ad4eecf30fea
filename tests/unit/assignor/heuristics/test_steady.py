"""`steady`: few consumers, few moves, better than the paper, and no regressions."""

import numpy as np
import pytest

from trimtab.assignor import ConsumerGroup, Load, PlacementPolicy, get_heuristic, size_group
from trimtab.assignor.analysis.streams.generators import RandomWalk
from trimtab.assignor.analysis.streams.replay import ReplayTick, replay_stream
from trimtab.assignor.heuristics.steady.bin_names import relabel_bins
from trimtab.assignor.heuristics.steady.params import STEADY_PRESETS, params_for_move_cost, resolve_params
from trimtab.assignor.model import UNASSIGNED, PackingProblem
from trimtab.assignor.model.heuristic import run_heuristic

EMPTY_GROUP = ConsumerGroup((), ())


def ticks(heuristic: str, delta: float, *, seed: int, count: int) -> list[ReplayTick]:
    stream = RandomWalk(delta=delta, ticks=count).generate_stream(np.random.default_rng(seed))
    return list(replay_stream(get_heuristic(heuristic), stream, 100.0))


def means(done: list[ReplayTick]) -> tuple[float, float]:
    return float(np.mean([t.r_score for t in done])), float(np.mean([t.consumers for t in done]))


@pytest.mark.parametrize(
    ("preset", "delta", "r_score", "consumers"),
    [
        ("tight", 5, 12.00, 104.48),
        ("tight", 15, 16.45, 106.12),
        ("tight", 25, 18.22, 105.10),
        ("balanced", 5, 5.24, 107.67),
        ("balanced", 15, 12.29, 108.07),
        ("balanced", 25, 15.21, 106.55),
        ("calm", 5, 1.79, 114.10),
        ("calm", 15, 5.33, 116.00),
        ("calm", 25, 7.81, 113.72),
        ("lexicographic", 5, 11.58, 104.40),
        ("lexicographic", 15, 16.00, 106.12),
        ("lexicographic", 25, 17.60, 105.08),
    ],
)
def test_no_change_makes_it_worse(preset: str, delta: float, r_score: float, consumers: float) -> None:
    """On a fixed stream R stays within 5 % of the recorded one, consumers within half a percent."""
    found_r, found_consumers = means(ticks(f"steady:{preset}", delta, seed=7, count=60))
    assert found_r <= 1.05 * r_score
    assert found_consumers <= 1.005 * consumers


@pytest.mark.parametrize("delta", [5.0, 15.0, 25.0])
@pytest.mark.parametrize(("preset", "rival"), [("tight", "mbfp"), ("balanced", "mbf"), ("calm", "mwf")])
def test_each_preset_beats_its_rival_of_the_paper(preset: str, rival: str, delta: float) -> None:
    """Each preset moves less load with no more consumers, on a stream not used for tuning."""
    ours = means(ticks(f"steady:{preset}", delta, seed=1234, count=80))
    theirs = means(ticks(rival, delta, seed=1234, count=80))
    assert ours[0] < 0.9 * theirs[0]
    assert ours[1] <= theirs[1]


@pytest.mark.parametrize("preset", sorted(STEADY_PRESETS))
def test_nothing_moves_at_constant_rates(preset: str) -> None:
    """At δ = 0 nothing moves after the first tick."""
    assert not any(t.moved for t in ticks(f"steady:{preset}", 0, seed=3, count=20))


def test_a_higher_move_cost_gives_fewer_moves() -> None:
    """The move cost trades consumers for moves, monotonically."""
    found = [means(ticks(f"steady:{cost}", 15, seed=5, count=40)) for cost in (0.1, 0.4, 1.5)]
    rs, consumers = zip(*found, strict=True)
    assert sorted(rs, reverse=True) == list(rs)
    assert sorted(consumers) == list(consumers)


def test_a_preset_is_a_point_on_the_curve() -> None:
    """The parameters for a preset's move cost are the preset's."""
    for name in ("tight", "balanced", "calm"):
        assert params_for_move_cost(STEADY_PRESETS[name].move_cost) == STEADY_PRESETS[name]
    assert resolve_params("") == STEADY_PRESETS["balanced"]


def test_an_empty_group_gives_an_empty_plan() -> None:
    """Without members and partitions the plan has neither."""
    plan = size_group(EMPTY_GROUP, Load(), PlacementPolicy("steady"))
    assert (plan.consumers, plan.moves) == (0, ())


def problem(
    weight: list[float], owner: list[int], capacity: list[float], reads: list[bool] | None = None
) -> PackingProblem:
    """Return an open problem of one topic; `reads` tells which members subscribe to it."""
    return PackingProblem(
        weight=np.array(weight),
        owner=np.array(owner, dtype=np.int32),
        topic=np.zeros(len(weight), dtype=np.int32),
        lag=np.zeros(len(weight)),
        capacity=np.array(capacity),
        subscribed=np.array([reads or [True] * len(capacity)]),
        new_member_capacity=100.0,
    )


def relabelled(posed: PackingProblem, bins: list[int]) -> list[int]:
    return relabel_bins(posed, np.array(bins, dtype=np.int32)).tolist()


def test_an_emptied_member_takes_over_a_new_bin() -> None:
    """A new bin with the partitions of member 1, which is empty, becomes member 1."""
    posed = problem([60.0, 50.0, 40.0], [0, 1, 1], [100.0, 100.0])
    assert relabelled(posed, [0, 2, 2]) == [0, 1, 1]


def test_a_member_takes_over_the_new_bin_with_most_of_its_load() -> None:
    """Of two new bins with member 0's partitions, the heavier one becomes member 0."""
    posed = problem([30.0, 60.0, 50.0], [0, 0, UNASSIGNED], [100.0])
    assert relabelled(posed, [1, 2, 1]) == [1, 0, 1]


def test_a_member_takes_over_no_bin_that_it_cannot_read() -> None:
    """Neither a smaller member nor one that does not subscribe takes over a new bin."""
    assert relabelled(problem([90.0], [UNASSIGNED], [60.0]), [1]) == [1]
    assert relabelled(problem([90.0], [UNASSIGNED], [100.0], reads=[False]), [1]) == [1]


@pytest.mark.parametrize("seed", [3, 6, 7, 8])
def test_a_first_placement_is_repeated_until_it_is_stable(seed: int) -> None:
    """A first placement is never one that the next decision would change."""
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0, 100, 120).tolist()
    capacity = rng.choice([60.0, 100.0, 150.0], 40).tolist()
    first = run_heuristic(get_heuristic("steady"), problem(weight, [UNASSIGNED] * 120, capacity))
    added = max(0, int(first.max()) + 1 - 40)
    again = problem(weight, first.tolist(), [*capacity, *[100.0] * added])
    assert (run_heuristic(get_heuristic("steady"), again) == first).all()
