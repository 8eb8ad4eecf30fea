"""Promises of `steady` for any problem, against an objective that is computed here once more."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.heuristic import run
from trimtab.assignor.model import NOBODY, IntArray, Outlook, Problem
from trimtab.assignor.packing import TOLERANCE
from trimtab.assignor.registry import get
from trimtab.assignor.steady.bins import Bins
from trimtab.assignor.steady.knobs import PRESETS, Knobs
from trimtab.assignor.steady.pack import TOUCH, even

C = 100.0
NOISE = 1e-6  # consumers; the sums are floats


@st.composite
def problems(draw: st.DrawFn, *, closed: bool = False, alike: bool = False) -> Problem:
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
        owners[~subscribed[topic, np.maximum(owners, 0)]] = NOBODY
    deviation = np.array(draw(st.lists(st.floats(0, 20), min_size=items, max_size=items)))
    return Problem(
        weight=np.array(weight),
        owner=owners,
        topic=topic,
        lag=np.zeros(items),
        capacity=np.array(capacity),
        subscribed=subscribed,
        spare=None if closed else C,
        outlook=Outlook(np.zeros(items), deviation**2),
    )


@dataclass(frozen=True)
class Objective:
    """bins + λ · (moved + β · expected to be evicted) / C, in plain Python."""

    problem: Problem
    knobs: Knobs

    def of(self, bins: IntArray) -> float:
        problem = self.problem
        away = (problem.owner != NOBODY) & (problem.owner != bins)
        risk = sum(self.evicted(bins, int(number)) for number in np.unique(bins))
        used = len(np.unique(bins)) if problem.spare is not None else 0
        scale = problem.spare or float(problem.capacity.mean())
        touched = float((problem.weight[away] + TOUCH * scale).sum())
        load = touched + self.knobs.foresight * risk
        return used + self.knobs.move_cost * load / scale

    def evicted(self, bins: IntArray, number: int) -> float:
        assert self.problem.outlook is not None
        inside = bins == number
        variance = float(self.problem.outlook.variance[inside].sum())
        capacity = capacity_of(self.problem, number)
        slack = capacity * (1 + TOLERANCE) - float(self.problem.weight[inside].sum())
        if inside.sum() < 2:
            return 0.0
        if variance <= 1e-12 * capacity**2:
            return max(0.0, -slack)
        deviation = math.sqrt(variance)
        if slack > 4 * deviation:
            return 0.0
        grown = max(0.0, (slack + deviation / 2) / variance)
        sizes = sorted(self.problem.weight[inside] + self.problem.outlook.variance[inside] * grown)
        steps = zip([0.0, *sizes], sizes[:-1], strict=False)
        near = ((v, w) for v, w in steps if slack + v <= 4 * deviation)
        return sum((w - v) * tail((slack + v) / deviation) for v, w in near)


def tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))


def capacity_of(problem: Problem, number: int) -> float:
    return float([*problem.capacity, *[problem.spare or 0] * len(problem.weight)][number])


def overfull(problem: Problem, bins: IntArray) -> list[int]:
    """Bins above their capacity that hold more than one partition."""
    numbers, counts = np.unique(bins[bins != NOBODY], return_counts=True)
    return [
        int(n)
        for n, count in zip(numbers, counts, strict=True)
        if count > 1
        and problem.weight[bins == n].sum() > capacity_of(problem, n) * (1 + 2 * TOLERANCE)
    ]


presets = st.sampled_from(sorted(PRESETS))


@given(problems(), presets)
def test_no_bin_is_overfull_unless_one_partition_is_larger(problem: Problem, preset: str) -> None:
    """In open mode everything is placed, and only a partition > C may overfill, alone."""
    bins = run(get(f"steady:{preset}"), problem)
    assert (bins != NOBODY).all()
    assert not overfull(problem, bins)


@given(problems(closed=True), presets)
def test_closed_mode_leaves_out_rather_than_overfill(problem: Problem, preset: str) -> None:
    """Where the members must do, what fits nowhere is left to whoever spreads."""
    bins = run(get(f"steady:{preset}"), problem)
    assert not overfull(problem, bins)
    for item in np.flatnonzero(bins == NOBODY):
        readers = np.flatnonzero(problem.subscribed[problem.topic[item]])
        assert all((bins == reader).any() for reader in readers)  # an empty one takes anything


@given(problems(), presets)
def test_every_move_has_a_reason(problem: Problem, preset: str) -> None:
    """No moved partition could go home at a gain; and staying put, where it fits, is no better."""
    bins = run(get(f"steady:{preset}"), problem)
    value = (objective := Objective(problem, PRESETS[preset])).of(bins)
    for item in np.flatnonzero((problem.owner != NOBODY) & (problem.owner != bins)):
        back = bins.copy()
        back[item] = problem.owner[item]
        if not overfull(problem, back):
            assert objective.of(back) >= value - NOISE
    stay = problem.owner
    if (stay != NOBODY).all() and not overfull(problem, stay):
        assert value <= objective.of(stay) + NOISE


@given(problems(alike=True), presets, st.randoms(use_true_random=False))
def test_renaming_members_changes_nothing(problem: Problem, preset: str, random: object) -> None:
    """The same partitions end up together, and stay with the same owner."""
    members = len(problem.capacity)
    entry = get(f"steady:{preset}")
    bins = run(entry, problem)
    new = np.array(random.sample(range(members), members), dtype=np.int32)  # type: ignore[attr-defined]
    owner = np.where(problem.owner == NOBODY, NOBODY, np.append(new, 0)[problem.owner])
    renamed = run(entry, replace(problem, owner=owner.astype(np.int32)))
    home = problem.owner != NOBODY
    assert together(bins) == together(renamed)
    assert ((bins == problem.owner)[home] == (renamed == owner)[home]).all()


def together(bins: IntArray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(bins == n).tolist()) for n in np.unique(bins)}


@given(problems(), presets)
def test_the_bins_keep_count_of_the_objective(problem: Problem, preset: str) -> None:
    """The value that grows with every put and take is the one that the definition gives."""
    knobs = PRESETS[preset]
    assert problem.outlook is not None
    price = knobs.move_cost / C
    bins = Bins(
        problem,
        problem.outlook,
        bin_cost=1.0,
        fare=price * (problem.weight + TOUCH * C),
        risk_cost=price * knobs.foresight,
    )
    answer = run(get(f"steady:{preset}"), problem)
    bins.restart(answer)
    assert bins.value == pytest.approx(Objective(problem, knobs).of(answer), abs=NOISE)


@given(problems())
def test_what_nobody_read_is_settled_at_once(problem: Problem) -> None:
    """A first placement is not moved at the next tick, if nothing has changed."""
    entry = get("steady")
    first = run(entry, replace(problem, owner=np.full_like(problem.owner, NOBODY)))
    members = max(len(problem.capacity), int(first.max()) + 1)
    added = members - len(problem.capacity)
    again = replace(
        problem,
        owner=first,
        capacity=np.append(problem.capacity, np.full(added, C)),
        subscribed=np.concatenate([problem.subscribed, np.ones((2, added), np.bool_)], axis=1),
    )
    assert (run(entry, again) == first).all()


@given(problems(closed=True))
def test_spreading_leaves_no_gap_that_one_partition_closes(problem: Problem) -> None:
    """A member below the band gets a partition, as long as handing it over helps both."""
    problem = replace(problem, weight=np.maximum(problem.weight, 0.1))
    bins = even(problem)
    assert problem.subscribed[problem.topic, bins].all()
    fill = np.bincount(bins, problem.weight, len(problem.capacity)) / problem.capacity
    poorest = int(fill.argmin())
    if fill[poorest] >= 0.95 * problem.weight.sum() / problem.capacity.sum():
        return
    for item in np.flatnonzero(problem.subscribed[problem.topic, poorest] & (bins != poorest)):
        after = fill[poorest] + problem.weight[item] / problem.capacity[poorest]
        alone = (bins == bins[item]).sum() == 1
        assert alone or after >= fill[bins[item]] * (1 - 1e-6)
