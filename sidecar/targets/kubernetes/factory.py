"""Puts together what steers a workload: the connection, the target, the lease, the events."""

import logging
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from trimtab.common.clock import Clock
from trimtab.sidecar.errors import KubernetesAway, KubernetesRefuses
from trimtab.sidecar.leadership.leader_election import Alone, Leadership
from trimtab.sidecar.settings.settings import Settings
from trimtab.sidecar.targets.kubernetes.api_client import KubeApi, Place, namespace
from trimtab.sidecar.targets.kubernetes.kubernetes_target import Kubernetes
from trimtab.sidecar.targets.kubernetes.lease_lock import Election
from trimtab.sidecar.targets.kubernetes.scaling_events import Events
from trimtab.sidecar.targets.kubernetes.workload import Kind
from trimtab.sidecar.targets.replica_target import Steering

log = logging.getLogger("trimtab.sidecar")

UNGRANTED: Final = frozenset({401, 403})
"""Statuses of an API server that does not know us, or has not given us the right."""

PATIENCE: Final = 5.0
"""Seconds for which the work of Kubernetes' controllers is waited for."""

HANGS: Final = 2
"""So many intervals, each with two questions that time out, without a step: then a loop hangs."""


def connected(
    settings: Settings,
    clock: Clock,
    stack: ExitStack,
    opened: Callable[[Place, float], KubeApi] = KubeApi,
    patience: float = PATIENCE,
) -> Steering:
    """Connect, by `opened`; `stack` takes it apart. Raises BadSetting, KubernetesRefuses.

    A workload that is not there is told at once; a server that is away, or a right that is missing,
    may be mended: the loop says what is missing, holds, and asks again.
    """
    assert settings.workload is not None, "settings check that these targets have a workload"
    kind, _, name = settings.workload.partition("/")
    where = settings.namespace or namespace(settings.kubeconfig)
    api = opened(Place(Kind(kind), name, where, settings.kubeconfig), settings.timeout)
    stack.callback(api.close)
    try:
        api.look()
    except KubernetesAway as error:
        log.warning("%s", error)
    except KubernetesRefuses as error:
        if error.status not in UNGRANTED:
            raise
        log.warning("%s; nothing is scaled until then", error)
    leadership = _elected(settings, api, clock, stack)
    contest = settings.foreign_scaling == "contest"
    target = Kubernetes(api, clock, contest=contest, leadership=leadership, patience=patience)
    lease = f"lease {api.cluster} {where}/{api.place.lease}" if settings.elect else ""
    return Steering(target, target.outside, leadership, (Events(api),), lease)


def _elected(settings: Settings, api: KubeApi, clock: Clock, stack: ExitStack) -> Leadership:
    if not settings.elect:
        return Alone()
    me = f"{socket.gethostname()}_{os.getpid()}"
    patience = HANGS * (2 * settings.timeout + settings.interval)
    election = Election(api, api.place.lease, me, clock, patience)
    election.start()
    stack.callback(election.close)
    return election
