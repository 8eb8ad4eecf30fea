"""The role of a sidecar of many groups on a real API server: each right is needed, no other granted."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from cluster.control_plane import ControlPlane
from cluster.manifests import chart, named
from cluster.scaler_resources import DEFINITION, PLACE, ScalerResourceClient
from cluster.workloads import NAMESPACE, Cluster
from trimtab.sidecar.custom_resource.labelled_workload import WORKLOAD_KINDS
from trimtab.sidecar.custom_resource.names import KIND
from trimtab.sidecar.custom_resource.resource_api import ScalerResourceApi
from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource, parse_resource
from trimtab.sidecar.diagnostics.doctor.kubernetes_checks import list_needed_rights
from trimtab.sidecar.diagnostics.doctor.resource_checks import list_resource_rights
from trimtab.sidecar.errors import KubernetesRejectedError
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ResourceConflictError, ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.scaling_events import ScalingEvent
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind

pytestmark = pytest.mark.kubernetes

Right: TypeAlias = tuple[str, str, str]
"""API group, resource and verb."""

RULES: Final[list[dict[str, Any]]] = yaml.safe_load(DEFINITION.with_name("role.yaml").read_text())["rules"]
LABELLED_RULES: Final = [
    {**rule, "verbs": ["get", "list", "watch"]} if rule["verbs"] == ["get"] else rule for rule in RULES
]
"""With `workload-selector`, too."""

FORBIDDEN: Final = 403
_NUMBERS = count(1)


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def list_rights(rules: Iterable[Mapping[str, Any]]) -> list[Right]:
    return [
        right
        for rule in rules
        for right in product(rule.get("apiGroups") or (), rule.get("resources") or (), rule["verbs"])
    ]


RIGHTS: Final = list_rights(LABELLED_RULES)


@pytest.fixture
def account(
    cluster: Cluster, plane: ControlPlane, tmp_path: Path, eventually: Eventually
) -> Callable[[Iterable[Right]], Path]:
    """Create kubeconfigs of accounts with these rights, once the API server knows them."""

    def make(rights: Iterable[Right]) -> Path:
        listed = list(rights)
        rules = [{"apiGroups": [group], "resources": [name], "verbs": [verb]} for group, name, verb in listed]
        file = tmp_path / f"account-{next(_NUMBERS)}"
        name = f"{tmp_path.name.replace('_', '-').lower()}-{file.name}"
        file.write_text(plane.config_for(cluster.account(name, rules)))
        api = ScalerResourceApi(NAMESPACE, file, 5.0)
        eventually(lambda: all(api.is_allowed(verb, group, name) for group, name, verb in listed))
        api.close()
        return file

    return make


class SidecarRequests:
    """Every request that a sidecar of many groups sends to an API server, with an account's rights."""

    def __init__(self, cluster: Cluster, workloads: Mapping[str, str], resource: ScalerResource) -> None:
        self._cluster = cluster
        self._workloads = workloads  # names by kind, "deployment"
        self._resource = resource

    def list_refusals(self, config: Path) -> set[str]:
        """Send all; return the refused ones, as "verb resource"."""
        refused: set[str] = set()
        resources = ScalerResourceApi(NAMESPACE, config, 5.0)
        for send in (*self._list_resource_requests(resources), *self._list_workload_requests(config)):
            try:
                send()
            except KubernetesRejectedError as error:
                if error.status != FORBIDDEN:
                    raise
                words = str(error).removeprefix("not allowed to ").split()
                refused.add(f"{words[0]} {words[1]}")
            except ResourceConflictError:
                pass  # a controller has written the object meanwhile; rights are checked before versions
        for kind in (KIND, *WORKLOAD_KINDS):
            if _is_watch_refused(resources, kind):
                refused.add(f"watch {resources.describe_objects(kind).plural}")
        resources.close()
        return refused

    def _list_resource_requests(self, api: ScalerResourceApi) -> Iterator[Callable[[], object]]:
        event = ScalingEvent("Tried", "all of it", "2026-01-01T00:00:00Z", is_warning=False)
        yield lambda: api.write_status(self._resource, {"replicas": 1})
        yield lambda: api.create_event(self._resource, event)
        for kind in (KIND, *WORKLOAD_KINDS):
            yield lambda kind=kind: api.list_objects(kind)

    def _list_workload_requests(self, config: Path) -> Iterator[Callable[[], object]]:
        for kind, name in self._workloads.items():
            api = KubernetesApi(ScaleTargetRef(WorkloadKind(kind), name, NAMESPACE, config), 5.0)
            method = "deployment" if kind == "deployment" else "stateful_set"
            body = getattr(self._cluster.apps, f"read_namespaced_{method}")(name, NAMESPACE)
            (pod,) = self._cluster.pods(name)
            yield api.fetch_snapshot
            yield lambda api=api: api.find_rivals(keda=False)
            yield lambda api=api, body=body: api.set_replicas(1, body.metadata.resource_version)
            yield lambda api=api, pod=pod: api.annotate_pod(pod, {"trimtab.io/tried": "yes"})
            api.close()


def _is_watch_refused(api: ScalerResourceApi, kind: str) -> bool:
    try:
        response = api.build_request(kind)(watch=True, timeout_seconds=1)
    except ApiException as error:
        if error.status != FORBIDDEN:
            raise
        return True
    response.close()
    return False


@pytest.fixture
def requests(
    scalers: ScalerResourceClient, cluster: Cluster, workload: Callable[..., str], eventually: Eventually
) -> SidecarRequests:
    scalers.apply("orders", group="orders", capacity="1 MB/s")
    workloads = {kind: workload(kind, 1) for kind in ("deployment", "statefulset")}
    for name in workloads.values():
        eventually(lambda name=name: cluster.pods(name), 60)
    return SidecarRequests(cluster, workloads, parse_resource(scalers.get("orders")))


def test_each_right_of_the_role_is_needed(
    requests: SidecarRequests, account: Callable[[Iterable[Right]], Path]
) -> None:
    """Without one right its own requests are refused, by name, and no others; with all of them none is."""

    def list_refusals_without(missing: Right) -> set[str]:
        return requests.list_refusals(account([right for right in RIGHTS if right != missing]))

    assert requests.list_refusals(account(RIGHTS)) == set()
    with ThreadPoolExecutor(4) as pool:  # a watch that is not refused takes a second
        refused = list(pool.map(list_refusals_without, RIGHTS))
    assert refused == [{f"{verb} {resource}"} for _, resource, verb in RIGHTS]


def test_the_role_grants_nothing_else(account: Callable[[Iterable[Right]], Path]) -> None:
    """The API server lists the role's rights, beyond those of every account; elsewhere none."""
    config, nobody = account(RIGHTS), account(())
    assert granted(config, NAMESPACE) - granted(nobody, NAMESPACE) == set(RIGHTS)
    assert granted(config, "kube-system") == granted(nobody, "kube-system")


def test_what_a_resource_may_ask_for_ends_at_the_role(
    scalers: ScalerResourceClient, account: Callable[[Iterable[Right]], Path]
) -> None:
    """The sidecar changes no spec, makes and deletes no resource, and reads no secret: 403."""
    scalers.apply("orders", group="orders", capacity="1 MB/s")
    own = Cluster(account(RIGHTS))
    objects: Any = client.CustomObjectsApi(own.client)
    body = {"spec": {"max": 100}}
    merge = {"_content_type": "application/merge-patch+json"}
    tried: dict[str, Callable[[], object]] = {
        "change a spec": lambda: objects.patch_namespaced_custom_object(*PLACE, "orders", body, **merge),
        "delete a resource": lambda: objects.delete_namespaced_custom_object(*PLACE, "orders"),
        "read secrets": lambda: own.core.list_namespaced_secret(NAMESPACE),
        "delete pods": lambda: own.core.delete_namespaced_pod("any", NAMESPACE),
        "label a workload": lambda: own.apps.patch_namespaced_deployment("any", NAMESPACE, {"metadata": {}}),
        "see other namespaces": lambda: own.apps.list_namespaced_deployment("kube-system"),
    }
    assert {what: _read_status(send) for what, send in tried.items()} == dict.fromkeys(tried, FORBIDDEN)
    own.close()


def test_chart_and_doctor_know_the_same_rights() -> None:
    """The chart's roles are those of this file, and the doctor checks each of their rights."""
    enabled = {"customResources.enabled": "true"}
    labels = {"workloadSelector": "trimtab.io/scale=true"}
    assert rights_of_chart(enabled) == set(list_rights(RULES))
    assert rights_of_chart({**enabled, **labels}) == set(RIGHTS)
    of_resources = {right for right in RIGHTS if right[0] != "trimtab.io"}
    assert rights_of_chart(labels) == of_resources
    checked = {
        (group, resource, verb)
        for kind in WorkloadKind
        for group, resource, verb, _ in list_needed_rights(ScaleTargetRef(kind, "a", "n"), elect=False)
    }
    assert checked | set(list_resource_rights((KIND, *WORKLOAD_KINDS))) == set(RIGHTS)


def rights_of_chart(values: Mapping[str, str]) -> set[Right]:
    return set(list_rights(named(chart(values))["Role", "trimtab-sidecar"]["rules"]))


def granted(config: Path, namespace: str) -> set[Right]:
    """Return the rights of an account in a namespace, as the API server lists them."""
    cluster = Cluster(config)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    api = client.AuthorizationV1Api(cluster.client)
    status = api.create_self_subject_rules_review(review).status
    cluster.close()
    rules = [
        {"apiGroups": rule.api_groups, "resources": rule.resources, "verbs": rule.verbs}
        for rule in status.resource_rules
    ]
    return set(list_rights(rules))


def _read_status(send: Callable[[], object]) -> int:
    try:
        send()
    except ApiException as error:
        return int(error.status or 0)
    return 200
