"""How many partitions a member may hold, in all and of a topic, so that the counts are even.

Members that read the same get the same number, or one more. Where subscriptions differ, the counts
are as even as those allow: no sum of their squares is less. Of all assignments that are that even
any may be chosen; a member's count differs by at most one between two of them, as they are the
bases of a matroid, shifted (Frank and Murota, "Decreasing minimization on M-convex sets", 2018).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.heuristics import sticky
from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, PackingProblem


@dataclass(frozen=True, slots=True)
class CountLimits:
    """The least and the most that each may hold."""

    least: NDArray[np.int64]
    most: NDArray[np.int64]

    def allow_counts(self, count: IntArray | NDArray[np.int64]) -> bool:
        """Tell whether all counts are within."""
        return bool((self.least <= count).all() and (count <= self.most).all())


def find_balanceable_topics(problem: PackingProblem) -> BoolArray:
    """Return which topics (T,) can be uneven at all: those of several partitions and readers."""
    size = np.bincount(problem.topic, minlength=len(problem.subscribed))
    several: BoolArray = (size > 1) & (problem.subscribed.sum(axis=1) > 1)
    return several


def compute_topic_limits(problem: PackingProblem) -> CountLimits:
    """Return each member's limits of each topic, (T, M): its even share, rounded down and up."""
    size = np.bincount(problem.topic, minlength=len(problem.subscribed))
    share, rest = np.divmod(size, np.maximum(problem.subscribed.sum(axis=1), 1))
    least = share[:, None] * problem.subscribed
    return CountLimits(least, least + (rest[:, None] > 0) * problem.subscribed)


def compute_member_limits(problem: PackingProblem, *, per_topic: bool) -> CountLimits:
    """Return each member's limits in all (M,); with `per_topic` those of the topics hold, too."""
    reads = problem.subscribed[np.unique(problem.topic)]
    reads = reads[reads.any(axis=1)]
    if (reads == reads[:1]).all():
        readers = reads[:1].any(axis=0).astype(np.int64)
        count = int(problem.subscribed[problem.topic].any(axis=1).sum())
        share, rest = divmod(count, max(1, int(readers.sum())))
        least = np.full_like(readers, share) * readers
        return CountLimits(least, least + readers * bool(rest))
    if per_topic:
        topics = compute_topic_limits(problem)
        return CountLimits(topics.least.sum(axis=0), topics.most.sum(axis=0))
    nobody = np.full_like(problem.owner, UNASSIGNED)
    even = sticky.place_sticky(replace(problem, owner=nobody))
    counts = np.bincount(even[even != UNASSIGNED], minlength=len(problem.capacity))
    return CountLimits(np.maximum(counts - 1, 0), counts + 1)
