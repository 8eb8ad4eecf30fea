"""Spreading of the load: closed mode without a plan.

1. All capacities are scaled by one factor, the smallest at which the heuristic places everything.
   So members share an overload in proportion to their capacities.
2. An idle partition weighs 0.1 % of the mean, so that an idle group is spread by count.
3. A member less than half as full as the fullest is given partitions while that narrows the gap.
4. The current owners are kept, and partitions without one go to the emptiest readers, if that uses
   as many members and fills the fullest at most 5 % more.
A heuristic with its own `Heuristic.balance_load` follows rule 2 only.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.model.heuristic import Heuristic, run_heuristic
from trimtab.assignor.model.packing import are_members_alike, sort_decreasing, sum_loads, take_least_loaded
from trimtab.common.errors import BrokenHeuristicError

IDLE_WEIGHT_RATIO: Final = 1e-3  # weight of an idle partition ÷ the mean
MAX_KEPT_FILL_RATIO: Final = 1.05  # fill of the fullest with kept owners ÷ with fresh ones
MIN_FILL_RATIO: Final = 0.5  # of a member ÷ the fullest
BISECTION_STEPS: Final = 12  # the factor to 1/4096 of its range


def spread_load(entry: Heuristic, problem: PackingProblem) -> IntArray:
    """Return the member of each partition (P,); every topic of the problem needs a reader."""
    if not len(problem.weight):
        return np.zeros(0, dtype=np.int32)
    floor = float(problem.weight.mean()) * IDLE_WEIGHT_RATIO
    weight = np.maximum(problem.weight, floor) if floor > 0 else np.ones_like(problem.weight)
    problem = replace(problem, weight=weight)
    if entry.balance_load is not None:
        return run_heuristic(replace(entry, pack=entry.balance_load), problem)
    fresh = _fill_underfilled(problem, _pack_tightest(entry, problem))
    if (problem.owner == UNASSIGNED).all():
        return fresh
    kept = _fill_underfilled(problem, keep_owners(problem))
    return kept if _is_kept_good_enough(problem, kept, fresh) else fresh


def _pack_tightest(entry: Heuristic, problem: PackingProblem) -> IntArray:
    """Pack at the smallest factor that places everything (rule 1), by bisection."""
    total = float(problem.weight.sum())
    low = total / float(problem.capacity.sum())
    ceiling = 2 * total / float(problem.capacity.min())  # each member could hold everything
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
    bins = run_heuristic(entry, replace(problem, capacity=problem.capacity * factor))
    return None if (bins == UNASSIGNED).any() else bins


def keep_owners(problem: PackingProblem) -> IntArray:
    """Return each owner (P,); for other partitions, largest first, the emptiest reader (rule 4)."""
    bins = problem.owner.copy()
    load = sum_loads(bins, problem.weight, len(problem.capacity))
    loose = np.flatnonzero(bins == UNASSIGNED)
    loose = loose[sort_decreasing(problem.weight[loose])]
    if are_members_alike(problem):
        bins[loose] = list(take_least_loaded(load, problem.weight[loose].tolist()))
        return bins
    for item in loose.tolist():
        fill = (load + problem.weight[item]) / problem.capacity
        fill[~problem.subscribed[problem.topic[item]]] = np.inf
        bins[item] = fill.argmin()
        load[bins[item]] += problem.weight[item]
    return bins


def _fill_underfilled(problem: PackingProblem, bins: IntArray) -> IntArray:
    bins = bins.copy()
    for _ in range(4 * len(bins)):  # each step lowers the sorted fills; the bound is for safety
        fill = _compute_fill(problem, bins)
        underfilled = np.flatnonzero(fill < MIN_FILL_RATIO * fill.max())
        for member in underfilled[np.argsort(fill[underfilled], kind="stable")].tolist():
            item = _select_partition_to_give(problem, bins, fill, member)
            if item != UNASSIGNED:
                bins[item] = member
                break
        else:
            break
    return bins


def _select_partition_to_give(problem: PackingProblem, bins: IntArray, fill: FloatArray, member: int) -> int:
    """Return the partition that helps the member most; UNASSIGNED if none does."""
    donor = fill[bins]
    recipient = fill[member] + problem.weight / problem.capacity[member]
    rest = donor - problem.weight / problem.capacity[bins]
    helps = problem.subscribed[problem.topic, member] & (recipient < donor) & (bins != member)
    helps &= np.bincount(bins)[bins] > 1  # giving the only one away swaps the roles
    items = np.flatnonzero(helps)
    if not items.size:
        return UNASSIGNED
    cost = (problem.owner != member).astype(np.int8) + (problem.owner == bins)
    # The fullest donor, then the most even pair, then what has moved already.
    keys = (items, cost[items], np.maximum(recipient, rest)[items], -donor[items])
    return int(items[np.lexsort(keys)[0]])


def _is_kept_good_enough(problem: PackingProblem, kept: IntArray, fresh: IntArray) -> bool:
    kept_fill, fresh_fill = _compute_fill(problem, kept), _compute_fill(problem, fresh)
    if np.count_nonzero(kept_fill) < np.count_nonzero(fresh_fill):
        return False
    return float(kept_fill.max()) <= MAX_KEPT_FILL_RATIO * float(fresh_fill.max())


def _compute_fill(problem: PackingProblem, bins: IntArray) -> FloatArray:
    return sum_loads(bins, problem.weight, len(problem.capacity)) / problem.capacity
