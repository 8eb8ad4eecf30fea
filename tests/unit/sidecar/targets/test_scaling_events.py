"""Decisions that become Events on the workload."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.errors import KubernetesRejectedError
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi
from trimtab.sidecar.targets.kubernetes.scaling_events import KubernetesEventReporter


@dataclass
class RecordingApi:
    """An API client that records events."""

    events: list[tuple[str, str, bool]] = field(default_factory=list)
    refuses: bool = False

    def fetch_snapshot(self) -> Any:
        return SimpleNamespace(workload=SimpleNamespace(uid="u"))

    def create_event(self, uid: str, reason: str, message: str, timestamp: str, *, is_warning: bool) -> None:
        assert (uid, timestamp) == ("u", "2023-11-14T22:13:20Z")
        if self.refuses:
            raise KubernetesRejectedError("not allowed to create events")
        self.events.append((reason, message, is_warning))


def report_decision(
    events: KubernetesEventReporter, action: ScalingAction, *reasons: str, failure: str = ""
) -> None:
    decision = ScalingDecision(action, reasons, DecisionMetrics(), failure=failure)
    events(
        IterationReport(
            1.7e9, decision, {}, 1, is_group_known=True, decision_seconds=0.0, iteration_seconds=0.0
        )
    )


def test_scalings_create_events() -> None:
    """A scaling creates an event with its reasons; a hold creates none."""
    api = RecordingApi()
    events = KubernetesEventReporter(cast("KubernetesApi", api))
    report_decision(events, ScalingAction.HOLD, "2 is right")
    report_decision(events, ScalingAction.SCALE_UP, "1 -> 2", "started a")
    assert api.events == [("ScaledUp", "1 -> 2; started a", False)]


def test_a_repeated_failure_creates_one_event() -> None:
    """A failed scaling is a warning, once while it fails for the same reason."""
    api = RecordingApi()
    events = KubernetesEventReporter(cast("KubernetesApi", api))
    for reason in ("required 1 B/s", "required 2 B/s"):
        report_decision(events, ScalingAction.SCALE_UP, reason, failure="no right")
    report_decision(events, ScalingAction.SCALE_UP, "required 3 B/s", failure="no answer")
    report_decision(events, ScalingAction.SCALE_UP, "required 3 B/s")
    assert [wrong for _, _, wrong in api.events] == [True, True, False]


def test_a_rejected_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A rejected event is logged, and scaling continues."""
    events = KubernetesEventReporter(cast("KubernetesApi", RecordingApi(refuses=True)))
    report_decision(events, ScalingAction.STOP, "nothing is left")
    assert "not allowed to create events" in caplog.text
