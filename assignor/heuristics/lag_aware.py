"""Lag-aware (KAFKA-5337): per topic, partitions by falling lag to the member with the fewest.

Ties go to the least lag, then the lowest member; equal lags keep the order of their partitions.
"""

import heapq
from typing import Final

import numpy as np

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem


def place_by_lag(problem: PackingProblem) -> IntArray:
    """Return the member of each partition (P,); source: KAFKA-5337, "Algorithm"."""
    placed = np.full(len(problem.weight), UNASSIGNED, dtype=np.int32)
    for topic, readers in enumerate(problem.subscribed):
        # (partitions, lag, member) of this topic alone, as in the proposal's prototype
        heap = [(0, 0.0, int(member)) for member in np.flatnonzero(readers)]
        items = np.flatnonzero(problem.topic == topic)
        for item in items[np.argsort(-problem.lag[items], kind="stable")].tolist() if heap else ():
            count, lag, member = heap[0]
            placed[item] = member
            heapq.heapreplace(heap, (count + 1, lag + float(problem.lag[item]), member))
    return placed


LAG_AWARE: Final = Heuristic(
    name="lag-aware",
    pack=place_by_lag,
    summary="per topic, most lag first, to the member with the fewest partitions, least lag",
    source="KAFKA-5337",
    idempotent=True,
    packs_by_capacity=False,
)
