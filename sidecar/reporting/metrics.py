"""Prometheus metrics of the managed groups, each with the label `group`."""

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from trimtab.sidecar.decision.decision import DecisionMetrics
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.records.plan_outcome import PlanOutcome

# seconds; a handover usually takes 0.07 to 0.11 s, see docs/benchmarks.md
HANDOVER_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
DECISION_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
GaugeRows: TypeAlias = Sequence[tuple[str, str, str]]
"""Attribute, metric, help. An unknown value has no sample: 0 would look like a measurement."""

GROUP_GAUGES: Final[GaugeRows] = (  # of DecisionMetrics
    ("running_replicas", "trimtab_replicas", "Live replicas that are not draining"),
    ("planned_replicas", "trimtab_replicas_planned", "Replicas of the plan in force"),
    ("desired_replicas", "trimtab_replicas_desired", "Desired replicas, after limits and windows"),
    ("recommended_replicas", "trimtab_replicas_recommended", "Replicas recommended by the load alone"),
    ("unknown_partitions", "trimtab_partitions_unknown", "Partitions with an unknown write rate"),
    ("partitions", "trimtab_partitions", "Partitions of the group's topics"),
    ("required_rate", "trimtab_required_bytes_per_second", "Rate that all consumers together must sustain"),
    ("consumption_rate", "trimtab_consumed_bytes_per_second", "Rate at which all consumers together read"),
    ("queue_waiting", "trimtab_queue_waiting_messages", "Messages of a queue waiting for delivery"),
    ("queue_in_flight", "trimtab_queue_in_flight_messages", "Messages of a queue in flight at a worker"),
    ("queue_awaiting_redelivery", "trimtab_queue_awaiting_redelivery_messages", "Messages to redeliver"),
    ("overdue_backlog_bytes", "trimtab_overdue_backlog_bytes", "Backlog older than backlog-grace"),
    ("p99_freshness_s", "trimtab_estimated_freshness_seconds", "Estimated p99 from produce to commit"),
    ("freshness_slo_s", "trimtab_freshness_slo_seconds", "Objective of the p99: freshness-slo"),
    ("max_batch_s", "trimtab_max_batch_seconds", "Longest batch that keeps freshness-slo"),
    ("max_fill", "trimtab_fullest_consumer_ratio", "Required rate / capacity of the fullest consumer"),
    ("cross_rack_rate", "trimtab_cross_rack_bytes_per_second", "Rate of reads from other racks"),
    (
        "partitions_without_local_replica",
        "trimtab_partitions_without_local_replica",
        "Partitions without a replica in any consumer's rack",
    ),
    (
        "racks_without_consumer",
        "trimtab_racks_without_consumer",
        "Racks with replicas but without a consumer",
    ),
)
PLAN_GAUGES: Final[GaugeRows] = (  # of the DecisionMetrics of the last plan with a placement
    ("r_score", "trimtab_r_score", "R-score of the last plan, as decided"),
    (
        "planned_fill",
        "trimtab_planned_fullest_consumer_ratio",
        "Required rate / capacity of the fullest consumer once the last plan is carried out",
    ),
)
OUTCOME_GAUGES: Final[GaugeRows] = (  # of the PlanOutcome of the last plan that was carried out
    (
        "r_score",
        "trimtab_carried_out_r_score",
        "R-score of the last plan, of the owners once it was carried out",
    ),
    ("moves", "trimtab_carried_out_moves", "Partitions that changed their owner to carry out the last plan"),
    (
        "max_fill",
        "trimtab_carried_out_fullest_consumer_ratio",
        "Required rate / capacity of the fullest consumer once the last plan was carried out",
    ),
)
FORECAST_GAUGES: Final[GaugeRows] = (  # of ForecastStatus
    ("change", "trimtab_forecast_bytes_per_second", "Change of the required rate that is forecast, + or -"),
    (
        "error_ratio",
        "trimtab_forecast_error_ratio",
        "Squared errors of the forecast of the group's sum / those of rates as they are, over a season",
    ),
    ("by_partition", "trimtab_forecast_partitions", "Partitions whose own forecast is used"),
    ("is_used", "trimtab_forecast_used", "1 while decisions follow the load forecast, 0 while not"),
)
RECORD_COST_GAUGES: Final[GaugeRows] = (  # of RecordCostStatus
    ("cost", "trimtab_learned_record_cost_bytes", "What a record costs beyond its bytes, by the last fit"),
    (
        "capacity",
        "trimtab_handler_capacity_bytes_per_second",
        "What a consumer that works on records all the time handles of them",
    ),
    (
        "error_ratio",
        "trimtab_learned_record_cost_error_ratio",
        "Squared errors of predicted handler time / those of a prediction by bytes alone",
    ),
    ("is_used", "trimtab_learned_record_cost_used", "1 while loads count the learned cost, 0 while not"),
)
PARTITION_GAUGES: Final[GaugeRows] = (  # of PartitionLoad
    ("bytes_per_s", "trimtab_write_rate_bytes_per_second", "Write rate"),
    ("records_per_s", "trimtab_write_rate_records_per_second", "Write rate in records"),
    ("backlog_bytes", "trimtab_backlog_bytes", "Appended, but not committed"),
    ("backlog_records", "trimtab_backlog_records", "Appended, but not committed, in records"),
)


class SidecarMetrics(Collector):
    """Metrics of each group's last report; removed partitions and groups leave no stale samples."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last_reports: dict[str, IterationReport] = {}
        self._last_planned: dict[str, DecisionMetrics] = {}
        self._last_outcomes: dict[str, PlanOutcome] = {}
        self.registry = CollectorRegistry()  # not the global one: it would add Python's own metrics
        self.registry.register(self)
        self._moves = self._build_counter("trimtab_moves", "Partitions that changed their owner", "group")
        text = "Load of the partitions that changed their owner / capacity of a consumer"
        self._moved_consumers = self._build_counter("trimtab_moved_consumers", text, "group")
        self._decisions = self._build_counter("trimtab_decisions", "Decisions by action", "group", "action")
        text = "Time from the last record of the old owner to the first commit of the new one"
        self._handover_seconds = self._build_histogram("trimtab_handover_seconds", text, HANDOVER_BUCKETS)
        text = "Duration of a decision"
        self._decision_seconds = self._build_histogram("trimtab_decision_seconds", text, DECISION_BUCKETS)
        text = "Duration of an iteration, with measurement and action"
        self._iteration_seconds = self._build_histogram("trimtab_iteration_seconds", text)

    def _build_counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _build_histogram(
        self, name: str, text: str, buckets: Sequence[float] = Histogram.DEFAULT_BUCKETS
    ) -> Histogram:
        return Histogram(name, text, ["group"], buckets=buckets, registry=self.registry)

    def record_iteration(self, group: str, report: IterationReport) -> None:
        """Record an iteration of a group."""
        with self._lock:
            self._last_reports[group] = report
        self._iteration_seconds.labels(group).observe(report.iteration_seconds)
        if not report.is_leader:
            self._forget_plan(group)  # the leader may publish another plan
            return  # only the leader exports the group's metrics: sums over sidecars count nothing twice
        self._moves.labels(group).inc(len(report.observed_moves))
        if report.capacity:
            self._moved_consumers.labels(group).inc(report.moved_load / report.capacity)
        if report.decision.metrics.planned_fill is not None and not report.decision.failure:
            self._last_planned[group] = report.decision.metrics
        if report.plan_outcome is not None and report.plan_outcome.is_settled:
            self._last_outcomes[group] = report.plan_outcome
        self._decisions.labels(group, report.decision.action.value).inc()
        self._decision_seconds.labels(group).observe(report.decision_seconds)
        for seconds in report.handover_seconds:
            self._handover_seconds.labels(group).observe(seconds)

    def remove_group(self, group: str) -> None:
        """Forget a group."""
        with self._lock:
            self._last_reports.pop(group, None)
        self._forget_plan(group)
        one_label = (self._moves, self._moved_consumers, self._handover_seconds)
        for metric in (*one_label, self._decision_seconds, self._iteration_seconds):
            metric.remove_by_labels({"group": group})
        self._decisions.remove_by_labels({"group": group})

    def _forget_plan(self, group: str) -> None:
        self._last_planned.pop(group, None)
        self._last_outcomes.pop(group, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of the last reports."""
        families: dict[str, GaugeMetricFamily] = {}
        with self._lock:
            reports = dict(self._last_reports)
        for group, report in reports.items():
            for family in self._collect_group(group, report):
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples.extend(family.samples)
        yield from families.values()

    def _collect_group(self, group: str, report: IterationReport) -> Iterator[GaugeMetricFamily]:
        yield _build_gauge(
            group, "trimtab_is_leader", "1 if this sidecar leads, 0 in standby", report.is_leader
        )
        if not report.is_leader:
            return
        metrics = report.decision.metrics
        for attribute, name, text in GROUP_GAUGES:
            yield _build_gauge(group, name, text, getattr(metrics, attribute))
        yield from self._collect_plan(group, report)
        for attribute, name, text in FORECAST_GAUGES if report.forecast is not None else ():
            yield _build_gauge(group, name, text, getattr(report.forecast, attribute))
        for attribute, name, text in RECORD_COST_GAUGES if report.learned.record_cost is not None else ():
            yield _build_gauge(group, name, text, getattr(report.learned.record_cost, attribute))
        yield _build_gauge(group, "trimtab_plan_epoch", "Epoch of the plan", report.epoch)
        yield _build_conditions(group, report)
        learned = GaugeMetricFamily(
            "trimtab_learned_capacity_bytes_per_second",
            "Rate that a consumer with backlog sustained",
            labels=["group", "instance"],
        )
        for instance, rate in report.learned_capacities.items():
            learned.add_metric([group, instance], rate)
        yield learned
        yield from _collect_partitions(group, report)

    def _collect_plan(self, group: str, report: IterationReport) -> Iterator[GaugeMetricFamily]:
        planned = self._last_planned.get(group)
        for attribute, name, text in PLAN_GAUGES:
            yield _build_gauge(group, name, text, getattr(planned, attribute, None))
        done = self._last_outcomes.get(group)
        for attribute, name, text in OUTCOME_GAUGES:
            yield _build_gauge(group, name, text, getattr(done, attribute, None))
        off_plan = None if report.plan_outcome is None else report.plan_outcome.off_plan
        text = "Partitions that another consumer than the planned one owns"
        yield _build_gauge(group, "trimtab_partitions_off_plan", text, off_plan)


def _build_conditions(group: str, report: IterationReport) -> GaugeMetricFamily:
    text = "1 while a condition holds; trimtab doctor tells what it is and what to do"
    family = GaugeMetricFamily("trimtab_condition", text, labels=["group", "type", "severity"])
    for one in report.conditions:
        family.add_metric([group, one.type, one.severity], 1)
    return family


def _collect_partitions(group: str, report: IterationReport) -> Iterator[GaugeMetricFamily]:
    for attribute, name, text in PARTITION_GAUGES:
        family = GaugeMetricFamily(name, text, labels=["group", "topic", "partition"])
        for (topic, number), load in report.write_rates.items():
            value = getattr(load, attribute)
            if value is not None:
                family.add_metric([group, topic, str(number)], value)
        yield family


def _build_gauge(group: str, name: str, text: str, value: float | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["group"])
    if value is not None:
        family.add_metric([group], value)
    return family
