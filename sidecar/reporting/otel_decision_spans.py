"""One span per decision by OpenTelemetry: its inputs as attributes, what it does and what was seen as events.

A span covers the iteration of the control loop in which it was decided. A standby decides nothing, and so
has no spans. Of moves and handovers the first `MAX_LISTED_MOVES` are events, the largest moves first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from opentelemetry.trace import SpanKind, Status, StatusCode

from trimtab.common.telemetry import spans
from trimtab.sidecar.decision.decision import MAX_LISTED_MOVES, DecisionMetrics, ScalingDecision
from trimtab.sidecar.records.iteration_report import IterationReport

DECISION: Final = "trimtab.decision"
EPOCH: Final = "trimtab.plan.epoch"
INSTANCE: Final = "trimtab.instance"


class OtelDecisionSpans:
    """Reporter of one group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._tracer = spans.get_tracer()

    def __call__(self, report: IterationReport) -> None:
        """Export the decision of one iteration."""
        if not report.is_leader:
            return
        started_at = int(report.time * 1e9)  # of the decision; what was measured is a few ms older
        span = self._tracer.start_span(
            f"decide {self._group}",
            kind=SpanKind.INTERNAL,
            attributes=describe_decision(self._group, report),
            start_time=started_at,
        )
        for name, attributes in list_events(report):
            span.add_event(name, attributes, started_at)
        if report.decision.failure:
            span.set_status(Status(StatusCode.ERROR, report.decision.failure))
        span.end(started_at + int(report.iteration_seconds * 1e9))


def describe_decision(group: str, report: IterationReport) -> dict[str, Any]:
    """Return the attributes: action, reasons, epoch, and the metrics that are known."""
    metrics = report.decision.metrics
    known = {field.name: getattr(metrics, field.name) for field in fields(DecisionMetrics)}
    return {
        spans.SYSTEM: "kafka",
        spans.GROUP: group,
        f"{DECISION}.action": report.decision.action.value,
        f"{DECISION}.reasons": list(report.decision.reasons),
        EPOCH: report.epoch,
        **{f"{DECISION}.{name}": value for name, value in known.items() if value is not None},
    }


def list_events(report: IterationReport) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and attributes of what the decision does, and of what was seen since the one before."""
    yield from _list_actions(report.decision)
    for move in report.observed_moves[:MAX_LISTED_MOVES]:
        yield "partition moved", {**_describe(move.partition), "from": move.source, "to": move.target}
    for partition, seconds in list(report.handovers.items())[:MAX_LISTED_MOVES]:
        yield "partition handed over", {**_describe(partition), "seconds": seconds}
    for one in report.conditions:
        yield "condition", {"type": one.type, "reason": one.reason, "message": one.message}


def _list_actions(decision: ScalingDecision) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if decision.plan is not None and not decision.failure:
        draining = sorted(decision.plan.draining)
        yield "plan published", {EPOCH: decision.plan.epoch, "trimtab.plan.draining": draining}
    for move in decision.expected_moves:
        rate = {"bytes_per_second": move.write_rate, "reason": move.reason}
        yield (
            "move planned",
            {**_describe(move.partition), "from": move.source or "", "to": move.target, **rate},
        )
    if decision.replicas_to_start:
        yield "replicas started", {"count": decision.replicas_to_start}
    for name in decision.replicas_to_stop:
        yield "replica stopped", {INSTANCE: name}


def _describe(partition: tuple[str, int]) -> dict[str, str]:
    return {spans.DESTINATION: partition[0], spans.PARTITION: str(partition[1])}
