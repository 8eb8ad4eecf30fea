"""Puts together the target that KEDA scales: pods as Kubernetes shows them, a count told to KEDA.

The rules of taking pods away are those of the target `kubernetes`, with one difference: the count
that it asks for is laid on KEDA's desk instead of being set, and what it looks at shows that count
as the one asked for. So it is lowered only for a pod that is marked as the one to go, and while
the others are ready; KEDA and the HPA bring it about in their own time.

Others can make more pods than we told: KEDA's fallback or its minReplicaCount, a person. KEDA would
take them away as Kubernetes likes, perhaps while they read. So the count told is raised to them,
and they are drained like all others (`compute_reported_replicas`).
"""

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from grpc import ServerCredentials

from trimtab.common.clock import Clock
from trimtab.common.http_server import is_loopback
from trimtab.sidecar.measurement.observation import RequestedReplicas
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount
from trimtab.sidecar.targets.keda.scaler_responses import StalenessLimits
from trimtab.sidecar.targets.keda.scaler_service import (
    ExternalScalerService,
    make_server_credentials,
)
from trimtab.sidecar.targets.keda.trigger_metadata import ScaledGroup
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.factory import connect_workload_target
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind, WorkloadSnapshot
from trimtab.sidecar.targets.replica_target import ConnectedTarget

log = logging.getLogger("trimtab.sidecar")

ITERATION_DELAY_LIMIT_S: Final = 30.0
"""Seconds without a turn, beyond three intervals, after which KEDA gets no answer."""


class KedaWorkloadApi(KubernetesApi):
    """A workload whose count KEDA sets: ours is laid on its desk."""

    def __init__(
        self, scale_target: ScaleTargetRef, timeout: float, replica_count: KedaReplicaCount
    ) -> None:
        super().__init__(scale_target, timeout)
        self._replica_count = replica_count

    def fetch_snapshot(self) -> WorkloadSnapshot:
        """Return workload and pods, with the count that KEDA is told as the one asked for.

        Raises KubernetesUnavailableError, KubernetesRejectedError.
        """
        found = super().fetch_snapshot()
        told = compute_reported_replicas(
            found, self._replica_count.get_or_adopt(found.workload.replicas)
        )
        self._replica_count.set_replicas(told)
        asked = RequestedReplicas(told, "KEDA", found.workload.requested.requested_at, is_ours=True)
        return replace(found, workload=replace(found.workload, replicas=told, requested=asked))

    def set_replicas(self, replicas: int, resource_version: str) -> None:
        """Tell KEDA this count."""
        del resource_version  # nothing is written
        self._replica_count.set_replicas(replicas)


def compute_reported_replicas(snapshot: WorkloadSnapshot, reported: int) -> int:
    """Return the count to tell: no less than the pods that are there to stay.

    Those are the pods without our mark, as far as the workload asks for them (a rollout has more
    for a while). Pods of a StatefulSet have no marks, so nothing is known of them.
    """
    if snapshot.workload.kind is WorkloadKind.STATEFULSET:
        return reported
    unmarked = sum(not pod.is_marked for pod in snapshot.alive_pods)
    return max(reported, min(unmarked, snapshot.workload.replicas))


def load_tls_credentials(settings: SidecarSettings) -> ServerCredentials | None:
    """Return what KEDA is answered in; None for plain text. Raises SettingError."""
    certificate, key = settings.grpc_tls_certificate, settings.grpc_tls_key
    if certificate is not None and key is not None:
        return make_server_credentials(certificate, key, settings.grpc_client_ca)
    if not is_loopback(settings.grpc_host):
        log.warning(
            "KEDA's service at %s answers everybody who reaches it: give it TLS "
            "(grpc-tls-certificate and grpc-tls-key, grpc-client-ca)",
            settings.grpc_host,
        )
    return None


def connect_keda_target(
    settings: SidecarSettings, clock: Clock, stack: ExitStack
) -> ConnectedTarget:
    """Connect to Kubernetes and begin to answer KEDA; `stack` takes both apart.

    Raises SidecarSettingError, StartupError, KubernetesRejectedError.
    """
    desk = KedaReplicaCount(
        StalenessLimits(settings.fallback_after, ITERATION_DELAY_LIMIT_S + 3 * settings.interval),
        clock,
    )

    def opened_api(place: ScaleTargetRef, timeout: float) -> KubernetesApi:
        return KedaWorkloadApi(place, timeout, desk)

    steering = connect_workload_target(settings, clock, stack, opened_api, controller_timeout=0.0)
    service = ExternalScalerService(desk, ScaledGroup.from_settings(settings))
    stack.callback(service.stop)
    port = service.start(settings.grpc_host, settings.grpc_port, load_tls_credentials(settings))
    log.info("KEDA is answered at %s:%d", settings.grpc_host, port)
    return replace(steering, reporters=(*steering.reporters, desk))
