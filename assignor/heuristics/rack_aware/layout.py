"""The nodes of the network (`rack_aware.flow_network`): items, members, seats, hubs, end."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.heuristics.rack_aware.balance import find_balanceable_topics
from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, PackingProblem

LongArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FlowLayout:
    """I items that somebody reads, in K kinds; M members in R + 1 racks (the last is: unknown).

    Node i is the i-th item, `first_member` the first member. Then come the seats of topics whose counts
    are to be even, then the hubs, and `end_node` is the last. Of other kinds a member is its own seat.
    """

    items: LongArray  # (I,) partitions
    kind: LongArray  # (I,)
    readers: BoolArray  # (K, M)
    seat: LongArray  # (K, M) node
    balanced_topics: LongArray  # (E,) topics whose counts are to be even
    topic_seats: LongArray  # (E, M) node of the seats of such a topic
    rack_count: int  # R + 1
    first_hub: int

    @property
    def first_member(self) -> int:
        """Node of the first member."""
        return len(self.items)

    @property
    def end_node(self) -> int:
        """Node where everything flows."""
        return self.first_hub + len(self.readers) * (self.rack_count + 1)

    def hub_node(self, kind: LongArray, rack: LongArray | IntArray | int) -> LongArray:
        """Return the hub of a kind in a rack; rack R + 1 is anywhere."""
        return self.first_hub + kind * (self.rack_count + 1) + rack

    def members_by_seat(self) -> IntArray:
        """Return who sits on each node (end + 1,), NOBODY for nodes of other ranks."""
        kind, member = np.nonzero(self.readers)
        sitter = np.full(self.end_node + 1, UNASSIGNED, dtype=np.int32)
        sitter[self.seat[kind, member]] = member
        return sitter


def build_layout(problem: PackingProblem, rack_count: int, *, per_topic: bool) -> FlowLayout:
    """Give the nodes their numbers; `rack_count` are those of the members, the unknown one included."""
    even = find_balanceable_topics(problem) & per_topic
    items = np.flatnonzero(problem.subscribed[problem.topic].any(axis=1))
    numbers: dict[tuple[int, bytes], int] = {}
    kind_of_topic = np.array(
        [
            numbers.setdefault((topic if even[topic] else UNASSIGNED, row.tobytes()), len(numbers))
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
    return FlowLayout(
        items=items,
        kind=kind_of_topic[problem.topic[items]],
        readers=readers,
        seat=seat,
        balanced_topics=topics,
        topic_seats=apart,
        rack_count=rack_count,
        first_hub=first + apart.size,
    )
