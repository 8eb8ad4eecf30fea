"""Properties of `steady` for any problem, against a second implementation of its objective."""

import math
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.heuristics.steady.bins import Bins
from trimtab.assignor.heuristics.steady.candidates import insert_best_fit
from trimtab.assignor.heuristics.steady.close_bins import close_bins
from trimtab.assignor.heuristics.steady.fair_shares import compute_fair_shares
from trimtab.assignor.heuristics.steady.neighbourhood_search import search_neighbourhoods
from trimtab.assignor.heuristics.steady.pack import MOVE_BASE_LOAD, balance_load
from trimtab.assignor.heuristics.steady.params import STEADY_PRESETS, SteadyParams
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem, RateForecast
from trimtab.assignor.model.heuristic import run_heuristic
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE

C = 100.0
NOISE = 1e-6  # consumers; the sums are floats
GAIN = 0.05  # of a share: the band of `level`, and the least that a move must be worth


@st.composite
def problems(draw: st.DrawFn, *, closed: bool = False, alike: bool = False) -> PackingProblem:
    """Up to 14 partitions of 2 topics, up to 5 members, some partitions larger than any."""
    items = draw(st.integers(1, 14))
    members = draw(st.integers(1 if closed else 0, 5))
    weight = draw(st.lists(st.floats(0, 60) | st.floats(60, 230), min_size=items, max_size=items))
    owner = draw(st.lists(st.integers(-1, members - 1), min_size=items, max_size=items))
    capacity = [C if alike else draw(st.sampled_from([60.0, C, 150.0])) for _ in range(members)]
    subscribed = np.ones((2, members), dtype=np.bool_)
    if not alike and members:
        subscribed[0] = draw(st.lists(st.booleans(), min_size=members, max_size=members))
        subscribed[0, 0] = True
    topic = np.array(draw(st.lists(st.integers(0, 1), min_size=items, max_size=items)), np.int32)
    owners = np.array(owner, dtype=np.int32)
    if members:
        owners[~subscribed[topic, np.maximum(owners, 0)]] = UNASSIGNED
    deviation = np.array(draw(st.lists(st.floats(0, 20), min_size=items, max_size=items)))
    drift = np.array(draw(st.lists(st.floats(-20, 20), min_size=items, max_size=items)))
    return PackingProblem(
        weight=np.array(weight),
        owner=owners,
        topic=topic,
        lag=np.zeros(items),
        capacity=np.array(capacity),
        subscribed=subscribed,
        new_member_capacity=None if closed else C,
        forecast=RateForecast(np.maximum(drift, -np.array(weight)), deviation**2),
    )


@dataclass(frozen=True)
class Objective:
    """bins + λ · (moved + β · expected to be evicted) / C, in plain Python."""

    problem: PackingProblem
    params: SteadyParams

    def of(self, bins: IntArray) -> float:
        problem = self.problem
        away = (problem.owner != UNASSIGNED) & (problem.owner != bins)
        risk = sum(self.evicted(bins, int(number)) for number in np.unique(bins))
        used = len(np.unique(bins)) if problem.new_member_capacity is not None else 0
        scale = problem.new_member_capacity or float(problem.capacity.mean())
        touched = float((problem.weight[away] + MOVE_BASE_LOAD * scale).sum())
        load = touched + self.params.foresight * risk
        return used + self.params.move_cost * load / scale

    def evicted(self, bins: IntArray, number: int) -> float:
        assert self.problem.forecast is not None
        inside = bins == number
        variance = float(self.problem.forecast.variance[inside].sum())
        capacity = capacity_of(self.problem, number)
        expected = self.problem.weight[inside] + self.problem.forecast.drift[inside]
        slack = capacity * (1 + CAPACITY_TOLERANCE) - float(expected.sum())
        if inside.sum() < 2:
            return 0.0
        if variance <= 1e-12 * capacity**2:
            return max(0.0, -slack)
        deviation = math.sqrt(variance)
        if slack > 4 * deviation:
            return 0.0
        grown = max(0.0, (slack + deviation / 2) / variance)
        sizes = sorted(expected + self.problem.forecast.variance[inside] * grown)
        steps = zip([0.0, *sizes], sizes[:-1], strict=False)
        near = ((v, w) for v, w in steps if slack + v <= 4 * deviation)
        return sum((w - v) * tail((slack + v) / deviation) for v, w in near)


def tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))


def capacity_of(problem: PackingProblem, number: int) -> float:
    return float([*problem.capacity, *[problem.new_member_capacity or 0] * len(problem.weight)][number])


def overfull(problem: PackingProblem, bins: IntArray) -> list[int]:
    """Return the bins above their capacity that hold more than one partition."""
    numbers, counts = np.unique(bins[bins != UNASSIGNED], return_counts=True)
    return [
        int(n)
        for n, count in zip(numbers, counts, strict=True)
        if count > 1
        and problem.weight[bins == n].sum() > capacity_of(problem, n) * (1 + 2 * CAPACITY_TOLERANCE)
    ]


presets = st.sampled_from(sorted(STEADY_PRESETS))


@given(problems(), presets)
def test_no_bin_is_overfull_unless_one_partition_is_larger(problem: PackingProblem, preset: str) -> None:
    """In open mode all is placed, and only a single oversized partition overfills a bin."""
    bins = run_heuristic(get_heuristic(f"steady:{preset}"), problem)
    assert (bins != UNASSIGNED).all()
    assert not overfull(problem, bins)


@given(problems(closed=True), presets)
def test_closed_mode_leaves_out_rather_than_overfill(problem: PackingProblem, preset: str) -> None:
    """In closed mode partitions without room stay UNASSIGNED; the load is then spread."""
    bins = run_heuristic(get_heuristic(f"steady:{preset}"), problem)
    assert not overfull(problem, bins)
    for item in np.flatnonzero(bins == UNASSIGNED):
        readers = np.flatnonzero(problem.subscribed[problem.topic[item]])
        assert all((bins == reader).any() for reader in readers)  # an empty one takes anything


@given(problems(), presets)
def test_every_move_has_a_reason(problem: PackingProblem, preset: str) -> None:
    """No moved partition could return home at a gain, and the old placement, if it fits, is no better."""
    bins = run_heuristic(get_heuristic(f"steady:{preset}"), problem)
    value = (objective := Objective(problem, STEADY_PRESETS[preset])).of(bins)
    for item in np.flatnonzero((problem.owner != UNASSIGNED) & (problem.owner != bins)):
        back = bins.copy()
        back[item] = problem.owner[item]
        if not overfull(problem, back):
            assert objective.of(back) >= value - NOISE
    stay = problem.owner
    if (stay != UNASSIGNED).all() and not overfull(problem, stay):
        assert value <= objective.of(stay) + NOISE


@given(problems(), presets, st.randoms(use_true_random=False))
def test_renaming_members_changes_nothing(problem: PackingProblem, preset: str, random: Random) -> None:
    """The same partitions end up together, and with the same owners."""
    members = len(problem.capacity)
    entry = get_heuristic(f"steady:{preset}")
    bins = run_heuristic(entry, problem)
    new = np.array(random.sample(range(members), members), dtype=np.int32)
    owner = np.where(problem.owner == UNASSIGNED, UNASSIGNED, np.append(new, 0)[problem.owner])
    renamed = replace(
        problem,
        owner=owner.astype(np.int32),
        capacity=problem.capacity[np.argsort(new)],
        subscribed=problem.subscribed[:, np.argsort(new)],
    )
    others = run_heuristic(entry, renamed)
    home = problem.owner != UNASSIGNED
    assert together(bins) == together(others)
    assert ((bins == problem.owner)[home] == (others == owner)[home]).all()


def together(bins: IntArray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(bins == n).tolist()) for n in np.unique(bins)}


@given(problems(), presets)
def test_the_incremental_objective_equals_its_definition(problem: PackingProblem, preset: str) -> None:
    """After any number of changes, kept or undone, the updated value is that of the definition."""
    params = STEADY_PRESETS[preset]
    assert problem.forecast is not None
    price = params.move_cost / C
    bins = Bins(
        problem,
        problem.forecast,
        bin_cost=1.0,
        move_cost=price * (problem.weight + MOVE_BASE_LOAD * C),
        eviction_cost=price * params.foresight,
    )
    answer = run_heuristic(get_heuristic(f"steady:{preset}"), problem)
    objective = Objective(problem, params)
    for placed in (problem.owner, answer):
        bins.reset_placement(placed)
        insert_best_fit(bins, np.arange(len(placed), dtype=np.int32), 1.0, math.inf)
        assert bins.objective == pytest.approx(objective.of(bins.copy_placement()), abs=NOISE)
        close_bins(bins, len(placed))
        search_neighbourhoods(bins, 20, 1)
        assert bins.objective == pytest.approx(objective.of(bins.copy_placement()), abs=NOISE)


@given(problems())
def test_a_first_placement_is_stable(problem: PackingProblem) -> None:
    """The next decision on the same load moves nothing."""
    entry = get_heuristic("steady")
    first = run_heuristic(entry, replace(problem, owner=np.full_like(problem.owner, UNASSIGNED)))
    members = max(len(problem.capacity), int(first.max()) + 1)
    added = members - len(problem.capacity)
    again = replace(
        problem,
        owner=first,
        capacity=np.append(problem.capacity, np.full(added, C)),
        subscribed=np.concatenate([problem.subscribed, np.ones((2, added), np.bool_)], axis=1),
    )
    assert (run_heuristic(entry, again) == first).all()


def fills(problem: PackingProblem, bins: IntArray) -> FloatArray:
    """Return load ÷ fair share of the members with readable load."""
    share = compute_fair_shares(problem)
    load = np.bincount(bins, problem.weight, len(problem.capacity))
    return (load / problem.capacity)[share > 0] / share[share > 0]


@given(problems(closed=True))
def test_spreading_leaves_no_gap_that_one_partition_closes(problem: PackingProblem) -> None:
    """No partition could move to the one emptiest member, below the band, and make the fuller one emptier.

    With several as empty the emptiest would gain nothing, so that nothing moves for it.
    """
    problem = replace(problem, weight=np.maximum(problem.weight, 0.1))
    bins = balance_load(problem)
    assert problem.subscribed[problem.topic, bins].all()
    share = compute_fair_shares(problem)
    load = np.bincount(bins, problem.weight, len(problem.capacity))
    fill = load / problem.capacity / np.where(share > 0, share, 1.0)
    poorest = int(np.where(share > 0, fill, np.inf).argmin())
    if fill[poorest] >= 1 - GAIN or (fill[share > 0] <= fill[poorest] + NOISE).sum() > 1:
        return
    full = problem.capacity * np.where(share > 0, share, 1.0)
    for item in np.flatnonzero(problem.subscribed[problem.topic, poorest] & (bins != poorest)):
        donor = bins[item]
        after = fill[poorest] + problem.weight[item] / full[poorest]
        rest = fill[donor] - problem.weight[item] / full[donor]
        alone = (bins == donor).sum() == 1
        assert alone or max(after, rest) >= fill[donor] - GAIN - NOISE


@given(problems(closed=True), st.floats(0.99, 1.01))
def test_a_spread_load_is_stable(problem: PackingProblem, wobble: float) -> None:
    """A second call with slightly changed write rates makes only moves worth their cost."""
    problem = replace(problem, weight=np.maximum(problem.weight, 0.1))
    first = balance_load(problem)
    weight = problem.weight * np.where(np.arange(len(first)) % 2, wobble, 1.0)
    again = replace(problem, owner=first, weight=weight)
    second = balance_load(again)
    if (second == first).all():
        return
    before, after = fills(again, first), fills(again, second)
    assert after.max() < before.max() - NOISE or after.min() > before.min() + NOISE


def test_a_spread_load_moves_for_no_worse_fill() -> None:
    """Two members of five may read the topic, both above their shares; a wobble moves nothing."""
    topic, subscribed = np.array([0] * 8 + [1], np.int32), np.array([[1, 0, 0, 0, 1], [1] * 5], np.bool_)
    problem = closed(np.array([0.1, 0.1, 0.1, 7, 39, 50, 49, 60, 50]), [0] * 9, 5)
    capacity = np.array([60.0, 60, 60, 60, 100])
    problem = replace(problem, topic=topic, subscribed=subscribed, capacity=capacity)
    first = balance_load(problem)
    weight = problem.weight * np.where(np.arange(9) % 2, 0.9921875, 1.0)
    assert (balance_load(replace(problem, owner=first, weight=weight)) == first).all()


@given(st.integers(1, 8), st.integers(1, 30), st.randoms(use_true_random=False))
def test_even_counts_of_equal_partitions_are_stable(members: int, items: int, random: Random) -> None:
    """With equal weights and counts that differ by at most one, nothing moves."""
    owner = [n % members for n in range(items)]
    random.shuffle(owner)
    problem = closed(np.ones(items), owner, members)
    assert (balance_load(problem) == problem.owner).all()


@given(st.lists(st.floats(1, 5), min_size=40, max_size=80), st.integers(2, 6))
def test_a_joining_member_takes_its_share_from_the_fullest(weight: list[float], members: int) -> None:
    """Moves go to the new member; the others exchange fewer partitions than it gets."""
    levelled = balance_load(closed(np.array(weight), [UNASSIGNED] * len(weight), members))
    joined = closed(np.array(weight), levelled.tolist(), members + 1)
    bins = balance_load(joined)
    moved = bins != levelled
    assert (bins[moved] != members).sum() < max(1, (bins[moved] == members).sum() / 2)
    assert fills(joined, bins).max() <= 1 + GAIN + max(weight) / (sum(weight) / (members + 1))


@given(st.lists(st.floats(1, 5), min_size=40, max_size=80), st.integers(3, 6))
def test_after_a_leave_little_else_moves(weight: list[float], members: int) -> None:
    """The other members move less of their load than the departed member had."""
    levelled = balance_load(closed(np.array(weight), [UNASSIGNED] * len(weight), members))
    owner = np.where(levelled == members - 1, UNASSIGNED, levelled)
    bins = balance_load(closed(np.array(weight), owner.tolist(), members - 1))
    stirred = (owner != UNASSIGNED) & (bins != owner)
    assert stirred.sum() <= (owner == UNASSIGNED).sum()


@given(st.lists(st.floats(1, 5), min_size=40, max_size=80), st.integers(2, 6), st.integers(1, 3))
def test_readers_of_an_idle_topic_move_nothing(weight: list[float], members: int, idle: int) -> None:
    """A balanced load stays if members join that cannot read any of it."""
    levelled = balance_load(closed(np.array(weight), [UNASSIGNED] * len(weight), members))
    both = closed(np.array([*weight, 1e-3]), [*levelled.tolist(), members], members + idle)
    subscribed = np.zeros((2, members + idle), dtype=np.bool_)
    subscribed[0, :members] = subscribed[1, members:] = True
    topic = np.append(both.topic[:-1], np.int32(1))
    bins = balance_load(replace(both, topic=topic, subscribed=subscribed))
    assert (bins[:-1] == levelled).all()


def closed(weight: FloatArray, owner: list[int], members: int) -> PackingProblem:
    """Return a closed problem of one topic, which all members read, with equal capacities."""
    return PackingProblem(
        weight=weight,
        owner=np.array(owner, dtype=np.int32),
        topic=np.zeros(len(weight), dtype=np.int32),
        lag=np.zeros(len(weight)),
        capacity=np.full(members, C),
        subscribed=np.ones((1, members), dtype=np.bool_),
    )
