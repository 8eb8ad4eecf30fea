"""Placement under a plan: exactly these members, within their capacities wherever that is found.

The first placement within the capacities (`trimtab.assignor.scores.feasibility`) is taken:
1. the heuristic's;
2. steady's, from the present owners;
3. a search's, with the bins given to the members that own most of them.
Without one the group is overloaded. If the load is more than all capacities, that is known without a try:
4. The capacities are scaled until the fullest member is at most 5 % above the least possible, or as
   near as bisection comes, between that and what a placement by size alone reaches. The present owners
   are kept if they fill none 5 % more than that.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from trimtab.assignor.heuristics.steady.fair_shares import compute_fair_shares
from trimtab.assignor.heuristics.steady.heuristic import STEADY
from trimtab.assignor.heuristics.steady.pack import reduce_moves
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.model.heuristic import Heuristic, run_heuristic
from trimtab.assignor.modes.closed_mode import MAX_KEPT_FILL_RATIO, keep_owners
from trimtab.assignor.scores.feasibility import (
    confine_partitions,
    exceeds_all_capacities,
    find_feasible,
    is_within_capacities,
    measure_fullest,
)

SEARCH_EFFORT: Final = 100_000  # of rule 3, in members looked at: about 40 ms
SCALED_SEARCH_EFFORT: Final = 10_000  # of each step of rule 4


def pack_exactly(entry: Heuristic, problem: PackingProblem) -> tuple[IntArray, bool]:
    """Return the member of each partition (P,) of a closed problem, and whether it is overloaded.

    Every topic needs a reader. Raises BrokenHeuristicError as `run_heuristic` does.
    """
    entries = (entry,) if entry is STEADY else (entry, STEADY)
    fits = not exceeds_all_capacities(problem)
    bins = _pack_within(problem, entries, SEARCH_EFFORT) if fits else None
    return (_share_overload(problem), True) if bins is None else (bins, False)


def _pack_within(problem: PackingProblem, entries: Iterable[Heuristic], effort: int) -> IntArray | None:
    """Return the first placement within the capacities (rules 1 to 3); None without one."""
    problem = confine_partitions(problem)
    for entry in entries:
        bins = run_heuristic(entry, problem)
        if is_within_capacities(problem, bins):
            return bins
    found = find_feasible(problem, effort)
    return None if found is None else reduce_moves(problem, found)


def _share_overload(problem: PackingProblem) -> IntArray:
    """Return the placement with the least full fullest member that is found (rule 4)."""
    kept = keep_owners(problem)
    highest = measure_fullest(problem, kept)
    enough = _bound_fullest(problem) * MAX_KEPT_FILL_RATIO
    if highest <= enough:
        return kept
    bins = _pack_scaled(problem, enough)  # mostly found: many partitions divide finely
    if bins is None:
        bins = _bisect_factor(problem, enough)
    return bins if measure_fullest(problem, bins) * MAX_KEPT_FILL_RATIO <= highest else kept


def _bisect_factor(problem: PackingProblem, low: float) -> IntArray:
    """Return the placement (P,) at about the least factor above `low` at which one is found."""
    by_size = keep_owners(replace(problem, owner=np.full_like(problem.owner, UNASSIGNED)))
    high = max(low, measure_fullest(problem, by_size))
    bins = _pack_scaled(problem, high)
    if bins is None:
        bins = reduce_moves(_scale_capacities(problem, high), by_size)
    while high > low * MAX_KEPT_FILL_RATIO:
        factor = (low + high) / 2
        found = _pack_scaled(problem, factor)
        if found is None:
            low = factor
        else:
            bins, high = found, measure_fullest(problem, found)
    return bins


def _pack_scaled(problem: PackingProblem, factor: float) -> IntArray | None:
    return _pack_within(_scale_capacities(problem, factor), (STEADY,), SCALED_SEARCH_EFFORT)


def _scale_capacities(problem: PackingProblem, factor: float) -> PackingProblem:
    return replace(problem, capacity=problem.capacity * factor)


def _bound_fullest(problem: PackingProblem) -> float:
    """Return about the least fill of the fullest member if load could be divided at will, 1 at least."""
    level = float(compute_fair_shares(problem).max())
    # What an oversized partition has beyond that level is no load that the others could share.
    most = np.where(problem.subscribed, problem.capacity, 0.0).max(axis=1)[problem.topic] * level
    clipped = replace(problem, weight=np.minimum(problem.weight, most))
    return max(1.0, float(compute_fair_shares(clipped).max()), _bound_by_count(problem))


def _bound_by_count(problem: PackingProblem) -> float:
    """Return the least fill of a member with k + 1 of the k x M + 1 largest, which one must have."""
    falling: FloatArray = -np.sort(-problem.weight)
    most = np.arange(len(problem.capacity), len(falling), len(problem.capacity))  # k x M
    total = np.append(0.0, np.cumsum(falling))
    smallest = total[most + 1] - total[most - np.arange(1, len(most) + 1)]
    return float(smallest.max(initial=0.0)) / float(problem.capacity.max())
