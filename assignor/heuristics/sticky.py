"""Sticky: as even by count as subscriptions allow, then as few moves as that allows.

1. Everybody keeps what it reads; what nobody reads goes to whoever has least (ties: the lowest
   member).
2. While a member has at least two partitions more than another that it can hand one to, directly or
   through others that each pass one on, it does so; the shortest such chain first. Where no chain
   is left, no assignment is more even (this is the optimality condition of semi-matchings: no
   cost-reducing path).
3. In a chain, a partition that is away from home is passed on before one that is at home.
"""

import heapq
from typing import Final, TypeAlias

import numpy as np

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem

_ChainHop: TypeAlias = tuple[int, int]
"""An item and its taker; while searching, a topic and the member that passes it on."""


def place_sticky(problem: PackingProblem) -> IntArray:
    """Even the counts with the fewest moves."""
    table = _CountBalancer(problem)
    while table.shift_along_chain():
        pass
    return table.placed


class _CountBalancer:
    """Who holds what; the state of one call of `place_sticky`.

    What a member holds is listed by topic when it first takes part in a chain; most never do.
    """

    def __init__(self, problem: PackingProblem) -> None:
        members = len(problem.capacity)
        self._subscribed = problem.subscribed
        self.topic = problem.topic
        self.home = problem.owner
        stays = problem.owner != UNASSIGNED
        stays[stays] = problem.subscribed[problem.topic[stays], problem.owner[stays]]
        self.placed: IntArray = np.where(stays, problem.owner, UNASSIGNED).astype(np.int32)
        count = np.bincount(self.placed[stays], minlength=members)
        self._seat_unread(np.flatnonzero(~stays).astype(np.int32), count.astype(np.int32))
        seated = self.placed[self.placed != UNASSIGNED]
        self.count: list[int] = np.bincount(seated, minlength=members).tolist()
        self._order = np.argsort(self.placed, kind="stable")
        self._start = np.searchsorted(self.placed[self._order], np.arange(members + 1))
        self._held: dict[int, dict[int, list[int]]] = {}
        self._readers: dict[int, list[int]] = {}

    def shift_along_chain(self) -> bool:
        """Hand partitions along one chain; False when no chain evens the counts."""
        least = min(self.count, default=0)
        givers = [m for m, count in enumerate(self.count) if count >= least + 2]
        for giver in sorted(givers, key=lambda m: (-self.count[m], m)):
            chain = self._find_chain(giver)
            for item, taker in chain:
                self._take_item(item)
                self._give_item(item, taker)
            if chain:
                return True
        return False

    def _seat_unread(self, unread: IntArray, count: IntArray) -> None:
        """Give what nobody reads to whoever has least (rule 1)."""
        everywhere = (self._subscribed == self._subscribed[:1]).all()
        readers = np.flatnonzero(self._subscribed[:1].any(axis=0))
        if everywhere and readers.size:
            self.placed[unread] = readers[_assign_seats(count[readers], len(unread))]
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

    def _find_chain(self, giver: int) -> list[_ChainHop]:
        """Return the shortest chain from the giver to one two below it; [] if there is none."""
        came: dict[int, _ChainHop] = {giver: (UNASSIGNED, UNASSIGNED)}
        level = [giver]
        while level:
            reached: list[int] = []
            for member in level:
                reached += self._expand_member(member, came)
            below = [m for m in reached if self.count[m] <= self.count[giver] - 2]
            if below:
                return self._trace_chain(giver, min(below, key=lambda m: (self.count[m], m)), came)
            level = reached
        return []

    def _expand_member(self, member: int, arrived_by: dict[int, _ChainHop]) -> list[int]:
        """Return the members that this one can pass something to, and note the way there."""
        reached: list[int] = []
        for topic in sorted(self._items_by_topic(member)):
            if len(arrived_by) == len(self.count):
                break
            new = [taker for taker in self._readers_of_topic(topic) if taker not in arrived_by]
            arrived_by.update((taker, (topic, member)) for taker in new)
            reached += new
        return reached

    def _trace_chain(
        self, giver: int, end: int, arrived_by: dict[int, _ChainHop]
    ) -> list[_ChainHop]:
        """Return the hops from the giver to the end, each an item and its taker."""
        chain: list[_ChainHop] = []
        while end != giver:
            topic, member = arrived_by[end]
            chain.append((self._select_item(member, topic, end), end))
            end = member
        return chain

    def _select_item(self, member: int, topic: int, taker: int) -> int:
        """Return what to pass on: what is the taker's own, else what is away from home."""
        items = self._items_by_topic(member)[topic]
        return min(items, key=lambda i: (self.home[i] != taker, self.home[i] == member, i))

    def _give_item(self, item: int, member: int) -> None:
        self._items_by_topic(member).setdefault(int(self.topic[item]), []).append(item)
        self.count[member] += 1
        self.placed[item] = member

    def _take_item(self, item: int) -> None:
        member, topic = int(self.placed[item]), int(self.topic[item])
        held = self._items_by_topic(member)
        held[topic].remove(item)
        if not held[topic]:
            del held[topic]
        self.count[member] -= 1

    def _items_by_topic(self, member: int) -> dict[int, list[int]]:
        """Return what a member holds, by topic; nothing was passed on if it is not listed yet."""
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


def _assign_seats(count: IntArray, unread_count: int) -> IntArray:
    """Return who takes each guest, one by one, if always who has least does (ties: the lowest).

    Seat number c of a member is taken before seat c + 1 of any; so the seats in order are the
    pairs (c, member) from each one's count upwards, sorted.
    """
    full = int(count.max()) + -(-unread_count // len(count)) + 1
    free = np.minimum(full - count, unread_count)
    ends = np.cumsum(free)
    member = np.repeat(np.arange(len(count), dtype=np.int32), free)
    seat = np.arange(len(member)) - np.repeat(ends - free, free) + count[member]
    return member[np.lexsort((member, seat))[:unread_count]]


STICKY: Final = Heuristic(
    name="sticky",
    pack=place_sticky,
    summary="even by count within subscriptions, then the fewest moves",
    source="count-based, after Kafka's sticky assignors (KIP-54, KIP-429)",
    idempotent=True,
    packs_by_capacity=False,
)
