"""Repair of a plan's placement where it cannot be carried out; all other partitions are as planned.

A *loose* partition has no planned member: that is gone, has yet to join, drains, does not subscribe,
or the plan does not know the partition. The rules, in this order:

1. A loose partition stays with its owner.
2. Where members keep loose partitions, a planned move between two members waits if its receiver would
   be above its headroom, or above what the plan gives it: the heaviest moves first. So a scale-up plan
   that meets a rebalance before the join overfills no member.
3. A loose partition without an owner goes to the emptiest reader with room within its headroom, else to
   the one that is the least full with it; the largest first.
4. The least load above the headroom of a member that is smaller than planned goes where it fits.
5. So does that of any member, to members beyond the plan.
6. Once absent members are overdue, loose partitions leave a member above its headroom for where they
   fit: a quota may keep the others away for ever. The moves that waited for that room (rule 2) are then
   made. Nothing else moves.
"""

from collections.abc import Sequence

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray, PackingProblem
from trimtab.assignor.model.packing import (
    CAPACITY_TOLERANCE,
    are_members_alike,
    sort_decreasing,
    sum_loads,
    take_least_loaded,
)


def repair_placement(
    problem: PackingProblem,
    planned: IntArray,
    smaller: BoolArray,
    surplus: BoolArray,
    *,
    members_overdue: bool,
) -> IntArray:
    """Return the member of each partition (P,).

    `planned` (P,) has the planned members, UNASSIGNED where a partition is loose; `smaller` (M,) tells the
    members with less capacity than planned, `surplus` (M,) those beyond the plan.
    """
    repair = _Repair(problem, planned)
    repair.hold_back_moves()
    repair.place_loose()
    everyone = np.ones_like(surplus)
    repair.relieve_members(smaller, everyone)
    if surplus.any():
        repair.relieve_members(everyone, surplus)
    if members_overdue:
        repair.relieve_members(everyone, everyone, planned == UNASSIGNED)
        relieved = smaller | surplus.any()  # by rules 4 and 5, also of what the plan gives them
        repair.make_held_back_moves(relieved)
    return repair.bins


class _Repair:
    """Bins under repair, and the members' loads."""

    def __init__(self, problem: PackingProblem, planned: IntArray) -> None:
        self._problem = problem
        self._planned = planned
        self._capacity: FloatArray = problem.capacity * (1 + CAPACITY_TOLERANCE)
        self.bins: IntArray = np.where(planned != UNASSIGNED, planned, problem.owner)  # rule 1
        self._load = sum_loads(self.bins, problem.weight, len(problem.capacity))
        planned_load = sum_loads(planned, problem.weight, len(problem.capacity))
        self._limit = np.maximum(self._capacity, planned_load * (1 + CAPACITY_TOLERANCE))  # of rule 2
        self._held_back: list[int] = []

    def hold_back_moves(self) -> None:
        """Leave moves with their owners until no receiver is overfilled (rule 2)."""
        problem, limit = self._problem, self._limit
        overfull = np.flatnonzero(self._load > limit).tolist()
        incoming = self._list_incoming() if overfull else ()
        while overfull:
            member = overfull.pop()
            while self._load[member] > limit[member] and incoming[member]:
                item = incoming[member].pop()
                owner = int(problem.owner[item])
                self._move(item, owner)
                self._held_back.append(item)
                overfull.append(owner)  # which counted on giving it away

    def make_held_back_moves(self, relieved: BoolArray) -> None:
        """Make the moves that waited and whose receivers have room by now, the lightest first (rule 6).

        `relieved` (M,) members are filled up to their headroom only.
        """
        owner, planned, weight = self._problem.owner, self._planned, self._problem.weight
        limit = np.where(relieved, self._capacity, self._limit)
        waiting = (item for item in self._held_back if self.bins[item] == owner[item])
        for item in sorted(waiting, key=lambda item: (weight[item], item)):
            receiver = int(planned[item])
            if self._load[receiver] + weight[item] <= limit[receiver]:
                self._move(item, receiver)

    def _list_incoming(self) -> Sequence[list[int]]:
        """Return the moves to each member from another one, lightest first."""
        owner, planned = self._problem.owner, self._planned
        moves = np.flatnonzero((owner != UNASSIGNED) & (planned != UNASSIGNED) & (planned != owner))
        incoming: list[list[int]] = [[] for _ in self._load]
        for item in moves[np.argsort(self._problem.weight[moves], kind="stable")].tolist():
            incoming[planned[item]].append(item)
        return incoming

    def place_loose(self) -> None:
        """Give partitions without an owner to the emptiest readers (rule 3)."""
        weight = self._problem.weight
        loose = np.flatnonzero(self.bins == UNASSIGNED)
        loose = loose[sort_decreasing(weight[loose])]
        if are_members_alike(self._problem):  # if the emptiest has no room, none has
            for item, member in zip(
                loose.tolist(), take_least_loaded(self._load, weight[loose].tolist()), strict=True
            ):
                self._move(item, member)
            return
        everyone = np.ones(len(self._load), dtype=np.bool_)
        for item in loose.tolist():
            member = self._find_room(item, everyone)
            self._move(item, self._find_least_full(item) if member == UNASSIGNED else member)

    def relieve_members(
        self, givers: BoolArray, receivers: BoolArray, movable: BoolArray | None = None
    ) -> None:
        """Move the least load above the givers' headroom to receivers with room (rules 4 to 6)."""
        movable = np.ones(len(self.bins), dtype=np.bool_) if movable is None else movable
        for member in np.flatnonzero(givers & (self._load > self._capacity)).tolist():
            while self._load[member] > self._capacity[member] and self._relieve(member, receivers, movable):
                pass

    def _relieve(self, member: int, receivers: BoolArray, movable: BoolArray) -> bool:
        """Move one partition away from the member; return whether one fits elsewhere."""
        for item in self._order_to_give(member, movable):
            owner = int(self._problem.owner[item])
            kept = owner != UNASSIGNED and receivers[owner] and self._has_room(item)[owner]
            receiver = owner if kept else self._find_room(item, receivers)
            if receiver != UNASSIGNED:
                self._move(item, receiver)
                return True
        return False

    def _order_to_give(self, member: int, movable: BoolArray) -> list[int]:
        """Return the member's items: the smallest that suffice, then the largest; of equals, others' own."""
        weight = self._problem.weight
        items = np.flatnonzero((self.bins == member) & movable & (weight > 0))
        suffices = weight[items] >= self._load[member] - self._capacity[member]
        size = np.where(suffices, weight[items], -weight[items])
        order = np.lexsort((self._problem.owner[items] == member, size, ~suffices))
        return list(map(int, items[order]))

    def _has_room(self, item: int) -> BoolArray:
        """Return which members (M,) read and can hold an item; the overfull one that gives it cannot."""
        problem = self._problem
        room: BoolArray = self._load + problem.weight[item] <= self._capacity
        room &= problem.subscribed[problem.topic[item]]
        return room

    def _find_room(self, item: int, receivers: BoolArray) -> int:
        room = np.flatnonzero(self._has_room(item) & receivers)
        return int(room[(self._load[room] / self._capacity[room]).argmin()]) if room.size else UNASSIGNED

    def _find_least_full(self, item: int) -> int:
        problem = self._problem
        fill = (self._load + problem.weight[item]) / self._capacity
        fill[~problem.subscribed[problem.topic[item]]] = np.inf
        return int(fill.argmin())

    def _move(self, item: int, member: int) -> None:
        weight = self._problem.weight[item]
        if self.bins[item] != UNASSIGNED:
            self._load[self.bins[item]] -= weight
        self.bins[item] = member
        self._load[member] += weight
