"""From readings to what a decision weighs, turn by turn: speeds, backlog, needed rates. No I/O.

A partition is *stuck* when more than the allowance has waited for a whole window of consumption,
one member has read it all that time, and has committed nothing of it: a record that cannot be
handled, or a consumer that hangs. It is told, and not taken for a sign of too few consumers. Its
backlog weighs as ever: if it weighed nothing, a sink that is down would make everything light, each
move would make what was moved heavy again, and so ask for the next move.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.observation import ObservedGroup
from trimtab.sidecar.measurement.queue_backlog import QueueKind
from trimtab.sidecar.measurement.write_rate import (
    OffsetReadings,
    SlidingWindow,
    WriteRateMeter,
    add_needed_rates,
    compute_overdue_bytes,
)
from trimtab.sidecar.measurement.write_rate_variance import WriteRateVariance
from trimtab.sidecar.settings.settings import SidecarSettings

COMMIT_SAMPLES: Final = 12
"""Readings of the commits that are kept over the window of consumption."""


@dataclass(frozen=True, slots=True)
class LoadEstimate:
    """What some readings gave; `consumption_rates` in bytes/s, of partitions of which it is known."""

    write_rates: Mapping[TopicPartition, PartitionLoad]
    consumption_rates: Mapping[TopicPartition, float]
    stuck_partitions: frozenset[TopicPartition]


class LoadEstimator:
    """Keeps the windows of readings, and who has been late with what since when (seconds)."""

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
        shared = settings.queue is QueueKind.SHARE  # then a backlog may have more than one consumer
        self._usable_capacity = math.inf if shared else settings.autoscaling_policy.usable_capacity
        self._overdue_since: dict[TopicPartition, tuple[str, float]] = {}

    def learn_record_sizes(self, sizes: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Take in sizes of records, in bytes."""
        self._meter = replace(
            self._meter, record_sizes=self._meter.record_sizes.update_means(sizes)
        )

    def estimate_load(
        self, now: float, readings: OffsetReadings, group: ObservedGroup
    ) -> LoadEstimate:
        """Take readings in; `now` is in seconds, of a clock that never goes back."""
        self._meter = self._meter.add_readings(now, readings)
        measured = self._meter.measure_partitions(readings)
        self._rate_variance = self._rate_variance.add_write_rates(now, measured)
        consumed = self._meter.compute_consumption_rates(readings)
        speeds = add_needed_rates(
            self._rate_variance.add_deviations(measured),
            self._catch_up_policy,
            self._usable_capacity,
        )
        if readings.in_flight is not None:  # what is in work for long is not stuck
            measured = self._meter.measure_partitions(replace(readings, in_flight=None))
        return LoadEstimate(
            speeds, consumed, self._find_stuck_partitions(now, group, measured, consumed)
        )

    def record_outage(
        self, now: float, readings: OffsetReadings
    ) -> Mapping[TopicPartition, PartitionLoad]:
        """Take note that nobody answered: every speed becomes unknown, and stays so for a while."""
        self._meter = self._meter.add_readings(now, readings)
        return self._meter.measure_partitions(readings)

    def _find_stuck_partitions(
        self,
        now: float,
        group: ObservedGroup,
        measured: Mapping[TopicPartition, PartitionLoad],
        consumption_rates: Mapping[TopicPartition, float],
    ) -> frozenset[TopicPartition]:
        """Return what has been late for long with a member that is at it, in vain."""
        there = {p: reader.id for reader in group.members for p in reader.owned_partitions}
        behind = [
            p
            for p in there
            if p in measured and compute_overdue_bytes(measured[p], self._catch_up_policy)
        ]
        before, self._overdue_since = self._overdue_since, {}
        for partition in behind:
            held = before.get(partition)
            kept = held is not None and held[0] == there[partition]
            self._overdue_since[partition] = (
                held if held is not None and kept else (there[partition], now)
            )
        return frozenset(
            p
            for p, (_, since) in self._overdue_since.items()
            if now - since >= self._consumption_window and consumption_rates.get(p) == 0
        )
