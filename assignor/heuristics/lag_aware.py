"""Lag-aware (KAFKA-5337): topic by topic, the most lag to the consumer with the fewest partitions.

Counts and lags are those within the topic, as in the proposal's prototype. Ties: fewest partitions,
then least lag, then the lowest member; equal lags go in the order of their partitions.
"""

import heapq
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import NOBODY, IntArray, Problem


def pack(problem: Problem) -> IntArray:
    """Deal each topic out by lag among its subscribers; source: KAFKA-5337, "Algorithm"."""
    placed = np.full(len(problem.weight), NOBODY, dtype=np.int32)
    for topic, readers in enumerate(problem.subscribed):
        turns = [(0, 0.0, int(member)) for member in np.flatnonzero(readers)]
        items = np.flatnonzero(problem.topic == topic)
        if turns:
            _deal(placed, items[np.argsort(-problem.lag[items], kind="stable")], turns, problem)
    return placed


def _deal(
    placed: IntArray,
    items: NDArray[np.intp],
    turns: list[tuple[int, float, int]],
    problem: Problem,
) -> None:
    """Deal one topic's items out; `turns` holds (partitions so far, lag so far, member)."""
    for item in items.tolist():
        count, lag, member = turns[0]
        placed[item] = member
        heapq.heapreplace(turns, (count + 1, lag + float(problem.lag[item]), member))


HEURISTIC: Final = Heuristic(
    name="lag-aware",
    pack=pack,
    summary="per topic, most lag first, to who has the fewest partitions, then the least lag",
    source="KAFKA-5337",
    settles=True,
    counts=False,
)
