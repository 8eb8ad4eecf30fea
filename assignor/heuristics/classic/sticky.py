"""Sticky: counts as even as subscriptions allow, then the fewest moves.

1. Members keep their partitions; a partition without an owner goes to the member with the fewest
   (ties: the lowest member).
2. While a member has at least two partitions more than another, it passes one along the shortest
   chain of members to it. Without such a chain no assignment is more even: the optimality condition
   of semi-matchings (no cost-reducing path).
3. In a chain, a partition that has moved already is passed on before one at its owner.
"""

import heapq
from typing import Final, TypeAlias

import numpy as np

from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem
from trimtab.assignor.model.heuristic import Heuristic
from trimtab.assignor.model.packing import find_owners_who_read

# An item and its recipient; during the search, a topic and the member that passes it on.
_Hop: TypeAlias = tuple[int, int]


def place_sticky(problem: PackingProblem) -> IntArray:
    """Return the member of each partition (P,): even counts with few moves."""
    balancer = _CountBalancer(problem)
    while balancer.shift_along_chain():
        pass
    return balancer.placed


class _CountBalancer:
    """State of one call of `place_sticky`."""

    def __init__(self, problem: PackingProblem) -> None:
        members = len(problem.capacity)
        self._subscribed = problem.subscribed
        self.topic = problem.topic
        self.home = problem.owner
        self.placed = find_owners_who_read(problem)
        stays = self.placed != UNASSIGNED
        count = np.bincount(self.placed[stays], minlength=members)
        self._seat_unread(np.flatnonzero(~stays).astype(np.int32), count.astype(np.int32))
        seated = self.placed[self.placed != UNASSIGNED]
        self.count: list[int] = np.bincount(seated, minlength=members).tolist()
        self._order = np.argsort(self.placed, kind="stable")
        self._start = np.searchsorted(self.placed[self._order], np.arange(members + 1))
        # Listed when a member first takes part in a chain; most members never do.
        self._held: dict[int, dict[int, list[int]]] = {}
        self._readers: dict[int, list[int]] = {}

    def shift_along_chain(self) -> bool:
        """Pass partitions along one chain; return False if no chain evens the counts."""
        least = min(self.count, default=0)
        donors = [m for m, count in enumerate(self.count) if count >= least + 2]
        for donor in sorted(donors, key=lambda m: (-self.count[m], m)):
            chain = self._find_chain(donor)
            for item, recipient in chain:
                self._pass_item(item, recipient)
            if chain:
                return True
        return False

    def _seat_unread(self, unread: IntArray, count: IntArray) -> None:
        alike = (self._subscribed == self._subscribed[:1]).all()
        readers = np.flatnonzero(self._subscribed[:1].any(axis=0))
        if alike and readers.size:
            self.placed[unread] = readers[_seats(count[readers], len(unread))]
        else:
            self._seat_one_by_one(unread.tolist(), count.tolist())

    def _seat_one_by_one(self, unread: list[int], count: list[int]) -> None:
        queues = [[(count[m], m) for m in np.flatnonzero(row).tolist()] for row in self._subscribed]
        for queue in queues:
            heapq.heapify(queue)
        for item in unread:
            queue = queues[self.topic[item]]
            while queue and queue[0][0] != count[queue[0][1]]:  # filled by another topic since
                heapq.heapreplace(queue, (count[queue[0][1]], queue[0][1]))
            if queue:
                self.placed[item] = queue[0][1]
                count[queue[0][1]] += 1

    def _find_chain(self, donor: int) -> list[_Hop]:
        """Return the shortest chain from the donor to a member two below it; [] without one."""
        arrived_by: dict[int, _Hop] = {donor: (UNASSIGNED, UNASSIGNED)}
        level = [donor]
        while level:
            reached: list[int] = []
            for member in level:
                reached += self._expand(member, arrived_by)
            below = [m for m in reached if self.count[m] <= self.count[donor] - 2]
            if below:
                return self._trace(donor, min(below, key=lambda m: (self.count[m], m)), arrived_by)
            level = reached
        return []

    def _expand(self, member: int, arrived_by: dict[int, _Hop]) -> list[int]:
        """Return the new members that this one can pass a partition to; store the hops."""
        reached: list[int] = []
        for topic in sorted(self._items_by_topic(member)):
            if len(arrived_by) == len(self.count):
                break  # mostly all read all: the first topic reaches everyone
            new = [recipient for recipient in self._readers_of_topic(topic) if recipient not in arrived_by]
            arrived_by.update((recipient, (topic, member)) for recipient in new)
            reached += new
        return reached

    def _trace(self, donor: int, end: int, arrived_by: dict[int, _Hop]) -> list[_Hop]:
        chain: list[_Hop] = []
        while end != donor:
            topic, member = arrived_by[end]
            chain.append((self._select_item(member, topic, end), end))
            end = member
        return chain

    def _select_item(self, member: int, topic: int, recipient: int) -> int:
        """Return the item to pass on: one owned by the recipient, else one that has moved (rule 3)."""
        items = self._items_by_topic(member)[topic]
        return min(items, key=lambda i: (self.home[i] != recipient, self.home[i] == member, i))

    def _pass_item(self, item: int, recipient: int) -> None:
        donor = int(self.placed[item])
        topic = int(self.topic[item])
        held = self._items_by_topic(donor)
        held[topic].remove(item)
        if not held[topic]:
            del held[topic]
        self._items_by_topic(recipient).setdefault(topic, []).append(item)
        self.count[donor] -= 1
        self.count[recipient] += 1
        self.placed[item] = recipient

    def _items_by_topic(self, member: int) -> dict[int, list[int]]:
        held = self._held.get(member)
        if held is None:
            held = self._held[member] = {}
            for item in self._order[self._start[member] : self._start[member + 1]].tolist():
                held.setdefault(int(self.topic[item]), []).append(item)
        return held

    def _readers_of_topic(self, topic: int) -> list[int]:
        readers = self._readers.get(topic)
        if readers is None:
            readers = self._readers[topic] = np.flatnonzero(self._subscribed[topic]).tolist()
        return readers


def _seats(count: IntArray, unread: int) -> IntArray:
    """Return the member of each partition if the one with the fewest always takes the next."""
    # The order of a heap, without one: seat c of any member precedes seat c + 1 of every other, so
    # the seats are the pairs (c, member) from each count upwards, sorted.
    full = int(count.max()) + -(-unread // len(count)) + 1
    free = np.minimum(full - count, unread)
    ends = np.cumsum(free)
    member = np.repeat(np.arange(len(count), dtype=np.int32), free)
    seat = np.arange(len(member)) - np.repeat(ends - free, free) + count[member]
    return member[np.lexsort((member, seat))[:unread]]


STICKY: Final = Heuristic(
    name="sticky",
    pack=place_sticky,
    summary="even by count within subscriptions, then the fewest moves",
    source="count-based, after Kafka's sticky assignors (KIP-54, KIP-429)",
    idempotent=True,
    packs_by_capacity=False,
)
