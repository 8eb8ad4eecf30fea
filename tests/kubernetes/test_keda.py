"""The replica target `keda` with a real KEDA: operator, metrics adapter, and the HPA."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import yaml

from cluster import build
from cluster.control_plane import HOST, ControlPlane, free_ports
from cluster.keda import Keda
from cluster.kubelet import Kubelet
from cluster.workloads import NAMESPACE, POD_NAME, Cluster
from faults.traffic import Traffic
from support.queued import Sidecar, handled_messages, write_messages
from trimtab.common.clock import SystemClock
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.model.observation import GroupState
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.keda.factory import KedaWorkloadApi
from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount
from trimtab.sidecar.targets.keda.scaler_responses import KEDA_METRIC_NAME, StalenessLimits
from trimtab.sidecar.targets.keda.scaler_service import ExternalScalerService
from trimtab.sidecar.targets.keda.trigger_metadata import ScaledGroup
from trimtab.sidecar.targets.kubernetes.kubernetes_target import KubernetesTarget
from trimtab.sidecar.targets.kubernetes.workload import DELETION_COST_ANNOTATION

pytestmark = pytest.mark.kubernetes

ROOT: Final = Path(__file__).parents[2]
ROLE: Final = re.search(
    r"```yaml\n(apiVersion: rbac.*?)```", (ROOT / "docs" / "kubernetes.md").read_text(), re.DOTALL
)
assert ROLE is not None
RULES: Final[list[dict[str, Any]]] = yaml.safe_load(ROLE[1])["rules"]
"""The role that the documentation shows."""

WORKER: Final = ROOT / "tests" / "workers" / "sidecar_worker.py"
PARTITIONS: Final = 6
ROOM: Final = 40_000.0 * 0.9  # bytes/s of a consumer that may be filled
RECORD: Final = 180.0  # bytes, about
PATIENCE: Final = 120.0

CLIENT: Final = """
import sys, grpc
import externalscaler_pb2 as proto, externalscaler_pb2_grpc as calls
address, metric = sys.argv[1:]
ref = proto.ScaledObjectRef(name="lake", namespace="x", scalerMetadata={"consumerGroup": "lake"})
with grpc.insecure_channel(address) as channel:
    stub = calls.ExternalScalerStub(channel)
    active = next(stub.StreamIsActive(ref, timeout=20)).result
    (spec,) = next(stub.StreamMetricSpec(ref, timeout=20)).metricSpecs
    assert stub.GetMetricSpec(ref, timeout=20).metricSpecs[0] == spec
    request = proto.GetMetricsRequest(scaledObjectRef=ref, metricName=metric)
    (value,) = stub.GetMetrics(request, timeout=20).metricValues
    assert stub.IsActive(ref, timeout=20).result == active
    print(active, spec.metricName, spec.targetSizeFloat, value.metricName, value.metricValueFloat)
"""
"""A client of every call, generated from KEDA's published contract."""


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Scene:
    """A group of pods, its load, and the sidecar that KEDA calls."""

    def __init__(self, bootstrap: str, group: str, topic: str, folder: Path) -> None:
        self._folder = folder
        self._address = (bootstrap, group, topic)
        (self.port,) = free_ports(1)
        self._settings: dict[str, Any] = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": topic,
            "capacity": "40 kB/s",
            "interval": "500 ms",
            "window": "4 s",
            "min": 0,
            "max": 4,
            "scale-down-stabilization-window": "5 s",
            "cooldown": "1 s",
            "idle-after": "5 s",
            "catch-up-time": "30 s",
            "offset-reset": "earliest",
        }
        quiet = load_settings(None, {**self._settings, "target": "none"})
        self.monitor = GroupMonitor(quiet, SystemClock())
        self.traffic = Traffic(bootstrap, topic, PARTITIONS, random.Random(1))  # noqa: S311 - repeatable
        self.deleted: list[tuple[str, int, int]] = []  # pod, partitions it owned, pods left
        self.unknown: list[str] = []  # pods whose partitions were unknown
        self._sidecar: subprocess.Popen[bytes] | None = None

    def container(self) -> dict[str, Any]:
        command = [sys.executable, str(WORKER), "$(POD_NAME)", *self._address, "60000"]
        return {"env": [POD_NAME], "command": command}

    def load(self, consumers: float) -> None:
        """Write at the rate of this many full consumers."""
        self.traffic.rate = consumers * ROOM / RECORD

    def steer(self, workload: str, kubeconfig: Path) -> None:
        """Start the sidecar."""
        more = {"target": "keda", "workload": workload, "kubeconfig": str(kubeconfig)}
        config = self._folder / "sidecar.yaml"
        config.write_text(yaml.safe_dump({**self._settings, **more, "grpc-port": self.port}))
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(config)]
        with (self._folder / "sidecar.log").open("ab") as log:
            self._sidecar = subprocess.Popen(command, stdout=log, stderr=log)

    def log(self) -> str:
        return (self._folder / "sidecar.log").read_text()

    def trigger(self) -> dict[str, str]:
        return trigger(self.port, *self._address)

    def noted(self, pod: str, left: list[str]) -> None:
        """Record the partitions of a pod that was just deleted and has not received SIGTERM yet."""
        group = self.monitor.describe_group()
        owned = sum(len(r.owned_partitions) for r in group.members if r.instance == pod)
        self.deleted.append((pod, owned, len(left)))
        if group.state is GroupState.UNKNOWN:  # unknown ownership proves nothing
            self.unknown.append(pod)

    def settled(self, pods: list[str]) -> bool:
        """Return whether exactly these pods own every partition."""
        group = self.monitor.describe_group()
        owned = [p for r in group.members for p in r.owned_partitions]
        names = sorted(r.instance for r in group.members)
        return group.state is GroupState.STABLE and len(owned) == PARTITIONS and names == pods

    def close(self) -> None:
        if self._sidecar is not None:
            self._sidecar.terminate()
            self._sidecar.wait(30)
        self.traffic.end()
        self.monitor.close()


@pytest.fixture
def scene(bootstrap: str, group: str, topic: Callable[..., str], tmp_path: Path) -> Iterator[Scene]:
    made = Scene(bootstrap, group, topic(partitions=PARTITIONS), tmp_path)
    made.load(0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def source() -> Path:
    """Return the folder of KEDA's module."""
    return build.keda_source()


def trigger(port: int, bootstrap: str, group: str, topic: str) -> dict[str, str]:
    """Return the metadata of KEDA's trigger."""
    return {
        "scalerAddress": f"{HOST}:{port}",
        "bootstrapServers": bootstrap,
        "consumerGroup": group,
        "topic": topic,
    }


def scaled_object(name: str, trigger: dict[str, str]) -> dict[str, Any]:
    """Return the example's ScaledObject for this workload."""
    body: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "keda.yaml").read_text())
    body["metadata"]["name"] = name
    spec = body["spec"]
    spec["scaleTargetRef"]["name"] = name
    spec["pollingInterval"] = 2
    spec["triggers"][0]["metadata"] = trigger
    return body


@pytest.mark.broker
def test_keda_applies_the_planned_count(  # noqa: PLR0913 - fixtures
    scene: Scene,
    keda: Keda,
    cluster: Cluster,
    plane: ControlPlane,
    workload: Callable[..., str],
    eventually: Eventually,
    *,
    kubelet: Kubelet,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A Deployment scales 0 -> 1 -> 3 -> 0; only the last pod still owns partitions when deleted."""
    name = workload("deployment", 0, **scene.container())
    kubelet.deleting = lambda pod: scene.noted(pod, kubelet.alive(name))
    scene.steer(f"deployment/{name}", plane.kubeconfig)
    eventually(lambda: "KEDA service listens on" in scene.log(), PATIENCE)
    keda.scale(scaled_object(name, scene.trigger()))
    try:
        eventually(lambda: "nothing to read" in scene.log(), PATIENCE)
        assert cluster.replicas("deployment", name) == 0
        scene.load(0.4)
        eventually(lambda: scene.settled(cluster.ready(name)), PATIENCE)
        scene.load(2.4)
        eventually(lambda: cluster.replicas("deployment", name) >= 3, PATIENCE)
        eventually(lambda: scene.settled(cluster.ready(name)), PATIENCE)
        scene.load(0.4)
        eventually(lambda: cluster.replicas("deployment", name) == 1, PATIENCE)
        eventually(lambda: scene.settled(cluster.ready(name)), PATIENCE)
        scene.load(0)
        eventually(lambda: cluster.pods(name, ending=True) == [], PATIENCE)
    finally:
        keda.forget(name)
        kubelet.deleting = None
    with capsys.disabled():
        print(f"\nRESULT {json.dumps({'deleted': scene.deleted})}")  # noqa: T201 - the figure that a reader looks for
    assert cluster.replicas("deployment", name) == 0
    assert len(scene.deleted) >= 3
    assert [pod for pod, owned, left in scene.deleted if owned and left] == []
    assert scene.unknown == []


@pytest.mark.broker
def test_keda_scales_a_share_group(  # noqa: PLR0913 - fixtures
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    tmp_path: Path,
    keda: Keda,
    *,
    plane: ControlPlane,
    cluster: Cluster,
    kubelet: Kubelet,
    workload: Callable[..., str],
    eventually: Eventually,
) -> None:
    """The count follows the broker's lag of the share group, from zero pods and back to zero."""
    messages, (port,) = topic(partitions=1), free_ports(1)
    sidecar = Sidecar(tmp_path, bootstrap, group, messages, "share")
    name = workload("deployment", 0, env=[POD_NAME], command=sidecar.worker("$(POD_NAME)"))
    where = {"workload": f"deployment/{name}", "kubeconfig": str(plane.kubeconfig)}
    with closing(sidecar):
        sidecar.start(target="keda", grpc_port=port, **where)
        eventually(lambda: "nothing to read" in sidecar.read_log(), PATIENCE)
        keda.scale(scaled_object(name, trigger(port, bootstrap, group, messages)))
        try:
            written = write_messages(bootstrap, messages, 160, 1)
            eventually(lambda: len(cluster.ready(name)) > 1, PATIENCE)
            eventually(lambda: handled_messages(kubelet.logs(name)) == written, PATIENCE)
            eventually(lambda: cluster.pods(name, ending=True) == [], PATIENCE)
        finally:
            keda.forget(name)
        assert cluster.replicas("deployment", name) == 0


def test_the_count_is_reported_and_the_pod_is_marked(
    cluster: Cluster,
    plane: ControlPlane,
    workload: Callable[..., str],
    steered: Callable[..., KubernetesTarget],
    eventually: Eventually,
    tmp_path: Path,
) -> None:
    """The sidecar sets no count and has no right to; when KEDA lowers it, the marked pod goes."""
    name = workload("deployment", 3)
    eventually(lambda: len(cluster.ready(name)) == 3)
    config = tmp_path / "kubeconfig"
    rules = [rule for rule in RULES if rule["resources"] != ["deployments/scale"]]
    config.write_text(plane.config_for(cluster.account(name, rules)))
    replica_count = KedaReplicaCount(StalenessLimits(3, 60.0), SystemClock())
    target = steered(
        "deployment",
        name=name,
        kubeconfig=config,
        controller_timeout=0.0,
        api=lambda place, timeout: KedaWorkloadApi(place, timeout, replica_count),
    )
    pods = [i.name for i in target.list_replicas() if i.alive]
    target.stop_replica(pods[1])
    assert replica_count.get_or_adopt(99) == 2
    assert cluster.replicas("deployment", name) == 3
    annotations = cluster.core.read_namespaced_pod(pods[1], NAMESPACE).metadata.annotations
    assert int(annotations[DELETION_COST_ANNOTATION]) < 0
    assert [i.name for i in target.list_replicas() if i.alive] == [pods[0], pods[2]]
    cluster.scale("deployment", name, replica_count.get_or_adopt(99))
    eventually(lambda: cluster.pods(name, ending=True) == [pods[0], pods[2]])
    target.add_replicas(2)
    assert replica_count.get_or_adopt(99) == 4
    assert cluster.replicas("deployment", name) == 2


def test_the_reported_count_covers_pods_of_others(
    cluster: Cluster,
    workload: Callable[..., str],
    steered: Callable[..., KubernetesTarget],
    eventually: Eventually,
) -> None:
    """After KEDA's fallback added pods the count follows, so that they are drained and not deleted."""
    name = workload("deployment", 1)
    eventually(lambda: len(cluster.ready(name)) == 1)
    replica_count = KedaReplicaCount(StalenessLimits(3, 60.0), SystemClock())
    target = steered(
        "deployment",
        name=name,
        controller_timeout=0.0,
        api=lambda place, t: KedaWorkloadApi(place, t, replica_count),
    )
    target.list_replicas()
    assert replica_count.get_or_adopt(99) == 1
    cluster.scale("deployment", name, 3)
    eventually(lambda: len(cluster.ready(name)) == 3)
    assert len([i for i in target.list_replicas() if i.alive]) == 3
    assert replica_count.get_or_adopt(99) == 3


def test_a_client_generated_from_kedas_contract_works(source: Path, tmp_path: Path) -> None:
    """Every call works with the code generated from KEDA's published contract."""
    contract = source / "pkg" / "scalers" / "externalscaler"
    compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{contract}"]
    outputs = [f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    subprocess.run([*compiler, *outputs, "externalscaler.proto"], check=True)
    replica_count = KedaReplicaCount(StalenessLimits(3, 60.0), SystemClock())
    service = ExternalScalerService(replica_count, ScaledGroup("b:1", "lake", (), "latest"))
    address = f"{HOST}:{service.start(HOST, 0)}"
    try:
        replica_count.get_or_adopt(0)
        with ThreadPoolExecutor(1) as pool:
            command = [sys.executable, "-c", CLIENT, address, KEDA_METRIC_NAME]
            future = pool.submit(
                subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            replica_count.set_replicas(7)
            replica_count(_report())
            ran = future.result(60)
    finally:
        service.stop()
    assert ran.stdout.split() == ["True", KEDA_METRIC_NAME, "1.0", KEDA_METRIC_NAME, "7.0"], ran.stderr


def _report() -> IterationReport:
    """Return the report of an iteration with plan, pods and group known."""
    decision = ScalingDecision(ScalingAction.HOLD, ("7 is right",), DecisionMetrics(running_replicas=7))
    return IterationReport(
        time=0.0,
        decision=decision,
        write_rates={},
        epoch=1,
        is_group_known=True,
        decision_seconds=0.0,
        iteration_seconds=0.0,
    )
