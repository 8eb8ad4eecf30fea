"""What the page asks the sidecar to compute about one group: what-if, and the doctor's findings."""

from trimtab.common import http_server
from trimtab.common.clock import Clock
from trimtab.common.http_server import HttpResponse, Query
from trimtab.sidecar.records.sample_record import SAMPLE_INTERVAL_S
from trimtab.sidecar.reporting.decision_log import build_record_terms
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.web.decision_alternatives import AlternativesThread
from trimtab.sidecar.web.doctor_runs import DoctorRuns
from trimtab.sidecar.web.history import MAX_HISTORY_BYTES, GroupHistory
from trimtab.sidecar.web.topic_freshness import TopicFreshness
from trimtab.sidecar.web.what_if_runner import WhatIfRunner

GROUP_PARAMETER = "group"  # chooses the group, and is no part of a question


class PageTools:
    """Computations of one group; each starts when it is asked for."""

    def __init__(
        self, settings: SidecarSettings, clock: Clock, history: GroupHistory, shard_topic: str | None = None
    ) -> None:
        self._what_if = WhatIfRunner(settings, clock, history)
        self._doctor = DoctorRuns(settings, clock, shard_topic)

    def respond_what_if(self, query: Query) -> HttpResponse:
        """Return the state of a simulation of changed settings."""
        question = {name: value for name, value in query.items() if name != GROUP_PARAMETER}
        return http_server.build_json_response(self._what_if.ask(question))

    def respond_doctor(self, query: Query) -> HttpResponse:
        """Return the doctor's newest findings."""
        return http_server.build_json_response(self._doctor.ask(again="again" in query))

    def close(self) -> None:
        """End the simulation in progress."""
        self._what_if.close()


def build_group_history(
    settings: SidecarSettings, max_bytes: int = MAX_HISTORY_BYTES, sample_interval: float = SAMPLE_INTERVAL_S
) -> GroupHistory:
    """Return an empty history of a group with these settings."""
    alternatives = AlternativesThread(settings.autoscaling_policy, settings.move_cost_weight)
    freshness = TopicFreshness(settings.consumption_window)
    named = {"backlog_grace": settings.backlog_grace}
    terms = build_record_terms(settings)
    return GroupHistory(terms, alternatives, max_bytes, sample_interval, freshness, named)
