"""The sidecar's HTTP endpoints: its page, /healthz, /readyz, /metrics (Prometheus), and JSON.

JSON: /groups, /decisions, /certificate, /history, /what-if, /doctor, and /events (server-sent). With a token
all but /healthz, /readyz and the page's static files require it.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from trimtab.common import http_server
from trimtab.common.clock import Clock
from trimtab.common.http_server import NO_AUTH, AccessPolicy, HttpEndpoint, HttpResponse
from trimtab.sidecar.decision.decision import DecisionMetrics
from trimtab.sidecar.errors import StartupError
from trimtab.sidecar.page.history import GroupHistory
from trimtab.sidecar.page.page_tools import PageTools
from trimtab.sidecar.page.static_files import load_static_routes
from trimtab.sidecar.reporting.iteration_report import IterationReport

MAX_KEPT_DECISIONS: Final = 100  # 17 minutes at the default interval; the decision topic has older ones
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
    ("r_score", "trimtab_r_score", "R-score of the last plan"),
    (
        "planned_fill",
        "trimtab_planned_fullest_consumer_ratio",
        "Required rate / capacity of the fullest consumer once the last plan is carried out",
    ),
)
CERTIFICATE_GAUGES: Final[GaugeRows] = (
    ("gap", "trimtab_optimality_gap_ratio", "Upper bound of cost / optimum - 1"),
    ("value", "trimtab_decision_cost", "Cost of the decision: consumers + moves-cost x R"),
    ("lower_bound", "trimtab_optimum_lower_bound", "Lower bound of the cost of any decision"),
    ("elapsed_seconds", "trimtab_certificate_seconds", "Duration of the newest certificate's computation"),
)
PARTITION_GAUGES: Final[GaugeRows] = (  # of PartitionLoad
    ("bytes_per_s", "trimtab_write_rate_bytes_per_second", "Write rate"),
    ("records_per_s", "trimtab_write_rate_records_per_second", "Write rate in records"),
    ("backlog_bytes", "trimtab_backlog_bytes", "Appended, but not committed"),
    ("backlog_records", "trimtab_backlog_records", "Appended, but not committed, in records"),
)


class SidecarMetrics(Collector):
    """Metrics of the last report; removed partitions leave no stale samples."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._last_report: IterationReport | None = None
        self._last_planned: DecisionMetrics | None = None
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

    def __call__(self, report: IterationReport) -> None:
        """Record an iteration."""
        self._last_report = report
        self._iteration_seconds.labels(self._group).observe(report.iteration_seconds)
        if not report.is_leader:
            self._last_planned = None  # the leader may publish another plan
            return  # only the leader exports the group's metrics: sums over sidecars count nothing twice
        self._moves.labels(self._group).inc(len(report.observed_moves))
        if report.capacity:
            self._moved_consumers.labels(self._group).inc(report.moved_load / report.capacity)
        if report.decision.metrics.planned_fill is not None and not report.decision.failure:
            self._last_planned = report.decision.metrics
        self._decisions.labels(self._group, report.decision.action.value).inc()
        self._decision_seconds.labels(self._group).observe(report.decision_seconds)
        for seconds in report.handover_seconds:
            self._handover_seconds.labels(self._group).observe(seconds)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of the last report."""
        report = self._last_report
        if report is None:
            return
        yield self._build_gauge(
            "trimtab_is_leader", "1 if this sidecar leads, 0 in standby", report.is_leader
        )
        if not report.is_leader:
            return
        metrics = report.decision.metrics
        for attribute, name, text in GROUP_GAUGES:
            yield self._build_gauge(name, text, getattr(metrics, attribute))
        yield from self._collect_plan(report)
        yield from self._collect_certificate(report)
        yield self._build_gauge("trimtab_plan_epoch", "Epoch of the plan", report.epoch)
        suspended = "1 while scale-up is suspended because the last one did not raise throughput"
        yield self._build_gauge("trimtab_scale_up_suspended", suspended, report.scale_up_suspended)
        learned = GaugeMetricFamily(
            "trimtab_learned_capacity_bytes_per_second",
            "Rate that a consumer with backlog sustained",
            labels=["group", "instance"],
        )
        for instance, rate in report.learned_capacities.items():
            learned.add_metric([self._group, instance], rate)
        yield learned
        steered = "1 if the plans are carried out in a group of any client, 0 if not"
        if report.carrier is not None:
            yield self._build_gauge("trimtab_group_steered", steered, report.carrier.is_steering)
        yield from self._collect_partitions(report)

    def _build_gauge(self, name: str, text: str, value: float | None) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=["group"])
        if value is not None:
            family.add_metric([self._group], value)
        return family

    def _collect_plan(self, report: IterationReport) -> Iterator[GaugeMetricFamily]:
        for attribute, name, text in PLAN_GAUGES:
            yield self._build_gauge(name, text, getattr(self._last_planned, attribute, None))
        off_plan = None if report.plan_outcome is None else report.plan_outcome.off_plan
        text = "Partitions that another consumer than the planned one owns"
        yield self._build_gauge("trimtab_partitions_off_plan", text, off_plan)

    def _collect_certificate(self, report: IterationReport) -> Iterator[GaugeMetricFamily]:
        timed = report.certificate
        if timed is None:
            return
        figures = {**timed.certificate.to_json_dict(), "elapsed_seconds": timed.elapsed_seconds}
        for figure, name, text in CERTIFICATE_GAUGES:
            yield self._build_gauge(name, text, figures[figure])

    def _collect_partitions(self, report: IterationReport) -> Iterator[GaugeMetricFamily]:
        for attribute, name, text in PARTITION_GAUGES:
            family = GaugeMetricFamily(name, text, labels=["group", "topic", "partition"])
            for (topic, number), load in report.write_rates.items():
                value = getattr(load, attribute)
                if value is not None:
                    family.add_metric([self._group, topic, str(number)], value)
            yield family


class SidecarWebServer:
    """Serves the last reports from a thread of its own."""

    def __init__(
        self,
        group: str,
        clock: Clock,
        max_silence: float,
        history: GroupHistory,
        tools: PageTools | None = None,
    ) -> None:
        self._metrics = SidecarMetrics(group)
        self._history = history
        static_files = load_static_routes()
        self._clock = clock
        self._max_silence = max_silence  # seconds without an iteration that still count as healthy
        self._last_iteration_at = clock.monotonic()
        self._last_report: IterationReport | None = None
        self._decisions: deque[dict[str, Any]] = deque(maxlen=MAX_KEPT_DECISIONS)
        self._endpoint = HttpEndpoint(
            {
                http_server.HEALTH_PATH: self._check_health,
                http_server.READINESS_PATH: self._check_readiness,
                http_server.METRICS_PATH: self._respond_metrics,
                "/groups": lambda: http_server.build_json_response({"groups": [{"group": group}]}),
                "/decisions": lambda: http_server.build_json_response(list(self._decisions)),
                "/certificate": lambda: http_server.build_json_response(self._build_certificate_body()),
                "/history": lambda: http_server.build_json_text_response(history.encode_snapshot()),
                **static_files,
            },
            {"/events": lambda _: history.stream_events()},
            frozenset(static_files),
            {} if tools is None else {"/what-if": tools.respond_what_if, "/doctor": tools.respond_doctor},
        )

    def __call__(self, report: IterationReport) -> None:
        """Record an iteration."""
        self._metrics(report)
        self._last_iteration_at = self._clock.monotonic()
        self._last_report = report
        self._decisions.append(_build_decision_body(report))
        self._history(report)

    def start(self, host: str, port: int, access_policy: AccessPolicy = NO_AUTH) -> int:
        """Start serving and return the port. Raises StartupError."""
        try:
            return self._endpoint.start(host, port, access_policy, "trimtab-http")
        except OSError as error:
            raise StartupError(
                f"web page {host}:{port}: {error.strerror}; choose another port (0: a free one)"
            ) from error

    def stop(self) -> None:
        """Stop serving."""
        self._history.close()
        self._endpoint.stop()

    def handle_path(self, path: str) -> HttpResponse:
        """Return the response for a path."""
        return self._endpoint.handle_path(path)

    def _respond_metrics(self) -> HttpResponse:
        return http_server.HTTP_OK, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry)

    def _check_health(self) -> HttpResponse:
        # a hung loop fails the liveness probe; a broker outage does not, as iterations go on
        silence = self._clock.monotonic() - self._last_iteration_at
        status = http_server.HTTP_OK if silence <= self._max_silence else http_server.HTTP_SERVICE_UNAVAILABLE
        return http_server.build_text_response(status, f"last iteration {silence:.0f} s ago")

    def _check_readiness(self) -> HttpResponse:
        report = self._last_report
        if report is None:
            return http_server.build_text_response(http_server.HTTP_SERVICE_UNAVAILABLE, "no iteration yet")
        if report.is_group_known:
            return http_server.build_text_response(http_server.HTTP_OK, "the group is known")
        reason = "; ".join(report.errors) or "the group could not be described"
        return http_server.build_text_response(http_server.HTTP_SERVICE_UNAVAILABLE, reason)

    def _build_certificate_body(self) -> dict[str, Any] | None:
        timed = None if self._last_report is None else self._last_report.certificate
        # None before the first, and without the setting `certify`
        return None if timed is None else {**asdict(timed), "certificate": timed.certificate.to_json_dict()}


def _build_decision_body(report: IterationReport) -> dict[str, Any]:
    decision = report.decision
    if decision.plan is not None:  # the target may be 100,000 numbers: it is in the plan topic
        decision = replace(decision, plan=replace(decision.plan, target=None))
    outcome = None if report.plan_outcome is None else asdict(report.plan_outcome)
    body = {"time": report.time, "epoch": report.epoch, **asdict(decision)}
    carrier = None if report.carrier is None else asdict(report.carrier)
    return {**body, "line": decision.format_line(), "plan_outcome": outcome, "carrier": carrier}
