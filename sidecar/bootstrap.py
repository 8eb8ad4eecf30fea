"""Puts a sidecar together from its settings, and takes it apart again."""

import logging
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from trimtab.common.clock import Clock
from trimtab.common.units import format_rate
from trimtab.sidecar.control_loop import Loop, Parts
from trimtab.sidecar.errors import CannotStart
from trimtab.sidecar.kafka.control_topic_store import ControlTopics
from trimtab.sidecar.kafka.share_groups.share_group import refuse_share_group
from trimtab.sidecar.leadership.leader_election import Leadership
from trimtab.sidecar.leadership.peer_detection import Hearing, author
from trimtab.sidecar.measurement.group_monitor import Monitor
from trimtab.sidecar.measurement.queue_backlog import Kind
from trimtab.sidecar.reporting.decision_log import Recorder
from trimtab.sidecar.reporting.iteration_report import LogLines, Reporter
from trimtab.sidecar.reporting.web_server import Page
from trimtab.sidecar.settings.settings import Settings
from trimtab.sidecar.targets.advisory import Advice
from trimtab.sidecar.targets.process.process_target import Processes
from trimtab.sidecar.targets.process.state_dir import usable
from trimtab.sidecar.targets.replica_target import Steering

if TYPE_CHECKING:
    from trimtab.sidecar.reporting.certifier import Certifier

log = logging.getLogger("trimtab.sidecar")

LATE: Final = 30.0
"""Seconds without a turn, beyond three intervals, after which a loop counts as stuck."""

WEB_FILE: Final = "web"
"""File in the state folder that holds the address of the web page."""


@contextmanager
def assembled(settings: Settings, clock: Clock) -> Generator[Loop]:
    """Give a loop that is ready to run, its web page being served.

    Raises BadSetting, CannotStart, KubernetesRefuses, StateInUse, StateUnusable, WrongGroup.
    """
    with ExitStack() as stack:
        steering = _steering(settings, clock, stack)
        monitor = Monitor(settings, clock)
        stack.callback(monitor.close)
        if settings.queue is not Kind.SHARE:
            refuse_share_group(settings)
        page = Page(settings.group, clock, LATE + 3 * settings.interval)
        stack.callback(page.stop)
        guarded = settings.guard
        port = page.start(settings.host, settings.port, guarded)
        address = f"{guarded.scheme}://{settings.host}:{port}"
        if (warning := guarded.warning("the web page", settings.host)) is not None:
            log.warning("%s (tls-certificate and tls-key, token-file)", warning)
        log.info("health, metrics and verdicts at %s", address)
        log.info("capacity: one consumer is to sustain %s", format_rate(settings.capacity))
        if settings.dry_run:
            log.info("dry run: what follows is only said, nothing is published or started")
        if settings.state is not None:
            with usable(settings.state):
                settings.state.mkdir(parents=True, exist_ok=True)
                (settings.state / WEB_FILE).write_text(f"{address}\n")
        board = ControlTopics(settings, monitor.brokers.admin)
        certifier = _certifier(settings, clock, stack)
        leadership, kept = _heard(settings, monitor, clock, steering, stack)
        reporters: tuple[Reporter, ...] = (page, LogLines(), *steering.reporters, *kept)
        target, outside = steering.target, steering.outside
        parts = Parts(monitor, board, target, reporters, certifier, outside, leadership)
        yield Loop(settings, parts, clock)


def _heard(
    settings: Settings, monitor: Monitor, clock: Clock, steering: Steering, stack: ExitStack
) -> tuple[Leadership, tuple[Reporter, ...]]:
    """Return who leads, and who keeps the verdicts by which others hear of us.

    A dry run publishes nothing, so it stands in nobody's way and leaves no verdict.
    """
    if settings.dry_run:
        return steering.leadership, ()
    me = author(settings, clock, steering.lease)
    board = ControlTopics(settings, monitor.brokers.admin)
    hearing = Hearing(me, board, clock, steering.leadership, force=settings.take_over)
    archive = ControlTopics(settings, monitor.brokers.admin)  # its thread has its own
    recorder = Recorder(settings, archive, hearing.author)
    stack.callback(recorder.close)
    return hearing, (recorder,)


def _certifier(settings: Settings, clock: Clock, stack: ExitStack) -> "Certifier | None":
    if not settings.certify:
        return None
    from trimtab.sidecar.reporting.certifier import Certifier  # noqa: PLC0415 - it needs an extra

    certifier = Certifier(settings, clock)
    stack.callback(certifier.close)
    return certifier


def _steering(settings: Settings, clock: Clock, stack: ExitStack) -> Steering:
    """Return what replicas are started and stopped with.

    Raises BadSetting, CannotStart, KubernetesRefuses, StateInUse.
    """
    if settings.target == "none" or settings.dry_run:
        return Steering(Advice())
    if settings.target == "kubernetes":
        return _kubernetes(settings, clock, stack)
    if settings.target == "keda":
        return _keda(settings, clock, stack)
    state = settings.state
    assert state is not None, "settings check that target=process has a state folder"
    processes = Processes(settings.command, state, clock, settings.stop_patience)
    stack.callback(processes.close)
    return Steering(processes, processes.outside)


def _kubernetes(settings: Settings, clock: Clock, stack: ExitStack) -> Steering:
    if find_spec("kubernetes") is None:
        raise CannotStart("target=kubernetes needs an extra: pip install 'trimtab[kubernetes]'")
    from trimtab.sidecar.targets.kubernetes.factory import connected  # noqa: PLC0415 - it needs an extra

    return connected(settings, clock, stack)


def _keda(settings: Settings, clock: Clock, stack: ExitStack) -> Steering:
    if any(find_spec(name) is None for name in ("grpc", "kubernetes")):
        raise CannotStart("target=keda needs an extra: pip install 'trimtab[keda]'")
    from trimtab.sidecar.targets.keda.factory import opened  # noqa: PLC0415 - it needs an extra

    return opened(settings, clock, stack)
