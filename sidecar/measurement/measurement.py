"""Estimates the load of a group from offset readings, iteration by iteration. No I/O.

A partition is *stuck* when an overdue backlog has waited for a whole consumption window while one
member owned it and committed nothing: a record that fails, or a consumer that hangs. Stuck
partitions are reported and are no sign of too few consumers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.choices import QueueKind
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.observation import ObservedGroup
from trimtab.sidecar.measurement.write_rate import (
    OffsetReadings,
    SlidingWindow,
    WriteRateMeter,
    add_needed_rates,
    compute_overdue_bytes,
)
from trimtab.sidecar.measurement.write_rate_variance import WriteRateVariance
from trimtab.sidecar.settings.settings import SidecarSettings

COMMIT_SAMPLES: Final = 12  # commit readings kept per consumption window


@dataclass(frozen=True, slots=True)
class LoadEstimate:
    """Estimated load; `consumption_rates` are bytes/s, for partitions where known."""

    write_rates: Mapping[TopicPartition, PartitionLoad]
    consumption_rates: Mapping[TopicPartition, float]
    stuck_partitions: frozenset[TopicPartition]


class LoadEstimator:
    """Keeps the windows of readings, and since when each owner is overdue."""

    def __init__(self, settings: SidecarSettings) -> None:
        window = SlidingWindow(settings.window, settings.window / 2)
        self._consumption_window = settings.consumption_window
        commits = SlidingWindow(
            self._consumption_window,
            self._consumption_window / 2,
            min_spacing_s=self._consumption_window / COMMIT_SAMPLES,
        )
        self._meter = WriteRateMeter(
            window,
            log_size_window=window if settings.source == "log-dirs" else None,
            commit_window=commits if self._consumption_window else None,
        )
        self._rate_variance = WriteRateVariance(settings.window)
        self._catch_up_policy = settings.catch_up
        # In a share group several consumers work on one partition: its backlog is not capped.
        is_share = settings.queue is QueueKind.SHARE
        self._usable_capacity = math.inf if is_share else settings.autoscaling_policy.usable_capacity
        self._overdue_since: dict[TopicPartition, tuple[str, float]] = {}

    def learn_record_sizes(self, sizes: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Add sampled record sizes, in bytes."""
        self._meter = replace(self._meter, record_sizes=self._meter.record_sizes.update_means(sizes))

    def estimate_load(self, now: float, readings: OffsetReadings, group: ObservedGroup) -> LoadEstimate:
        """Add readings and estimate the load; `now` is monotonic, in seconds."""
        self._meter = self._meter.add_readings(now, readings)
        measured = self._meter.measure_partitions(readings)
        self._rate_variance = self._rate_variance.add_write_rates(now, measured)
        consumption = self._meter.compute_consumption_rates(readings)
        write_rates = add_needed_rates(
            self._rate_variance.add_deviations(measured), self._catch_up_policy, self._usable_capacity
        )
        # A message in flight for long is not stuck: look at the backlog without those.
        if readings.in_flight is not None:
            measured = self._meter.measure_partitions(replace(readings, in_flight=None))
        return LoadEstimate(
            write_rates, consumption, self._find_stuck_partitions(now, group, measured, consumption)
        )

    def record_outage(self, now: float, readings: OffsetReadings) -> Mapping[TopicPartition, PartitionLoad]:
        """Record that no broker answered; write rates are unknown until a run is long enough."""
        self._meter = self._meter.add_readings(now, readings)
        return self._meter.measure_partitions(readings)

    def _find_stuck_partitions(
        self,
        now: float,
        group: ObservedGroup,
        measured: Mapping[TopicPartition, PartitionLoad],
        consumption_rates: Mapping[TopicPartition, float],
    ) -> frozenset[TopicPartition]:
        """Return partitions overdue for a whole window with one owner and no commit."""
        # Their backlog still counts as load. If it weighed nothing, a failed sink would make all
        # partitions light, and each move would make the moved ones heavy and ask for the next move.
        owners = {p: member.id for member in group.members for p in member.owned_partitions}
        overdue = [
            p for p in owners if p in measured and compute_overdue_bytes(measured[p], self._catch_up_policy)
        ]
        before, self._overdue_since = self._overdue_since, {}
        for partition in overdue:
            last = before.get(partition)
            same_owner = last is not None and last[0] == owners[partition]
            self._overdue_since[partition] = (
                last if last is not None and same_owner else (owners[partition], now)
            )
        return frozenset(
            p
            for p, (_, since) in self._overdue_since.items()
            if now - since >= self._consumption_window and consumption_rates.get(p) == 0
        )
