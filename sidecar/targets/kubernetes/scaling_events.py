"""Kubernetes Events on the workload for each scaling, with reasons, as `kubectl describe` shows."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from trimtab.common.errors import PeerError
from trimtab.sidecar.decision.decision import ScalingAction, join_reasons
from trimtab.sidecar.reporting.iteration_report import IterationReport
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ResourceConflictError

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


class KubernetesEventReporter:
    """Creates an event for each scaling; a repeated identical failure creates one event."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._workload_uid: str | None = None
        self._last_failure: tuple[ScalingAction, str] | None = None

    def __call__(self, report: IterationReport) -> None:
        """Create an event if the decision scaled the workload; log a failure to create it."""
        action = report.decision.action
        failure = report.decision.failure
        before = self._last_failure
        reason = EVENT_REASON_BY_ACTION.get(action)
        self._last_failure = (action, failure) if failure else None
        if reason is None or (failure and self._last_failure == before):
            return
        at = datetime.fromtimestamp(report.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            if self._workload_uid is None:
                self._workload_uid = self._api.fetch_snapshot().workload.uid
            message = join_reasons(report.decision.reasons, failure)
            self._api.create_event(self._workload_uid, reason, message, at, is_warning=bool(failure))
        except (PeerError, ResourceConflictError) as error:
            log.warning("event %s could not be created: %s", reason, error)
