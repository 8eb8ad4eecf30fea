"""The names of bins: steady decides without looking at them, and gives them out at the end.

`canonical` numbers the members by what they own, so that renaming them changes nothing. Step 6,
`relabel`: a new bin takes the identity of a member that is left empty, if it may: of the one that
owned most of its load, the heaviest claim first.
"""

from dataclasses import dataclass, replace

import numpy as np

from trimtab.assignor.model import NOBODY, IntArray, Problem


@dataclass(frozen=True, slots=True)
class Order:
    """Members renumbered: `member` (M,) is the given number of each, `position` its inverse."""

    member: IntArray
    position: IntArray

    def posed(self, problem: Problem) -> Problem:
        """Return the problem in this order."""
        return replace(
            problem,
            owner=_mapped(self.position, problem.owner),
            capacity=problem.capacity[self.member],
            subscribed=problem.subscribed[:, self.member],
            racks=problem.racks and problem.racks.of_members(self.member),
        )

    def answer(self, bins: IntArray) -> IntArray:
        """Return bins (P,) of the posed problem as those of the given one."""
        return _mapped(self.member, bins)


def canonical(problem: Problem) -> Order:
    """Order members by capacity, by subscription, and by the first partition they own."""
    members = len(problem.capacity)
    first = np.full(members, len(problem.owner), dtype=np.int64)
    owned = np.flatnonzero(problem.owner != NOBODY)
    np.minimum.at(first, problem.owner[owned], owned)
    member = np.lexsort((first, *problem.subscribed[::-1], -problem.capacity)).astype(np.int32)
    position = np.empty_like(member)
    position[member] = np.arange(members, dtype=np.int32)
    return Order(member, position)


def relabel(problem: Problem, bins: IntArray) -> IntArray:
    """Give the load of new bins to members left empty: fewer starts and stops, fewer moves."""
    members = len(problem.capacity)
    used = np.unique(bins)
    empty = set(np.setdiff1d(np.arange(members), used).tolist())
    new = used[used >= members].tolist()
    if not empty or not new:
        return bins
    bins = bins.copy()
    claims = [
        (-load, number, member)
        for number in new
        for member, load in _claims(problem, bins == number, empty)
    ]
    taken: set[int] = set()
    for _, number, member in sorted(claims):
        if member in empty and number not in taken and _may_take(problem, bins == number, member):
            bins[bins == number] = member
            empty.remove(member)
            taken.add(number)
    return bins


def _claims(problem: Problem, mine: np.ndarray, empty: set[int]) -> list[tuple[int, float]]:
    """Return the load of a bin's partitions by their owner, for every empty member."""
    owned = mine & (problem.owner != NOBODY)
    members = len(problem.capacity)
    load = np.bincount(problem.owner[owned], problem.weight[owned], minlength=members)
    return [(member, float(load[member])) for member in sorted(empty)]


def _may_take(problem: Problem, mine: np.ndarray, member: int) -> bool:
    reads = bool(problem.subscribed[problem.topic[mine], member].all())
    return reads and bool(problem.capacity[member] >= (problem.spare or 0.0))


def _mapped(number: IntArray, bins: IntArray) -> IntArray:
    """Renumber the members among the bins; NOBODY and bins to be added stay."""
    inside = (bins != NOBODY) & (bins < len(number))
    mapped = bins.copy()
    mapped[inside] = number[bins[inside]]
    return mapped
