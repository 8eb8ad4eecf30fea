"""Asks a Kubernetes API server what `trimtab doctor` judges; changes nothing."""

from collections.abc import Iterable
from contextlib import closing
from typing import Final, TypeAlias

from trimtab.common.errors import PeerError
from trimtab.sidecar.diagnostics.doctor.checks import (
    Finding,
    FindingLevel,
    check_access,
    check_pause,
    check_replica_count,
)
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ScaleTargetRef, resolve_namespace
from trimtab.sidecar.targets.kubernetes.workload import PAUSE_ANNOTATION, WorkloadKind

AccessRight: TypeAlias = tuple[str, str, str, str]
"""API group, resource, verb, and the name of the object that it is about; "" for any."""

COMMON_RIGHTS: Final[tuple[AccessRight, ...]] = (("", "pods", "list", ""), ("", "events", "create", ""))
DEPLOYMENT_RIGHTS: Final[tuple[AccessRight, ...]] = (
    ("apps", "replicasets", "list", ""),
    ("", "pods", "patch", ""),
)


def list_needed_rights(
    scale_target: ScaleTargetRef, *, elect: bool, scale: bool = True
) -> tuple[AccessRight, ...]:
    """Return each right that the sidecar needs; who does not `scale` itself has KEDA do it."""
    whole = f"{scale_target.kind}s"
    own: tuple[AccessRight, ...] = (("apps", whole, "get", scale_target.name),)
    if scale:
        own = (*own, ("apps", f"{whole}/scale", "update", scale_target.name))
    more = DEPLOYMENT_RIGHTS if scale_target.kind is WorkloadKind.DEPLOYMENT else ()
    return (*own, *COMMON_RIGHTS, *more, *(_list_lease_rights(scale_target.lease_name) if elect else ()))


def run_kubernetes_checks(settings: SidecarSettings) -> Iterable[Finding]:
    """Return what is found of the workload and of our rights. Raises SidecarSettingError."""
    assert settings.workload is not None, "settings check that these targets have a workload"
    kind, _, name = settings.workload.partition("/")
    where = settings.namespace or resolve_namespace(settings.kubeconfig)
    place = ScaleTargetRef(WorkloadKind(kind), name, where, settings.kubeconfig)
    scale = settings.target == "kubernetes"
    with closing(KubernetesApi(place, settings.timeout)) as api:
        try:
            for group, resource, verb, of in list_needed_rights(
                place, elect=settings.leader_election, scale=scale
            ):
                allowed = api.is_allowed(verb, group, resource, of)
                yield check_access(verb, resource, allowed=allowed)
            found = api.fetch_snapshot()
            yield Finding("workload", FindingLevel.OK, f"{place} in {where}: {len(found.pods)} pods")
            pause = found.workload.paused_direction
            ways = ("scale-down", "scale-up") if pause == "all" else (pause,) if pause else ()
            end = f"kubectl annotate {settings.workload} {PAUSE_ANNOTATION}-"
            yield from check_pause(f"the annotation {PAUSE_ANNOTATION}", ways, end)
            if scale or settings.min:  # KEDA sets 0 where it may
                yield from check_replica_count(settings.workload, found.workload.requested, settings.min)
        except PeerError as error:
            yield Finding(
                "workload", FindingLevel.WRONG, str(error), "see docs/kubernetes.md for what it needs"
            )


def _list_lease_rights(lease: str) -> tuple[AccessRight, ...]:
    group, resource = "coordination.k8s.io", "leases"
    return (
        (group, resource, "create", ""),  # nothing that is made has a name yet
        (group, resource, "get", lease),
        (group, resource, "update", lease),
    )
