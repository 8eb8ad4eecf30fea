"""The web page: /healthz, /readyz, /metrics (Prometheus), /decisions and /certificate (JSON).

/decisions has the last ones; /certificate how far the decision is from the optimum, null if that is
not known (or not asked for: setting `certify`).

With a token all but /healthz and /readyz ask for it: probes have none, and learn nothing secret.
Healthy is a loop that turned lately; ready is one that reached the group in its last turn.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from trimtab.common.clock import Clock
from trimtab.common.http_server import (
    HEALTH_PATH,
    HTTP_OK,
    HTTP_SERVICE_UNAVAILABLE,
    METRICS_PATH,
    NO_AUTH,
    READINESS_PATH,
    AccessPolicy,
    HttpEndpoint,
    HttpResponse,
    build_json_response,
    build_text_response,
)
from trimtab.sidecar.decision.decision import DecisionMetrics
from trimtab.sidecar.errors import StartupError
from trimtab.sidecar.reporting.iteration_report import IterationReport

MAX_KEPT_DECISIONS: Final = 100  # verdicts
HANDOVER_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
DECISION_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
GROUP_GAUGES: Final = (
    ("running_replicas", "trimtab_replicas", "Live replicas that are not draining"),
    ("planned_replicas", "trimtab_replicas_planned", "Replicas of the plan in force"),
    ("desired_replicas", "trimtab_replicas_desired", "Replicas wanted, after limits and windows"),
    ("recommended_replicas", "trimtab_replicas_recommended", "Replicas that the load alone asks for"),
    ("unknown_partitions", "trimtab_partitions_unknown", "Partitions whose write speed is not known"),
    ("partitions", "trimtab_partitions", "Partitions of the group's topics"),
    ("needed_rate", "trimtab_needed_bytes_per_second", "What all consumers together must sustain"),
    ("consumption_rate", "trimtab_consumed_bytes_per_second", "What all consumers together consume"),
    ("queue_waiting", "trimtab_queue_waiting_messages", "Messages of a queue that wait"),
    ("queue_in_flight", "trimtab_queue_in_flight_messages", "Messages of a queue that are in work"),
    (
        "queue_awaiting_redelivery",
        "trimtab_queue_awaiting_redelivery_messages",
        "Messages given back, to be delivered later",
    ),
    (
        "overdue_backlog_bytes",
        "trimtab_overdue_backlog_bytes",
        "Backlog that has waited for longer than the allowance",
    ),
    ("p99_freshness_s", "trimtab_estimated_freshness_seconds", "p99 of produced to committed, estimated"),
    ("max_batch_s", "trimtab_max_batch_seconds", "How long a batch may be for the goal"),
    ("max_fill", "trimtab_fullest_consumer_ratio", "Needed rate / capacity of the fullest consumer"),
    ("r_score", "trimtab_r_score", "R-score that the last decision is expected to cost"),
    ("cross_rack_rate", "trimtab_cross_rack_bytes_per_second", "What is read from other racks"),
    (
        "partitions_without_local_replica",
        "trimtab_partitions_without_local_replica",
        "Partitions with no replica in a consumer's rack",
    ),
    (
        "racks_without_consumer",
        "trimtab_racks_without_consumer",
        "Racks with replicas and without a consumer",
    ),
)
"""Attribute of `DecisionMetrics`, metric, help."""

CERTIFICATE_GAUGES: Final = (
    ("gap", "trimtab_optimality_gap_ratio", "How far above the optimum the decision is, at most"),
    ("value", "trimtab_decision_cost", "Consumers + moves-cost x R of the decision"),
    ("lower_bound", "trimtab_optimum_lower_bound", "What no decision costs less than"),
    ("elapsed_seconds", "trimtab_certificate_seconds", "Time that the newest certificate took"),
)
"""Figure of a certificate, metric, help."""

PARTITION_GAUGES: Final = (
    ("bytes_per_s", "trimtab_write_rate_bytes_per_second", "Write speed"),
    ("records_per_s", "trimtab_write_rate_records_per_second", "Write speed in records"),
    ("backlog_bytes", "trimtab_backlog_bytes", "Appended and not committed yet"),
    ("backlog_records", "trimtab_backlog_records", "Appended and not committed yet, in records"),
)
"""Attribute of `PartitionLoad`, metric, help; what is unknown has no sample."""


class SidecarMetrics(Collector):
    """Turns reports into metrics; partitions that are gone leave no stale samples.

    What is told of the group is told by the one that leads, so that of several sidecars sums count
    nothing twice; one that stands by tells that it does, and how long its turns take.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._last_report: IterationReport | None = None
        self.registry = CollectorRegistry()
        self.registry.register(self)
        labels = ["group"]
        self._moves = Counter(
            "trimtab_moves", "Partitions that changed their reader", labels, registry=self.registry
        )
        self._decisions = Counter(
            "trimtab_decisions", "Verdicts, by action", ["group", "action"], registry=self.registry
        )
        self._handover_seconds = Histogram(
            "trimtab_handover_seconds",
            "From the last record of the old owner to the first commit of the new",
            labels,
            buckets=HANDOVER_BUCKETS,
            registry=self.registry,
        )
        self._decision_seconds = Histogram(
            "trimtab_decision_seconds",
            "Time that a decision took",
            labels,
            buckets=DECISION_BUCKETS,
            registry=self.registry,
        )
        self._iteration_seconds = Histogram(
            "trimtab_iteration_seconds",
            "Time that a turn took, measuring and acting included",
            labels,
            registry=self.registry,
        )

    def __call__(self, report: IterationReport) -> None:
        """Take in a turn."""
        self._last_report = report
        self._iteration_seconds.labels(self._group).observe(report.iteration_seconds)
        if not report.is_leader:
            return
        self._moves.labels(self._group).inc(len(report.observed_moves))
        self._decisions.labels(self._group, report.decision.action.value).inc()
        self._decision_seconds.labels(self._group).observe(report.decision_seconds)
        for seconds in report.handover_seconds:
            self._handover_seconds.labels(self._group).observe(seconds)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of the last report."""
        report = self._last_report
        if report is None:
            return
        leading = GaugeMetricFamily(
            "trimtab_is_leader", "Whether this sidecar leads, or stands by", labels=["group"]
        )
        leading.add_metric([self._group], report.is_leader)
        yield leading
        if not report.is_leader:
            return
        yield from self._collect_group_gauges(report.decision.metrics)
        yield from self._collect_certificate_gauges(report)
        epoch = GaugeMetricFamily("trimtab_plan_epoch", "Epoch of the plan", labels=["group"])
        epoch.add_metric([self._group], report.epoch)
        yield epoch
        yield from self._collect_scale_up_gauges(report)
        for attribute, name, text in PARTITION_GAUGES:
            family = GaugeMetricFamily(name, text, labels=["group", "topic", "partition"])
            for (topic, number), speed in report.write_rates.items():
                value = getattr(speed, attribute)
                if value is not None:
                    family.add_metric([self._group, topic, str(number)], value)
            yield family

    def _collect_scale_up_gauges(self, report: IterationReport) -> Iterator[GaugeMetricFamily]:
        stopped = GaugeMetricFamily(
            "trimtab_scale_up_suspended",
            "Whether nothing is added because the last growth had no effect",
            labels=["group"],
        )
        stopped.add_metric([self._group], report.scale_up_suspended)
        yield stopped
        learned = GaugeMetricFamily(
            "trimtab_learned_capacity_bytes_per_second",
            "What a consumer sustained while it was behind",
            labels=["group", "instance"],
        )
        for instance, rate in report.learned_capacities.items():
            learned.add_metric([self._group, instance], rate)
        yield learned

    def _collect_certificate_gauges(self, report: IterationReport) -> Iterator[GaugeMetricFamily]:
        made = report.certificate
        if made is None:
            return
        figures = {**made.certificate.to_json_dict(), "elapsed_seconds": made.elapsed_seconds}
        for attribute, name, text in CERTIFICATE_GAUGES:
            value = figures[attribute]
            family = GaugeMetricFamily(name, text, labels=["group"])
            if value is not None:
                family.add_metric([self._group], value)
            yield family

    def _collect_group_gauges(self, numbers: DecisionMetrics) -> Iterator[GaugeMetricFamily]:
        for attribute, name, text in GROUP_GAUGES:
            value = getattr(numbers, attribute)
            family = GaugeMetricFamily(name, text, labels=["group"])
            if value is not None:
                family.add_metric([self._group], value)
            yield family


class SidecarWebServer:
    """Serves what the last reports told; answers from a thread of its own."""

    def __init__(self, group: str, clock: Clock, max_silence: float) -> None:
        self._metrics = SidecarMetrics(group)
        self._clock = clock
        self._max_silence = max_silence  # seconds without a turn that still count as healthy
        self._last_iteration_at = clock.monotonic()
        self._last_report: IterationReport | None = None
        self._decisions: deque[dict[str, Any]] = deque(maxlen=MAX_KEPT_DECISIONS)
        self._endpoint = HttpEndpoint(
            {
                HEALTH_PATH: self._check_health,
                READINESS_PATH: lambda: build_text_response(*self._check_readiness()),
                METRICS_PATH: self._respond_metrics,
                "/decisions": lambda: build_json_response(list(self._decisions)),
                "/certificate": lambda: build_json_response(self._build_certificate_body()),
            }
        )

    def __call__(self, report: IterationReport) -> None:
        """Take in a turn."""
        self._metrics(report)
        self._last_iteration_at = self._clock.monotonic()
        self._last_report = report
        verdict = {**asdict(report.decision), "line": report.decision.format_line()}
        self._decisions.append({"time": report.time, "epoch": report.epoch, **verdict})

    def start(self, host: str, port: int, access_policy: AccessPolicy = NO_AUTH) -> int:
        """Start to serve and return the port. Raises StartupError."""
        try:
            return self._endpoint.start(host, port, access_policy, "trimtab-http")
        except OSError as error:
            raise StartupError(
                f"web page {host}:{port}: {error.strerror}; choose another port (0: a free one)"
            ) from error

    def stop(self) -> None:
        """Stop serving."""
        self._endpoint.stop()

    def handle_path(self, path: str) -> HttpResponse:
        """Return the response for a path."""
        return self._endpoint.handle_path(path)

    def _respond_metrics(self) -> HttpResponse:
        return HTTP_OK, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry)

    def _check_health(self) -> HttpResponse:
        silent = self._clock.monotonic() - self._last_iteration_at
        status = HTTP_OK if silent <= self._max_silence else HTTP_SERVICE_UNAVAILABLE
        return build_text_response(status, f"last turn {silent:.0f} s ago")

    def _build_certificate_body(self) -> dict[str, Any] | None:
        made = None if self._last_report is None else self._last_report.certificate
        return None if made is None else {**asdict(made), "certificate": made.certificate.to_json_dict()}

    def _check_readiness(self) -> tuple[int, str]:
        if self._last_report is None:
            return HTTP_SERVICE_UNAVAILABLE, "no turn yet"
        if self._last_report.is_group_known:
            return HTTP_OK, "the group is known"
        return HTTP_SERVICE_UNAVAILABLE, "; ".join(
            self._last_report.trouble
        ) or "the group could not be described"
