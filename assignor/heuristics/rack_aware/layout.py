"""Nodes of the flow network (`rack_aware.flow_network`): items, members, seats, hubs, end."""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.heuristics.rack_aware.balance import find_balanceable_topics
from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, LongArray, PackingProblem


@dataclass(frozen=True, slots=True)
class FlowLayout:
    """I items in K kinds of equal readers; M members in R + 1 racks (the last: unknown).

    Nodes are the items, the members, the seats of balanced topics, the hubs, and the end.
    """

    items: LongArray  # (I,) partitions
    kind: LongArray  # (I,)
    readers: BoolArray  # (K, M)
    seat: LongArray  # (K, M) node of each member's seat: the member itself for unbalanced topics
    balanced_topics: LongArray  # (E,) topics whose counts are to be even
    topic_seats: LongArray  # (E, M) nodes of their seats
    rack_count: int  # R + 1
    first_hub: int

    @property
    def first_member(self) -> int:
        """Node of the first member."""
        return len(self.items)

    @property
    def end_node(self) -> int:
        """Sink of the network."""
        return self.first_hub + len(self.readers) * (self.rack_count + 1)

    def hub_node(self, kind: LongArray, rack: LongArray | IntArray | int) -> LongArray:
        """Return the hub of a kind in a rack; rack R + 1 is anywhere."""
        return self.first_hub + kind * (self.rack_count + 1) + rack

    def members_by_seat(self) -> IntArray:
        """Return the member of each seat (N,), UNASSIGNED for other nodes."""
        kind, member = np.nonzero(self.readers)
        members = np.full(self.end_node + 1, UNASSIGNED, dtype=np.int32)
        members[self.seat[kind, member]] = member
        return members


def build_layout(problem: PackingProblem, rack_count: int, *, per_topic: bool) -> FlowLayout:
    """Assign numbers to the nodes; `rack_count` counts the members' racks and the unknown one."""
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
    first = len(items) + readers.shape[1]
    (topics,) = np.nonzero(even)
    seats = first + np.arange(len(topics) * readers.shape[1]).reshape(len(topics), readers.shape[1])
    seat[kind_of_topic[topics]] = seats
    return FlowLayout(
        items=items,
        kind=kind_of_topic[problem.topic[items]],
        readers=readers,
        seat=seat,
        balanced_topics=topics,
        topic_seats=seats,
        rack_count=rack_count,
        first_hub=first + seats.size,
    )
