"""Checks of `trimtab doctor` that query the Kubernetes API server. They change nothing."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Final

from trimtab.common.errors import PeerError
from trimtab.common.units import format_count
from trimtab.sidecar.diagnostics.doctor.checks import Finding, check_access, failed, passed
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.kubernetes.api_client import (
    AccessRight,
    KubernetesApi,
    ScaleTargetRef,
    resolve_namespace,
)
from trimtab.sidecar.targets.kubernetes.rival_autoscalers import describe_rivals
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind

COMMON_RIGHTS: Final[tuple[AccessRight, ...]] = (
    ("", "pods", "list", ""),
    ("", "events", "create", ""),
    ("autoscaling", "horizontalpodautoscalers", "list", ""),
)
DEPLOYMENT_RIGHTS: Final[tuple[AccessRight, ...]] = (
    ("apps", "replicasets", "list", ""),
    ("", "pods", "patch", ""),  # pod-deletion-cost selects the victim; a StatefulSet removes the last pod
)
LEASES: Final = ("coordination.k8s.io", "leases")


def list_needed_rights(target: ScaleTargetRef, *, elect: bool, scale: bool = True) -> tuple[AccessRight, ...]:
    """Return the rights of a sidecar that elects a leader, and scales the workload itself."""
    workload = f"{target.kind}s"
    rights: list[AccessRight] = [("apps", workload, "get", target.name), *COMMON_RIGHTS]
    if scale:
        rights.append(("apps", f"{workload}/scale", "update", target.name))
    if target.kind is WorkloadKind.DEPLOYMENT:
        rights += DEPLOYMENT_RIGHTS
    if elect:
        rights.append((*LEASES, "create", ""))  # RBAC cannot restrict create to a name
        rights += [(*LEASES, verb, target.lease_name) for verb in ("get", "update")]
    return tuple(rights)


def check_rivals(workload: str, rivals: Sequence[str]) -> Iterable[Finding]:
    """Yield a failure if something else scales the workload."""
    if rivals:
        yield failed("autoscalers", describe_rivals(workload, rivals), "keep one autoscaler of a workload")


def run_kubernetes_checks(settings: SidecarSettings) -> Iterable[Finding]:
    """Yield the findings about the sidecar's rights and the workload. Raises SidecarSettingError."""
    assert settings.workload is not None, "settings check that these targets have a workload"
    kind, _, name = settings.workload.partition("/")
    namespace = settings.namespace or resolve_namespace(settings.kubeconfig)
    target = ScaleTargetRef(WorkloadKind(kind), name, namespace, settings.kubeconfig)
    scale = settings.target == "kubernetes"
    with closing(KubernetesApi(target, settings.timeout)) as api:
        try:
            for group, resource, verb, of in list_needed_rights(
                target, elect=settings.leader_election, scale=scale
            ):
                yield check_access(verb, resource, allowed=api.is_allowed(verb, group, resource, of))
            snapshot = api.fetch_snapshot()
            yield passed("workload", f"{target} in {namespace}: {format_count(len(snapshot.pods), 'pod')}")
            yield from check_rivals(settings.workload, api.find_rivals(keda=not scale))
        except PeerError as error:
            yield failed("workload", str(error), "see docs/kubernetes.md for the requirements")
