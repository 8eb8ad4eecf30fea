"""Estimates the load of a group from offset readings, iteration by iteration. No I/O.

A partition is *stuck* when an overdue backlog has waited for a whole consumption window while one
member owned it and committed nothing: a record that fails, or a consumer that hangs. Stuck
partitions are reported; more consumers would not help. Grace and window follow a group that commits
rarely (`commit_interval`), unless a freshness objective sets them. While its owner reads what it has
fetched of other partitions, a partition waits for its turn, at most as long as for a first commit.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.sidecar.measurement.commit_interval import CommitInterval, CommitIntervals, extend_window
from trimtab.sidecar.measurement.handler_work import HandlerWorkTracker
from trimtab.sidecar.measurement.partition_weights import weigh_loads, weigh_rates
from trimtab.sidecar.measurement.record_cost import RecordCostLearner, RecordCostStatus
from trimtab.sidecar.measurement.record_sizes import RecordSizes, SampledBatch, SizeStatus
from trimtab.sidecar.measurement.write_rate import (
    CounterSample,
    OffsetReadings,
    SlidingWindow,
    WriteRateMeter,
)
from trimtab.sidecar.measurement.write_rate_variance import WriteRateVariance
from trimtab.sidecar.model.catch_up_policy import add_required_rates, compute_overdue_bytes
from trimtab.sidecar.model.observation import ObservedGroup
from trimtab.sidecar.model.record_weights import BYTES_ALONE, RecordWeights
from trimtab.sidecar.settings.settings import SidecarSettings

FIRST_COMMIT_WINDOWS: Final = 20.0  # windows of write rates to wait for a group's first commit: 10 minutes
FETCHED_BYTES: Final = 2.0**20  # of a partition at a time: max.partition.fetch.bytes
COMMIT_SAMPLES: Final = 12  # kept per consumption window: bounds the memory for thousands of partitions


@dataclass(frozen=True, slots=True)
class LearnedFigures:
    """What the group's work and commits have shown besides its load."""

    record_cost: RecordCostStatus | None = None  # None if it is not learned
    rare_commits: CommitInterval | None = None  # None if the group commits within the grace
    record_sizes: SizeStatus | None = None  # None while no size is known


@dataclass(frozen=True, slots=True)
class LoadEstimate:
    """Estimated load; rates are in bytes/s, unknown partitions are absent."""

    write_rates: Mapping[TopicPartition, PartitionLoad]
    consumption_rates: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    stuck_partitions: frozenset[TopicPartition] = frozenset()  # overdue backlog, no progress
    learned: LearnedFigures = LearnedFigures()
    record_weights: RecordWeights = BYTES_ALONE  # of the records in `write_rates`
    # What a written byte weighs in `write_rates`, its part of a record included; absent ones weigh 1.
    byte_weights: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])


class LoadEstimator:
    """Keeps the windows of readings, and since when each owner is overdue."""

    def __init__(self, settings: SidecarSettings) -> None:
        window = SlidingWindow(settings.window, settings.window / 2)
        self._set_window = self._consumption_window = settings.consumption_window
        commits = _build_commit_window(self._set_window, ())
        self._meter = WriteRateMeter(
            window,
            commit_window=commits,
            record_sizes=RecordSizes(settings.window, settings.source == "log-dirs"),
            weights=RecordWeights(record=settings.record_cost),
        )
        self._cost_learner = RecordCostLearner() if settings.learn_record_cost else None
        self._work_tracker = HandlerWorkTracker(settings.window)
        self._rate_variance = WriteRateVariance(settings.window)
        self._set_catch_up = self._catch_up_policy = settings.catch_up
        is_learned = settings.freshness_slo is None and settings.queue is None
        patience = FIRST_COMMIT_WINDOWS * settings.window
        self._commit_intervals = CommitIntervals(patience) if is_learned else None
        # In a share group several consumers work on one partition: its backlog is not capped.
        is_share = settings.queue is QueueKind.SHARE
        self._usable_capacity = math.inf if is_share else settings.autoscaling_policy.usable_capacity
        self._overdue_since: dict[TopicPartition, tuple[str, float]] = {}  # owner, time
        self._stuck = frozenset[TopicPartition]()
        self._turn_limit = patience

    def learn_record_sizes(self, batches: Mapping[TopicPartition, Sequence[SampledBatch]]) -> None:
        """Add sampled batches of records."""
        self._meter = replace(self._meter, record_sizes=self._meter.record_sizes.add_samples(batches))

    def estimate_load(
        self,
        now: float,
        readings: OffsetReadings,
        group: ObservedGroup,
        weights: Mapping[TopicPartition, float] | None = None,
    ) -> LoadEstimate:
        """Add readings and estimate the load; `now` is monotonic, in seconds.

        With `weights` from outside, in the unit of the capacity, all figures are in that unit.
        """
        rare_commits = self._learn_commit_interval(now, readings, group)
        self._meter = self._meter.add_readings(now, readings)
        record_cost = self._learn_record_cost(now, readings, group)
        measured = self._meter.measure_partitions(readings)
        consumption = self._meter.compute_consumption_rates(readings)
        weighed = measured if weights is None else weigh_loads(measured, weights)
        self._rate_variance = self._rate_variance.add_write_rates(now, weighed)
        write_rates = add_required_rates(
            self._rate_variance.add_deviations(weighed), self._catch_up_policy, self._usable_capacity
        )
        # A message in flight for long is not stuck: look at the backlog without those.
        if readings.in_flight is not None:
            measured = self._meter.measure_partitions(replace(readings, in_flight=None))
        stuck = self._find_stuck(now, group, measured, consumption)
        if weights is not None:
            consumption = weigh_rates(consumption, measured, weights)
        byte_weights = self._meter.weigh_bytes(readings)
        learned = LearnedFigures(record_cost, rare_commits, self._meter.record_sizes.describe(measured))
        return LoadEstimate(write_rates, consumption, stuck, learned, self._meter.weights, byte_weights)

    def record_outage(self, now: float, readings: OffsetReadings) -> LoadEstimate:
        """Record that no broker answered; write rates are unknown until a run is long enough."""
        # An empty reading breaks the run (`write_rate`, rule 2).
        self._meter = self._meter.add_readings(now, readings)
        return LoadEstimate(self._meter.measure_partitions(readings), record_weights=self._meter.weights)

    def _learn_commit_interval(
        self, now: float, readings: OffsetReadings, group: ObservedGroup
    ) -> CommitInterval | None:
        if self._commit_intervals is None:
            return None
        owned = [p for member in group.members for p in member.owned_partitions]
        self._commit_intervals = self._commit_intervals.add_readings(now, readings, owned)
        rare = self._commit_intervals.find_rare_commits(now, self._set_catch_up.backlog_grace)
        grace = self._set_catch_up.backlog_grace if rare is None else rare.grace
        self._catch_up_policy = replace(self._set_catch_up, backlog_grace=grace)
        window = extend_window(self._set_window, rare)
        if window != self._consumption_window:
            self._consumption_window = window
            # intervals differ a little: what was read in the last ones still counts
            earlier = () if self._meter.commit_window is None else self._meter.commit_window.samples
            self._meter = replace(self._meter, commit_window=_build_commit_window(window, earlier))
        return rare

    def _learn_record_cost(
        self, now: float, readings: OffsetReadings, group: ObservedGroup
    ) -> RecordCostStatus | None:
        if self._cost_learner is None:
            return None
        sizes = self._meter.estimate_record_sizes(readings)
        work, self._work_tracker = self._work_tracker.collect_work(group.members, readings, sizes)
        status = self._cost_learner.learn(now, work)
        if self._cost_learner.weights != self._meter.weights:
            self._meter = replace(self._meter, weights=self._cost_learner.weights)
            # the change of all rates at once is none of what is written
            self._rate_variance = WriteRateVariance(self._rate_variance.sample_interval_s)
        return status

    def _find_stuck(
        self,
        now: float,
        group: ObservedGroup,
        measured: Mapping[TopicPartition, PartitionLoad],
        rates: Mapping[TopicPartition, float],
    ) -> frozenset[TopicPartition]:
        # Their backlog still counts as load. If it weighed nothing, a failed sink would make all
        # partitions light, and each move would make the moved ones heavy and ask for the next move.
        owned = {member.id: member.owned_partitions for member in group.members}
        owners = {p: owner for owner, partitions in owned.items() for p in partitions}
        overdue_since: dict[TopicPartition, tuple[str, float]] = {}
        stuck: set[TopicPartition] = set()
        for p, owner in owners.items():
            if p not in measured or not compute_overdue_bytes(measured[p], self._catch_up_policy):
                continue
            last_owner, since = self._overdue_since.get(p, (owner, now))
            if owner != last_owner:
                since = now  # a new owner gets a whole window: it may still open its sink
            overdue_since[p] = (owner, since)
            # An unknown rate proves nothing.
            if now - since >= self._consumption_window and rates.get(p) == 0:
                turn = min(self._turn_limit, _estimate_turn(owned[owner], measured, rates))
                if now - since >= turn or p in self._stuck:
                    stuck.add(p)
        self._overdue_since, self._stuck = overdue_since, frozenset(stuck)
        return self._stuck


def _estimate_turn(
    owned: Iterable[TopicPartition],
    measured: Mapping[TopicPartition, PartitionLoad],
    rates: Mapping[TopicPartition, float],
) -> float:
    """Return the seconds in which a consumer reads what it may have fetched of partitions that progress."""
    read = {p: rates[p] for p in owned if p in measured and rates.get(p)}
    fetched = sum(min(measured[p].backlog_bytes or 0.0, FETCHED_BYTES) for p in read)
    return fetched / sum(read.values()) if read else 0.0


def _build_commit_window(seconds: float, earlier: tuple[CounterSample, ...]) -> SlidingWindow | None:
    if not seconds:
        return None
    return SlidingWindow(seconds, seconds / 2, earlier, min_spacing_s=seconds / COMMIT_SAMPLES)
