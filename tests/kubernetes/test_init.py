"""`trimtab init` finds the workload of a group's members on a real API server."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import yaml
from kubernetes import client

from cluster.control_plane import HOST, ControlPlane, free_ports
from cluster.keda import GROUP, PLURAL, VERSION, Keda
from cluster.scaler_resources import ManyGroupsSidecar, ScalerResourceClient
from cluster.workloads import NAMESPACE, POD_NAME, Cluster
from faults.traffic import Traffic
from trimtab.cli.init.workload_search import find_workload
from trimtab.common.clock import SystemClock
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.diagnostics.doctor.kubernetes_checks import run_kubernetes_checks
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.model.observation import ObservedMember
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.kubernetes.factory import connect_workload_target

pytestmark = pytest.mark.kubernetes
WORKER: Final = Path(__file__).parents[1] / "workers" / "sidecar_worker.py"


@pytest.mark.parametrize("kind", ["deployment", "statefulset"])
@pytest.mark.usefixtures("kubelet")
def test_the_workload_of_the_members_is_found(
    kind: str, plane: ControlPlane, cluster: Cluster, eventually: Callable[..., None]
) -> None:
    """By the pods' names, which members have as client ids, or else by the pods' addresses."""
    name = f"init-{uuid4().hex[:8]}"
    cluster.make(kind, name, 2, {"command": ["sleep", "600"]})
    try:
        eventually(lambda: len(cluster.pods(name)) == 2)
        members = [ObservedMember(str(at), pod) for at, pod in enumerate(cluster.pods(name))]
        found, why_not = find_workload(members, None, plane.kubeconfig)
        assert found is not None, why_not
        assert (found.kind, found.name, found.replicas, found.scaled_object) == (kind, name, 2, None)
        strangers = [ObservedMember("1", "somebody", host="192.0.2.7")]
        missing, why_not = find_workload(strangers, None, plane.kubeconfig)
        assert missing is None
        assert "no pod of namespace" in why_not
    finally:
        cluster.delete(kind, name)


@pytest.fixture
def autoscaled_deployment(cluster: Cluster) -> Iterator[str]:
    """A Deployment of one pod, and a HorizontalPodAutoscaler of the same name on it."""
    name = f"init-{uuid4().hex[:8]}"
    cluster.make("deployment", name, 1, {"command": ["sleep", "600"]})
    hpas: Any = client.AutoscalingV2Api(cluster.client)
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "maxReplicas": 3}
    hpas.create_namespaced_horizontal_pod_autoscaler(NAMESPACE, {"metadata": {"name": name}, "spec": spec})
    yield name
    hpas.delete_namespaced_horizontal_pod_autoscaler(name, NAMESPACE)
    cluster.delete("deployment", name)


@pytest.mark.usefixtures("kubelet")
def test_a_second_autoscaler_is_refused(
    autoscaled_deployment: str, plane: ControlPlane, cluster: Cluster, eventually: Callable[..., None]
) -> None:
    """`init` and `doctor` name an autoscaler of the workload, and the sidecar does not start beside it."""
    name = autoscaled_deployment
    eventually(lambda: len(cluster.pods(name)) == 1)
    found, why_not = find_workload([ObservedMember("1", cluster.pods(name)[0])], None, plane.kubeconfig)
    assert found is not None, why_not
    assert found.rivals == (f"HorizontalPodAutoscaler {name}",)
    given = {"bootstrap": "b:1", "group": "g", "capacity": 1, "target": "kubernetes", "namespace": NAMESPACE}
    more = {"workload": f"deployment/{name}", "kubeconfig": str(plane.kubeconfig), "leader-election": False}
    settings = load_settings(None, {**given, **more})
    failures = [one for one in run_kubernetes_checks(settings) if one.level is FindingLevel.FAILED]
    assert [(one.check, f"HorizontalPodAutoscaler {name}" in one.message) for one in failures] == [
        ("autoscalers", True)
    ]
    with ExitStack() as stack, pytest.raises(SidecarSettingError, match=f"HorizontalPodAutoscaler {name}"):
        connect_workload_target(settings, SystemClock(), stack)


class ScaledGroup:
    """A Deployment whose pods read a topic, scaled by KEDA's own kafka scaler."""

    def __init__(self, cluster: Cluster, keda: Keda, address: tuple[str, str, str]) -> None:
        self.name = f"init-{uuid4().hex[:8]}"
        self._keda = keda
        self._cluster = cluster
        self._objects = client.CustomObjectsApi(cluster.client)
        command = [sys.executable, str(WORKER), "$(POD_NAME)", *address, "200000"]
        cluster.make("deployment", self.name, 2, {"env": [POD_NAME], "command": command})
        bootstrap, group, topic = address
        metadata = {"bootstrapServers": bootstrap, "consumerGroup": group, "topic": topic}
        keda.scale({
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": self.name},
            "spec": {
                "scaleTargetRef": {"name": self.name},
                "minReplicaCount": 2,
                "maxReplicaCount": 3,
                "triggers": [{"type": "kafka", "metadata": {**metadata, "lagThreshold": "100000"}}],
            },
        })  # fmt: skip

    def apply(self, body: dict[str, Any]) -> bool:
        """Replace the ScaledObject's spec, as `kubectl apply` does; False if KEDA wrote to it meanwhile."""
        place = (GROUP, VERSION, NAMESPACE, PLURAL, self.name)
        now: Any = self._objects.get_namespaced_custom_object(*place)
        try:
            self._objects.replace_namespaced_custom_object(*place, {**now, "spec": body["spec"]})
        except client.ApiException as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return False
        return True

    def read_metric(self) -> str:
        """Return the metric that the HPA asks KEDA for; empty while there is no HPA."""
        hpas = client.AutoscalingV2Api(self._cluster.client).list_namespaced_horizontal_pod_autoscaler(
            NAMESPACE
        )
        names = [
            metric.external.metric.name
            for hpa in hpas.items
            if hpa.spec.scale_target_ref.name == self.name
            for metric in hpa.spec.metrics or ()
        ]
        return ",".join(names)

    def close(self) -> None:
        self._keda.forget(self.name)
        self._cluster.delete("deployment", self.name)


@pytest.fixture
def scaled_group(
    bootstrap: str, group: str, topic: Callable[..., str], cluster: Cluster, keda: Keda
) -> Iterator[tuple[ScaledGroup, tuple[str, str, str]]]:
    """The group under load, and its address: bootstrap, group, topic."""
    address = (bootstrap, group, topic(partitions=6))
    traffic = Traffic(bootstrap, address[2], 6, random.Random(1))  # noqa: S311 - repeatable
    made = ScaledGroup(cluster, keda, address)
    traffic.rate = 200
    yield made, address
    traffic.end()
    made.close()


def run_init(plane: ControlPlane, bootstrap: str, group: str, folder: Path, *more: str) -> str:
    """Return what `trimtab init` prints."""
    command = [sys.executable, "-m", "trimtab.cli", "init", "--bootstrap", bootstrap, "--group", group]
    options = ["--namespace", NAMESPACE, "--kubeconfig", str(plane.kubeconfig), "--out", str(folder)]
    times = ["--duration", "6s", "--window", "2s", *more]
    done = subprocess.run(
        [*command, *options, *times], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running_sidecar(file: Path, **more: Any) -> Iterator[Path]:
    """Run the sidecar of a settings file and further settings; yield its log."""
    log = file.with_name("sidecar.log")
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | more))
    with log.open("wb") as output:
        running = subprocess.Popen(
            [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(file)], stdout=output, stderr=output
        )
    try:
        yield log
    finally:
        running.terminate()
        running.wait(60)


@pytest.mark.broker
@pytest.mark.usefixtures("kubelet")
def test_a_group_that_keda_scales_goes_to_the_sidecar_and_back(
    scaled_group: tuple[ScaledGroup, tuple[str, str, str]],
    plane: ControlPlane,
    cluster: Cluster,
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """With init's files KEDA takes the count from the sidecar; the file of before gives it back."""
    scaled, (bootstrap, group, _) = scaled_group
    eventually(lambda: scaled.read_metric().startswith("s0-kafka-"), 120)
    eventually(lambda: len(cluster.ready(scaled.name)) >= 2, 120)
    run_init(plane, bootstrap, group, tmp_path, "--capacity", "200 kB/s")
    before, after = (
        yaml.safe_load((tmp_path / name).read_text())
        for name in ("scaledobject.before.yaml", "scaledobject.yaml")
    )
    assert before["spec"]["triggers"][0]["type"] == "kafka"
    (port,) = free_ports(1)
    after["spec"]["triggers"][0]["metadata"]["scalerAddress"] = f"{HOST}:{port}"  # there is no cluster DNS
    more = {"grpc-port": port, "kubeconfig": str(plane.kubeconfig)}
    with running_sidecar(tmp_path / "sidecar.yaml", **more) as log:
        eventually(lambda: "KEDA service listens on" in log.read_text(), 120)
        eventually(lambda: scaled.apply(after))
        eventually(lambda: scaled.read_metric().startswith("s0-trimtab"), 120)
        eventually(lambda: scaled.apply(before))
        eventually(lambda: scaled.read_metric().startswith("s0-kafka-"), 120)


@pytest.fixture
def reading_deployment(sidecar: ManyGroupsSidecar, bootstrap: str, cluster: Cluster) -> Iterator[str]:
    """A Deployment whose pod reads the group's topic."""
    name = f"init-{uuid4().hex[:8]}"
    command = [sys.executable, str(WORKER), "$(POD_NAME)", bootstrap, sidecar.group, sidecar.topic, "200000"]
    cluster.make("deployment", name, 1, {"env": [POD_NAME], "command": command})
    yield name
    cluster.delete("deployment", name)


@pytest.mark.broker
@pytest.mark.usefixtures("kubelet")
def test_the_written_resource_is_managed(  # noqa: PLR0913 - fixtures
    reading_deployment: str,
    sidecar: ManyGroupsSidecar,
    scalers: ScalerResourceClient,
    plane: ControlPlane,
    cluster: Cluster,
    tmp_path: Path,
    *,
    bootstrap: str,
    eventually: Callable[..., None],
) -> None:
    """The API server takes init's resource, a sidecar manages the group by it, and init writes no second."""
    eventually(lambda: len(cluster.ready(reading_deployment)) == 1, 120)
    sidecar.produce()
    capacity = ("--capacity", "100 kB/s")
    printed = run_init(plane, bootstrap, sidecar.group, tmp_path, *capacity)
    file = tmp_path / "consumergroupscaler.yaml"
    assert f"kubectl apply -f {file}" in printed
    body = yaml.safe_load(file.read_text())
    assert body["metadata"] == {"name": reading_deployment, "namespace": NAMESPACE}
    scalers.apply(reading_deployment, **body["spec"])
    with sidecar.running():
        eventually(lambda: scalers.reason(reading_deployment) == "Managed", 60)
    file.unlink()
    printed = run_init(plane, bootstrap, sidecar.group, tmp_path, *capacity, "--force")
    assert f"ConsumerGroupScaler {reading_deployment} has the group already" in printed
    assert not file.exists()
