"""Placement under a plan: exactly these members, within their capacities wherever that is found.

The first placement within the capacities (`trimtab.assignor.feasibility`) is taken:
1. the heuristic's;
2. steady's, from the present owners;
3. a search's, with the bins given to the members that own most of them.
Without one the group is overloaded:
4. The capacities are scaled by the least factor at which steady places everything, and the present
   owners are kept unless that lowers the fullest member by 1 %.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Final

from trimtab.assignor.closed_mode import keep_owners
from trimtab.assignor.feasibility import find_feasible, find_oversized, is_within_capacities, measure_fullest
from trimtab.assignor.heuristics.heuristic import Heuristic, run_heuristic
from trimtab.assignor.heuristics.steady.heuristic import STEADY
from trimtab.assignor.heuristics.steady.pack import reduce_moves
from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem

MIN_RELIEF: Final = 1.01  # fullest member before ÷ after, for which owners change under overload
MAX_SCALING_STEPS: Final = 10


def pack_exactly(entry: Heuristic, problem: PackingProblem) -> tuple[IntArray, bool]:
    """Return the member of each partition (P,) of a closed problem, and whether it is overloaded.

    Every topic needs a reader. Raises BrokenHeuristicError as `run_heuristic` does.
    """
    for bins in _iter_placements(entry, problem):
        if is_within_capacities(problem, bins):
            return bins, False
    return _share_overload(problem), True


def _iter_placements(entry: Heuristic, problem: PackingProblem) -> Iterator[IntArray]:
    yield run_heuristic(entry, problem)
    yield run_heuristic(STEADY, problem)
    found = find_feasible(problem)
    if found is not None:
        yield reduce_moves(problem, found)


def _share_overload(problem: PackingProblem) -> IntArray:
    """Return the placement with the least full fullest member, by bisection of the factor (rule 4)."""
    kept = best = keep_owners(problem)
    highest = fullest = measure_fullest(problem, kept)
    load = float(problem.weight[~find_oversized(problem)].sum())
    low = max(1.0, load / float(problem.capacity.sum()))
    factor = low * MIN_RELIEF  # mostly enough: many partitions divide finely
    for _ in range(MAX_SCALING_STEPS):
        if fullest <= low * MIN_RELIEF:
            break
        bins = run_heuristic(STEADY, replace(problem, capacity=problem.capacity * factor))
        reached = inf if (bins == UNASSIGNED).any() else measure_fullest(problem, bins)
        if reached < fullest:
            best, fullest = bins, reached
        else:
            low = factor
        factor = (low + fullest) / 2
    return best if fullest * MIN_RELIEF <= highest else kept
