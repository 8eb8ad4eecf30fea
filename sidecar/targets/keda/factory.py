"""Factory of target `keda`: pods are read from Kubernetes, and KEDA sets the replica count.

The target follows the scale-down rules of target `kubernetes`, but reports the count to KEDA
instead of setting it. So the reported count falls only for a marked pod while all others are ready;
KEDA and the HPA apply it with their own delay.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from threading import Lock
from typing import Final

from grpc import ServerCredentials

from trimtab.common.clock import Clock
from trimtab.common.http_server import is_loopback
from trimtab.sidecar.model.observation import RequestedReplicas
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount
from trimtab.sidecar.targets.keda.scaler_responses import StalenessLimits
from trimtab.sidecar.targets.keda.scaler_service import ExternalScalerService, make_server_credentials
from trimtab.sidecar.targets.keda.trigger_metadata import ScaledGroup
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.factory import connect_workload_target
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind, WorkloadSnapshot
from trimtab.sidecar.targets.replica_target import ConnectedTarget

log = logging.getLogger("trimtab.sidecar")

MAX_SHARED_STREAMS: Final = 1024  # KEDA opens two for each ScaledObject, and each has a thread
ITERATION_DELAY_LIMIT_S: Final = 30.0  # beyond three intervals, until requests are UNAVAILABLE


class KedaWorkloadApi(KubernetesApi):
    """Workload API that reports replica counts to KEDA instead of writing them."""

    def __init__(self, scale_target: ScaleTargetRef, timeout: float, replica_count: KedaReplicaCount) -> None:
        super().__init__(scale_target, timeout)
        self._replica_count = replica_count

    def fetch_snapshot(self) -> WorkloadSnapshot:
        """Return workload and pods, with the reported count as the requested one."""
        snapshot = super().fetch_snapshot()
        workload = snapshot.workload
        count = compute_reported_replicas(snapshot, self._replica_count.get_or_adopt(workload.replicas))
        self._replica_count.set_replicas(count)
        # The HPA sets the workload's count seconds later: only the reported one is what we requested.
        requested = RequestedReplicas(count, "KEDA", workload.requested.requested_at, is_ours=True)
        return replace(snapshot, workload=replace(workload, replicas=count, requested=requested))

    def set_replicas(self, replicas: int, resource_version: str) -> None:
        """Report this count to KEDA."""
        del resource_version  # nothing is written to Kubernetes
        self._replica_count.set_replicas(replicas)


def compute_reported_replicas(snapshot: WorkloadSnapshot, reported: int) -> int:
    """Return the count to report: at least the unmarked pods of a Deployment."""
    if snapshot.workload.kind is WorkloadKind.STATEFULSET:
        return reported  # its pods have no marks: the ordinal decides
    # KEDA's fallback, minReplicaCount or a person may add pods. A lower count would let Kubernetes
    # delete any of them while it reads; the sidecar adopts and drains them instead.
    unmarked = sum(not pod.is_marked for pod in snapshot.alive_pods)
    return max(reported, min(unmarked, snapshot.workload.replicas))  # a rollout has surplus pods


def load_tls_credentials(settings: SidecarSettings) -> ServerCredentials | None:
    """Return the gRPC service's TLS credentials; None for plain text. Raises SettingError."""
    certificate, key = settings.grpc_tls_certificate, settings.grpc_tls_key
    if certificate is not None and key is not None:
        return make_server_credentials(certificate, key, settings.grpc_client_ca)
    if not is_loopback(settings.grpc_host):
        log.warning(
            "the KEDA service at %s accepts any client: configure TLS "
            "(grpc-tls-certificate, grpc-tls-key, grpc-client-ca)",
            settings.grpc_host,
        )
    return None


def serve_alone(settings: SidecarSettings, replica_count: KedaReplicaCount, stack: ExitStack) -> None:
    """Start a KEDA service of this group alone. Raises SettingError, StartupError."""
    service = ExternalScalerService(replica_count, ScaledGroup.from_settings(settings))
    stack.callback(service.stop)
    _start_service(service, settings)


class SharedScaler:
    """One KEDA service for all groups of a process, started with the first of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._service: ExternalScalerService | None = None

    def serve_group(
        self, settings: SidecarSettings, replica_count: KedaReplicaCount, stack: ExitStack
    ) -> None:
        """Serve this group, too. Raises SettingError, StartupError."""
        with self._lock:
            if self._service is None:
                service = ExternalScalerService(max_streams=MAX_SHARED_STREAMS)
                _start_service(service, settings)  # of all groups: these are settings of the process
                self._service = service
            self._service.add_group(replica_count, ScaledGroup.from_settings(settings))
            stack.callback(self._service.remove_group, settings.group)

    def close(self) -> None:
        """Stop the service."""
        if self._service is not None:
            self._service.stop()


def _start_service(service: ExternalScalerService, settings: SidecarSettings) -> None:
    port = service.start(settings.grpc_host, settings.grpc_port, load_tls_credentials(settings))
    log.info("KEDA service listens on %s:%d", settings.grpc_host, port)


def connect_keda_target(
    settings: SidecarSettings,
    clock: Clock,
    stack: ExitStack,
    serve: Callable[[SidecarSettings, KedaReplicaCount, ExitStack], None] = serve_alone,
) -> ConnectedTarget:
    """Connect to Kubernetes and serve the group to KEDA; register cleanup of both on `stack`.

    Raises SidecarSettingError, StartupError, KubernetesRejectedError.
    """
    silence = ITERATION_DELAY_LIMIT_S + 3 * settings.interval
    replica_count = KedaReplicaCount(StalenessLimits(settings.fallback_after, silence), clock)

    def open_keda_api(scale_target: ScaleTargetRef, timeout: float) -> KubernetesApi:
        return KedaWorkloadApi(scale_target, timeout, replica_count)

    # no controller timeout: KEDA and the HPA act seconds later, a later iteration sees the pods
    target = connect_workload_target(settings, clock, stack, open_keda_api, controller_timeout=0.0)
    serve(settings, replica_count, stack)
    return replace(target, reporters=(*target.reporters, replica_count))
