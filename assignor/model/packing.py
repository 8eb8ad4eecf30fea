"""Bins and fit rules shared by the any-fit heuristics.

Rules (designs/heuristics-of-the-paper.md numbers them where Algorithm 1 of the paper is silent):
1. Bins are scanned by number and ties go to the lowest number (rule 5 there).
2. An empty bin takes a partition of any size (rule 4). With different capacities, an oversized
   partition goes to a bin that holds it if there is one, and stays with its owner otherwise.
3. A new bin is the partition's owner if that bin is closed, else the lowest free number (rule 3).
4. A partition with write rate 0 is placed like any other.
5. A load may exceed its capacity by one part in 10^9.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray, PackingProblem

CAPACITY_TOLERANCE: Final = 1e-9  # sums of floats are not exact


class Packing:
    """State of one packing: open bins, their free capacity, and the bin of each item."""

    def __init__(self, problem: PackingProblem) -> None:
        items = len(problem.weight)
        added = items if problem.new_member_capacity is not None else 0  # a bin each, at most
        capacity = np.append(problem.capacity, np.full(added, problem.new_member_capacity or 0.0))
        self._capacity: FloatArray = capacity * (1 + CAPACITY_TOLERANCE)
        self._slack: FloatArray = np.full(len(capacity), -np.inf)  # -inf: the bin is closed
        self._top = 0  # bins from here on were never opened
        self._weight: list[float] = problem.weight.tolist()  # lists: single items of arrays are slow
        self._topic: list[int] = problem.topic.tolist()
        all_read = problem.subscribed.all()  # mostly; then no mask is needed
        self._readers = None if all_read else append_readers(problem.subscribed, added)
        self.home: list[int] = find_owners_who_read(problem).tolist()
        self.opened: list[int] = []
        self.bin: IntArray = np.full(items, UNASSIGNED, dtype=np.int32)

    def is_open(self, number: int) -> bool:
        """Return whether the bin has been opened."""
        return bool(self._slack[number] != -np.inf)

    def room_for_item(self, item: int) -> FloatArray:
        """Return the room in each bin for this item; -inf if closed or not subscribed."""
        room = self._slack[: self._top]
        if self._readers is None:
            return room
        return np.where(self._readers[self._topic[item], : self._top], room, -np.inf)

    def item_weight(self, item: int) -> float:
        """Return the item's weight in bytes/s."""
        return self._weight[item]

    def place_item(self, item: int, number: int) -> None:
        """Place the item, opening the bin if it is closed."""
        if not self.is_open(number):
            self._slack[number] = self._capacity[number]
            self._top = max(self._top, number + 1)
            self.opened.append(number)
        self._slack[number] -= self._weight[item]
        self.bin[item] = number

    def fits_in_bin(self, item: int, number: int) -> bool:
        """Return whether the bin, closed or open, has room for the item."""
        slack = self._slack[number] if self.is_open(number) else self._capacity[number]
        return bool(slack >= self._weight[item])

    def find_new_bin(self, item: int) -> int:
        """Return the closed bin to open for this item; UNASSIGNED if none is left (closed mode)."""
        home = self.home[item]
        home_is_free = home != UNASSIGNED and not self.is_open(home)
        if home_is_free and self.fits_in_bin(item, home):
            return home
        free = self._closed_bins(item)
        if not free.any():
            return UNASSIGNED
        holds = free & (self._capacity >= self._weight[item])
        if holds.any():
            return int(holds.argmax())
        return home if home_is_free else int(np.where(free, self._capacity, -np.inf).argmax())

    def fits_closed_bin(self, item: int) -> bool:
        """Return whether a closed bin holds the item within its capacity."""
        return bool((self._closed_bins(item) & (self._capacity >= self._weight[item])).any())

    def _closed_bins(self, item: int) -> BoolArray:
        free: BoolArray = self._slack == -np.inf
        return free if self._readers is None else free & self._readers[self._topic[item]]


FitRule: TypeAlias = Callable[[Packing, int], int]  # returns an open bin for an item, or UNASSIGNED


def find_first_fit(packing: Packing, item: int) -> int:
    """Return the lowest bin that holds the item."""
    holds = packing.room_for_item(item) >= packing.item_weight(item)
    return int(holds.argmax()) if holds.any() else UNASSIGNED


def find_best_fit(packing: Packing, item: int) -> int:
    """Return the fullest bin that holds the item."""
    left = packing.room_for_item(item) - packing.item_weight(item)
    left[left < 0] = np.inf
    number = int(left.argmin()) if left.size else UNASSIGNED
    return number if number != UNASSIGNED and left[number] != np.inf else UNASSIGNED


def find_worst_fit(packing: Packing, item: int) -> int:
    """Return the emptiest bin if it holds the item."""
    room = packing.room_for_item(item)
    number = int(room.argmax()) if room.size else UNASSIGNED
    return number if number != UNASSIGNED and room[number] >= packing.item_weight(item) else UNASSIGNED


def find_next_fit(packing: Packing, item: int) -> int:
    """Return the last opened bin if it holds the item.

    With different subscriptions it is the last opened bin that reads the item's topic.
    """
    room = packing.room_for_item(item)
    last = next((b for b in reversed(packing.opened) if room[b] != -np.inf), UNASSIGNED)
    return last if last != UNASSIGNED and room[last] >= packing.item_weight(item) else UNASSIGNED


def place_items(packing: Packing, find_bin: FitRule, order: Iterable[int]) -> None:
    """Place items in order, each where it fits, else in a new bin, else nowhere."""
    for item in order:
        number = find_bin(packing, item)
        if number == UNASSIGNED:
            number = packing.find_new_bin(item)
        if number != UNASSIGNED:
            packing.place_item(item, number)


def sum_loads(bins: IntArray, weight: FloatArray, count: int) -> FloatArray:
    """Return the load of bins 0..count-1, shape (count,); other bins are ignored."""
    inside = (bins >= 0) & (bins < count)
    return np.bincount(bins[inside], weight[inside], minlength=count).astype(np.float64)


def are_members_alike(problem: PackingProblem) -> bool:
    """Return whether all members have one capacity and read every topic."""
    return bool(problem.subscribed.all()) and len(np.unique(problem.capacity)) <= 1


def take_least_loaded(load: FloatArray, weights: Iterable[float]) -> Iterator[int]:
    """Yield the member that takes each weight in turn: the least loaded of (M,), the first of equals."""
    heap = list(zip(load.tolist(), range(len(load)), strict=True))
    heapq.heapify(heap)
    for weight in weights:
        least, member = heap[0]
        heapq.heapreplace(heap, (least + weight, member))
        yield member


def order_as_given(problem: PackingProblem) -> Iterable[int]:
    """Return the items in the order of their partitions."""
    return range(len(problem.weight))


def order_decreasing(problem: PackingProblem) -> list[int]:
    """Return the items from the largest to the smallest; ties in the order of their partitions."""
    order: list[int] = sort_decreasing(problem.weight).tolist()
    return order


def sort_decreasing(weight: FloatArray) -> IntArray:
    """Return the indexes of weights (N,) from the largest to the smallest; ties in ascending order."""
    order = np.argsort(-weight)  # takes a third of the time of a stable sort
    ordered = weight[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(-weight, kind="stable")
    return order.astype(np.int32)


def append_readers(subscribed: BoolArray, added: int) -> BoolArray:
    """Return the subscriptions (T, M + added) with added members, which read every topic."""
    everything = np.ones((len(subscribed), added), dtype=np.bool_)
    return np.concatenate([subscribed, everything], axis=1)


def index_member_kinds(problem: PackingProblem) -> IntArray:
    """Return a number for each member (M,), equal for members of equal capacity and subscription."""
    traits = np.vstack([problem.capacity, problem.subscribed])
    return np.unique(traits, axis=1, return_inverse=True)[1].ravel().astype(np.int32)


def find_owners_who_read(problem: PackingProblem) -> IntArray:
    """Return each partition's owner (P,); UNASSIGNED if it does not subscribe to the topic."""
    owner = problem.owner.copy()
    owned = np.flatnonzero(owner != UNASSIGNED)
    owner[owned[~problem.subscribed[problem.topic[owned], owner[owned]]]] = UNASSIGNED
    return owner
