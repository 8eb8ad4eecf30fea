"""What the sidecar's web server tells of one group: last decisions, history, readiness."""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any, Final

from trimtab.common import http_server
from trimtab.common.http_server import HttpResponse, Query
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.page_tools import PageTools

MAX_KEPT_DECISIONS: Final = 100  # 17 minutes at the default interval; the decision topic has older ones
NO_TOOLS: Final = http_server.build_text_response(http_server.HTTP_NOT_FOUND, "not computed by this server")


class GroupEndpoints:
    """Reporter of one group, and the responses about it."""

    def __init__(
        self, history: GroupHistory, tools: PageTools | None = None, max_decisions: int = MAX_KEPT_DECISIONS
    ) -> None:
        self.history = history
        self._tools = tools
        self.last_report: IterationReport | None = None
        self._decisions: deque[str] = deque(maxlen=max_decisions)  # as JSON, a fifth of the objects' memory

    def __call__(self, report: IterationReport) -> None:
        """Record an iteration."""
        self.last_report = report
        self._decisions.append(json.dumps(_build_decision_body(report), default=str))
        self.history(report)

    def respond_decisions(self) -> HttpResponse:
        """Return the last decisions, the newest last."""
        return http_server.build_json_text_response(f"[{', '.join(self._decisions)}]".encode())

    def respond_history(self) -> HttpResponse:
        """Return the history."""
        return http_server.build_json_text_response(self.history.encode_snapshot())

    def respond_what_if(self, query: Query) -> HttpResponse:
        """Return the state of a simulation of changed settings."""
        return NO_TOOLS if self._tools is None else self._tools.respond_what_if(query)

    def respond_doctor(self, query: Query) -> HttpResponse:
        """Return the doctor's newest findings."""
        return NO_TOOLS if self._tools is None else self._tools.respond_doctor(query)

    def stream_events(self) -> Iterator[bytes]:
        """Yield the history and its changes as server-sent events."""
        return self.history.stream_events()

    def check_readiness(self) -> tuple[bool, str]:
        """Return whether the group is known, and why not."""
        report = self.last_report
        if report is None:
            return False, "no iteration yet"
        if report.is_group_known:
            return True, "the group is known"
        return False, "; ".join(report.errors) or "the group could not be described"


def _build_decision_body(report: IterationReport) -> dict[str, Any]:
    decision = report.decision
    if decision.plan is not None:  # the target may be 100,000 numbers: it is in the plan topic
        decision = replace(decision, plan=replace(decision.plan, target=None))
    outcome = None if report.plan_outcome is None else asdict(report.plan_outcome)
    body = {"time": report.time, "epoch": report.epoch, **asdict(decision)}
    carrier = None if report.carrier is None else asdict(report.carrier)
    body["conditions"] = [asdict(one) for one in report.conditions]
    return {**body, "line": decision.format_line(), "plan_outcome": outcome, "carrier": carrier}
