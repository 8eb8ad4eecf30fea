"""Factory of target `kubernetes`: API client, target, leader election and event reporter."""

import logging
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from trimtab.common.clock import Clock
from trimtab.sidecar.errors import KubernetesRejectedError, KubernetesUnavailableError, SidecarSettingError
from trimtab.sidecar.leadership.leader_election import Leadership, SoleLeader
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ScaleTargetRef, resolve_namespace
from trimtab.sidecar.targets.kubernetes.kubernetes_target import KubernetesTarget
from trimtab.sidecar.targets.kubernetes.lease_lock import LeaseElection
from trimtab.sidecar.targets.kubernetes.rival_autoscalers import describe_rivals
from trimtab.sidecar.targets.kubernetes.scaling_events import KubernetesEventReporter
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind
from trimtab.sidecar.targets.replica_target import ConnectedTarget

log = logging.getLogger("trimtab.sidecar")

UNAUTHORIZED_STATUSES: Final = frozenset({401, 403})
CONTROLLER_TIMEOUT_S: Final = 5.0  # for the controllers to act; a later iteration sees slower changes
HANG_INTERVALS: Final = 2  # without an iteration, until a loop hangs


def connect_workload_target(
    settings: SidecarSettings,
    clock: Clock,
    stack: ExitStack,
    open_api: Callable[[ScaleTargetRef, float], KubernetesApi] = KubernetesApi,
    controller_timeout: float = CONTROLLER_TIMEOUT_S,
) -> ConnectedTarget:
    """Connect with `open_api` and register cleanup on `stack`.

    Raises SidecarSettingError, also if something else scales the workload, and KubernetesRejectedError if the
    workload does not exist.
    """
    assert settings.workload is not None, "settings check that these targets have a workload"
    kind, _, name = settings.workload.partition("/")
    where = settings.namespace or resolve_namespace(settings.kubeconfig)
    api = open_api(ScaleTargetRef(WorkloadKind(kind), name, where, settings.kubeconfig), settings.timeout)
    stack.callback(api.close)
    try:
        api.fetch_snapshot()
    # an outage or a missing right can be fixed while the sidecar runs: the loop holds and retries
    except KubernetesUnavailableError as error:
        log.warning("%s", error)
    except KubernetesRejectedError as error:
        if error.status not in UNAUTHORIZED_STATUSES:
            raise
        log.warning("%s; scaling is suspended until then", error)
    else:
        _refuse_rivals(api, settings.workload, keda=settings.target == "keda")
    leadership = _start_election(settings, api, clock, stack)
    target = KubernetesTarget(api, clock, leadership=leadership, controller_timeout=controller_timeout)
    lease = ""
    if settings.leader_election:
        lease = f"lease {api.cluster_id} {where}/{api.scale_target.lease_name}"
    reporters = (KubernetesEventReporter(api),)
    return ConnectedTarget(target, target.read_target_status, leadership, reporters, lease)


def _refuse_rivals(api: KubernetesApi, workload: str, *, keda: bool) -> None:
    """Raise SidecarSettingError if something else scales the workload; log if that cannot be found out."""
    try:
        rivals = api.find_rivals(keda=keda)
    except (KubernetesUnavailableError, KubernetesRejectedError) as error:
        log.warning("%s; another autoscaler of %s would not be noticed", error, workload)
        return
    if rivals:
        raise SidecarSettingError(describe_rivals(workload, rivals))


def _start_election(
    settings: SidecarSettings, api: KubernetesApi, clock: Clock, stack: ExitStack
) -> Leadership:
    if not settings.leader_election:
        return SoleLeader()
    me = f"{socket.gethostname()}_{os.getpid()}"
    # A slow but living loop may spend two timeouts in an iteration, besides its interval.
    hang_timeout = HANG_INTERVALS * (2 * settings.timeout + settings.interval)
    election = LeaseElection(api, api.scale_target.lease_name, me, clock, hang_timeout)
    election.start()
    stack.callback(election.close)
    return election
