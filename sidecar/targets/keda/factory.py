"""Puts together the target that KEDA scales: pods as Kubernetes shows them, a count told to KEDA.

The rules of taking pods away are those of the target `kubernetes`, with one difference: the count
that it asks for is laid on KEDA's desk instead of being set, and what it looks at shows that count
as the one asked for. So it is lowered only for a pod that is marked as the one to go, and while
the others are ready; KEDA and the HPA bring it about in their own time.

Others can make more pods than we told: KEDA's fallback or its minReplicaCount, a person. KEDA would
take them away as Kubernetes likes, perhaps while they read. So the count told is raised to them,
and they are drained like all others (`owed`).
"""

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from grpc import ServerCredentials

from trimtab.common.clock import Clock
from trimtab.common.http_server import is_loopback
from trimtab.sidecar.measurement.observation import Asked
from trimtab.sidecar.settings.settings import Settings
from trimtab.sidecar.targets.keda.replica_count import Desk
from trimtab.sidecar.targets.keda.scaler_responses import Patience
from trimtab.sidecar.targets.keda.scaler_service import Service, credentials
from trimtab.sidecar.targets.keda.trigger_metadata import Steered
from trimtab.sidecar.targets.kubernetes.api_client import KubeApi, Place
from trimtab.sidecar.targets.kubernetes.factory import connected
from trimtab.sidecar.targets.kubernetes.workload import Found, Kind
from trimtab.sidecar.targets.replica_target import Steering

log = logging.getLogger("trimtab.sidecar")

LATE: Final = 30.0
"""Seconds without a turn, beyond three intervals, after which KEDA gets no answer."""


class Scaled(KubeApi):
    """A workload whose count KEDA sets: ours is laid on its desk."""

    def __init__(self, place: Place, timeout: float, desk: Desk) -> None:
        super().__init__(place, timeout)
        self._desk = desk

    def look(self) -> Found:
        """Return workload and pods, with the count that KEDA is told as the one asked for.

        Raises KubernetesAway, KubernetesRefuses.
        """
        found = super().look()
        told = owed(found, self._desk.begin(found.workload.replicas))
        self._desk.tell(told)
        asked = Asked(told, "KEDA", found.workload.asked.at, ours=True)
        return replace(found, workload=replace(found.workload, replicas=told, asked=asked))

    def scale(self, replicas: int, version: str) -> None:
        """Tell KEDA this count."""
        del version  # nothing is written
        self._desk.tell(replicas)


def owed(found: Found, told: int) -> int:
    """Return the count to tell: no less than the pods that are there to stay.

    Those are the pods without our mark, as far as the workload asks for them (a rollout has more
    for a while). Pods of a StatefulSet have no marks, so nothing is known of them.
    """
    if found.workload.kind is Kind.STATEFULSET:
        return told
    unmarked = sum(not pod.marked for pod in found.alive)
    return max(told, min(unmarked, found.workload.replicas))


def spoken(settings: Settings) -> ServerCredentials | None:
    """Return what KEDA is answered in; None for plain text. Raises SettingError."""
    certificate, key = settings.grpc_tls_certificate, settings.grpc_tls_key
    if certificate is not None and key is not None:
        return credentials(certificate, key, settings.grpc_client_ca)
    if not is_loopback(settings.grpc_host):
        log.warning(
            "KEDA's service at %s answers everybody who reaches it: give it TLS "
            "(grpc-tls-certificate and grpc-tls-key, grpc-client-ca)",
            settings.grpc_host,
        )
    return None


def opened(settings: Settings, clock: Clock, stack: ExitStack) -> Steering:
    """Connect to Kubernetes and begin to answer KEDA; `stack` takes both apart.

    Raises BadSetting, CannotStart, KubernetesRefuses.
    """
    desk = Desk(Patience(settings.fallback_after, LATE + 3 * settings.interval), clock)

    def opened_api(place: Place, timeout: float) -> KubeApi:
        return Scaled(place, timeout, desk)

    steering = connected(settings, clock, stack, opened_api, patience=0.0)
    service = Service(desk, Steered.of(settings))
    stack.callback(service.stop)
    port = service.start(settings.grpc_host, settings.grpc_port, spoken(settings))
    log.info("KEDA is answered at %s:%d", settings.grpc_host, port)
    return replace(steering, reporters=(*steering.reporters, desk))
