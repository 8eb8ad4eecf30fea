"""Kafka's range assignor: per topic, consecutive partitions to the members in order."""

from typing import Final

import numpy as np

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem


def place_ranges(problem: PackingProblem) -> IntArray:
    """Return the member of each partition (P,); a topic's first ranges are one longer."""
    placed = np.full(len(problem.weight), UNASSIGNED, dtype=np.int32)
    for topic, readers in enumerate(problem.subscribed):
        members = np.flatnonzero(readers)
        items = np.flatnonzero(problem.topic == topic)
        if len(members) and len(items):
            each, more = divmod(len(items), len(members))
            sizes = np.full(len(members), each)
            sizes[:more] += 1
            placed[items] = np.repeat(members, sizes)
    return placed


RANGE_ASSIGNOR: Final = Heuristic(
    name="range",
    pack=place_ranges,
    summary="Kafka's default: per topic, consecutive partitions to the members in order",
    source="org.apache.kafka.clients.consumer.RangeAssignor",
    idempotent=True,
    packs_by_capacity=False,
)
