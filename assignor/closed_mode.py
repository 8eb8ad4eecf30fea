"""Spreading: closed mode without a plan, and the way out of an overload.

Rules of this file:
1. Every capacity is scaled by one common factor, the least at which the heuristic places
   everything. So an overload is shared in proportion to the capacities.
2. Idle partitions weigh a little, so that an idle group is spread by count.
3. No member is left less than half as full as the fullest while handing it a partition narrows the
   gap.
4. What is there is kept, with the unread partitions added to the emptiest readers, if that uses as
   many members and fills the fullest at most 5 % more: a move must be worth it.
A heuristic that has its own way of spreading (`Heuristic.balance_load`) goes by rule 2 alone.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from trimtab.assignor.heuristics.heuristic import Heuristic, run_heuristic
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.packing import sum_loads
from trimtab.common.errors import BrokenHeuristicError

IDLE_WEIGHT_RATIO: Final = 1e-3  # weight of an idle partition, as a share of the mean
MAX_KEPT_FILL_RATIO: Final = 1.05  # how much fuller the fullest may stay for nothing to move
MIN_FILL_RATIO: Final = 0.5
BISECTION_STEPS: Final = 12  # halvings of the interval that holds the least factor


def spread_load(entry: Heuristic, problem: PackingProblem) -> IntArray:
    """Return the member of each partition of a closed problem in which every topic has a reader."""
    if not len(problem.weight):
        return np.zeros(0, dtype=np.int32)
    problem = replace(problem, weight=_weigh_idle_partitions(problem.weight))
    if entry.balance_load is not None:
        return run_heuristic(replace(entry, pack=entry.balance_load), problem)
    fresh = _feed_underfilled(problem, _pack_tightest(entry, problem))
    if (problem.owner == UNASSIGNED).all():
        return fresh
    kept = _feed_underfilled(problem, _keep_owners(problem))
    return kept if _is_kept_good_enough(problem, kept, fresh) else fresh


def _weigh_idle_partitions(weight: FloatArray) -> FloatArray:
    floor = float(weight.mean()) * IDLE_WEIGHT_RATIO
    return np.maximum(weight, floor) if floor > 0 else np.ones_like(weight)


def _pack_tightest(entry: Heuristic, problem: PackingProblem) -> IntArray:
    """Pack at the least common factor that places everything (rule 1), found by bisection."""
    total = float(problem.weight.sum())
    low = total / float(problem.capacity.sum())
    ceiling = 2 * total / float(problem.capacity.min())  # any one member could hold everything
    high, best = low, _pack_scaled(entry, problem, low)
    while best is None:
        if high >= ceiling:
            raise BrokenHeuristicError(
                f"heuristic {entry.name!r} ({entry.source}) leaves partitions out although "
                "any member could hold them all; choose another one"
            )
        low, high = high, min(2 * high, ceiling)
        best = _pack_scaled(entry, problem, high)
    for _ in range(BISECTION_STEPS if high > low else 0):
        middle = (low + high) / 2
        bins = _pack_scaled(entry, problem, middle)
        if bins is None:
            low = middle
        else:
            high, best = middle, bins
    return best


def _pack_scaled(entry: Heuristic, problem: PackingProblem, factor: float) -> IntArray | None:
    """Pack at capacities times the factor; None if something fits nowhere."""
    bins = run_heuristic(entry, replace(problem, capacity=problem.capacity * factor))
    return None if (bins == UNASSIGNED).any() else bins


def _keep_owners(problem: PackingProblem) -> IntArray:
    """Keep every owner, and give the unread partitions, largest first, to the emptiest readers."""
    bins = problem.owner.copy()
    load = sum_loads(bins, problem.weight, len(problem.capacity))
    for item in np.argsort(-problem.weight, kind="stable").tolist():
        if bins[item] == UNASSIGNED:
            fill = (load + problem.weight[item]) / problem.capacity
            fill[~problem.subscribed[problem.topic[item]]] = np.inf
            bins[item] = fill.argmin()
            load[bins[item]] += problem.weight[item]
    return bins


def _feed_underfilled(problem: PackingProblem, bins: IntArray) -> IntArray:
    """Hand partitions to members that are less than half as full as the fullest (rule 3)."""
    bins = bins.copy()
    for _ in range(4 * len(bins)):  # fills, sorted, fall at each step; the bound is for safety
        fill = _compute_fill(problem, bins)
        hungry = np.flatnonzero(fill < MIN_FILL_RATIO * fill.max())
        step = next(
            (
                (item, member)
                for member in hungry[np.argsort(fill[hungry], kind="stable")].tolist()
                if (item := _select_partition_to_give(problem, bins, fill, member)) != UNASSIGNED
            ),
            None,
        )
        if step is None:
            break
        bins[step[0]] = step[1]
    return bins


def _select_partition_to_give(
    problem: PackingProblem, bins: IntArray, fill: FloatArray, member: int
) -> int:
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
        return UNASSIGNED
    settled = (problem.owner != member).astype(np.int8) + (problem.owner == bins)
    keys = (items, settled[items], np.maximum(taker, rest)[items], -giver[items])
    return int(items[np.lexsort(keys)[0]])


def _is_kept_good_enough(problem: PackingProblem, kept: IntArray, fresh: IntArray) -> bool:
    """Tell whether the fresh placement is not worth its moves (rule 4)."""
    stays, would = _compute_fill(problem, kept), _compute_fill(problem, fresh)
    if np.count_nonzero(stays) < np.count_nonzero(would):
        return False
    return float(stays.max()) <= MAX_KEPT_FILL_RATIO * float(would.max())


def _compute_fill(problem: PackingProblem, bins: IntArray) -> FloatArray:
    """Return load ÷ capacity of each member."""
    return sum_loads(bins, problem.weight, len(problem.capacity)) / problem.capacity
