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

from trimtab.assignor.heuristic import Heuristic
from trimtab.assignor.model import NOBODY, IntArray, Problem

_Hop: TypeAlias = tuple[int, int]
"""An item and its taker; while searching, a topic and the member that passes it on."""


def pack(problem: Problem) -> IntArray:
    """Even the counts with the fewest moves."""
    table = _Table(problem)
    while table.step():
        pass
    return table.placed


class _Table:
    """Who holds what, by topic; the state of one call of `pack`."""

    def __init__(self, problem: Problem) -> None:
        self.readers: list[list[int]] = [np.flatnonzero(row).tolist() for row in problem.subscribed]
        self.topic: list[int] = problem.topic.tolist()
        members = len(problem.capacity)
        self.placed: IntArray = np.full(len(self.topic), NOBODY, dtype=np.int32)
        self.held: list[dict[int, list[int]]] = [{} for _ in range(members)]
        self.home: list[int] = problem.owner.tolist()
        self.count = [0] * members
        homeless: list[int] = []
        for item, home in enumerate(self.home):
            if home != NOBODY and problem.subscribed[self.topic[item], home]:
                self._give(item, home)
            else:
                homeless.append(item)
        self._seat(homeless)

    def step(self) -> bool:
        """Hand partitions along one chain; False when no chain evens the counts."""
        least = min(self.count, default=0)
        givers = [m for m, count in enumerate(self.count) if count >= least + 2]
        for giver in sorted(givers, key=lambda m: (-self.count[m], m)):
            chain = self._chain(giver)
            for item, taker in chain:
                self._take(item)
                self._give(item, taker)
            if chain:
                return True
        return False

    def _seat(self, homeless: list[int]) -> None:
        queues = [[(self.count[m], m) for m in readers] for readers in self.readers]
        for queue in queues:
            heapq.heapify(queue)
        for item in homeless:
            queue = queues[self.topic[item]]
            while queue and queue[0][0] != self.count[queue[0][1]]:  # filled by another topic since
                heapq.heapreplace(queue, (self.count[queue[0][1]], queue[0][1]))
            if queue:
                self._give(item, queue[0][1])

    def _chain(self, giver: int) -> list[_Hop]:
        """Return the shortest chain from the giver to one two below it; [] if there is none."""
        came: dict[int, _Hop] = {giver: (NOBODY, NOBODY)}
        level = [giver]
        while level:
            reached: list[int] = []
            for member in level:
                reached += self._reach(member, came)
            below = [m for m in reached if self.count[m] <= self.count[giver] - 2]
            if below:
                return self._trace(giver, min(below, key=lambda m: (self.count[m], m)), came)
            level = reached
        return []

    def _reach(self, member: int, came: dict[int, _Hop]) -> list[int]:
        """Return the members that this one can pass something to, and note the way there."""
        reached: list[int] = []
        for topic in sorted(self.held[member]):
            new = [taker for taker in self.readers[topic] if taker not in came]
            came.update((taker, (topic, member)) for taker in new)
            reached += new
        return reached

    def _trace(self, giver: int, end: int, came: dict[int, _Hop]) -> list[_Hop]:
        """Return the hops from the giver to the end, each an item and its taker."""
        chain: list[_Hop] = []
        while end != giver:
            topic, member = came[end]
            chain.append((self._choose(member, topic, end), end))
            end = member
        return chain

    def _choose(self, member: int, topic: int, taker: int) -> int:
        """Return what to pass on: what is the taker's own, else what is away from home."""
        items = self.held[member][topic]
        return min(items, key=lambda i: (self.home[i] != taker, self.home[i] == member, i))

    def _give(self, item: int, member: int) -> None:
        self.held[member].setdefault(self.topic[item], []).append(item)
        self.count[member] += 1
        self.placed[item] = member

    def _take(self, item: int) -> None:
        member = int(self.placed[item])
        items = self.held[member][self.topic[item]]
        items.remove(item)
        if not items:
            del self.held[member][self.topic[item]]
        self.count[member] -= 1


HEURISTIC: Final = Heuristic(
    name="sticky",
    pack=pack,
    summary="even by count within subscriptions, then the fewest moves",
    source="count-based, after Kafka's sticky assignors (KIP-54, KIP-429)",
    settles=True,
    counts=False,
)
