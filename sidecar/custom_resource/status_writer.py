"""Writes each resource's status and events, in a thread: a slow API server delays no iteration.

1. Only the sidecar that manages a group writes figures and decisions. What is wrong with a
   resource is the same for all sidecars, and each writes it unless it is there already. Of sidecars
   that divide the groups each writes for its own ones.
2. A report belongs to the settings that it was made with: that of an earlier generation is not used.
3. A refusal is an event once: when the condition `Ready` becomes False with another reason or text.
4. A labelled workload has no status, and its scalings are events already (`KubernetesEventReporter`): only
   refusals are written.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock, Thread
from typing import Final, Protocol

from trimtab.common.clock import Clock
from trimtab.common.errors import PeerError
from trimtab.sidecar.custom_resource.resource_source import ResourceEntry
from trimtab.sidecar.custom_resource.resource_status import build_status, find_condition, is_write_due
from trimtab.sidecar.custom_resource.scaler_resource import ResourceProblem, ScalerResource
from trimtab.sidecar.records.iteration_report import IterationReport, Reporter
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.kubernetes.api_client import ResourceConflictError, format_timestamp
from trimtab.sidecar.targets.kubernetes.scaling_events import ScalingEvent, ScalingEventFilter

log = logging.getLogger("trimtab.sidecar")

MAX_QUEUED_EVENTS: Final = 20  # of a group, while the API server is away


class ResourceWriter(Protocol):
    """What the writer needs of the API server; see `ScalerResourceApi`."""

    def write_status(self, resource: ScalerResource, status: Mapping[str, object]) -> None:
        """Write the status."""
        ...

    def create_event(self, resource: ScalerResource, event: ScalingEvent) -> None:
        """Create an event."""
        ...


@dataclass(slots=True)
class GroupReports:
    """What a group's loop last told; its thread writes, the writer's thread reads."""

    settings: SidecarSettings
    last: IterationReport | None = None
    last_scaling: IterationReport | None = None
    _event_filter: ScalingEventFilter = field(default_factory=ScalingEventFilter)
    _events: deque[ScalingEvent] = field(default_factory=lambda: deque(maxlen=MAX_QUEUED_EVENTS))
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, report: IterationReport) -> None:
        """Keep an iteration's report."""
        self.last = report
        # advice repeats itself each iteration and scales nothing
        if not report.is_leader or report.decision.is_advice:
            return
        event = self._event_filter.select_event(report)
        if event is not None:
            self.last_scaling = report
            with self._lock:
                self._events.append(event)  # a full queue drops its oldest

    def send_events(self, send: Callable[[ScalingEvent], None]) -> None:
        """Send each event once, oldest first. One whose `send` raises is kept while there is room."""
        while (event := self._take_event()) is not None:
            try:
                send(event)
            except BaseException:
                self._put_back(event)
                raise

    def _take_event(self) -> ScalingEvent | None:
        # out of the queue before it is sent: while it is full, a new event would drop it meanwhile
        with self._lock:
            return self._events.popleft() if self._events else None

    def _put_back(self, event: ScalingEvent) -> None:
        with self._lock:
            if len(self._events) < MAX_QUEUED_EVENTS:  # else newer ones came in its place
                self._events.appendleft(event)


class ResourceStatusWriter:
    """Writes the status of all resources once per `interval` seconds."""

    def __init__(
        self,
        writer: ResourceWriter,
        list_resource_entries: Callable[[], tuple[ResourceEntry, ...] | None],
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._list_resource_entries = list_resource_entries
        self._is_responsible_for: Callable[[str], bool] = lambda _: True
        self._clock = clock
        self._reports: dict[str, GroupReports] = {}
        self._written_at: dict[str, float] = {}  # by uid, monotonic
        self._refused: dict[str, ResourceProblem] = {}  # of workloads, by uid: what their last event told
        self._last_error = ""
        self._stopped = Event()
        self._lock = Lock()
        self._thread: Thread | None = None

    def build_reporter(self, settings: SidecarSettings) -> Reporter:
        """Return the reporter of a group that opens."""
        reports = GroupReports(settings)
        with self._lock:
            self._reports[settings.group] = reports
        return reports

    def start(
        self,
        list_problems: Callable[[], Mapping[str, str]],
        is_responsible_for: Callable[[str], bool],
        interval: float,
    ) -> None:
        """Write in a thread from now on; `list_problems` tells of groups that fail."""
        self._is_responsible_for = is_responsible_for
        run = partial(self._run, list_problems, interval)
        # a daemon: an API server that hangs does not delay the exit
        self._thread = Thread(target=run, name="trimtab-resource-status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def write_all(self, problems: Mapping[str, str]) -> None:
        """Write what is due; `problems` are those of groups that do not run, by group."""
        listed = self._list_resource_entries() or ()
        entries = [one for one in listed if self._is_responsible_for(one.resource.group)]
        for one in entries:
            if self._stopped.is_set():
                return
            try:
                self._write_resource(one, problems.get(one.resource.group, ""))
                self._last_error = ""
            except ResourceConflictError:
                continue  # deleted meanwhile
            except PeerError as error:
                self._log_error(f"{one.resource.origin}: its status could not be written: {error}")
        known = {one.resource.uid for one in entries}
        self._written_at = {uid: at for uid, at in self._written_at.items() if uid in known}
        self._refused = {uid: problem for uid, problem in self._refused.items() if uid in known}

    def _run(self, list_problems: Callable[[], Mapping[str, str]], interval: float) -> None:
        while not self._stopped.wait(interval):
            try:
                self.write_all(list_problems())
            except Exception:  # the next one may succeed, and groups are managed without it
                log.exception("the resources' status could not be written")

    def _write_resource(self, one: ResourceEntry, problem_text: str) -> None:
        resource = one.resource
        problem = one.problem
        if problem is None and problem_text:
            problem = ResourceProblem("NotManaged", problem_text)
        if resource.is_workload:
            self._report_refused_workload(resource, problem)
            return
        reports = self._find_reports(one) if problem is None else None
        last = None if reports is None else reports.last
        if last is not None and not last.is_leader:
            return  # rule 1
        scaling = None if reports is None else reports.last_scaling
        status = build_status(resource, problem, last, scaling, self._clock.wall())
        age = self._clock.monotonic() - self._written_at.get(resource.uid, float("-inf"))
        if is_write_due(resource.status, status, age):
            self._writer.write_status(resource, status)
            self._written_at[resource.uid] = self._clock.monotonic()
            if problem is not None:
                self._create_refusal_event(resource, problem)
        if reports is not None:
            reports.send_events(partial(self._writer.create_event, resource))

    def _find_reports(self, one: ResourceEntry) -> GroupReports | None:
        with self._lock:
            reports = self._reports.get(one.resource.group)
        # rule 2
        return reports if reports is not None and reports.settings == one.entry.settings else None

    def _report_refused_workload(self, workload: ScalerResource, problem: ResourceProblem | None) -> None:
        # rule 4
        if problem is None:
            self._refused.pop(workload.uid, None)
        elif self._refused.get(workload.uid) != problem:
            self._create_refusal_event(workload, problem)
            self._refused[workload.uid] = problem

    def _create_refusal_event(self, resource: ScalerResource, problem: ResourceProblem) -> None:
        before = find_condition(resource.status, "Ready")
        if (before.get("reason"), before.get("message")) == (problem.reason, problem.message):
            return
        at = format_timestamp(self._clock.wall())
        self._writer.create_event(
            resource, ScalingEvent(problem.reason, problem.message, at, is_warning=True)
        )

    def _log_error(self, text: str) -> None:
        if text != self._last_error:
            log.warning("%s", text)
        self._last_error = text
