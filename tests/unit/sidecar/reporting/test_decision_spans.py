"""One span per decision: attributes, events, failures, and none in standby."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.trace import StatusCode
from recorded_spans import record_spans

from trimtab.assignor.model import Move, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.sidecar.decision.condition import ConditionType, build_condition
from trimtab.sidecar.decision.decision import (
    MAX_LISTED_MOVES,
    DecisionMetrics,
    ScalingAction,
    ScalingDecision,
)
from trimtab.sidecar.measurement.handover_time import PartitionMove
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.reporting.decision_spans import open_decision_spans
from trimtab.sidecar.reporting.otel_decision_spans import OtelDecisionSpans

P = TopicPartition("orders", 3)
PLAN = GroupPlan("lake", 7, 3, 100.0, "steady", 1e6, 0.9, ("worker-2",))
DECISION = ScalingDecision(
    ScalingAction.SCALE_UP,
    ("2 -> 3", "the load grew"),
    DecisionMetrics(write_rate=50.0, partitions=2, running_replicas=2, desired_replicas=3),
    plan=PLAN,
    replicas_to_start=1,
    replicas_to_stop=("worker-2",),
    expected_moves=(Move(P, None, "worker-3", 5e5, "room"),),
)
REPORT = IterationReport(
    100.0, DECISION, {}, 7, is_group_known=True, decision_seconds=0.02, iteration_seconds=0.2
)


def export(report: IterationReport) -> Any:
    recorder = record_spans()
    OtelDecisionSpans("lake")(report)
    return recorder.get_finished_spans()


def test_a_decision_is_a_span_with_its_events() -> None:
    """Action, reasons and known metrics are attributes; what is done and was seen are events, in order."""
    seen = replace(
        REPORT,
        observed_moves=(PartitionMove(P, "worker-1", "worker-2"),),
        handovers={P: 0.1},
        conditions=(build_condition(ConditionType.REQUESTS_FAILED, "Errors", "no answer", "mend it"),),
    )
    (span,) = export(seen)
    assert span.name == "decide lake"
    assert (span.start_time, span.end_time) == (100_000_000_000, 100_200_000_000)
    attributes = dict(span.attributes)
    assert attributes["trimtab.decision.action"] == "scale-up"
    assert attributes["trimtab.decision.reasons"] == ("2 -> 3", "the load grew")
    assert attributes["trimtab.decision.desired_replicas"] == 3
    assert attributes["trimtab.plan.epoch"] == 7
    assert "trimtab.decision.max_fill" not in attributes  # unknown is not 0
    assert [event.name for event in span.events] == [
        *("plan published", "move planned", "replicas started", "replica stopped"),
        *("partition moved", "partition handed over", "condition"),
    ]
    assert dict(span.events[0].attributes) == {
        "trimtab.plan.epoch": 7,
        "trimtab.plan.draining": ("worker-2",),
    }
    assert dict(span.events[5].attributes)["seconds"] == 0.1
    assert span.status.status_code is StatusCode.UNSET


def test_a_failed_decision_is_an_error_without_a_published_plan() -> None:
    """The status has why it was not carried out."""
    (span,) = export(replace(REPORT, decision=replace(DECISION, failure="the brokers do not answer")))
    assert span.status.description == "the brokers do not answer"
    assert "plan published" not in [event.name for event in span.events]


def test_events_of_moves_are_bounded() -> None:
    """A rebalance of 10,000 partitions is no span of 20,000 events."""
    partitions = [TopicPartition("orders", number) for number in range(10_000)]
    moves = tuple(PartitionMove(partition, "a", "b") for partition in partitions)
    (span,) = export(replace(REPORT, observed_moves=moves, handovers=dict.fromkeys(partitions, 0.1)))
    names = [event.name for event in span.events]
    assert names.count("partition moved") == names.count("partition handed over") == MAX_LISTED_MOVES


def test_a_standby_exports_no_decision() -> None:
    """It decides nothing."""
    assert export(replace(REPORT, is_leader=False)) == ()


@pytest.mark.parametrize("telemetry", [True, False])
def test_the_setting_adds_the_reporter(*, telemetry: bool) -> None:
    """While telemetry is off there is no reporter at all."""
    settings: Any = SimpleNamespace(telemetry=telemetry, group="lake")
    assert len(open_decision_spans(settings)) == telemetry
