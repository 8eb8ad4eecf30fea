"""Estimates freshness from the backlog, and the batch age that keeps it within an SLO.

1. At steady rates, backlog / write rate is the age of the oldest uncommitted record. With batches
   of F seconds that take S seconds to commit, a record is between S and F + S old when committed,
   evenly distributed, and so is that age at any time. Ages weighted by write rate and sampled over
   time are therefore distributed as the freshness of records.
2. Their 99th percentile is the p99 of produced to committed. The youngest are about S; the spread
   is about F.
3. A batch may take the time that S leaves of the SLO, minus a margin of a tenth of the SLO.
4. The plan carries that batch age once the SLO is missed and batches are longer, until no SLO is
   set. It follows S in steps above a fifth, so that noise changes nothing. F does not enter: the
   limit would chase its own effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.model.catch_up_policy import SLO_MARGIN

AGE_QUANTILES: Final = 100  # kept of each sample, whatever the number of partitions
BATCH_AGE_TOLERANCE: Final = 0.2  # relative change of the batch age that is published
MIN_AGE_SAMPLES: Final = 3  # samples below which no estimate is made


@dataclass(frozen=True, slots=True)
class AgeSample:
    """Evenly spaced quantiles of the ages at a time, in seconds."""

    time: float  # since the epoch
    ages: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FreshnessEstimate:
    """Estimates in seconds (rules 1 and 2)."""

    p99: float  # of produced to committed
    flush_time: float  # S
    batch_age: float  # F

    def compute_max_batch_age(self, slo: float) -> float:
        """Return the maximum batch age (rule 3); 0 if a flush alone exceeds the SLO."""
        return max(0.0, slo * (1 - SLO_MARGIN) - self.flush_time)

    def describe_slo_miss(self, slo: float) -> str | None:
        """Return what to do about a missed SLO; None if it is met."""
        if self.p99 <= slo:
            return None
        missed = f"p99 freshness is {self.p99:.0f} s, the SLO {slo:.0f} s"
        longest = self.compute_max_batch_age(slo)
        if not longest:  # no batch is short enough
            return f"{missed}: a flush alone takes {self.flush_time:.0f} s, check the sink"
        if self.batch_age <= longest:
            return missed
        return f"{missed}: batches take {self.batch_age:.0f} s and may take {longest:.0f} s (batch.max.age)"


def update_batch_max_age(
    current: float | None, estimate: FreshnessEstimate | None, slo: float | None
) -> float | None:
    """Return the next maximum batch age in seconds (rule 4); None for the consumers' own."""
    if slo is None:
        return None
    longest = 0.0 if estimate is None else estimate.compute_max_batch_age(slo)
    if estimate is None or not longest:
        return current
    if current is None:
        return longest if estimate.p99 > slo and estimate.batch_age > longest else None
    return longest if abs(longest - current) > BATCH_AGE_TOLERANCE * current else current


def sample_ages(now: float, write_rates: Mapping[TopicPartition, PartitionLoad]) -> AgeSample | None:
    """Return the ages of one iteration; None without known writes."""
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
    points = np.minimum(points, len(age) - 1)  # float sums may end below 1
    return AgeSample(now, tuple(age[points].tolist()))


def estimate_freshness(samples: tuple[AgeSample, ...]) -> FreshnessEstimate | None:
    """Estimate freshness from samples; None if there are too few."""
    if len(samples) < MIN_AGE_SAMPLES:
        return None
    ages = np.array([sample.ages for sample in samples])
    young, old = np.quantile(ages, (0.01, 0.99)).tolist()
    return FreshnessEstimate(old, young, old - young)
