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

pytestmark = pytest.mark.kubernetes

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
    """Create a workload and wait until its pods are ready."""

    def make(kind: str, replicas: int) -> str:
        name = workload(kind, replicas)
        eventually(lambda: len(cluster.ready(name)) == replicas)
        return name

    return make


def test_only_the_drained_pods_are_deleted(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """Of five pods, three stopped one after another are deleted; the others keep no mark of ours."""
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


def test_the_previous_deletion_cost_is_restored(
    cluster: Cluster, ready: Make, steered: Open, plane: ControlPlane, eventually: Eventually
) -> None:
    """A marked pod that is needed after all gets its previous deletion cost."""
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


def test_a_repeated_stop_deletes_one_pod(
    cluster: Cluster, ready: Make, steered: Open, plane: ControlPlane, eventually: Eventually
) -> None:
    """With the controllers down, repeated stops of a pod delete that pod only."""
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


def test_an_unready_pod_postpones_the_stop_of_others(
    cluster: Cluster, ready: Make, steered: Open, kubelet: Kubelet, eventually: Eventually
) -> None:
    """Kubernetes would delete the unready pod first, so only that one can be stopped."""
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


def test_a_rollout_postpones_scale_down(
    cluster: Cluster, ready: Make, steered: Open, kubelet: Kubelet, eventually: Eventually
) -> None:
    """While two versions run no pod is stopped."""
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


def test_a_dead_pod_is_replaced_once(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """Kubernetes replaces a dead pod; a request for a replacement keeps the count."""
    name = ready("deployment", 2)
    target = steered("deployment", name=name)
    pods = alive(target)
    cluster.core.delete_namespaced_pod(pods[0], NAMESPACE)
    target.add_replicas(2 - len(alive(target)))
    eventually(lambda: len(cluster.ready(name)) == 2)
    assert cluster.replicas("deployment", name) == 2


def test_a_concurrent_change_is_retried(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """A change between read and write gets 409 and a new read; both changes are kept."""
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
    """Each right is needed: without it the error names the missing verb and resource."""
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


def test_the_documented_role_is_sufficient(
    cluster: Cluster, plane: ControlPlane, ready: Make, steered: Open, tmp_path: Path
) -> None:
    """The documented rights, and no others, allow all requests of a sidecar."""
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
    """Send every request that a sidecar sends to an API server."""
    api = target._api
    assert api.find_rivals(keda=False) == ()
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


def test_an_api_server_outage_changes_nothing(
    cluster: Cluster, plane: ControlPlane, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """During an outage every call fails with the reason; afterwards nothing has changed."""
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


def test_external_scaling_is_detected(cluster: Cluster, ready: Make, steered: Open) -> None:
    """The last requester of the count is known, in any process and at any time."""
    name = ready("deployment", 1)
    target = steered("deployment", name=name)
    target.list_replicas()
    target.add_replicas(1)
    target.list_replicas()
    requested = target.read_target_status().requested
    assert requested is not None
    assert (requested.count, requested.is_ours) == (2, True)
    before = time()
    cluster.scale("deployment", name, 3)
    target.list_replicas()
    requested = target.read_target_status().requested
    assert requested is not None
    assert (requested.count, requested.requested_by, requested.is_ours) == (3, "a-person", False)
    assert before <= requested.requested_at <= time()
    target.list_replicas()
    assert target.read_target_status().requested == requested
    again = steered("deployment", name=name)
    again.list_replicas()
    requested = again.read_target_status().requested
    assert requested is not None
    assert (requested.count, requested.requested_by, requested.is_ours) == (3, "a-person", False)


def test_a_zero_has_no_known_requester(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """The API server records no field manager for a zero, so its requester is unknown."""
    name = ready("deployment", 1)
    target = steered("deployment", name=name)
    target.stop_replica(alive(target)[0])
    assert alive(target) == []
    requested = target.read_target_status().requested
    assert requested is not None
    assert (requested.count, requested.is_ours, requested.is_requester_known) == (0, False, False)
    target.add_replicas(1)
    eventually(lambda: len(cluster.ready(name)) == 1)


def test_a_lost_lease_keeps_the_count(cluster: Cluster, ready: Make, steered: Open) -> None:
    """A lease that ends during a stop leaves the count as it is."""

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


def test_an_annotation_pauses_scaling(cluster: Cluster, ready: Make, steered: Open) -> None:
    """The workload's annotation pauses a direction; an unknown value pauses both."""
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
        assert target.read_target_status().paused_direction == meant
    assert "nonsense" in target.read_target_status().errors[0]
    cluster.annotate("deployment", name, {PAUSE_ANNOTATION: None})
    target.list_replicas()
    assert target.read_target_status().paused_direction == ""


def test_a_rejected_count_is_reported_and_retried(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """While a policy answers 422 nothing changes; without it the same call succeeds."""
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
    """Let the API server itself reject (422) more replicas of a deployment."""
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
    """Try a count as a dry run: policies take effect, and end, with a delay."""
    body = {"spec": {"replicas": replicas}}
    try:
        cluster.apps.patch_namespaced_deployment_scale(name, NAMESPACE, body, dry_run="All")
    except ApiException as error:
        return error.status == 422
    return False


def test_a_missing_workload_is_named(steered: Open) -> None:
    """The error names the missing workload and its namespace."""
    target = steered("deployment", name="nobody")
    with pytest.raises(KubernetesRejectedError, match="deployment nobody is not in namespace default"):
        target.list_replicas()


def test_a_statefulset_stops_its_highest_ordinal_first(
    cluster: Cluster, ready: Make, steered: Open, eventually: Eventually
) -> None:
    """Only the highest ordinal can be stopped; a pod that returns has the same name."""
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
