"""Spreading: closed mode without a plan, and the way out of an overload.

Rules of this file:
1. Every capacity is scaled by one common factor, the least at which the heuristic places
   everything. So an overload is shared in proportion to the capacities.
2. Idle partitions weigh a little, so that an idle group is spread by count.
3. No member is left less than half as full as the fullest while handing it a partition narrows the
   gap.
4. What is there is kept, with the unread partitions added to the emptiest readers, if that uses as
   many members and fills the fullest at most 5 % more: a move must be worth it.
A heuristic that has its own way of spreading (`Heuristic.level`) goes by rule 2 alone.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from trimtab.assignor.heuristics.heuristic import Heuristic, run
from trimtab.assignor.model import NOBODY, FloatArray, IntArray, Problem
from trimtab.assignor.packing import loads
from trimtab.common.errors import BrokenHeuristic

IDLE: Final = 1e-3  # weight of an idle partition, as a share of the mean
WORTH: Final = 1.05  # how much fuller the fullest may stay for nothing to move
HALF: Final = 0.5
STEPS: Final = 12  # halvings of the interval that holds the least factor


def spread(entry: Heuristic, problem: Problem) -> IntArray:
    """Return the member of each partition of a closed problem in which every topic has a reader."""
    if not len(problem.weight):
        return np.zeros(0, dtype=np.int32)
    problem = replace(problem, weight=_with_idle(problem.weight))
    if entry.level is not None:
        return run(replace(entry, pack=entry.level), problem)
    fresh = _levelled(problem, _tightest(entry, problem))
    if (problem.owner == NOBODY).all():
        return fresh
    kept = _levelled(problem, _repaired(problem))
    return kept if _as_good(problem, kept, fresh) else fresh


def _with_idle(weight: FloatArray) -> FloatArray:
    floor = float(weight.mean()) * IDLE
    return np.maximum(weight, floor) if floor > 0 else np.ones_like(weight)


def _tightest(entry: Heuristic, problem: Problem) -> IntArray:
    """Pack at the least common factor that places everything (rule 1), found by bisection."""
    total = float(problem.weight.sum())
    low = total / float(problem.capacity.sum())
    ceiling = 2 * total / float(problem.capacity.min())  # any one member could hold everything
    high, best = low, _scaled(entry, problem, low)
    while best is None:
        if high >= ceiling:
            raise BrokenHeuristic(
                f"heuristic {entry.name!r} ({entry.source}) leaves partitions out although "
                "any member could hold them all; choose another one"
            )
        low, high = high, min(2 * high, ceiling)
        best = _scaled(entry, problem, high)
    for _ in range(STEPS if high > low else 0):
        middle = (low + high) / 2
        bins = _scaled(entry, problem, middle)
        if bins is None:
            low = middle
        else:
            high, best = middle, bins
    return best


def _scaled(entry: Heuristic, problem: Problem, factor: float) -> IntArray | None:
    """Pack at capacities times the factor; None if something fits nowhere."""
    bins = run(entry, replace(problem, capacity=problem.capacity * factor))
    return None if (bins == NOBODY).any() else bins


def _repaired(problem: Problem) -> IntArray:
    """Keep every owner, and give the unread partitions, largest first, to the emptiest readers."""
    bins = problem.owner.copy()
    load = loads(bins, problem.weight, len(problem.capacity))
    for item in np.argsort(-problem.weight, kind="stable").tolist():
        if bins[item] == NOBODY:
            fill = (load + problem.weight[item]) / problem.capacity
            fill[~problem.subscribed[problem.topic[item]]] = np.inf
            bins[item] = fill.argmin()
            load[bins[item]] += problem.weight[item]
    return bins


def _levelled(problem: Problem, bins: IntArray) -> IntArray:
    """Hand partitions to members that are less than half as full as the fullest (rule 3)."""
    bins = bins.copy()
    for _ in range(4 * len(bins)):  # fills, sorted, fall at each step; the bound is for safety
        fill = _fill(problem, bins)
        hungry = np.flatnonzero(fill < HALF * fill.max())
        step = next(
            (
                (item, member)
                for member in hungry[np.argsort(fill[hungry], kind="stable")].tolist()
                if (item := _gift(problem, bins, fill, member)) != NOBODY
            ),
            None,
        )
        if step is None:
            break
        bins[step[0]] = step[1]
    return bins


def _gift(problem: Problem, bins: IntArray, fill: FloatArray, member: int) -> int:
    """Return the partition whose handing to the member helps most; NOBODY if none does.

    From the fullest giver; then what leaves the two most even; then what is not at home anyway.
    """
    giver = fill[bins]
    taker = fill[member] + problem.weight / problem.capacity[member]
    rest = giver - problem.weight / problem.capacity[bins]
    helps = problem.subscribed[problem.topic, member] & (taker < giver) & (bins != member)
    helps &= np.bincount(bins)[bins] > 1  # to hand the only one on is no gain
    items = np.flatnonzero(helps)
    if not items.size:
        return NOBODY
    settled = (problem.owner != member).astype(np.int8) + (problem.owner == bins)
    keys = (items, settled[items], np.maximum(taker, rest)[items], -giver[items])
    return int(items[np.lexsort(keys)[0]])


def _as_good(problem: Problem, kept: IntArray, fresh: IntArray) -> bool:
    """Tell whether the fresh placement is not worth its moves (rule 4)."""
    stays, would = _fill(problem, kept), _fill(problem, fresh)
    if np.count_nonzero(stays) < np.count_nonzero(would):
        return False
    return float(stays.max()) <= WORTH * float(would.max())


def _fill(problem: Problem, bins: IntArray) -> FloatArray:
    """Return load ÷ capacity of each member."""
    return loads(bins, problem.weight, len(problem.capacity)) / problem.capacity
