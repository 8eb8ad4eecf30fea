"""Opens the shared connections, and the manager of many groups."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from trimtab.common.clock import Clock
from trimtab.sidecar.errors import require_extra
from trimtab.sidecar.groups.group_manager import GroupManager, GroupSource, ListedGroups
from trimtab.sidecar.groups.managed_group import SharedParts
from trimtab.sidecar.groups.pattern_source import PatternSource
from trimtab.sidecar.groups.shared_brokers import SharedBrokers
from trimtab.sidecar.kafka.shard_membership import ShardMembership
from trimtab.sidecar.kafka.shared_control_topics import SharedControlTopics
from trimtab.sidecar.leadership.group_shards import ShardSource, SoleSidecar
from trimtab.sidecar.loop.bootstrap import (
    LOOP_HANG_TIMEOUT_S,
    connect_target,
    log_clean_end,
    open_telemetry,
    start_web_server,
)
from trimtab.sidecar.reporting.decision_log import RecorderThread
from trimtab.sidecar.settings.group_list import GroupListSettings
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.web.web_server import SidecarWebServer

if TYPE_CHECKING:  # they need an extra
    from trimtab.sidecar.custom_resource.factory import ScalerResources
    from trimtab.sidecar.targets.keda.factory import SharedScaler
    from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount


class KedaScaler:
    """The one KEDA service of all groups; loaded with the first of them, since it needs an extra."""

    def __init__(self) -> None:
        self._shared: SharedScaler | None = None

    def serve_group(
        self, settings: SidecarSettings, replica_count: "KedaReplicaCount", stack: ExitStack
    ) -> None:
        """Serve this group, too. Raises SettingError, StartupError."""
        from trimtab.sidecar.targets.keda.factory import SharedScaler  # noqa: PLC0415 - as above

        if self._shared is None:
            self._shared = SharedScaler()
        self._shared.serve_group(settings, replica_count, stack)

    def close(self) -> None:
        """Stop the service."""
        if self._shared is not None:
            self._shared.close()


def open_scaler_resources(listed: GroupListSettings, clock: Clock, stack: ExitStack) -> "ScalerResources":
    """Return source and status writer of Kubernetes objects. Raises SettingError, StartupError."""
    setting = "custom-resources" if listed.options.custom_resources else "workload-selector"
    require_extra(setting, "kubernetes", "kubernetes")
    from trimtab.sidecar.custom_resource.factory import connect_scaler_resources  # noqa: PLC0415 - as above

    return connect_scaler_resources(listed, clock, stack)


@contextmanager
def open_group_manager(listed: GroupListSettings, clock: Clock) -> Generator[GroupManager]:
    """Yield a manager ready to run, with its web server started.

    Raises SettingError and StartupError for what concerns the process; what concerns one group is logged.
    """
    process = listed.process
    with ExitStack() as stack:
        stack.enter_context(log_clean_end("the sidecar of many groups has stopped"))
        brokers = SharedBrokers(process, clock)
        stack.callback(brokers.close)
        web_server = SidecarWebServer(None, clock, LOOP_HANG_TIMEOUT_S + 3 * process.interval)
        stack.callback(web_server.stop)
        stack.enter_context(open_telemetry(process, web_server))
        start_web_server(web_server, process)
        parts = _open_shared_parts(listed, brokers, web_server, clock, stack)
        sources: list[GroupSource] = [ListedGroups(listed.list_entries())]
        resources = None
        if listed.options.has_kubernetes_objects:
            resources = open_scaler_resources(listed, clock, stack)
            sources.append(resources.source)
        if listed.options.group_pattern is not None:
            sources.append(PatternSource(listed, brokers.batches, clock))
        reporters = () if resources is None else (resources.status_writer.build_reporter,)
        shards = _join_other_sidecars(listed, brokers, clock, stack)
        manager = GroupManager(process.interval, sources, parts, reporters, shards)
        stack.callback(manager.close)
        if resources is not None:
            resources.status_writer.start(manager.list_problems, manager.is_responsible_for, process.interval)
        yield manager


def _join_other_sidecars(
    listed: GroupListSettings, brokers: SharedBrokers, clock: Clock, stack: ExitStack
) -> ShardSource:
    """Return the source of shards; `stack` leaves the others after the manager has closed its groups."""
    process, topic = listed.process, listed.options.shard_topic
    # a dry run would take groups from those that act, and not act
    if topic is None or process.dry_run:
        return SoleSidecar()
    hang_timeout = LOOP_HANG_TIMEOUT_S + 3 * process.interval
    membership = ShardMembership(process, brokers.cluster.admin, topic, clock, hang_timeout)
    membership.start()
    stack.callback(membership.close)
    return membership


def _open_shared_parts(
    listed: GroupListSettings,
    brokers: SharedBrokers,
    web_server: SidecarWebServer,
    clock: Clock,
    stack: ExitStack,
) -> SharedParts:
    control_topics = SharedControlTopics(listed.process, brokers.cluster.admin)
    stack.callback(control_topics.close)
    recorder_thread = RecorderThread()
    stack.callback(recorder_thread.close)
    scaler = KedaScaler()
    stack.callback(scaler.close)
    connect = partial(connect_target, serve_to_keda=scaler.serve_group)
    return SharedParts(
        brokers,
        control_topics,
        recorder_thread,
        web_server,
        connect,
        clock,
        shard_topic=listed.options.shard_topic,
    )
