"""Freshness as the backlog shows it, and how long batches may be for it to stay below a goal.

1. Where records come steadily, backlog / write speed is the age of the oldest record that is not
   committed. With batches of F seconds that take S to be seen, a record is between S and F + S old
   when it is, evenly spread, and so is that age at whatever time one looks. So ages, weighted by
   write speed and taken over some time, are distributed as the freshness of records is.
2. Their 99th percentile is the p99 of produced to committed. The youngest are about S, and what is
   between the two is about F.
3. A batch may be as long as leaves room for S below the goal, with a tenth of the goal to spare.
4. The plan carries that length, from when the goal is missed and batches are longer, until there
   is no goal any more. It follows S by more than a fifth only, so noise changes nothing; F does not
   enter, so that it does not chase what it has brought about.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import PartitionSpeed

SPARE: Final = 0.1
"""Share of a goal that is kept free."""

POINTS: Final = 100
"""Quantiles that are kept of each look."""

NEWS: Final = 0.2
"""Share by which the length of batches must be off before it is changed."""

FEWEST: Final = 3
"""Looks below which nothing is said."""


@dataclass(frozen=True, slots=True)
class Look:
    """Quantiles of the ages seen at a time (seconds since the epoch), evenly spaced, in seconds."""

    time: float
    ages: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Freshness:
    """Estimates in seconds: p99 of produced to committed, what a flush takes, a batch's length."""

    p99: float
    flush: float
    batch: float

    def longest(self, goal: float) -> float:
        """Return how long a batch may be (rule 3); 0 where a flush alone takes too long."""
        return max(0.0, goal * (1 - SPARE) - self.flush)

    def told(self, goal: float) -> str | None:
        """Say what to do where the goal is missed; None where it is kept."""
        if self.p99 <= goal:
            return None
        missed = f"p99 freshness is {self.p99:.0f} s, the goal {goal:.0f} s"
        if not self.longest(goal):
            return f"{missed}: a flush alone takes {self.flush:.0f} s, look at the sink"
        if self.batch <= self.longest(goal):
            return missed
        return (
            f"{missed}: batches take {self.batch:.0f} s and may take {self.longest(goal):.0f} s "
            "(batch.wait)"
        )


def paced(told: float | None, found: Freshness | None, goal: float | None) -> float | None:
    """Return how long a batch may be from now on, in seconds, None for as long as it is set to.

    `told` is what the plan in force says (rule 4).
    """
    longest = 0.0 if found is None or goal is None else found.longest(goal)
    if goal is None or found is None or not longest:
        return None if goal is None else told
    if told is None:
        return longest if found.p99 > goal and found.batch > longest else None
    return longest if abs(longest - told) > NEWS * told else told


def look(now: float, speeds: Mapping[TopicPartition, PartitionSpeed]) -> Look | None:
    """Return the ages of a turn; None where no partition is written to, or nothing is known."""
    known = [
        (s.backlog_records / s.records_per_s, s.records_per_s)
        for s in speeds.values()
        if s.records_per_s and s.backlog_records is not None
    ]
    if not known:
        return None
    age, weight = np.array(sorted(known), dtype=np.float64).T
    share = np.cumsum(weight) / weight.sum()
    points = np.searchsorted(share, (np.arange(POINTS) + 0.5) / POINTS)
    return Look(now, tuple(age[np.minimum(points, len(age) - 1)].tolist()))


def freshness(looks: tuple[Look, ...]) -> Freshness | None:
    """Return what some looks tell together; None of too few."""
    if len(looks) < FEWEST:
        return None
    ages = np.array([look.ages for look in looks])
    young, old = np.quantile(ages, (0.01, 0.99)).tolist()
    return Freshness(old, young, old - young)
