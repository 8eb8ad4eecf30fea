"""The web page: /healthz, /readyz, /metrics (Prometheus), /verdicts and /certificate (JSON).

/verdicts has the last ones; /certificate how far the decision is from the optimum, null if that is
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
from trimtab.common.http_server import OPEN, Answer, Guard, endpoint
from trimtab.sidecar.decision.decision import Numbers
from trimtab.sidecar.errors import CannotStart
from trimtab.sidecar.reporting.iteration_report import Report

KEPT: Final = 100  # verdicts
FREE: Final = frozenset({"/healthz", "/readyz"})
GOOD: Final = 200
BAD: Final = 503
HANDOVER_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
DECISION_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
OVERALL: Final = (
    ("running", "trimtab_replicas", "Live replicas that are not draining"),
    ("planned", "trimtab_replicas_planned", "Replicas of the plan in force"),
    ("wanted", "trimtab_replicas_wanted", "Replicas wanted, after limits and windows"),
    ("wished", "trimtab_replicas_wished", "Replicas that the load alone asks for"),
    ("unknown", "trimtab_partitions_unknown", "Partitions whose write speed is not known"),
    ("partitions", "trimtab_partitions", "Partitions of the group's topics"),
    ("needed", "trimtab_needed_bytes_per_second", "What all consumers together must sustain"),
    ("consumed", "trimtab_consumed_bytes_per_second", "What all consumers together consume"),
    ("waiting", "trimtab_queue_waiting_messages", "Messages of a queue that wait"),
    ("working", "trimtab_queue_working_messages", "Messages of a queue that are in work"),
    ("returned", "trimtab_queue_returned_messages", "Messages given back, to be delivered later"),
    ("late", "trimtab_late_bytes", "Backlog that has waited for longer than the allowance"),
    ("freshness", "trimtab_estimated_freshness_seconds", "p99 of produced to committed, estimated"),
    ("batch", "trimtab_longest_batch_seconds", "How long a batch may be for the goal"),
    ("fill", "trimtab_fullest_consumer_ratio", "Needed rate / capacity of the fullest consumer"),
    ("r_score", "trimtab_r_score", "R-score that the last decision is expected to cost"),
    ("crossing", "trimtab_cross_rack_bytes_per_second", "What is read from other racks"),
    ("stranded", "trimtab_stranded_partitions", "Partitions with no replica in a consumer's rack"),
    ("unmanned", "trimtab_racks_without_consumer", "Racks with replicas and without a consumer"),
)
"""Attribute of `Numbers`, metric, help."""

CERTIFIED: Final = (
    ("gap", "trimtab_optimality_gap_ratio", "How far above the optimum the decision is, at most"),
    ("value", "trimtab_decision_cost", "Consumers + moves-cost x R of the decision"),
    ("lower_bound", "trimtab_optimum_bound", "What no decision costs less than"),
    ("seconds", "trimtab_certificate_seconds", "Time that the newest certificate took"),
)
"""Figure of a certificate, metric, help."""

BY_PARTITION: Final = (
    ("bytes_per_s", "trimtab_write_speed_bytes_per_second", "Write speed"),
    ("records_per_s", "trimtab_write_speed_records_per_second", "Write speed in records"),
    ("backlog_bytes", "trimtab_backlog_bytes", "Appended and not committed yet"),
    ("backlog_records", "trimtab_backlog_records", "Appended and not committed yet, in records"),
)
"""Attribute of `PartitionSpeed`, metric, help; what is unknown has no sample."""


class Metrics(Collector):
    """Turns reports into metrics; partitions that are gone leave no stale samples.

    What is told of the group is told by the one that leads, so that of several sidecars sums count
    nothing twice; one that stands by tells that it does, and how long its turns take.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._last: Report | None = None
        self.registry = CollectorRegistry()
        self.registry.register(self)
        labels = ["group"]
        self._moves = Counter(
            "trimtab_moves", "Partitions that changed their reader", labels, registry=self.registry
        )
        self._verdicts = Counter(
            "trimtab_verdicts", "Verdicts, by action", ["group", "action"], registry=self.registry
        )
        self._handover = Histogram(
            "trimtab_handover_seconds",
            "From the last record of the old owner to the first commit of the new",
            labels,
            buckets=HANDOVER_BUCKETS,
            registry=self.registry,
        )
        self._decision = Histogram(
            "trimtab_decision_seconds",
            "Time that a decision took",
            labels,
            buckets=DECISION_BUCKETS,
            registry=self.registry,
        )
        self._turn = Histogram(
            "trimtab_turn_seconds",
            "Time that a turn took, measuring and acting included",
            labels,
            registry=self.registry,
        )

    def __call__(self, report: Report) -> None:
        """Take in a turn."""
        self._last = report
        self._turn.labels(self._group).observe(report.turned_in)
        if not report.leading:
            return
        self._moves.labels(self._group).inc(len(report.changed))
        self._verdicts.labels(self._group, report.verdict.action.value).inc()
        self._decision.labels(self._group).observe(report.decided_in)
        for seconds in report.handovers:
            self._handover.labels(self._group).observe(seconds)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of the last report."""
        report = self._last
        if report is None:
            return
        leading = GaugeMetricFamily(
            "trimtab_leading", "Whether this sidecar leads, or stands by", labels=["group"]
        )
        leading.add_metric([self._group], report.leading)
        yield leading
        if not report.leading:
            return
        yield from self._overall(report.verdict.numbers)
        yield from self._certificate(report)
        epoch = GaugeMetricFamily("trimtab_plan_epoch", "Epoch of the plan", labels=["group"])
        epoch.add_metric([self._group], report.epoch)
        yield epoch
        yield from self._learned(report)
        for attribute, name, text in BY_PARTITION:
            family = GaugeMetricFamily(name, text, labels=["group", "topic", "partition"])
            for (topic, number), speed in report.speeds.items():
                value = getattr(speed, attribute)
                if value is not None:
                    family.add_metric([self._group, topic, str(number)], value)
            yield family

    def _learned(self, report: Report) -> Iterator[GaugeMetricFamily]:
        stopped = GaugeMetricFamily(
            "trimtab_growing_stopped",
            "Whether nothing is added because the last growth had no effect",
            labels=["group"],
        )
        stopped.add_metric([self._group], report.growing_stopped)
        yield stopped
        learned = GaugeMetricFamily(
            "trimtab_learned_capacity_bytes_per_second",
            "What a consumer sustained while it was behind",
            labels=["group", "instance"],
        )
        for instance, rate in report.learned.items():
            learned.add_metric([self._group, instance], rate)
        yield learned

    def _certificate(self, report: Report) -> Iterator[GaugeMetricFamily]:
        made = report.certificate
        if made is None:
            return
        figures = {**made.certificate.body(), "seconds": made.seconds}
        for attribute, name, text in CERTIFIED:
            value = figures[attribute]
            family = GaugeMetricFamily(name, text, labels=["group"])
            if value is not None:
                family.add_metric([self._group], value)
            yield family

    def _overall(self, numbers: Numbers) -> Iterator[GaugeMetricFamily]:
        for attribute, name, text in OVERALL:
            value = getattr(numbers, attribute)
            family = GaugeMetricFamily(name, text, labels=["group"])
            if value is not None:
                family.add_metric([self._group], value)
            yield family


class Page:
    """Serves what the last reports told; answers from a thread of its own."""

    def __init__(self, group: str, clock: Clock, patience: float) -> None:
        self._metrics = Metrics(group)
        self._clock = clock
        self._patience = patience  # seconds without a turn that still count as healthy
        self._turned = clock.monotonic()
        self._last: Report | None = None
        self._verdicts: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._server: ThreadingHTTPServer | None = None

    def __call__(self, report: Report) -> None:
        """Take in a turn."""
        self._metrics(report)
        self._turned = self._clock.monotonic()
        self._last = report
        verdict = {**asdict(report.verdict), "line": report.verdict.line()}
        self._verdicts.append({"time": report.time, "epoch": report.epoch, **verdict})

    def start(self, host: str, port: int, guarded: Guard = OPEN) -> int:
        """Begin to serve and return the port. Raises CannotStart."""
        try:
            self._server = endpoint((host, port), self.respond, guarded, FREE)
        except OSError as error:
            raise CannotStart(
                f"web page {host}:{port}: {error.strerror}; choose another port (0: a free one)"
            ) from error
        Thread(target=self._server.serve_forever, name="trimtab-web", daemon=True).start()
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def respond(self, path: str) -> Answer:
        """Return status, content type and body for a path."""
        match path:
            case "/metrics":
                return GOOD, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry)
            case "/verdicts":
                body = json.dumps(list(self._verdicts), default=str)
                return GOOD, "application/json", body.encode()
            case "/certificate":
                return GOOD, "application/json", json.dumps(self._certificate()).encode()
            case "/healthz":
                silent = self._clock.monotonic() - self._turned
                status = GOOD if silent <= self._patience else BAD
                return _text(status, f"last turn {silent:.0f} s ago")
            case "/readyz":
                return _text(*self._readiness())
            case _:
                return _text(404, "there is /healthz /readyz /metrics /verdicts /certificate")

    def _certificate(self) -> dict[str, Any] | None:
        made = None if self._last is None else self._last.certificate
        return None if made is None else {**asdict(made), "certificate": made.certificate.body()}

    def _readiness(self) -> tuple[int, str]:
        if self._last is None:
            return BAD, "no turn yet"
        if self._last.reachable:
            return GOOD, "the group is known"
        return BAD, "; ".join(self._last.trouble) or "the group could not be described"


def _text(status: int, text: str) -> Answer:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode()
