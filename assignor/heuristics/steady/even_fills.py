"""Evens the fill of members in a decision that moves partitions anyway, so that a rise fits in more of them.

1. Members rebalance once, whatever moves: only a decision that moves an owned partition is evened.
2. The fullest member gives to the emptiest one that has partitions, while that makes the fuller of the two
   less full by `MIN_GAIN`: the partition that gains most for its move.
3. All further moves together cost at most `budget`. A partition that moves anyway costs nothing, and one that
   returns to its owner gives its cost back.
"""

from typing import Final

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray, PackingProblem

MIN_DIFFERENCE: Final = 0.1  # of the fullest and the emptiest member, in fills, that is worth a move
MIN_GAIN: Final = 0.02  # of the fullest one's fill; also what a move costs besides its load
MIN_FILL: Final = 0.65  # of the fullest member: below it there is room for any rise


def even_fills(problem: PackingProblem, bins: IntArray, budget: float) -> IntArray:
    """Return bins (P,) with more even fills, the same ones with racks; `budget` is in capacities."""
    moved = (problem.owner != UNASSIGNED) & (bins != problem.owner)
    if budget <= 0 or problem.racks is not None or not moved.any() or (bins == UNASSIGNED).any():
        return bins
    added = max(0, int(bins.max()) + 1 - len(problem.capacity))
    capacity = np.append(problem.capacity, np.full(added, problem.new_member_capacity or 0.0))
    bins, left = bins.copy(), budget * float(capacity.max())
    load = np.bincount(bins, problem.weight, len(capacity)).astype(np.float64)
    used = np.flatnonzero(np.bincount(bins, minlength=len(capacity)))
    for _ in range(len(bins)):  # each step lowers the fullest of two; the bound is for safety
        fill = load[used] / capacity[used]
        fullest, emptiest = used[fill.argmax()], used[fill.argmin()]
        if fill.max() < MIN_FILL or fill.max() - fill.min() < MIN_DIFFERENCE:
            break
        item, cost = _select_item(problem, bins, load, capacity, (int(fullest), int(emptiest)), left)
        if item == UNASSIGNED:
            break
        load[[fullest, emptiest]] += np.array([-1.0, 1.0]) * problem.weight[item]
        bins[item], left = emptiest, left - cost
    return bins


def _select_item(
    problem: PackingProblem,
    bins: IntArray,
    load: FloatArray,
    capacity: FloatArray,
    pair: tuple[int, int],
    left: float,
) -> tuple[int, float]:
    """Return the fullest member's partition that gains most, and its cost; UNASSIGNED if none does."""
    fullest, emptiest = pair
    items = np.flatnonzero(bins == fullest).astype(np.int32)
    weight, owner = problem.weight[items], problem.owner[items]
    cost = np.where(owner == fullest, weight, np.where(owner == emptiest, -weight, 0.0))
    after = np.maximum(
        (load[fullest] - weight) / capacity[fullest], (load[emptiest] + weight) / capacity[emptiest]
    )
    gain = load[fullest] / capacity[fullest] - after
    may_read = _list_readable(problem, items, emptiest)
    helps = may_read & (gain > MIN_GAIN) & (cost <= left)
    if len(items) == 1 or not helps.any():
        return UNASSIGNED, 0.0
    worth = gain / (MIN_GAIN * capacity[fullest] + np.maximum(cost, 0.0))
    best = int(np.where(helps, worth, -np.inf).argmax())
    return int(items[best]), float(cost[best])


def _list_readable(problem: PackingProblem, items: IntArray, member: int) -> BoolArray:
    """Return which items a member may read; an added one reads all."""
    if member >= problem.subscribed.shape[1]:
        return np.ones(len(items), dtype=np.bool_)
    may_read: BoolArray = problem.subscribed[problem.topic[items], member]
    return may_read
