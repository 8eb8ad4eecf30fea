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
from trimtab.common.control_topics.write_rates import PartitionLoad

SLO_MARGIN: Final = 0.1
"""Share of a goal that is kept free."""

AGE_QUANTILES: Final = 100
"""Quantiles that are kept of each look."""

BATCH_AGE_TOLERANCE: Final = 0.2
"""Share by which the length of batches must be off before it is changed."""

MIN_AGE_SAMPLES: Final = 3
"""Looks below which nothing is said."""


@dataclass(frozen=True, slots=True)
class AgeSample:
    """Quantiles of the ages seen at a time (seconds since the epoch), evenly spaced, in seconds."""

    time: float
    ages: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FreshnessEstimate:
    """Estimates in seconds: p99 of produced to committed, what a flush takes, a batch's length."""

    p99: float
    flush_time: float
    batch_age: float

    def compute_max_batch_age(self, slo: float) -> float:
        """Return how long a batch may be (rule 3); 0 where a flush alone takes too long."""
        return max(0.0, slo * (1 - SLO_MARGIN) - self.flush_time)

    def describe_slo_miss(self, slo: float) -> str | None:
        """Say what to do where the goal is missed; None where it is kept."""
        if self.p99 <= slo:
            return None
        missed = f"p99 freshness is {self.p99:.0f} s, the goal {slo:.0f} s"
        if not self.compute_max_batch_age(slo):
            return f"{missed}: a flush alone takes {self.flush_time:.0f} s, look at the sink"
        if self.batch_age <= self.compute_max_batch_age(slo):
            return missed
        return (
            f"{missed}: batches take {self.batch_age:.0f} s and may take {self.compute_max_batch_age(slo):.0f} s "
            "(batch.max.age)"
        )


def update_batch_max_age(
    current: float | None, estimate: FreshnessEstimate | None, slo: float | None
) -> float | None:
    """Return how long a batch may be from now on, in seconds, None for as long as it is set to.

    `current` is what the plan in force says (rule 4).
    """
    longest = 0.0 if estimate is None or slo is None else estimate.compute_max_batch_age(slo)
    if slo is None or estimate is None or not longest:
        return None if slo is None else current
    if current is None:
        return longest if estimate.p99 > slo and estimate.batch_age > longest else None
    return longest if abs(longest - current) > BATCH_AGE_TOLERANCE * current else current


def sample_ages(
    now: float, write_rates: Mapping[TopicPartition, PartitionLoad]
) -> AgeSample | None:
    """Return the ages of a turn; None where no partition is written to, or nothing is known."""
    known = [
        (s.backlog_records / s.records_per_s, s.records_per_s)
        for s in write_rates.values()
        if s.records_per_s and s.backlog_records is not None
    ]
    if not known:
        return None
    age, weight = np.array(sorted(known), dtype=np.float64).T
    share = np.cumsum(weight) / weight.sum()
    points = np.searchsorted(share, (np.arange(AGE_QUANTILES) + 0.5) / AGE_QUANTILES)
    return AgeSample(now, tuple(age[np.minimum(points, len(age) - 1)].tolist()))


def estimate_freshness(samples: tuple[AgeSample, ...]) -> FreshnessEstimate | None:
    """Return what some looks tell together; None of too few."""
    if len(samples) < MIN_AGE_SAMPLES:
        return None
    ages = np.array([look.ages for look in samples])
    young, old = np.quantile(ages, (0.01, 0.99)).tolist()
    return FreshnessEstimate(old, young, old - young)
