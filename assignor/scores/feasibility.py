"""Feasibility of a closed problem: whether a placement is within the capacities, and a search for one.

A placement is within the capacities if it places every partition and every member can hold its load.
An oversized partition, one that no reader of its topic can hold, has a member for itself.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, PackingProblem
from trimtab.assignor.model.packing import (
    CAPACITY_TOLERANCE,
    find_owners_who_read,
    index_member_kinds,
    sum_loads,
)


def find_oversized(problem: PackingProblem) -> BoolArray:
    """Return which partitions (P,) exceed the capacity of each of their readers."""
    added = problem.new_member_capacity or 0.0  # it reads every topic
    largest = np.where(problem.subscribed, problem.capacity, 0.0).max(axis=1, initial=added)
    oversized: BoolArray = problem.weight > (largest * (1 + CAPACITY_TOLERANCE))[problem.topic]
    return oversized


def confine_partitions(problem: PackingProblem) -> PackingProblem:
    """Return the problem in which a member reads a partition only if it can hold it.

    Heuristics may give an empty member a partition of any size, even if another could hold it. An
    oversized partition keeps all its readers, and so does one beyond an added member's capacity: sizing
    may have to give it to one.
    """
    room = problem.capacity * (1 + CAPACITY_TOLERANCE)
    oversized = find_oversized(problem)
    if problem.new_member_capacity is not None:
        oversized |= problem.weight > problem.new_member_capacity * (1 + CAPACITY_TOLERANCE)
    if not (problem.weight[~oversized] > room.min(initial=np.inf)).any():
        return problem
    added = (problem.new_member_capacity or 0.0) * (1 + CAPACITY_TOLERANCE)
    sizes = np.unique(np.append(room, added))
    size = np.where(oversized, 0, np.searchsorted(sizes, problem.weight))  # the least that holds it
    # Partitions of one topic and size have the same readers.
    kinds, topic = np.unique(np.stack([problem.topic, size]), axis=1, return_inverse=True)
    confined = replace(
        problem,
        topic=topic.ravel().astype(np.int32),
        subscribed=problem.subscribed[kinds[0]] & (room >= sizes[kinds[1], np.newaxis]),
    )
    return replace(confined, owner=find_owners_who_read(confined))


def exceeds_all_capacities(problem: PackingProblem) -> bool:
    """Return whether the load is more than the members can hold together, however it is placed."""
    oversized = find_oversized(problem)  # each has a member for itself
    room = np.sort(problem.capacity)[np.count_nonzero(oversized) :].sum() * (1 + 4 * CAPACITY_TOLERANCE)
    return float(problem.weight[~oversized].sum()) > float(room)


def measure_fullest(problem: PackingProblem, bins: IntArray) -> float:
    """Return the highest load ÷ capacity of a member, without those that an oversized partition fills."""
    members = len(problem.capacity)
    fill = sum_loads(bins, problem.weight, members) / problem.capacity
    placed = bins != UNASSIGNED
    alone = np.bincount(bins[placed], minlength=members) == 1
    filled = bins[find_oversized(problem) & placed]
    fill[filled[alone[filled]]] = 0.0
    return float(fill.max(initial=0.0))


def is_within_capacities(problem: PackingProblem, bins: IntArray) -> bool:
    """Return whether the bins (P,) place every partition, within the capacities."""
    if (bins == UNASSIGNED).any():
        return False
    return measure_fullest(problem, bins) <= 1 + 2 * CAPACITY_TOLERANCE  # sums in another order differ


def find_feasible(problem: PackingProblem, effort: int) -> IntArray | None:
    """Return bins (P,) within the capacities, whatever they move; None if the search finds none.

    Best fit decreasing with backtracking, until `effort` members have been looked at: exhaustive for a
    few partitions.
    """
    oversized = find_oversized(problem)
    choices = problem.subscribed.sum(axis=1)[problem.topic]
    if choices.sum() > effort:  # not even once through
        return None
    largest_first = np.lexsort((-problem.weight, ~oversized))
    scarcest_first = np.lexsort((-problem.weight, choices, ~oversized))
    alike = (largest_first == scarcest_first).all()
    for order in (largest_first,) if alike else (largest_first, scarcest_first):
        bins = _BestFitSearch(problem, oversized, effort).place_items(order.tolist())
        if bins is not None:
            return bins
    return None


class _Step(NamedTuple):
    """A member that took an item, and what it had before."""

    member: int
    room: float
    spare: float


class _BestFitSearch:
    """State of one depth-first search: the room left in each member."""

    def __init__(self, problem: PackingProblem, oversized: BoolArray, effort: int) -> None:
        self._weight: list[float] = problem.weight.tolist()
        self._oversized: list[bool] = oversized.tolist()
        self._topic: list[int] = problem.topic.tolist()
        self._readers: list[list[int]] = [np.flatnonzero(row).tolist() for row in problem.subscribed]
        self._kind: list[int] = index_member_kinds(problem).tolist()
        self._room: list[float] = (problem.capacity * (1 + CAPACITY_TOLERANCE)).tolist()
        self._whole = self._room.copy()
        self._least = min(self._weight, default=0.0)
        self._spare = sum(self._room) - float(problem.weight[~oversized].sum())
        self._effort = effort

    def place_items(self, order: list[int]) -> IntArray | None:
        """Place the items in order, each in the tightest member that leads to the end."""
        steps: list[_Step] = []
        options = [self._list_options(item) for item in order[:1]]
        while len(steps) < len(order):
            member = next(options[-1], UNASSIGNED)
            if member != UNASSIGNED and self._effort >= 0:
                steps.append(self._take_item(order[len(steps)], member))
                options += [self._list_options(item) for item in order[len(steps) : len(steps) + 1]]
            elif member != UNASSIGNED or not steps:
                return None
            else:
                options.pop()
                self._undo_step(steps.pop())
        bins = np.full(len(order), UNASSIGNED, dtype=np.int32)
        bins[order] = [step.member for step in steps]
        return bins

    def _list_options(self, item: int) -> Iterator[int]:
        """Return the members that can take the item; of those alike only one."""
        if self._spare < 0:
            return iter(())
        readers = self._readers[self._topic[item]]
        self._effort -= len(readers)
        room, weight = self._room, self._weight[item]
        if self._oversized[item]:
            able = [(-room[m], self._kind[m], m) for m in readers if room[m] == self._whole[m]]
        else:
            able = [(room[m], self._kind[m], m) for m in readers if room[m] >= weight]
        alike = {(left, kind): member for left, kind, member in sorted(able, reverse=True)}
        return reversed(alike.values())

    def _take_item(self, item: int, member: int) -> _Step:
        step = _Step(member, self._room[member], self._spare)
        left = -1.0 if self._oversized[item] else step.room - self._weight[item]
        self._room[member] = left
        if left < self._least:  # what is left there is lost
            self._spare -= step.room if self._oversized[item] else left
        return step

    def _undo_step(self, step: _Step) -> None:
        self._room[step.member], self._spare = step.room, step.spare
