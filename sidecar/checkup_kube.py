"""Asks a Kubernetes API server what `trimtab doctor` judges; changes nothing."""

from collections.abc import Iterable
from contextlib import closing
from typing import Final

from trimtab.assignor.errors import PeerError
from trimtab.sidecar.checkup import Finding, Level, of_access
from trimtab.sidecar.settings import Settings
from trimtab.sidecar.targets.kube_api import KubeApi, Place, namespace
from trimtab.sidecar.targets.kube_values import Kind

EVERYBODY: Final = (("", "pods", "list"), ("", "events", "create"))
DEPLOYMENT: Final = (("apps", "replicasets", "list"), ("", "pods", "patch"))
LEADER: Final = tuple(("coordination.k8s.io", "leases", v) for v in ("get", "create", "update"))


def needed(kind: Kind, *, elect: bool) -> tuple[tuple[str, str, str], ...]:
    """Return API group, resource and verb of each right that the sidecar needs."""
    own = (("apps", f"{kind}s", "get"), ("apps", f"{kind}s/scale", "update"))
    more = DEPLOYMENT if kind is Kind.DEPLOYMENT else ()
    return (*own, *EVERYBODY, *more, *(LEADER if elect else ()))


def examined(settings: Settings) -> Iterable[Finding]:
    """Return what is found of the workload and of our rights. Raises BadSetting."""
    assert settings.workload is not None, "settings check that target=kubernetes has a workload"
    kind, _, name = settings.workload.partition("/")
    where = settings.namespace or namespace(settings.kubeconfig)
    place = Place(Kind(kind), name, where, settings.kubeconfig)
    with closing(KubeApi(place, settings.timeout)) as api:
        try:
            for group, resource, verb in needed(place.kind, elect=settings.elect):
                yield of_access(verb, resource, allowed=api.may(verb, group, resource))
            pods = len(api.look().pods)
            yield Finding("workload", Level.OK, f"{place} in {where}: {pods} pods")
        except PeerError as error:
            yield Finding(
                "workload", Level.WRONG, str(error), "see docs/operate.md for what it needs"
            )
