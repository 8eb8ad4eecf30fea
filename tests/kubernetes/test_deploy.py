"""The rendered `deploy/` on a real API server: it is valid, pods start, and its role is minimal."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import yaml
from confluent_kafka import Producer
from kubernetes import client
from kubernetes.client.rest import ApiException
from kubernetes.dynamic import DynamicClient

from cluster.build import keda_source, operator_source
from cluster.control_plane import ControlPlane
from cluster.definitions import define
from cluster.kubelet import ZONE
from cluster.manifests import (
    DEPLOY,
    NAMESPACE,
    OVERLAYS,
    TLS,
    VALUES,
    Object,
    chart,
    encrypted,
    named,
    overlay,
)
from cluster.manifests import settings as settings_of
from cluster.workloads import Cluster
from trimtab.common.clock import SystemClock
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.diagnostics.doctor.kubernetes_checks import run_kubernetes_checks
from trimtab.sidecar.errors import KubernetesRejectedError, ScalingPostponedError
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.kubernetes_target import KubernetesTarget
from trimtab.sidecar.targets.kubernetes.workload import DELETION_COST_ANNOTATION, WorkloadKind

pytestmark = pytest.mark.kubernetes

CONSUMER: Final = "trimtab-consumer"
SIDECAR: Final = "trimtab-sidecar"
PLACE: Final = ScaleTargetRef(WorkloadKind.DEPLOYMENT, CONSUMER, NAMESPACE)
FORBIDDEN: Final = 403
LABEL: Final = "topology.kubernetes.io/zone"
WORKER: Final = Path(__file__).parents[1] / "workers" / "sidecar_worker.py"
ROLE: Final[Object] = next(yaml.safe_load_all((DEPLOY / "kustomize" / "base" / "role.yaml").read_text()))
RIGHTS: Final = [(n, verb) for n, rule in enumerate(ROLE["rules"]) for verb in rule["verbs"]]
"""Each right of the role: the rule's number, and the verb."""

_NUMBERS = count(1)


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Applier:
    """Applies rendered objects as `kubectl apply --server-side` does, and deletes them afterwards."""

    def __init__(self, cluster: Cluster, cache: Path) -> None:
        self._dynamic = DynamicClient(cluster.client, cache_file=str(cache))
        self._made: list[Object] = []

    def apply(self, body: Object, *, dry: bool = False) -> None:
        """Apply one object, or only validate it. Raises ApiException."""
        more = {"dry_run": "All"} if dry else {}
        self._resource(body).server_side_apply(
            body=body,
            namespace=body["metadata"].get("namespace", NAMESPACE),
            field_manager="test",
            force_conflicts=True,
            **more,
        )
        if not dry:
            self._made.append(body)

    def forget(self) -> None:
        """Delete the applied objects, newest first; the namespace stays for later tests."""
        for body in reversed(self._made):
            if body["kind"] != "Namespace":
                self._resource(body).delete(name=body["metadata"]["name"], namespace=NAMESPACE)

    def _resource(self, body: Object) -> Any:
        return self._dynamic.resources.get(api_version=body["apiVersion"], kind=body["kind"])


@pytest.fixture(scope="module")
def applier(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applier]:
    """Provide the overlays' namespace in a cluster with the definitions of KEDA and the operator."""
    define(cluster, (keda_source() / "config" / "crd" / "bases").glob("*.yaml"))
    folder = operator_source() / "example" / "prometheus-operator-crd"
    define(cluster, (f for kind in KINDS for f in folder.glob(f"*_{kind}.yaml")))
    made = Applier(cluster, tmp_path_factory.mktemp("discovery") / "cache")
    made.apply(named(overlay("local-lake"))["Namespace", NAMESPACE])
    yield made
    made.forget()


KINDS: Final = ("servicemonitors", "podmonitors", "prometheusrules")


@pytest.fixture(scope="module")
def deployed(applier: Applier) -> list[Object]:
    """Apply the overlay with two sidecars and return its objects."""
    objects = overlay("two-sidecars")
    for body in objects:
        applier.apply(body)
    return objects


@pytest.fixture
def account(
    cluster: Cluster, plane: ControlPlane, deployed: list[Object], tmp_path: Path
) -> Iterator[Callable[[list[Any]], Path]]:
    """Create kubeconfigs of service accounts with given rules in the namespace."""
    del deployed
    made: list[str] = []

    def make(rules: list[Any]) -> Path:
        name = f"account-{next(_NUMBERS)}"
        meta = {"metadata": {"name": name}}
        cluster.core.create_namespaced_service_account(NAMESPACE, meta)
        cluster.rbac.create_namespaced_role(NAMESPACE, {**meta, "rules": rules})
        bind(cluster, name, name)
        made.append(name)
        return token(cluster, plane, name, tmp_path)

    yield make
    for name in made:
        cluster.rbac.delete_namespaced_role_binding(name, NAMESPACE)
        cluster.rbac.delete_namespaced_role(name, NAMESPACE)
        cluster.core.delete_namespaced_service_account(name, NAMESPACE)


@pytest.fixture
def own(cluster: Cluster, plane: ControlPlane, deployed: list[Object], tmp_path: Path) -> Path:
    """Kubeconfig of the account in the overlay, with the role bound to it."""
    del deployed
    return token(cluster, plane, SIDECAR, tmp_path)


def bind(cluster: Cluster, name: str, role: str) -> None:
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
    body = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    cluster.rbac.create_namespaced_role_binding(NAMESPACE, body)


def token(cluster: Cluster, plane: ControlPlane, name: str, folder: Path) -> Path:
    made = cluster.core.create_namespaced_service_account_token(name, NAMESPACE, {"spec": {}})
    config = folder / f"{name}.kubeconfig"
    config.write_text(plane.config_for(str(made.status.token)))
    return config


def ready(cluster: Cluster, part: str) -> list[str]:
    """Return the names of a component's ready pods."""
    selector = f"app.kubernetes.io/name=trimtab,app.kubernetes.io/component={part}"
    found = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=selector).items
    return sorted(
        pod.metadata.name
        for pod in found
        if pod.metadata.deletion_timestamp is None
        and any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())
    )


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_server_accepts_all_objects(applier: Applier, deployed: list[Object], name: str) -> None:
    """Each object of overlay and chart is valid, and each pod meets the standard "restricted"."""
    del deployed
    for objects in (overlay(name), chart(VALUES[name], release="another")):
        for body in objects:
            applier.apply(body, dry=True)
            if body["kind"] == "Deployment":
                applier.apply(probe(body), dry=True)


def test_the_server_accepts_monitors_with_tls(
    applier: Applier, deployed: list[Object], tmp_path: Path
) -> None:
    """The operator knows all fields that chart and component write into monitors."""
    del deployed
    for objects in (encrypted(tmp_path), chart(TLS, release="another")):
        for body in objects:
            applier.apply(body, dry=True)


def probe(deployment: Object) -> Object:
    """Return a pod of a deployment's template, with an existing account."""
    pod = deepcopy(deployment["spec"]["template"])
    pod["metadata"]["name"] = "probe"
    pod["spec"]["serviceAccountName"] = CONSUMER
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def test_a_privileged_pod_is_rejected(applier: Applier, deployed: list[Object]) -> None:
    """The namespace of the overlays rejects a pod that may become root."""
    pod = probe(named(deployed)["Deployment", SIDECAR])
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ApiException, match="restricted"):
        applier.apply(pod, dry=True)


def test_the_trials_broker_is_accepted(applier: Applier) -> None:
    """The broker of docs/compose.md meets the standard of the namespace, and has the overlay's address."""
    bodies = list(yaml.safe_load_all((DEPLOY / "compose" / "kubernetes-broker.yaml").read_text()))
    for body in bodies:
        applier.apply(body, dry=True)
    service = next(body for body in bodies if body["kind"] == "Service")
    address = f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    ingest = (DEPLOY / "kustomize" / "overlays" / "local-lake" / "ingest.yaml").read_text()
    assert yaml.safe_load(ingest)["bootstrap.servers"] == address


def test_the_pods_start(cluster: Cluster, deployed: list[Object], eventually: Eventually) -> None:
    """After apply one consumer and two sidecars are ready."""
    del deployed
    eventually(lambda: len(ready(cluster, "consumer")) == 1, 60)
    eventually(lambda: len(ready(cluster, "sidecar")) == 2, 60)


def test_a_pod_gets_its_zone(cluster: Cluster, deployed: list[Object], eventually: Eventually) -> None:
    """The consumer's pod, bound to a node, has the label that is read as its rack."""
    del deployed
    eventually(lambda: len(ready(cluster, "consumer")) == 1, 60)
    (name,) = ready(cluster, "consumer")
    pod = cluster.core.read_namespaced_pod(name, NAMESPACE)
    (container,) = pod.spec.containers
    (rack,) = [entry for entry in container.env if entry.name == "TRIMTAB_RACK"]
    assert rack.value_from.field_ref.field_path == f"metadata.labels['{LABEL}']"
    assert pod.metadata.labels[LABEL] == ZONE


@pytest.mark.parametrize(("number", "verb"), RIGHTS)
def test_each_right_is_needed(
    cluster: Cluster, account: Callable[[list[Any]], Path], eventually: Eventually, number: int, verb: str
) -> None:
    """Without a verb, the request that needs it gets 403 with its name; the doctor reports it, too."""
    rules = deepcopy(ROLE["rules"])
    (resource,) = rules[number]["resources"]
    rules[number]["verbs"].remove(verb)
    config = account([rule for rule in rules if rule["verbs"]])
    eventually(lambda: ready(cluster, "consumer"), 60)
    with pytest.raises(KubernetesRejectedError, match=f"not allowed to {verb} {resource}") as refused:
        everything(cluster, config)
    assert refused.value.status == FORBIDDEN
    wrong = [f.message for f in doctored(config) if f.level is FindingLevel.FAILED]
    assert wrong[0] == f"{verb} {resource} not allowed"
    assert all(f"{verb} {resource}" in text for text in wrong)


def test_the_role_is_sufficient(cluster: Cluster, own: Path, eventually: Eventually) -> None:
    """The deployed role with its own token allows all requests of a sidecar; the doctor agrees."""
    eventually(lambda: ready(cluster, "consumer"), 60)
    everything(cluster, own)
    assert [f.message for f in doctored(own) if f.level is not FindingLevel.OK] == []


@pytest.mark.parametrize("target", ["kubernetes", "keda"])
def test_the_doctor_checks_the_rights_of_the_target(
    account: Callable[[list[Any]], Path], target: str
) -> None:
    """Target `keda` needs one right less, and the doctor does not report it as missing."""
    config = account(ROLE["rules"][1:])
    wrong = [f.message for f in doctored(config, target) if f.level is FindingLevel.FAILED]
    assert wrong == (["update deployments/scale not allowed"] if target == "kubernetes" else [])


def doctored(config: Path, target: str = "kubernetes") -> list[Any]:
    """Return the findings of `trimtab doctor` about Kubernetes."""
    body = settings_of(overlay("local-lake"), "sidecar")
    more = {"target": target, "kubeconfig": str(config), "namespace": NAMESPACE}
    return list(run_kubernetes_checks(load_settings(None, {**body, **more})))


def everything(cluster: Cluster, config: Path) -> None:
    """Send every request that a sidecar sends to an API server."""
    leases = client.CoordinationV1Api(cluster.client)
    for lease in leases.list_namespaced_lease(NAMESPACE).items:
        leases.delete_namespaced_lease(lease.metadata.name, NAMESPACE)
    api = KubernetesApi(ScaleTargetRef(PLACE.kind, PLACE.name, PLACE.namespace, config), 5.0)
    try:
        assert api.find_rivals(keda=False) == ()
        assert api.read_lease(PLACE.lease_name) is None
        made = {"metadata": {"name": PLACE.lease_name}, "spec": {"holderIdentity": "one"}}
        api.replace_lease(PLACE.lease_name, api.create_lease(made))
        api.create_event(api.fetch_snapshot().workload.uid, "Tried", "all of it", "2026-01-01T00:00:00Z")
        target = KubernetesTarget(api, SystemClock())
        target.list_replicas()
        (added,) = target.add_replicas(1)
        _stopped(target, added)
    finally:
        api.close()


def _stopped(target: KubernetesTarget, pod: str) -> None:
    while any(i.name == pod and i.alive for i in target.list_replicas()):
        try:
            target.stop_replica(pod)
        except ScalingPostponedError:  # it is not ready yet
            continue


def test_the_role_allows_nothing_else(own: Path, deployed: list[Object]) -> None:
    """All other requests get 403."""
    del deployed
    cluster = Cluster(own)
    core, apps = cluster.core, cluster.apps
    leases = client.CoordinationV1Api(cluster.client)
    scale = {"spec": {"replicas": 0}}
    tried: dict[str, Callable[[], object]] = {
        "delete the workload": lambda: apps.delete_namespaced_deployment(CONSUMER, NAMESPACE),
        "change the workload": lambda: apps.patch_namespaced_deployment(CONSUMER, NAMESPACE, scale),
        "patch the count": lambda: apps.patch_namespaced_deployment_scale(CONSUMER, NAMESPACE, scale),
        "scale another": lambda: apps.replace_namespaced_deployment_scale(
            SIDECAR, NAMESPACE, {"metadata": {"name": SIDECAR}, **scale}
        ),
        "see another": lambda: apps.read_namespaced_deployment(SIDECAR, NAMESPACE),
        "read secrets": lambda: core.list_namespaced_secret(NAMESPACE),
        "read one secret": lambda: core.read_namespaced_secret("trimtab-kafka", NAMESPACE),
        "delete pods": lambda: core.delete_namespaced_pod("any", NAMESPACE),
        "make pods": lambda: core.create_namespaced_pod(NAMESPACE, {"metadata": {"name": "x"}}),
        "read settings": lambda: core.list_namespaced_config_map(NAMESPACE),
        "see other leases": lambda: leases.list_namespaced_lease(NAMESPACE),
        "take other leases": lambda: leases.replace_namespaced_lease(
            "other", NAMESPACE, {"metadata": {"name": "other"}}
        ),
        "other namespaces": lambda: core.list_namespaced_pod("default"),
        "all namespaces": core.list_pod_for_all_namespaces,
        "nodes": core.list_node,
    }
    statuses = {what: _status(call) for what, call in tried.items()}
    cluster.close()
    assert statuses == dict.fromkeys(tried, FORBIDDEN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": {"app.kubernetes.io/name": None}}, "the annotations of the pod deletion cost only"),
        (
            {"annotations": {"sidecar.istio.io/inject": "false"}},
            "the annotations of the pod deletion cost only",
        ),
        ({"finalizers": ["example.com/x"]}, "the annotations of the pod deletion cost only"),
        ({"ownerReferences": None}, "the annotations of the pod deletion cost only"),
    ],
)
def test_the_sidecar_may_change_the_deletion_cost_only(
    cluster: Cluster, own: Path, eventually: Eventually, change: Object, message: str
) -> None:
    """The admission policy leaves of `patch` on pods two annotations of the workload's own pods."""
    eventually(lambda: ready(cluster, "consumer"), 60)
    eventually(lambda: refuse_patch(own, ready(cluster, "consumer")[0], {"metadata": change}) == message, 30)


def test_the_sidecar_may_change_no_image(cluster: Cluster, own: Path, eventually: Eventually) -> None:
    """Neither of its workload's pods nor, with any change, pods of others."""
    eventually(lambda: ready(cluster, "consumer"), 60)
    eventually(lambda: ready(cluster, "sidecar"), 60)
    image = {"spec": {"containers": [{"name": "consumer", "image": "evil"}]}}
    cost = {"metadata": {"annotations": {DELETION_COST_ANNOTATION: "-5"}}}
    only = "the annotations of the pod deletion cost only"
    eventually(lambda: refuse_patch(own, ready(cluster, "consumer")[0], image) == only, 30)
    others = f"only pods of deployment {CONSUMER}"
    eventually(lambda: refuse_patch(own, ready(cluster, "sidecar")[0], cost) == others, 30)
    assert refuse_patch(own, ready(cluster, "consumer")[0], cost) == ""


def refuse_patch(config: Path, pod: str, body: Object) -> str:
    """Return the policy's message to a patch by the account of `config`; empty if it is allowed."""
    cluster = Cluster(config)
    try:
        cluster.core.patch_namespaced_pod(pod, NAMESPACE, body, dry_run="All")
    except ApiException as error:
        return next(m for m in POLICY_MESSAGES if error.status == FORBIDDEN and m in str(error.body))
    finally:
        cluster.close()
    return ""


POLICY_MESSAGES: Final = (
    "the annotations of the pod deletion cost only",
    f"only pods of deployment {CONSUMER}",
)


def _status(call: Callable[[], object]) -> int:
    try:
        call()
    except ApiException as error:
        return int(error.status or 0)
    return 200


@pytest.mark.broker
def test_a_sidecar_runs_with_the_rendered_settings(  # noqa: PLR0913 - fixtures
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    cluster: Cluster,
    own: Path,
    tmp_path: Path,
    *,
    eventually: Eventually,
) -> None:
    """It acquires the lease, starts the missing pod and creates an Event, with the deployed account."""
    name = topic(partitions=4)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(4):
        producer.produce(name, b"x" * 200, partition=number)
    producer.flush(30)
    consuming(cluster, [bootstrap, group, name, "100000"])
    file = tmp_path / "sidecar.yaml"
    file.write_text(yaml.safe_dump(settings_of(overlay("two-sidecars"), "sidecar")))
    words = ["--bootstrap", bootstrap, "--group", group, "--topics", name, "--min", "2"]
    words += ["--interval", "500 ms", "--window", "4 s", "--host", "127.0.0.1", "--port", "0"]
    words += ["--set", f"kubeconfig={own}", "--set", f"namespace={NAMESPACE}"]
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "--config", str(file), *words]
    log = tmp_path / "log"
    with log.open("wb") as sink, subprocess.Popen(command, stdout=sink, stderr=sink) as process:
        try:
            eventually(lambda: ": acquired" in log.read_text(), 60)
            eventually(lambda: len(ready(cluster, "consumer")) == 2, 120)
            eventually(lambda: {"Replaced", "ScaledUp"} & reasons(cluster), 60)
            eventually(lambda: "2 is the desired count" in log.read_text(), 120)
        finally:
            process.terminate()
    assert process.returncode == 0, log.read_text()
    assert "not allowed" not in log.read_text()


def consuming(cluster: Cluster, words: list[str]) -> None:
    """Let the consumers' pods run a real consumer, started by the test's kubelet."""
    command = [sys.executable, str(WORKER), "$(POD_NAME)", *words]
    container = {"name": "consumer", "command": command, "args": None}
    body = {"spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    cluster.apps.patch_namespaced_deployment(CONSUMER, NAMESPACE, body)


def reasons(cluster: Cluster) -> set[str]:
    """Return the reasons of the events on the workload."""
    selector = f"involvedObject.name={CONSUMER}"
    found = cluster.core.list_namespaced_event(NAMESPACE, field_selector=selector)
    return {str(event.reason) for event in found.items}
