"""The sidecar's HTTP endpoints: its page, /healthz, /readyz, /metrics (Prometheus), and JSON.

JSON: /groups, and of one group /decisions, /history, /what-if, /doctor, and /events
(server-sent); with several groups `?group=NAME` tells which. With a token all but /healthz, /readyz and the
page's static files require it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from trimtab.common import http_server
from trimtab.common.clock import Clock
from trimtab.common.http_server import NO_AUTH, AccessPolicy, HttpEndpoint, HttpResponse, Query
from trimtab.sidecar.errors import StartupError
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.reporting.metrics import SidecarMetrics
from trimtab.sidecar.web.group_endpoints import MAX_KEPT_DECISIONS, GroupEndpoints
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.page_tools import GROUP_PARAMETER, PageTools
from trimtab.sidecar.web.static_files import load_static_routes


class SidecarWebServer:
    """Serves the last reports of the groups from a thread of its own.

    With `group` it serves this one, and calls are its reports; further ones come by `add_group`.
    """

    def __init__(
        self,
        group: str | None,
        clock: Clock,
        max_silence: float,
        history: GroupHistory | None = None,
        tools: PageTools | None = None,
    ) -> None:
        self._metrics = SidecarMetrics()
        static_files = load_static_routes()
        self._clock = clock
        self._max_silence = max_silence  # seconds without an iteration that still count as healthy
        self._last_iteration_at = clock.monotonic()
        self._groups: dict[str, GroupEndpoints] = {}
        self._list_problems: Callable[[], Mapping[str, str]] = dict
        self._describe_process: Callable[[], Mapping[str, Any]] = dict
        self._group = group
        if group is not None and history is not None:
            self.add_group(group, history, tools)
        self._endpoint = HttpEndpoint(
            {
                http_server.HEALTH_PATH: self._check_health,
                http_server.READINESS_PATH: self._check_readiness,
                http_server.METRICS_PATH: self._respond_metrics,
                "/groups": self._respond_groups,
                **static_files,
            },
            {"/events": self._stream_events},
            frozenset(static_files),
            {
                "/decisions": lambda query: self._respond(query, GroupEndpoints.respond_decisions),
                "/history": lambda query: self._respond(query, GroupEndpoints.respond_history),
                "/what-if": lambda query: self._respond(query, lambda one: one.respond_what_if(query)),
                "/doctor": lambda query: self._respond(query, lambda one: one.respond_doctor(query)),
            },
        )

    @property
    def metrics_registry(self) -> CollectorRegistry:
        """The metrics of all groups."""
        return self._metrics.registry

    def add_group(
        self,
        group: str,
        history: GroupHistory,
        tools: PageTools | None = None,
        max_decisions: int = MAX_KEPT_DECISIONS,
    ) -> GroupEndpoints:
        """Serve a group from now on; return its endpoints."""
        self._groups[group] = endpoints = GroupEndpoints(history, tools, max_decisions)
        return endpoints

    def remove_group(self, group: str) -> None:
        """Serve a group no longer."""
        endpoints = self._groups.pop(group, None)
        if endpoints is not None:
            endpoints.history.close()
        self._metrics.remove_group(group)

    def describe_groups_by(
        self,
        list_problems: Callable[[], Mapping[str, str]],
        describe_process: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Add to `/groups` what these return: groups that do not run, and the process's own figures."""
        self._list_problems, self._describe_process = list_problems, describe_process

    def record_iteration(self, group: str, report: IterationReport) -> None:
        """Record an iteration of a group."""
        endpoints = self._groups.get(group)
        if endpoints is None:
            return  # removed meanwhile
        self._metrics.record_iteration(group, report)
        endpoints(report)

    def record_progress(self) -> None:
        """Record that the process works, for its liveness probe."""
        self._last_iteration_at = self._clock.monotonic()

    def __call__(self, report: IterationReport) -> None:
        """Record an iteration of the only group."""
        assert self._group is not None, "with several groups the caller names one"
        self.record_progress()
        self.record_iteration(self._group, report)

    def start(self, host: str, port: int, access_policy: AccessPolicy = NO_AUTH) -> int:
        """Start serving and return the port. Raises StartupError."""
        try:
            return self._endpoint.start(host, port, access_policy, "trimtab-http")
        except OSError as error:
            raise StartupError(
                f"web page {host}:{port}: {error.strerror}; choose another port (0: a free one)"
            ) from error

    def stop(self) -> None:
        """Stop serving."""
        for endpoints in list(self._groups.values()):
            endpoints.history.close()
        self._endpoint.stop()

    def handle_path(self, path: str) -> HttpResponse:
        """Return the response for a path, which may have a query."""
        return self._endpoint.handle_path(path)

    def _respond(self, query: Query, respond: Callable[[GroupEndpoints], HttpResponse]) -> HttpResponse:
        endpoints = self._find_group(query)
        if endpoints is None:
            return http_server.build_text_response(http_server.HTTP_NOT_FOUND, self._explain_unknown(query))
        return respond(endpoints)

    def _stream_events(self, query: Query) -> Iterator[bytes]:
        endpoints = self._find_group(query)
        return iter(()) if endpoints is None else endpoints.stream_events()

    def _find_group(self, query: Query) -> GroupEndpoints | None:
        named = query.get(GROUP_PARAMETER)
        if named is None and len(self._groups) == 1:
            return next(iter(self._groups.values()))
        return self._groups.get(named or "")

    def _explain_unknown(self, query: Query) -> str:
        named = query.get(GROUP_PARAMETER)
        if named is None:
            return "this sidecar has several groups: add ?group=NAME, a name of /groups"
        return f"this sidecar has no group {named!r}; /groups lists them"

    def _respond_groups(self) -> HttpResponse:
        groups = [_describe_group(name, one.last_report) for name, one in sorted(self._groups.items())]
        stopped = [{"group": n, "state": "failed", "error": e} for n, e in self._list_problems().items()]
        body = {"groups": [*groups, *stopped], **self._describe_process()}
        return http_server.build_json_response(body)

    def _respond_metrics(self) -> HttpResponse:
        return http_server.HTTP_OK, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry)

    def _check_health(self) -> HttpResponse:
        # a hung loop fails the liveness probe; a broker outage does not, as iterations go on
        silence = self._clock.monotonic() - self._last_iteration_at
        status = http_server.HTTP_OK if silence <= self._max_silence else http_server.HTTP_SERVICE_UNAVAILABLE
        return http_server.build_text_response(status, f"last iteration {silence:.0f} s ago")

    def _check_readiness(self) -> HttpResponse:
        # one known group is enough: another one's failure must not take this pod out of service
        checks = [one.check_readiness() for one in list(self._groups.values())]
        if not checks and self._group is None:  # a rollout must not wait for the first one
            return http_server.build_text_response(http_server.HTTP_OK, "no group to manage yet")
        known = sum(is_ready for is_ready, _ in checks)
        unknown = next((text for is_ready, text in checks if not is_ready), "no group yet")
        status = http_server.HTTP_OK if known else http_server.HTTP_SERVICE_UNAVAILABLE
        if len(checks) > 1:
            return http_server.build_text_response(status, f"{known} of {len(checks)} groups are known")
        return http_server.build_text_response(status, checks[0][1] if known else unknown)


def _describe_group(group: str, report: IterationReport | None) -> dict[str, Any]:
    if report is None:
        return {"group": group, "state": "starting"}
    metrics = report.decision.metrics
    return {
        "group": group,
        "state": "managed" if report.is_leader else "standby",
        "time": report.time,
        "action": report.decision.action.value,
        "replicas": metrics.running_replicas,
        "desired": metrics.desired_replicas,
        "partitions": metrics.partitions,
        "required_bytes_per_s": metrics.required_rate,
        "overdue_bytes": metrics.overdue_backlog_bytes,
        "reasons": report.decision.reason_text,
        "conditions": [asdict(one) for one in report.conditions],
    }
