"""The web page: /healthz, /readyz, /metrics (Prometheus), /decisions and /certificate (JSON).

/decisions has the last ones; /certificate how far the decision is from the optimum, null if that is
not known (or not asked for: setting `certify`).

With a token all but /healthz and /readyz ask for it: probes have none, and learn nothing secret.
Healthy is a loop that turned lately; ready is one that reached the group in its last turn.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from trimtab.common.clock import Clock
from trimtab.common.http_server import NO_AUTH, AccessPolicy, HttpResponse, create_http_server
from trimtab.sidecar.decision.decision import DecisionMetrics
from trimtab.sidecar.errors import StartupError
from trimtab.sidecar.reporting.iteration_report import IterationReport

MAX_KEPT_DECISIONS: Final = 100  # verdicts
PUBLIC_PATHS: Final = frozenset({"/healthz", "/readyz"})
HTTP_OK: Final = 200
HTTP_SERVICE_UNAVAILABLE: Final = 503
HANDOVER_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
DECISION_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
GROUP_GAUGES: Final = (
    ("running", "trimtab_replicas", "Live replicas that are not draining"),
    ("planned", "trimtab_replicas_planned", "Replicas of the plan in force"),
    ("wanted", "trimtab_replicas_desired", "Replicas wanted, after limits and windows"),
    ("wished", "trimtab_replicas_recommended", "Replicas that the load alone asks for"),
    ("unknown", "trimtab_partitions_unknown", "Partitions whose write speed is not known"),
    ("partitions", "trimtab_partitions", "Partitions of the group's topics"),
    ("needed", "trimtab_needed_bytes_per_second", "What all consumers together must sustain"),
    ("consumed", "trimtab_consumed_bytes_per_second", "What all consumers together consume"),
    ("waiting", "trimtab_queue_waiting_messages", "Messages of a queue that wait"),
    ("working", "trimtab_queue_in_flight_messages", "Messages of a queue that are in work"),
    (
        "returned",
        "trimtab_queue_awaiting_redelivery_messages",
        "Messages given back, to be delivered later",
    ),
    (
        "late",
        "trimtab_overdue_backlog_bytes",
        "Backlog that has waited for longer than the allowance",
    ),
    ("freshness", "trimtab_estimated_freshness_seconds", "p99 of produced to committed, estimated"),
    ("batch", "trimtab_max_batch_seconds", "How long a batch may be for the goal"),
    ("fill", "trimtab_fullest_consumer_ratio", "Needed rate / capacity of the fullest consumer"),
    ("r_score", "trimtab_r_score", "R-score that the last decision is expected to cost"),
    ("crossing", "trimtab_cross_rack_bytes_per_second", "What is read from other racks"),
    (
        "stranded",
        "trimtab_partitions_without_local_replica",
        "Partitions with no replica in a consumer's rack",
    ),
    ("unmanned", "trimtab_racks_without_consumer", "Racks with replicas and without a consumer"),
)
"""Attribute of `DecisionMetrics`, metric, help."""

CERTIFICATE_GAUGES: Final = (
    ("gap", "trimtab_optimality_gap_ratio", "How far above the optimum the decision is, at most"),
    ("value", "trimtab_decision_cost", "Consumers + moves-cost x R of the decision"),
    ("lower_bound", "trimtab_optimum_lower_bound", "What no decision costs less than"),
    ("seconds", "trimtab_certificate_seconds", "Time that the newest certificate took"),
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
        yield from self._collect_group_gauges(report.decision.numbers)
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
        figures = {**made.certificate.to_json_dict(), "seconds": made.seconds}
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
        self._server: ThreadingHTTPServer | None = None

    def __call__(self, report: IterationReport) -> None:
        """Take in a turn."""
        self._metrics(report)
        self._last_iteration_at = self._clock.monotonic()
        self._last_report = report
        verdict = {**asdict(report.decision), "line": report.decision.format_line()}
        self._decisions.append({"time": report.time, "epoch": report.epoch, **verdict})

    def start(self, host: str, port: int, access_policy: AccessPolicy = NO_AUTH) -> int:
        """Begin to serve and return the port. Raises StartupError."""
        try:
            self._server = create_http_server(
                (host, port), self.handle_path, access_policy, PUBLIC_PATHS
            )
        except OSError as error:
            raise StartupError(
                f"web page {host}:{port}: {error.strerror}; choose another port (0: a free one)"
            ) from error
        Thread(target=self._server.serve_forever, name="trimtab-web", daemon=True).start()
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def handle_path(self, path: str) -> HttpResponse:
        """Return status, content type and body for a path."""
        match path:
            case "/metrics":
                return HTTP_OK, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry)
            case "/decisions":
                body = json.dumps(list(self._decisions), default=str)
                return HTTP_OK, "application/json", body.encode()
            case "/certificate":
                return (
                    HTTP_OK,
                    "application/json",
                    json.dumps(self._build_certificate_body()).encode(),
                )
            case "/healthz":
                silent = self._clock.monotonic() - self._last_iteration_at
                status = HTTP_OK if silent <= self._max_silence else HTTP_SERVICE_UNAVAILABLE
                return _build_text_response(status, f"last turn {silent:.0f} s ago")
            case "/readyz":
                return _build_text_response(*self._check_readiness())
            case _:
                return _build_text_response(
                    404, "there is /healthz /readyz /metrics /decisions /certificate"
                )

    def _build_certificate_body(self) -> dict[str, Any] | None:
        made = None if self._last_report is None else self._last_report.certificate
        return (
            None
            if made is None
            else {**asdict(made), "certificate": made.certificate.to_json_dict()}
        )

    def _check_readiness(self) -> tuple[int, str]:
        if self._last_report is None:
            return HTTP_SERVICE_UNAVAILABLE, "no turn yet"
        if self._last_report.is_group_known:
            return HTTP_OK, "the group is known"
        return HTTP_SERVICE_UNAVAILABLE, "; ".join(
            self._last_report.trouble
        ) or "the group could not be described"


def _build_text_response(status: int, text: str) -> HttpResponse:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode()
