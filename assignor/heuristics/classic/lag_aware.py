"""Lag-aware (KAFKA-5337): per topic, partitions by falling lag to the member with the fewest.

Ties go to the least lag of the topic. The proposal leaves further ties open: they go to the fewest
partitions of the group, then its least lag, then the lowest member. Equal lags keep the order of
their partitions.
"""

import heapq
from typing import Final

import numpy as np

from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem
from trimtab.assignor.model.heuristic import Heuristic


def place_by_lag(problem: PackingProblem) -> IntArray:
    """Return the member of each partition (P,); source: KAFKA-5337, "Algorithm"."""
    placed = np.full(len(problem.weight), UNASSIGNED, dtype=np.int32)
    lags = problem.lag.tolist()
    group = [(0, 0.0)] * len(problem.capacity)  # partitions and lag of each member, of all topics so far
    for topic, readers in enumerate(problem.subscribed):
        # (partitions, lag) of this topic, then of the group; a heap is sorted, so equal keys are by member
        heap = [(0, 0.0, *group[member], member) for member in np.flatnonzero(readers).tolist()]
        heapq.heapify(heap)
        items = np.flatnonzero(problem.topic == topic)
        for item in items[np.argsort(-problem.lag[items], kind="stable")].tolist() if heap else ():
            count, lag, group_count, group_lag, member = heap[0]
            placed[item] = member
            group[member] = (group_count + 1, group_lag + lags[item])
            heapq.heapreplace(heap, (count + 1, lag + lags[item], *group[member], member))
    return placed


LAG_AWARE: Final = Heuristic(
    name="lag-aware",
    pack=place_by_lag,
    summary="per topic, most lag first, to the member with the fewest partitions, least lag",
    source="KAFKA-5337",
    idempotent=True,
    packs_by_capacity=False,
    places_by_lag=True,
)
