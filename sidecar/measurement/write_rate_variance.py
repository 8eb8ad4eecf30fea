"""Variance of write rates: the deviation of their change from one window to the next.

The history of a deleted partition is dropped.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.assignor.model.forecast import RateChangeStats
from trimtab.common.control_topics.write_rates import PartitionLoad


@dataclass(frozen=True, slots=True, eq=False)
class WriteRateVariance:
    """Statistics of rate changes."""

    sample_interval_s: float  # a window's length: rates of overlapping windows hardly differ
    sampled_at: float = -math.inf  # monotonic, in seconds
    partitions: tuple[TopicPartition, ...] = ()
    changes: RateChangeStats = field(default_factory=lambda: RateChangeStats.empty(0))

    def add_write_rates(
        self, now: float, write_rates: Mapping[TopicPartition, PartitionLoad]
    ) -> "WriteRateVariance":
        """Sample the rates if the interval has passed and one is known."""
        unknown = all(s.bytes_per_s is None for s in write_rates.values())
        if unknown or now - self.sampled_at < self.sample_interval_s:
            return self
        names = tuple(sorted(write_rates))
        changes = self._align(names).with_measurement(_to_array(names, write_rates))
        return replace(self, sampled_at=now, partitions=names, changes=changes)

    def add_deviations(
        self, write_rates: Mapping[TopicPartition, PartitionLoad]
    ) -> dict[TopicPartition, PartitionLoad]:
        """Set the known deviations."""
        names = tuple(write_rates)
        variance = self._align(names).forecast_next(_to_array(names, write_rates)).variance
        deviations = dict(zip(names, np.sqrt(variance).tolist(), strict=True))
        return {p: replace(s, stddev_bytes_per_s=deviations[p]) for p, s in write_rates.items()}

    def _align(self, names: tuple[TopicPartition, ...]) -> RateChangeStats:
        number = {name: i for i, name in enumerate(self.partitions)}
        index = np.array([number.get(name, len(number)) for name in names], dtype=np.intp)
        rates, variance = self.changes.last_rate, self.changes.variance
        # A new partition takes the appended NaN: unknown.
        return RateChangeStats(np.append(rates, np.nan)[index], np.append(variance, np.nan)[index])


def _to_array(
    names: tuple[TopicPartition, ...], write_rates: Mapping[TopicPartition, PartitionLoad]
) -> FloatArray:
    rates = [write_rates[name].bytes_per_s for name in names]
    return np.array([math.nan if rate is None else rate for rate in rates], dtype=np.float64)
