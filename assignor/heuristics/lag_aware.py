"""Lag-aware (KAFKA-5337): topic by topic, the most lag to the consumer with the fewest partitions.

Counts and lags are those within the topic, as in the proposal's prototype. Ties: fewest partitions,
then least lag, then the lowest member; equal lags go in the order of their partitions.
"""

import heapq
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem


def place_by_lag(problem: PackingProblem) -> IntArray:
    """Deal each topic out by lag among its subscribers; source: KAFKA-5337, "Algorithm"."""
    placed = np.full(len(problem.weight), UNASSIGNED, dtype=np.int32)
    for topic, readers in enumerate(problem.subscribed):
        turns = [(0, 0.0, int(member)) for member in np.flatnonzero(readers)]
        items = np.flatnonzero(problem.topic == topic)
        if turns:
            _deal_topic(
                placed, items[np.argsort(-problem.lag[items], kind="stable")], turns, problem
            )
    return placed


def _deal_topic(
    placed: IntArray,
    items: NDArray[np.intp],
    readers_by_count: list[tuple[int, float, int]],
    problem: PackingProblem,
) -> None:
    """Deal one topic's items out; `readers_by_count` holds (partitions so far, lag so far, member)."""
    for item in items.tolist():
        count, lag, member = readers_by_count[0]
        placed[item] = member
        heapq.heapreplace(readers_by_count, (count + 1, lag + float(problem.lag[item]), member))


LAG_AWARE: Final = Heuristic(
    name="lag-aware",
    pack=place_by_lag,
    summary="per topic, most lag first, to who has the fewest partitions, then the least lag",
    source="KAFKA-5337",
    idempotent=True,
    packs_by_capacity=False,
)
