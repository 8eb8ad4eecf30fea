"""Limits on a member's partitions, in total and per topic, at which the counts are even.

With different subscriptions, counts are even if the sum of their squares is minimal.
"""

from dataclasses import dataclass, replace

import numpy as np

from trimtab.assignor.heuristics.classic import sticky
from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, LongArray, PackingProblem


@dataclass(frozen=True, slots=True)
class CountLimits:
    """Minimum and maximum counts."""

    least: LongArray
    most: LongArray

    def allow_counts(self, count: IntArray | LongArray) -> bool:
        """Return whether all counts are within the limits."""
        return bool((self.least <= count).all() and (count <= self.most).all())


def find_balanceable_topics(problem: PackingProblem) -> BoolArray:
    """Return the topics (T,) with several partitions and readers, which can be uneven."""
    size = np.bincount(problem.topic, minlength=len(problem.subscribed))
    several: BoolArray = (size > 1) & (problem.subscribed.sum(axis=1) > 1)
    return several


def compute_topic_limits(problem: PackingProblem) -> CountLimits:
    """Return the limits of each topic and member, (T, M): the even share rounded down and up."""
    size = np.bincount(problem.topic, minlength=len(problem.subscribed))
    share, rest = np.divmod(size, np.maximum(problem.subscribed.sum(axis=1), 1))
    least = share[:, None] * problem.subscribed
    return CountLimits(least, least + (rest[:, None] > 0) * problem.subscribed)


def compute_member_limits(problem: PackingProblem, *, per_topic: bool) -> CountLimits:
    """Return each member's limits in total (M,); with `per_topic` the topics' limits hold too."""
    reads = problem.subscribed[np.unique(problem.topic)]
    reads = reads[reads.any(axis=1)]
    if (reads == reads[:1]).all():  # one subscription: a division tells the counts
        readers = reads[:1].any(axis=0).astype(np.int64)
        count = int(problem.subscribed[problem.topic].any(axis=1).sum())
        share, rest = divmod(count, max(1, int(readers.sum())))
        least = np.full_like(readers, share) * readers
        return CountLimits(least, least + readers * bool(rest))
    if per_topic:
        topics = compute_topic_limits(problem)
        return CountLimits(topics.least.sum(axis=0), topics.most.sum(axis=0))
    even = sticky.place_sticky(replace(problem, owner=np.full_like(problem.owner, UNASSIGNED)))
    # Even assignments are the bases of a shifted matroid, so a member's count differs by at most
    # one between two of them (Frank and Murota, "Decreasing minimization on M-convex sets", 2018).
    counts = np.bincount(even[even != UNASSIGNED], minlength=len(problem.capacity))
    return CountLimits(np.maximum(counts - 1, 0), counts + 1)
