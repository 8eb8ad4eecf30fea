"""The replica target `kubernetes` on a real API server and its controllers."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import Any, Protocol

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from cluster.control_plane import ControlPlane
from cluster.kubelet import Kubelet
from cluster.workloads import NAMESPACE, Cluster
from trimtab.common.errors import PeerError
from trimtab.sidecar.errors import (
    KubernetesRejectedError,
    KubernetesUnavailableError,
    NotLeaderError,
    ScalingPostponedError,
)
from trimtab.sidecar.leadership.leader_election import SoleLeader
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi
from trimtab.sidecar.targets.kubernetes.kubernetes_target import KubernetesTarget
from trimtab.sidecar.targets.kubernetes.workload import (
    DELETION_COST_ANNOTATION,
    PAUSE_ANNOTATION,
    PREVIOUS_COST_ANNOTATION,
)

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(240)]

Open = Callable[..., KubernetesTarget]
Make = Callable[..., str]

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes.md"
ROLE = re.search(r"```yaml\n(apiVersion: rbac.*?)```", PAGE.read_text(), re.DOTALL)
assert ROLE is not None
RULES: list[dict[str, Any]] = yaml.safe_load(ROLE[1])["rules"]
"""The role that the documentation shows."""


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def alive(target: KubernetesTarget) -> list[str]:
    return [i.name for i in target.list_replicas() if i.alive]


@pytest.fixture
def ready(cluster: Cluster, workload: Make, eventually: Eventually) -> Make:
    """Make a workload and wait until its pods are ready."""

    def make(kind: str, replicas: int) -> str:
        name = workload(kind, replicas)
        eventually(lambda: len(cluster.ready(name)) == replicas)
        return name

    return make


def test_the_drained_pods_go_and_no_others(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """Of five pods, three that are stopped one after another go; the others have no mark of us."""
    name = ready("deployment", 5)
    target = steered("deployment", name=name)
    going = alive(target)[1:4]
    for pod in going:
        target.stop_replica(pod)
        assert pod not in alive(target)
    eventually(lambda: len(cluster.pods(name, ending=True)) == 2)
    assert not set(going) & set(cluster.pods(name))
    assert cluster.replicas("deployment", name) == 2
    for pod in cluster.pods(name):
        annotations = cluster.core.read_namespaced_pod(pod, NAMESPACE).metadata.annotations or {}
        assert not {DELETION_COST_ANNOTATION, PREVIOUS_COST_ANNOTATION} & set(annotations)


def test_a_cost_of_the_operators_is_put_back(
    cluster: Cluster, ready: Make, steered: Open, plane: ControlPlane, eventually: Eventually
) -> None:
    """A pod that was marked and is needed after all has the deletion cost that it had before."""
    name = ready("deployment", 2)
    target = steered("deployment", name=name, controller_timeout=0.5)
    kept = alive(target)[0]
    body = {"metadata": {"annotations": {DELETION_COST_ANNOTATION: "7"}}}
    cluster.core.patch_namespaced_pod(kept, NAMESPACE, body)
    plane.stop_managers()
    try:
        target.stop_replica(kept)
        assert kept not in alive(target)
        assert target.add_replicas(1) == (kept,)
    finally:
        plane.start_managers()
    assert cluster.replicas("deployment", name) == 2
    annotations = cluster.core.read_namespaced_pod(kept, NAMESPACE).metadata.annotations
    assert annotations.get(DELETION_COST_ANNOTATION) == "7"
    assert PREVIOUS_COST_ANNOTATION not in annotations
    eventually(lambda: kept in alive(target))


def test_asked_twice_one_goes(
    cluster: Cluster, ready: Make, steered: Open, plane: ControlPlane, eventually: Eventually
) -> None:
    """While the controllers are away a pod may be stopped again and again: one goes, that one."""
    name = ready("deployment", 3)
    target = steered("deployment", name=name, controller_timeout=0.5)
    pods = alive(target)
    plane.stop_managers()
    try:
        for _ in range(3):
            target.stop_replica(pods[1])
        assert alive(target) == [pods[0], pods[2]]
        again = steered("deployment", name=name, controller_timeout=0.5)
        again.stop_replica(pods[1])
    finally:
        plane.start_managers()
    eventually(lambda: cluster.pods(name, ending=True) == [pods[0], pods[2]])
    assert cluster.replicas("deployment", name) == 2


def test_a_pod_that_is_not_ready_holds_the_others_back(
    cluster: Cluster, ready: Make, steered: Open, kubelet: Kubelet, eventually: Eventually
) -> None:
    """Kubernetes would take it first, so nobody is stopped meanwhile, but for itself."""
    name = ready("deployment", 3)
    target = steered("deployment", name=name)
    pods = alive(target)
    kubelet.unready.add(pods[2])
    eventually(lambda: cluster.ready(name) == pods[:2])
    with pytest.raises(ScalingPostponedError, match=f"{pods[2]} is not ready"):
        target.stop_replica(pods[0])
    assert cluster.replicas("deployment", name) == 3
    target.stop_replica(pods[2])
    eventually(lambda: cluster.pods(name, ending=True) == pods[:2])


def test_a_rollout_holds_scaling_in_back(
    cluster: Cluster, ready: Make, steered: Open, kubelet: Kubelet, eventually: Eventually
) -> None:
    """While two versions run nobody is stopped."""
    name = ready("deployment", 2)
    target = steered("deployment", name=name)
    first = alive(target)[0]
    kubelet.asleep.set()
    try:
        body = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
        cluster.apps.patch_namespaced_deployment(name, NAMESPACE, body)
        eventually(lambda: len(alive(target)) == 3)
        with pytest.raises(ScalingPostponedError, match="a rollout is in progress"):
            target.stop_replica(first)
    finally:
        kubelet.asleep.clear()
    assert cluster.replicas("deployment", name) == 2


def test_a_death_is_mended_once(cluster: Cluster, ready: Make, steered: Open, eventually: Eventually) -> None:
    """Kubernetes replaces a pod that died; asked for it as well, the count stays."""
    name = ready("deployment", 2)
    target = steered("deployment", name=name)
    pods = alive(target)
    cluster.core.delete_namespaced_pod(pods[0], NAMESPACE)
    target.add_replicas(2 - len(alive(target)))
    eventually(lambda: len(cluster.ready(name)) == 2)
    assert cluster.replicas("deployment", name) == 2


def test_somebody_was_quicker(cluster: Cluster, ready: Make, steered: Open, eventually: Eventually) -> None:
    """A change between look and scaling is answered with 409 and a fresh look; both are kept."""
    name = ready("deployment", 2)

    class Disturbed(KubernetesApi):
        left = 2

        def set_replicas(self, replicas: int, resource_version: str) -> None:
            if self.left:
                self.left -= 1
                cluster.annotate("deployment", name, {"disturbed": str(self.left)})
            super().set_replicas(replicas, resource_version)

    target = steered("deployment", name=name, api=Disturbed)
    pods = alive(target)
    target.stop_replica(pods[0])
    eventually(lambda: cluster.pods(name, ending=True) == [pods[1]])
    found = cluster.apps.read_namespaced_deployment(name, NAMESPACE)
    assert found.metadata.annotations["disturbed"] == "0"
    assert found.spec.replicas == 1


@pytest.mark.parametrize(
    ("resource", "verb"), [(r["resources"][0], verb) for r in RULES for verb in r["verbs"]]
)
def test_a_missing_right_is_named(  # noqa: PLR0913 - fixtures
    cluster: Cluster,
    plane: ControlPlane,
    ready: Make,
    steered: Open,
    tmp_path: Path,
    *,
    resource: str,
    verb: str,
) -> None:
    """Each right is needed: without it the error says which verb on which resource is missing."""
    name = ready("deployment", 2)
    rules = [
        {**r, "verbs": [v for v in r["verbs"] if (r["resources"][0], v) != (resource, verb)]} for r in RULES
    ]
    account = f"{name}-{resource.replace('/', '-')}-{verb}"
    config = tmp_path / "kubeconfig"
    config.write_text(plane.config_for(cluster.account(account, [r for r in rules if r["verbs"]])))
    target = steered("deployment", name=name, kubeconfig=config)
    (group,) = {r["apiGroups"][0] for r in RULES if r["resources"][0] == resource}
    assert not target._api.is_allowed(verb, group, resource)
    with pytest.raises(KubernetesRejectedError, match=f"not allowed to {verb} {resource}") as refused:
        everything(target, name)
    assert "role" in str(refused.value)


def test_the_least_role_does(
    cluster: Cluster, plane: ControlPlane, ready: Make, steered: Open, tmp_path: Path
) -> None:
    """With the rights that the documentation shows, and no others, a sidecar can do all it does."""
    name = ready("deployment", 2)
    config = tmp_path / "kubeconfig"
    config.write_text(plane.config_for(cluster.account(name, RULES)))
    target = steered("deployment", name=name, kubeconfig=config)
    rights = [(v, r["apiGroups"][0], n) for r in RULES for n in r["resources"] for v in r["verbs"]]
    assert [right for right in rights if not target._api.is_allowed(*right)] == []
    everything(target, name)
    assert cluster.replicas("deployment", name) == 2
    assert ("Tried", "all of it") in cluster.events(name)


def everything(target: KubernetesTarget, name: str) -> None:
    """Do all that a sidecar asks of an API server."""
    api = target._api
    assert api.read_lease(name) is None
    made = api.create_lease({"metadata": {"name": name}, "spec": {"holderIdentity": "one"}})
    api.replace_lease(name, made)
    api.create_event(api.fetch_snapshot().workload.uid, "Tried", "all of it", "2026-01-01T00:00:00Z")
    kept = alive(target)[0]
    target.add_replicas(1)
    _stopped(target, kept)


def _stopped(target: KubernetesTarget, pod: str) -> None:
    while pod in alive(target):
        try:
            target.stop_replica(pod)
        except ScalingPostponedError:  # the new one is not ready yet
            continue


def test_the_api_server_goes_and_comes(
    cluster: Cluster, plane: ControlPlane, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """While it is away every call says so, and nothing was changed when it is back."""
    name = ready("deployment", 3)
    target = steered("deployment", name=name)
    pods = alive(target)
    plane.stop_api()
    try:
        for call in (
            target.list_replicas,
            lambda: target.add_replicas(1),
            lambda: target.stop_replica(pods[0]),
        ):
            with pytest.raises(KubernetesUnavailableError, match="did not answer"):
                call()
    finally:
        plane.start_api()
    assert cluster.replicas("deployment", name) == 3
    with pytest.raises(ScalingPostponedError, match="may not know yet which pod to delete"):
        target.stop_replica(pods[0])

    def stopped() -> bool:
        with suppress(ScalingPostponedError):
            target.stop_replica(pods[0])
            return True
        return False

    eventually(stopped, 90)
    eventually(lambda: len(cluster.pods(name, ending=True)) < len(pods), 60)
    assert cluster.pods(name, ending=True) == pods[1:]


def test_others_are_seen_to_scale(cluster: Cluster, ready: Make, steered: Open) -> None:
    """Who set the count last is known, ours from theirs, whoever asks and whenever."""
    name = ready("deployment", 1)
    target = steered("deployment", name=name)
    target.list_replicas()
    target.add_replicas(1)
    target.list_replicas()
    asked = target.read_external_scaling().requested
    assert asked is not None
    assert (asked.count, asked.is_ours) == (2, True)
    before = time()
    cluster.scale("deployment", name, 3)
    target.list_replicas()
    asked = target.read_external_scaling().requested
    assert asked is not None
    assert (asked.count, asked.requested_by, asked.is_ours) == (3, "a-person", False)
    assert before <= asked.requested_at <= time()
    target.list_replicas()
    assert target.read_external_scaling().requested == asked
    again = steered("deployment", name=name)
    again.list_replicas()
    asked = again.read_external_scaling().requested
    assert asked is not None
    assert (asked.count, asked.requested_by, asked.is_ours) == (3, "a-person", False)


def test_who_scaled_to_zero_is_forgotten(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """The API server notes nobody behind a zero, so it is told as one that nobody is known for."""
    name = ready("deployment", 1)
    target = steered("deployment", name=name)
    target.stop_replica(alive(target)[0])
    assert alive(target) == []
    asked = target.read_external_scaling().requested
    assert asked is not None
    assert (asked.count, asked.is_ours, asked.is_requester_known) == (0, False, False)
    target.add_replicas(1)
    eventually(lambda: len(cluster.ready(name)) == 1)


def test_who_does_not_lead_asks_for_nothing(cluster: Cluster, ready: Make, steered: Open) -> None:
    """A lease that ends while a pod is being stopped keeps the count as it is."""

    class Lost(SoleLeader):
        def is_leader(self) -> bool:
            return False

    name = ready("deployment", 2)
    target = steered("deployment", name=name, leadership=Lost())
    pod = alive(target)[0]
    for call in (lambda: target.add_replicas(1), lambda: target.stop_replica(pod)):
        with pytest.raises(NotLeaderError, match="lease"):
            call()
    assert cluster.replicas("deployment", name) == 2


def test_annotations_pause(cluster: Cluster, ready: Make, steered: Open) -> None:
    """The annotation on the workload is handed over; one that is not understood pauses all."""
    name = ready("deployment", 1)
    target = steered("deployment", name=name)
    for given, meant in (
        ("scale-down", "scale-down"),
        ("Scale-Up", "scale-up"),
        ("true", "all"),
        ("nonsense", "all"),
    ):
        cluster.annotate("deployment", name, {PAUSE_ANNOTATION: given})
        target.list_replicas()
        assert target.read_external_scaling().paused_direction == meant
    assert "nonsense" in target.read_external_scaling().trouble[0]
    cluster.annotate("deployment", name, {PAUSE_ANNOTATION: None})
    target.list_replicas()
    assert target.read_external_scaling().paused_direction == ""


def test_a_count_that_the_cluster_does_not_take_is_named_and_asked_for_again(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """While a rule of the cluster answers 422 nothing is changed; without it the same is done."""
    name = ready("deployment", 2)
    target = steered("deployment", name=name)
    pods = alive(target)
    before = cluster.apps.read_namespaced_deployment(name, NAMESPACE).metadata
    with at_most(cluster, name, 2):
        eventually(lambda: is_refused(cluster, name, 3))
        for _ in range(2):
            with pytest.raises(KubernetesRejectedError, match="at most 2 replicas") as refused:
                target.add_replicas(1)
            assert "refused to update deployments/scale in namespace default" in str(refused.value)
            assert (refused.value.status, refused.value.retryable) == (422, True)
            assert alive(target) == pods
        after = cluster.apps.read_namespaced_deployment(name, NAMESPACE).metadata
        assert after.generation == before.generation  # its spec is as it was
        for pod in pods:
            marks = cluster.core.read_namespaced_pod(pod, NAMESPACE).metadata.annotations or {}
            assert not {DELETION_COST_ANNOTATION, PREVIOUS_COST_ANNOTATION} & set(marks)
    eventually(lambda: not is_refused(cluster, name, 3))
    target.add_replicas(1)
    eventually(lambda: len(cluster.ready(name)) == 3)
    assert set(pods) < set(cluster.ready(name))


@contextmanager
def at_most(cluster: Cluster, name: str, replicas: int) -> Generator[None]:
    """Have the API server itself refuse (422) more replicas of a deployment."""
    rules: Any = client.AdmissionregistrationV1Api(cluster.client)
    scaling = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "resources": ["deployments/scale"],
        "operations": ["UPDATE"],
        "resourceNames": [name],
    }
    expression = {
        "expression": f"object.spec.replicas <= {replicas}",
        "message": f"at most {replicas} replicas",
        "reason": "Invalid",
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [scaling]},
        "validations": [expression],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    rules.create_validating_admission_policy({"metadata": {"name": name}, "spec": spec})
    rules.create_validating_admission_policy_binding({"metadata": {"name": name}, "spec": binding})
    try:
        yield
    finally:
        rules.delete_validating_admission_policy_binding(name)
        rules.delete_validating_admission_policy(name)


def is_refused(cluster: Cluster, name: str, replicas: int) -> bool:
    """Try a count without asking for it: rules come into force, and go, a while later."""
    body = {"spec": {"replicas": replicas}}
    try:
        cluster.apps.patch_namespaced_deployment_scale(name, NAMESPACE, body, dry_run="All")
    except ApiException as error:
        return error.status == 422
    return False


def test_a_missing_workload_is_named(steered: Open) -> None:
    """A workload that is not there is an error that names it and its namespace."""
    target = steered("deployment", name="nobody")
    with pytest.raises(KubernetesRejectedError, match="deployment nobody is not in namespace default"):
        target.list_replicas()


def test_the_last_of_a_statefulset_goes_first(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """Only the highest ordinal can be stopped; who comes back has the name that it had."""
    name = ready("statefulset", 3)
    target = steered("statefulset", name=name)
    assert [i.ordinal for i in target.list_replicas()] == [0, 1, 2]
    with pytest.raises(PeerError, match=f"{name}-0 can only be stopped after {name}-2"):
        target.stop_replica(f"{name}-0")
    target.stop_replica(f"{name}-2")
    eventually(lambda: cluster.pods(name, ending=True) == [f"{name}-0", f"{name}-1"])
    assert cluster.replicas("statefulset", name) == 2
    target.list_replicas()
    assert target.add_replicas(1) == (f"{name}-2",)
