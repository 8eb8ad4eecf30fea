"""Placement under a plan: exactly these members, within their capacities wherever that is found.

The first placement within the capacities (`trimtab.assignor.feasibility`) is taken:
1. the heuristic's;
2. steady's, from the present owners;
3. a search's, with the bins given to the members that own most of them.
Without one the group is overloaded:
4. The capacities are scaled until the fullest member is at most 5 % above the least possible, or as
   near as bisection comes. The present owners are kept if they fill none 5 % more than that.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import Final

import numpy as np

from trimtab.assignor.closed_mode import MAX_KEPT_FILL_RATIO, keep_owners
from trimtab.assignor.feasibility import (
    confine_partitions,
    find_feasible,
    is_within_capacities,
    measure_fullest,
)
from trimtab.assignor.heuristics.heuristic import Heuristic, run_heuristic
from trimtab.assignor.heuristics.steady.fair_shares import compute_fair_shares
from trimtab.assignor.heuristics.steady.heuristic import STEADY
from trimtab.assignor.heuristics.steady.pack import reduce_moves
from trimtab.assignor.model import IntArray, PackingProblem

MAX_SCALING_STEPS: Final = 10
SEARCH_EFFORT: Final = 100_000  # of rule 3, in members looked at: about 40 ms
SCALED_SEARCH_EFFORT: Final = 10_000  # of each step of rule 4


def pack_exactly(entry: Heuristic, problem: PackingProblem) -> tuple[IntArray, bool]:
    """Return the member of each partition (P,) of a closed problem, and whether it is overloaded.

    Every topic needs a reader. Raises BrokenHeuristicError as `run_heuristic` does.
    """
    bins = _pack_within(problem, (entry, STEADY), SEARCH_EFFORT)
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
    """Return the placement with the least full fullest member, by bisection of the factor (rule 4)."""
    kept = best = keep_owners(problem)
    highest = fullest = measure_fullest(problem, kept)
    low = _bound_fullest(problem)
    factor = low * MAX_KEPT_FILL_RATIO  # mostly enough: many partitions divide finely
    for _ in range(MAX_SCALING_STEPS):
        if fullest <= low * MAX_KEPT_FILL_RATIO:
            break
        scaled = replace(problem, capacity=problem.capacity * factor)
        bins = _pack_within(scaled, (STEADY,), SCALED_SEARCH_EFFORT)
        reached = inf if bins is None else measure_fullest(problem, bins)
        if bins is not None and reached < fullest:
            best, fullest = bins, reached
        else:
            low = factor
        factor = (low + fullest) / 2
    return best if fullest * MAX_KEPT_FILL_RATIO <= highest else kept


def _bound_fullest(problem: PackingProblem) -> float:
    """Return about the least fill of the fullest member if load could be divided at will, 1 at least."""
    level = float(compute_fair_shares(problem).max())
    # What an oversized partition has beyond that level is no load that the others could share.
    most = np.where(problem.subscribed, problem.capacity, 0.0).max(axis=1)[problem.topic] * level
    clipped = replace(problem, weight=np.minimum(problem.weight, most))
    return max(1.0, float(compute_fair_shares(clipped).max()))
