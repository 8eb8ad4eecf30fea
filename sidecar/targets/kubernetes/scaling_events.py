"""Kubernetes Events on the workload for each scaling, with reasons, as `kubectl describe` shows."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trimtab.common.errors import PeerError
from trimtab.sidecar.decision.decision import ScalingAction, join_reasons
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.targets.kubernetes.api_client import (
    KubernetesApi,
    ResourceConflictError,
    format_timestamp,
)

log = logging.getLogger("trimtab.sidecar")

# Events of actions that scale nothing would hide the others in `kubectl describe`.
EVENT_REASON_BY_ACTION: Final[Mapping[ScalingAction, str]] = {
    ScalingAction.SCALE_UP: "ScaledUp",
    ScalingAction.REPLACE: "Replaced",
    ScalingAction.SURGE: "Replaced",
    ScalingAction.DRAIN: "Draining",
    ScalingAction.CANCEL_DRAIN: "DrainCancelled",
    ScalingAction.STOP: "ScaledDown",
    ScalingAction.ADOPT_EXTERNAL: "AdoptedExternalScaling",
    ScalingAction.PLACE: "Rebalanced",
}


@dataclass(frozen=True, slots=True)
class ScalingEvent:
    """An event of one decision; `timestamp` has the format of the API."""

    reason: str
    message: str
    timestamp: str
    is_warning: bool


class ScalingEventFilter:
    """Selects the decisions that are events: each scaling, a repeated identical failure once."""

    def __init__(self) -> None:
        self._last_failure: tuple[ScalingAction, str] | None = None

    def select_event(self, report: IterationReport) -> ScalingEvent | None:
        """Return the event of an iteration, or None."""
        decision = report.decision
        action, failure = decision.action, decision.failure
        before = self._last_failure
        reason = EVENT_REASON_BY_ACTION.get(action)
        self._last_failure = (action, failure) if failure else None
        if reason is None or (failure and self._last_failure == before):
            return None
        message = join_reasons(decision.reasons, failure)
        return ScalingEvent(reason, message, format_timestamp(report.time), bool(failure))


class KubernetesEventReporter:
    """Creates an event on the workload for each scaling."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._workload_uid: str | None = None
        self._filter = ScalingEventFilter()

    def __call__(self, report: IterationReport) -> None:
        """Create an event if the decision scaled the workload; log a failure to create it."""
        event = self._filter.select_event(report)
        if event is None:
            return
        try:
            if self._workload_uid is None:
                self._workload_uid = self._api.fetch_snapshot().workload.uid
            self._api.create_event(
                self._workload_uid, event.reason, event.message, event.timestamp, is_warning=event.is_warning
            )
        except (PeerError, ResourceConflictError) as error:
            log.warning("event %s could not be created: %s", event.reason, error)
