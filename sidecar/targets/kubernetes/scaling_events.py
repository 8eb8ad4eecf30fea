"""Each scaling as an Event on the workload, with its reasons: `kubectl describe` shows them."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from trimtab.common.errors import PeerError
from trimtab.sidecar.decision.decision import Action
from trimtab.sidecar.reporting.iteration_report import NOT_DONE, Report
from trimtab.sidecar.targets.kubernetes.api_client import Changed, KubeApi

log = logging.getLogger("trimtab.sidecar")

REASONS: Final[Mapping[Action, str]] = {
    Action.START: "ScaledOut",
    Action.REPLACE: "Replaced",
    Action.SURGE: "Replaced",
    Action.DRAIN: "Draining",
    Action.UNDRAIN: "Undrained",
    Action.STOP: "ScaledIn",
    Action.FOLLOW: "FollowedForeignScaling",
    Action.PLACE: "Rebalanced",
}
"""What is worth an event."""


class Events:
    """Tells of scalings; one that cannot be told is logged.

    What fails in every turn for the same reason is told once.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._uid: str | None = None
        self._failure: tuple[Action, str] | None = None

    def __call__(self, report: Report) -> None:
        """Record an event of a scaling."""
        reason = REASONS.get(report.verdict.action)
        reasons, before = report.verdict.reasons, self._failure
        failures = [text for text in reasons if text.startswith(NOT_DONE)]
        self._failure = (report.verdict.action, failures[0]) if failures else None
        if reason is None or (failures and self._failure == before):
            return
        at = datetime.fromtimestamp(report.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            if self._uid is None:
                self._uid = self._api.look().workload.uid
            self._api.tell(self._uid, reason, "; ".join(reasons), at, wrong=bool(failures))
        except (PeerError, Changed) as error:
            log.warning("no event %s: %s", reason, error)
