"""Pods of unmodified consumers, told by their addresses alone, scaled by the sidecar and by a real KEDA."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pytest
import yaml

from cluster.control_plane import HOST, ControlPlane
from cluster.keda import Keda
from cluster.kubelet import Kubelet
from cluster.pod_group import LED, Scene
from cluster.source_address import build_environment
from cluster.workloads import Cluster
from trimtab.cli.broker.broker_config import ASSIGNOR_PROPERTIES
from trimtab.cli.broker.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]

ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = ROOT / "tests" / "workers"
PATIENCE: Final = 120.0
STEADY: Final = 12.0
WAYS: Final[dict[str, tuple[str, dict[str, Any]]]] = {  # worker, and settings of the sidecar
    "led": ("librdkafka_worker.py", LED),
    "new-protocol": ("new_protocol_worker.py", {"protocol": "auto"}),
    "led-several": ("librdkafka_worker.py", {**LED, "consumers-per-replica": 2}),
    "new-protocol-several": ("new_protocol_worker.py", {"protocol": "auto", "consumers-per-replica": 2}),
}


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """Return the address of a broker with the plugin."""
    with EmbeddedBroker(properties=dict(ASSIGNOR_PROPERTIES)) as broker:
        yield broker.bootstrap


def scaled_object(name: str, scene: Scene, bootstrap: str) -> dict[str, Any]:
    """Return the example's ScaledObject for this workload."""
    body: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "keda.yaml").read_text())
    body["metadata"]["name"] = body["spec"]["scaleTargetRef"]["name"] = name
    body["spec"]["pollingInterval"] = 2
    body["spec"]["triggers"][0]["metadata"] = {
        "scalerAddress": f"{HOST}:{scene.port}",
        "bootstrapServers": bootstrap,
        "consumerGroup": scene.group,
        "topic": scene.topic,
    }
    return body


class Pods(NamedTuple):
    """A Deployment of consumers that all have one client id, and its load."""

    scene: Scene
    cluster: Cluster
    name: str
    eventually: Eventually

    def follow_load(self, consumers: float, least: int, most: int) -> None:
        """Write at the rate of this many consumers; wait until the right count shares the partitions."""
        self.scene.load(consumers)
        self.eventually(lambda: least <= self.cluster.replicas("deployment", self.name) <= most, PATIENCE)
        self.eventually(lambda: self.scene.is_settled(self.cluster.addresses(self.name)), PATIENCE)


@pytest.fixture
def start_pods(  # noqa: PLR0913 - fixtures
    request: pytest.FixtureRequest,
    *,
    broker: str,
    cluster: Cluster,
    kubelet: Kubelet,
    workload: Callable[..., str],
    eventually: Eventually,
    tmp_path: Path,
) -> Iterator[Callable[[int], Pods]]:
    """Create the Deployment, for a group that the sidecar leads, or one that the broker's plugin assigns."""
    worker, settings = WAYS[request.param]
    scene = Scene(broker, tmp_path, settings)

    def start(replicas: int) -> Pods:
        to = [broker, scene.group, scene.topic, "60000", str(scene.per_pod)]
        command = [sys.executable, str(WORKERS / worker), "orders", *to]
        name = workload("deployment", replicas, env=build_environment(tmp_path), command=command)
        kubelet.deleting = lambda pod: scene.record_deletion(pod, cluster.addresses(name, ending=True))
        return Pods(scene, cluster, name, eventually)

    yield start
    kubelet.deleting = None
    scene.close()
    sys.stdout.write(scene.read_log())  # pytest shows it if the test has failed


@pytest.mark.parametrize("start_pods", ["led", "new-protocol"], indirect=True)
def test_keda_scales_pods_that_only_their_address_tells(
    start_pods: Callable[[int], Pods], broker: str, keda: Keda, plane: ControlPlane, eventually: Eventually
) -> None:
    """A Deployment scales 0 -> 1 -> 3 -> 1; each pod that is deleted has been drained before."""
    pods = start_pods(0)
    scene, name = pods.scene, pods.name
    scene.load(0.4)
    scene.steer("keda", f"deployment/{name}", plane.kubeconfig)
    eventually(lambda: "KEDA service listens on" in scene.read_log(), PATIENCE)
    keda.scale(scaled_object(name, scene, broker))
    try:
        pods.follow_load(0.4, 1, 4)
        pods.follow_load(2.4, 3, 4)
        pods.follow_load(0.4, 1, 1)
    finally:
        keda.forget(name)
    assert len(scene.deleted) >= 2
    assert set(scene.deleted.values()) == {0}


@pytest.mark.parametrize("start_pods", ["led", "new-protocol"], indirect=True)
def test_the_sidecar_scales_pods_that_only_their_address_tells(
    start_pods: Callable[[int], Pods], plane: ControlPlane
) -> None:
    """A Deployment scales 1 -> 3 -> 1; each pod that is deleted has been drained before, by the plan."""
    pods = start_pods(1)
    scene = pods.scene
    scene.load(0.4)
    scene.steer("kubernetes", f"deployment/{pods.name}", plane.kubeconfig)
    pods.follow_load(0.4, 1, 1)
    pods.follow_load(2.4, 3, 4)
    pods.follow_load(0.4, 1, 1)
    assert len(scene.deleted) >= 2
    assert set(scene.deleted.values()) == {0}


@pytest.mark.parametrize("start_pods", ["led-several", "new-protocol-several"], indirect=True)
def test_pods_of_two_consumers_are_scaled_whole(
    start_pods: Callable[[int], Pods], plane: ControlPlane, kubelet: Kubelet, eventually: Eventually
) -> None:
    """1 -> 2 or 3 -> 1 pods by the load of their consumers; both of a pod are drained before it stops."""
    pods = start_pods(1)
    scene = pods.scene
    scene.load(0.4)
    scene.steer("kubernetes", f"deployment/{pods.name}", plane.kubeconfig)
    pods.follow_load(0.4, 1, 1)
    pods.follow_load(2.6, 2, 3)
    time.sleep(STEADY)
    before = scene.count_changes()
    time.sleep(STEADY)
    assert scene.count_changes() == before, "a steady load"
    pods.follow_load(0.4, 1, 1)
    assert scene.count_changes() >= before + len(scene.deleted) > before > 0
    assert set(scene.deleted.values()) == {0}
    assert kubelet.logs(pods.name).count("SIGTERM while owning 0") == 2 * len(scene.deleted)
    scene.load(0)
    eventually(lambda: scene.count_unread() == 0, PATIENCE)
