"""The nodes of the network (`rack_aware.flow_network`): items, members, seats, hubs, end."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.heuristics.rack_aware.balance import even_topics
from trimtab.assignor.model import NOBODY, BoolArray, IntArray, Problem

Long = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """I items that somebody reads, in K kinds; M members in R + 1 racks (the last is: unknown).

    Node i is the i-th item, `members` the first member. Then come the seats of topics whose counts
    are to be even, then the hubs, and `end` is the last. Of other kinds a member is its own seat.
    """

    items: Long  # (I,) partitions
    kind: Long  # (I,)
    readers: BoolArray  # (K, M)
    seat: Long  # (K, M) node
    even: Long  # (E,) topics whose counts are to be even
    apart: Long  # (E, M) node of the seats of such a topic
    racks: int  # R + 1
    hubs: int

    @property
    def members(self) -> int:
        """Node of the first member."""
        return len(self.items)

    @property
    def end(self) -> int:
        """Node where everything flows."""
        return self.hubs + len(self.readers) * (self.racks + 1)

    def hub(self, kind: Long, rack: Long | IntArray | int) -> Long:
        """Return the hub of a kind in a rack; rack R + 1 is anywhere."""
        return self.hubs + kind * (self.racks + 1) + rack

    def sitters(self) -> IntArray:
        """Return who sits on each node (end + 1,), NOBODY for nodes of other ranks."""
        kind, member = np.nonzero(self.readers)
        sitter = np.full(self.end + 1, NOBODY, dtype=np.int32)
        sitter[self.seat[kind, member]] = member
        return sitter


def layout(problem: Problem, racks: int, *, per_topic: bool) -> Layout:
    """Give the nodes their numbers; `racks` are those of the members, the unknown one included."""
    even = even_topics(problem) & per_topic
    items = np.flatnonzero(problem.subscribed[problem.topic].any(axis=1))
    numbers: dict[tuple[int, bytes], int] = {}
    kind_of_topic = np.array(
        [
            numbers.setdefault((topic if even[topic] else NOBODY, row.tobytes()), len(numbers))
            for topic, row in enumerate(problem.subscribed)
        ],
        dtype=np.int64,
    )
    readers = np.zeros((len(numbers), len(problem.capacity)), dtype=np.bool_)
    readers[kind_of_topic] = problem.subscribed
    seat = np.broadcast_to(len(items) + np.arange(readers.shape[1]), readers.shape).copy()
    first, (topics,) = len(items) + readers.shape[1], np.nonzero(even)
    apart = first + np.arange(len(topics) * readers.shape[1]).reshape(len(topics), readers.shape[1])
    seat[kind_of_topic[topics]] = apart
    return Layout(
        items=items,
        kind=kind_of_topic[problem.topic[items]],
        readers=readers,
        seat=seat,
        even=topics,
        apart=apart,
        racks=racks,
        hubs=first + apart.size,
    )
