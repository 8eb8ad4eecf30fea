"""Builds the control loop from the settings, and closes its parts."""

import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from trimtab.common.clock import Clock
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.common.telemetry.export import export_telemetry
from trimtab.common.units import format_rate
from trimtab.sidecar.errors import require_extra
from trimtab.sidecar.group_lead.group_lead import GroupLead
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.kafka.share_group import refuse_share_group
from trimtab.sidecar.leadership.leader_election import Leadership
from trimtab.sidecar.leadership.peer_detection import PeerAwareLeadership, build_author
from trimtab.sidecar.loop.control_loop import ControlLoop, LoopCollaborators
from trimtab.sidecar.pilot.pilot import PlanPilot
from trimtab.sidecar.plan_carrier import PlanCarrier
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.records.iteration_report import LogReporter
from trimtab.sidecar.reporting.decision_log import DecisionRecorder
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.process.process_target import ProcessTarget
from trimtab.sidecar.targets.process.state_dir import translate_state_dir_errors, write_atomically
from trimtab.sidecar.targets.replica_target import AdvisoryTarget, ConnectedTarget
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.page_tools import PageTools, build_group_history
from trimtab.sidecar.web.web_server import SidecarWebServer

if TYPE_CHECKING:
    from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount

log = logging.getLogger("trimtab.sidecar")

LOOP_HANG_TIMEOUT_S: Final = 30.0  # beyond three intervals: then the liveness probe fails
WEB_ADDRESS_FILE: Final = "web"  # in the state folder: with port 0 only the log has the address, too


@contextmanager
def log_clean_end(text: str) -> Generator[None]:
    """Log the text at the end; not after an error, which explains the end by itself."""
    yield
    log.info(text)


@contextmanager
def open_control_loop(settings: SidecarSettings, clock: Clock) -> Generator[ControlLoop]:
    """Yield a control loop ready to run, with its web server started.

    Raises SettingError, StartupError, KubernetesRejectedError, StateDirInUseError, StateDirError,
    GroupTypeMismatchError.
    """
    with ExitStack() as stack:
        stack.enter_context(log_clean_end(f"the sidecar of group {settings.group} has stopped"))
        connected = connect_target(settings, clock, stack)
        monitor = GroupMonitor(settings, clock)
        stack.callback(monitor.close)
        if settings.queue is not QueueKind.SHARE:  # `queue` may have been forgotten
            refuse_share_group(settings)
        history = build_group_history(settings)
        tools = PageTools(settings, clock, history)
        stack.callback(tools.close)
        max_silence = LOOP_HANG_TIMEOUT_S + 3 * settings.interval
        web_server = SidecarWebServer(settings.group, clock, max_silence, history, tools)
        stack.callback(web_server.stop)
        stack.enter_context(open_telemetry(settings, web_server))
        start_web_server(web_server, settings)
        log.info("capacity: %s per consumer", format_rate(settings.capacity))
        if settings.dry_run:
            log.info("dry run: decisions are logged, nothing is published or started")
        control_topics = ControlTopicStore(settings, monitor.brokers.admin)
        leadership, recorder = _build_leadership(settings, monitor, clock, connected, history, stack)
        recorders = () if recorder is None else (recorder,)
        collaborators = LoopCollaborators(
            monitor,
            control_topics,
            connected.target,
            (web_server, LogReporter(), *connected.reporters, *recorders),
            connected.read_target_status,
            leadership,
            build_plan_carrier(settings, monitor, clock, connected, stack),
            None if recorder is None else recorder.seasons,
            tuple if recorder is None else recorder.take_conditions,
        )
        yield ControlLoop(settings, collaborators, clock)


def open_telemetry(settings: SidecarSettings, web_server: SidecarWebServer) -> AbstractContextManager[None]:
    """Return a block that exports the process's metrics and logs. Raises SettingError."""
    registry = web_server.metrics_registry
    return export_telemetry("trimtab-sidecar", registry, "telemetry", enabled=settings.telemetry)


def start_web_server(web_server: SidecarWebServer, settings: SidecarSettings) -> None:
    """Start it, and tell its address. Raises SettingError, StartupError, StateDirError."""
    policy = settings.access_policy
    port = web_server.start(settings.host, settings.port, policy)
    address = f"{policy.scheme}://{settings.host}:{port}"
    if (warning := policy.exposure_warning("the web server", settings.host)) is not None:
        log.warning("%s (tls-certificate and tls-key, token-file)", warning)
    log.info("page, health, metrics and decisions at %s", address)
    if settings.state_dir is not None:
        with translate_state_dir_errors(settings.state_dir):
            settings.state_dir.mkdir(parents=True, exist_ok=True)
            write_atomically(settings.state_dir / WEB_ADDRESS_FILE, f"{address}\n")


def _build_leadership(
    settings: SidecarSettings,
    monitor: GroupMonitor,
    clock: Clock,
    connected: ConnectedTarget,
    history: GroupHistory,
    stack: ExitStack,
) -> tuple[Leadership, DecisionRecorder | None]:
    """Return the leadership, and what records decisions, which peers read."""
    if settings.dry_run:
        return connected.leadership, None  # it publishes nothing, so peers need not know of it
    author = build_author(settings, clock, connected.lease_id)
    feed = ControlTopicStore(settings, monitor.brokers.admin)
    leadership = PeerAwareLeadership(author, feed, clock, connected.leadership, take_over=settings.take_over)
    # the recorder's thread has a store of its own: a slow decision topic delays no iteration
    archive = ControlTopicStore(settings, monitor.brokers.admin)
    recorder = DecisionRecorder(settings, archive, leadership.get_author, clock, history)
    stack.callback(recorder.close)
    return leadership, recorder


def build_plan_carrier(
    settings: SidecarSettings,
    monitor: GroupMonitor,
    clock: Clock,
    connected: ConnectedTarget,
    stack: ExitStack,
) -> PlanCarrier | None:
    """Return what carries plans out in groups of any client; None if the members do."""
    if settings.dry_run or settings.queue is QueueKind.SHARE:
        return None
    carrier: PlanCarrier
    if settings.lead:
        carrier = GroupLead(settings, clock, connected.read_target_status)
    elif settings.protocol != "classic":
        carrier = PlanPilot(settings, clock, monitor.get_assignor, connected.read_target_status)
    else:
        return None
    stack.callback(carrier.close)
    return carrier


def connect_target(
    settings: SidecarSettings,
    clock: Clock,
    stack: ExitStack,
    serve_to_keda: "Callable[[SidecarSettings, KedaReplicaCount, ExitStack], None] | None" = None,
) -> ConnectedTarget:
    """Return the replica target; `serve_to_keda` replaces a KEDA service of this group alone.

    Raises SettingError, StartupError, KubernetesRejectedError, StateDirInUseError.
    """
    if settings.target == "none" or settings.dry_run:
        return ConnectedTarget(AdvisoryTarget())
    if settings.target == "kubernetes":
        require_extra("target=kubernetes", "kubernetes", "kubernetes")
        from trimtab.sidecar.targets.kubernetes.factory import connect_workload_target  # noqa: PLC0415 - as above

        return connect_workload_target(settings, clock, stack)
    if settings.target == "keda":
        require_extra("target=keda", "keda", "grpc", "kubernetes")
        from trimtab.sidecar.targets.keda.factory import (  # noqa: PLC0415 - as above
            connect_keda_target,
            serve_alone,
        )

        return connect_keda_target(settings, clock, stack, serve_to_keda or serve_alone)
    state_dir = settings.state_dir
    assert state_dir is not None, "settings check that target=process has a state folder"
    processes = ProcessTarget(settings.worker_argv, state_dir, clock, settings.worker_stop_timeout)
    stack.callback(processes.close)
    return ConnectedTarget(processes, processes.read_target_status)
