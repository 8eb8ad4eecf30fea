"""Asks a Kubernetes API server what `trimtab doctor` judges; changes nothing."""

from collections.abc import Iterable
from contextlib import closing
from typing import Final, TypeAlias

from trimtab.common.errors import PeerError
from trimtab.sidecar.diagnostics.doctor.checks import Finding, Level, of_access, of_count, of_pause
from trimtab.sidecar.settings.settings import Settings
from trimtab.sidecar.targets.kubernetes.api_client import KubeApi, Place, namespace
from trimtab.sidecar.targets.kubernetes.workload import PAUSE, Kind

Right: TypeAlias = tuple[str, str, str, str]
"""API group, resource, verb, and the name of the object that it is about; "" for any."""

EVERYBODY: Final[tuple[Right, ...]] = (("", "pods", "list", ""), ("", "events", "create", ""))
DEPLOYMENT: Final[tuple[Right, ...]] = (
    ("apps", "replicasets", "list", ""),
    ("", "pods", "patch", ""),
)


def needed(place: Place, *, elect: bool, scale: bool = True) -> tuple[Right, ...]:
    """Return each right that the sidecar needs; who does not `scale` itself has KEDA do it."""
    whole = f"{place.kind}s"
    own: tuple[Right, ...] = (("apps", whole, "get", place.name),)
    if scale:
        own = (*own, ("apps", f"{whole}/scale", "update", place.name))
    more = DEPLOYMENT if place.kind is Kind.DEPLOYMENT else ()
    return (*own, *EVERYBODY, *more, *(_leading(place.lease) if elect else ()))


def examined(settings: Settings) -> Iterable[Finding]:
    """Return what is found of the workload and of our rights. Raises BadSetting."""
    assert settings.workload is not None, "settings check that these targets have a workload"
    kind, _, name = settings.workload.partition("/")
    where = settings.namespace or namespace(settings.kubeconfig)
    place = Place(Kind(kind), name, where, settings.kubeconfig)
    scale = settings.target == "kubernetes"
    with closing(KubeApi(place, settings.timeout)) as api:
        try:
            for group, resource, verb, of in needed(place, elect=settings.elect, scale=scale):
                allowed = api.may(verb, group, resource, of)
                yield of_access(verb, resource, allowed=allowed)
            found = api.look()
            yield Finding("workload", Level.OK, f"{place} in {where}: {len(found.pods)} pods")
            pause = found.workload.pause
            ways = ("in", "out") if pause == "all" else (pause,) if pause else ()
            end = f"kubectl annotate {settings.workload} {PAUSE}-"
            yield from of_pause(f"the annotation {PAUSE}", ways, end)
            if scale or settings.min:  # KEDA sets 0 where it may
                yield from of_count(settings.workload, found.workload.asked, settings.min)
        except PeerError as error:
            yield Finding(
                "workload", Level.WRONG, str(error), "see docs/operate.md for what it needs"
            )


def _leading(lease: str) -> tuple[Right, ...]:
    group, resource = "coordination.k8s.io", "leases"
    return (
        (group, resource, "create", ""),  # nothing that is made has a name yet
        (group, resource, "get", lease),
        (group, resource, "update", lease),
    )
