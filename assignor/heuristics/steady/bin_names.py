"""Numbering of bins, so that renaming members changes no decision (`canonical_order`).

Step 6, `relabel_bins`: an empty member takes over a new bin, the member that owned most of the
bin's load first.
"""

from dataclasses import dataclass, replace

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, PackingProblem
from trimtab.assignor.model.packing import index_member_kinds, sum_loads


@dataclass(frozen=True, slots=True)
class MemberOrder:
    """Renumbered members."""

    member: IntArray  # (M,) given number of each
    position: IntArray  # (M,) the inverse

    def renumber_problem(self, problem: PackingProblem) -> PackingProblem:
        """Return the problem in this order."""
        return replace(
            problem,
            owner=_renumber_bins(self.position, problem.owner),
            capacity=problem.capacity[self.member],
            subscribed=problem.subscribed[:, self.member],
            racks=problem.racks and problem.racks.select_members(self.member),
        )

    def restore_bins(self, bins: IntArray) -> IntArray:
        """Return bins (P,) of the renumbered problem in the given numbers."""
        return _renumber_bins(self.member, bins)


def canonical_order(problem: PackingProblem) -> MemberOrder:
    """Order members by capacity, subscription, and first owned partition."""
    members = len(problem.capacity)
    first = np.full(members, len(problem.owner), dtype=np.int64)
    owned = np.flatnonzero(problem.owner != UNASSIGNED)
    np.minimum.at(first, problem.owner[owned], owned)
    member = np.lexsort((first, *problem.subscribed[::-1], -problem.capacity)).astype(np.int32)
    position = np.empty_like(member)
    position[member] = np.arange(members, dtype=np.int32)
    return MemberOrder(member, position)


def relabel_bins(problem: PackingProblem, bins: IntArray) -> IntArray:
    """Return the bins with new ones taken over by empty members: fewer starts, stops and moves."""
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
        for member, load in _owned_load(problem, bins == number, empty)
    ]
    taken: set[int] = set()
    for _, number, member in sorted(claims):
        if member in empty and number not in taken and _may_take_bin(problem, bins == number, member):
            bins[bins == number] = member
            empty.remove(member)
            taken.add(number)
    return bins


def relabel_to_owners(problem: PackingProblem, bins: IntArray) -> IntArray:
    """Return the bins of a closed problem with members alike exchanged, so that owners keep most load."""
    members, kind = len(problem.capacity), index_member_kinds(problem)
    owned = problem.owner != UNASSIGNED
    load = np.zeros((members, members))  # by bin and owner
    np.add.at(load, (bins[owned], problem.owner[owned]), problem.weight[owned])
    number = np.full(members, UNASSIGNED, dtype=np.int32)
    taken = np.zeros(members, dtype=np.bool_)
    for claim in np.argsort(-load, axis=None, kind="stable").tolist():
        in_bin, member = divmod(claim, members)
        if number[in_bin] == UNASSIGNED and not taken[member] and kind[in_bin] == kind[member]:
            number[in_bin], taken[member] = member, True
    relabelled: IntArray = number[bins]
    return relabelled


def _owned_load(problem: PackingProblem, in_bin: BoolArray, empty: set[int]) -> list[tuple[int, float]]:
    """Return the load in a bin that each empty member owned."""
    load = sum_loads(problem.owner[in_bin], problem.weight[in_bin], len(problem.capacity))
    return [(member, float(load[member])) for member in sorted(empty)]


def _may_take_bin(problem: PackingProblem, in_bin: BoolArray, member: int) -> bool:
    reads = bool(problem.subscribed[problem.topic[in_bin], member].all())
    return reads and bool(problem.capacity[member] >= (problem.new_member_capacity or 0.0))


def _renumber_bins(number: IntArray, bins: IntArray) -> IntArray:
    inside = (bins != UNASSIGNED) & (bins < len(number))
    mapped = bins.copy()  # UNASSIGNED and added bins stay
    mapped[inside] = number[bins[inside]]
    return mapped
