"""Lag-aware (KAFKA-5337): per topic, partitions by falling lag to the member with the fewest.

Counts and lags are per topic, as in the proposal's prototype. Ties go to the least lag, then the
lowest member; equal lags keep the order of their partitions.
"""

import heapq
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem


def place_by_lag(problem: PackingProblem) -> IntArray:
    """Return the member of each partition (P,); source: KAFKA-5337, "Algorithm"."""
    placed = np.full(len(problem.weight), UNASSIGNED, dtype=np.int32)
    for topic, readers in enumerate(problem.subscribed):
        queue = [(0, 0.0, int(member)) for member in np.flatnonzero(readers)]
        items = np.flatnonzero(problem.topic == topic)
        if queue:
            _deal_topic(placed, items[np.argsort(-problem.lag[items], kind="stable")], queue, problem)
    return placed


def _deal_topic(
    placed: IntArray,
    items: NDArray[np.intp],
    readers_by_count: list[tuple[int, float, int]],
    problem: PackingProblem,
) -> None:
    """Place one topic's items; `readers_by_count` is a heap of (partitions, lag, member)."""
    for item in items.tolist():
        count, lag, member = readers_by_count[0]
        placed[item] = member
        heapq.heapreplace(readers_by_count, (count + 1, lag + float(problem.lag[item]), member))


LAG_AWARE: Final = Heuristic(
    name="lag-aware",
    pack=place_by_lag,
    summary="per topic, most lag first, to the member with the fewest partitions, least lag",
    source="KAFKA-5337",
    idempotent=True,
    packs_by_capacity=False,
)
