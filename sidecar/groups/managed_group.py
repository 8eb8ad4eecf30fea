"""One of many groups: its control loop in a thread of its own, on the process's connections.

What happens in a group's thread concerns that group alone: an exception of its loop, a target that
hangs, a coordinator or leader that does not answer.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Final

from trimtab.common.clock import Clock
from trimtab.sidecar.groups.round_readings import RoundReadings
from trimtab.sidecar.groups.shared_brokers import GroupBrokersView, GroupSamplerView, SharedBrokers
from trimtab.sidecar.kafka.shared_control_topics import GroupControlTopics, SharedControlTopics
from trimtab.sidecar.leadership.peer_detection import PeerAwareLeadership, build_author
from trimtab.sidecar.loop.bootstrap import build_plan_carrier
from trimtab.sidecar.loop.control_loop import ControlLoop, LoopCollaborators
from trimtab.sidecar.readings.group_monitor import GroupMonitor, SharedConnections
from trimtab.sidecar.records.iteration_report import IterationReport, LogReporter, Reporter
from trimtab.sidecar.reporting.decision_log import DecisionRecorder, RecorderThread
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.replica_target import ConnectedTarget
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.page_tools import PageTools, build_group_history
from trimtab.sidecar.web.web_server import SidecarWebServer

log = logging.getLogger("trimtab.sidecar")

STOP_TIMEOUT_S: Final = 5.0  # of a group's thread, which may wait for a target
KEPT_DECISIONS: Final = 10  # of each group in /decisions; the decision topic has older ones
HISTORY_BYTES: Final = 64_000_000  # of all groups together
MIN_HISTORY_BYTES: Final = 60_000
RECORDED_INTERVAL_S: Final = 300.0  # of loads and owners: all groups share the decision topic


class GroupThread:
    """Runs `run_iteration` for the newest offered round; an exception is that group's error."""

    def __init__(self, group: str, run_iteration: Callable[[RoundReadings], None]) -> None:
        self._group = group
        self._run_iteration = run_iteration
        self._changed = Condition()
        self._offered: RoundReadings | None = None
        self._stops = False
        self.error = ""  # of the last iteration
        # a daemon: a target that hangs does not delay the exit
        self._thread = Thread(target=self._run, name=f"trimtab-{group}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, readings: RoundReadings) -> None:
        """Run an iteration with these readings; later ones replace them if the last one goes on."""
        with self._changed:
            self._offered = readings
            self._changed.notify_all()

    def stop(self) -> None:
        """Ask the thread to end; do not wait."""
        with self._changed:
            self._stops = True
            self._changed.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait for the end; return whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (readings := self._wait_for_round()) is not None:
            try:
                self._run_iteration(readings)
                self.error = ""
            except Exception as error:  # the others' loops go on, and this one tries again
                text = f"{type(error).__name__}: {error}"
                if text != self.error:
                    log.exception("group %s: its iteration failed", self._group)
                self.error = text

    def _wait_for_round(self) -> RoundReadings | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stops or self._offered is not None)
            readings, self._offered = self._offered, None
            return None if self._stops else readings


@dataclass(slots=True)
class SharedParts:
    """What the groups of a process share."""

    brokers: SharedBrokers
    control_topics: SharedControlTopics
    recorder_thread: RecorderThread
    web_server: SidecarWebServer
    connect_target: Callable[[SidecarSettings, Clock, ExitStack], ConnectedTarget]
    clock: Clock
    history_bytes: int = HISTORY_BYTES  # of each group
    shard_topic: str | None = None  # None: this sidecar has all groups


class ManagedGroup:
    """A group with its control loop. Raises as `open_control_loop` does if it cannot be opened."""

    def __init__(
        self,
        settings: SidecarSettings,
        parts: SharedParts,
        on_done: Callable[[str], None],
        reporters: tuple[Reporter, ...] = (),
    ) -> None:
        self.settings = settings
        self._parts = parts
        self._on_done = on_done
        self._stack = ExitStack()
        with ExitStack() as opening:
            self._view = GroupBrokersView(parts.brokers, settings.group)
            self._topics = GroupControlTopics(parts.control_topics, settings.group)
            opening.callback(self._topics.close)
            self._loop = self._build_loop(opening, reporters)
            self._stack = opening.pop_all()
        self._thread = GroupThread(settings.group, self._run_iteration)
        self._thread.start()

    @property
    def error(self) -> str:
        """What the last iteration failed with; empty if it did not."""
        return self._thread.error

    def offer(self, readings: RoundReadings) -> None:
        """Run an iteration with these readings, soon."""
        self._thread.offer(readings)

    def stop(self) -> None:
        """Ask the group's thread to end; `close` waits for it."""
        self._thread.stop()

    def close(self, wait: Callable[[float], bool] | None = None) -> None:
        """End the thread and close the group's own parts; with `wait` stop its workers first, too."""
        self._thread.stop()
        if not self._thread.join(STOP_TIMEOUT_S):
            log.warning(
                "group %s: its iteration has not ended in %.0f s", self.settings.group, STOP_TIMEOUT_S
            )
        if wait is not None and not self._loop.stop_workers(wait):
            log.warning("group %s: some workers did not stop in time", self.settings.group)
        self._stack.close()

    def _run_iteration(self, readings: RoundReadings) -> None:
        try:
            self._view.enter_round(readings)
            self._topics.begin_round()
            self._loop.run_iteration()
        finally:
            self._on_done(self.settings.group)

    def _build_loop(self, stack: ExitStack, reporters: tuple[Reporter, ...]) -> ControlLoop:
        settings, parts = self.settings, self._parts
        connected = parts.connect_target(settings, parts.clock, stack)
        sampler = GroupSamplerView(parts.brokers.sampler)
        monitor = GroupMonitor(settings, parts.clock, SharedConnections(self._view, sampler))
        stack.callback(monitor.close)
        history = build_group_history(settings, parts.history_bytes, RECORDED_INTERVAL_S)
        tools = PageTools(settings, parts.clock, history, parts.shard_topic)
        stack.callback(tools.close)
        parts.web_server.add_group(settings.group, history, tools, KEPT_DECISIONS)
        stack.callback(parts.web_server.remove_group, settings.group)
        leadership, recorder = self._build_leadership(connected, history, stack)
        recorders = () if recorder is None else (recorder,)
        collaborators = LoopCollaborators(
            monitor,
            self._topics,
            connected.target,
            (self._report, LogReporter(settings.group), *connected.reporters, *recorders, *reporters),
            connected.read_target_status,
            leadership,
            build_plan_carrier(settings, monitor, parts.clock, connected, stack),
            None if recorder is None else recorder.seasons,
            tuple if recorder is None else recorder.take_conditions,
        )
        return ControlLoop(settings, collaborators, parts.clock)

    def _build_leadership(
        self, connected: ConnectedTarget, history: GroupHistory, stack: ExitStack
    ) -> tuple[PeerAwareLeadership, DecisionRecorder | None]:
        settings, clock = self.settings, self._parts.clock
        author = build_author(settings, clock, connected.lease_id)
        leadership = PeerAwareLeadership(
            author, self._topics, clock, connected.leadership, take_over=settings.take_over
        )
        if settings.dry_run:
            return leadership, None  # it publishes nothing, so peers need not know of it
        recorder = DecisionRecorder(
            settings, self._topics, leadership.get_author, clock, history, self._parts.recorder_thread
        )
        stack.callback(recorder.close)
        return leadership, recorder

    def _report(self, report: IterationReport) -> None:
        self._parts.web_server.record_iteration(self.settings.group, report)
