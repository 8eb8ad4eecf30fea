"""Pods of unmodified consumers, told by their addresses alone, scaled by the sidecar and by a real KEDA."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.control_plane import HOST, ControlPlane, free_ports
from cluster.keda import Keda
from cluster.kubelet import Kubelet
from cluster.source_address import build_environment
from cluster.workloads import Cluster
from faults.traffic import Traffic
from trimtab.cli.broker.broker_config import ASSIGNOR_PROPERTIES
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.clock import SystemClock
from trimtab.common.replica_names import get_replica
from trimtab.sidecar.model.member_names import name_observed_members
from trimtab.sidecar.model.observation import GroupState, ObservedGroup
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]

ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = ROOT / "tests" / "kafka"
PARTITIONS: Final = 6
CAPACITY: Final = 40_000.0  # bytes/s
RECORD: Final = 180.0  # bytes, about
PATIENCE: Final = 120.0
STEADY: Final = 12.0
LED: Final = {"lead": True, "take-lead": True}  # a pod may have joined first
WAYS: Final[dict[str, tuple[str, dict[str, Any]]]] = {  # worker, and settings of the sidecar
    "led": ("librdkafka_worker.py", LED),
    "new-protocol": ("new_protocol_worker.py", {"protocol": "auto"}),
    "led-several": ("librdkafka_worker.py", {**LED, "consumers-per-replica": 2}),
    "new-protocol-several": ("new_protocol_worker.py", {"protocol": "auto", "consumers-per-replica": 2}),
}


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Scene:
    """A group of pods whose consumers all have one client id, its load, and the sidecar that KEDA calls."""

    def __init__(self, bootstrap: str, folder: Path, settings: dict[str, Any]) -> None:
        self._folder = folder
        self.group, self.topic = f"group-{uuid4().hex[:8]}", f"topic-{uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(30)
        (self.port,) = free_ports(1)
        self.per_pod: int = settings.get("consumers-per-replica", 1)
        self._settings: dict[str, Any] = {
            "bootstrap": bootstrap,
            "group": self.group,
            "topics": self.topic,
            "capacity": CAPACITY,
            "max": 4,
            "interval": "500 ms",
            "window": "4 s",
            "scale-down-stabilization-window": "5 s",
            "cooldown": "2 s",
            "catch-up-time": "30 s",
            "offset-reset": "earliest",
            **settings,
        }
        self._monitor = GroupMonitor(load_settings(None, {**self._settings, "target": "none"}), SystemClock())
        self._traffic = Traffic(bootstrap, self.topic, PARTITIONS, random.Random(1))  # noqa: S311 - repeatable
        self.deleted: dict[str, int | None] = {}  # partitions that a pod owned when it was deleted
        self._sidecar: subprocess.Popen[bytes] | None = None

    def load(self, consumers: float) -> None:
        """Write at the rate of this many full consumers."""
        self._traffic.rate = consumers * 0.9 * CAPACITY / RECORD

    def steer(self, target: str, workload: str, kubeconfig: Path) -> None:
        """Start the sidecar."""
        more: dict[str, Any] = {"target": target, "workload": workload, "kubeconfig": str(kubeconfig)}
        if target == "keda":
            more["grpc-port"] = self.port
        config = self._folder / "sidecar.yaml"
        config.write_text(yaml.safe_dump({**self._settings, **more}))
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(config)]
        with (self._folder / "sidecar.log").open("ab") as log:
            self._sidecar = subprocess.Popen(command, stdout=log, stderr=log)

    def read_log(self) -> str:
        log = self._folder / "sidecar.log"
        return log.read_text() if log.exists() else ""

    def describe(self, pods: dict[str, str]) -> ObservedGroup:
        """Return the group with members named by pods, which are given by address."""
        return name_observed_members(self._monitor.describe_group(), pods, self.per_pod)

    def record_deletion(self, pod: str, pods: dict[str, str]) -> None:
        """Record the partitions of a pod that was just deleted and has not received SIGTERM yet."""
        group = self.describe(pods)
        owned = sum(len(m.owned_partitions) for m in group.members if get_replica(m.instance) == pod)
        self.deleted[pod] = None if group.state is GroupState.UNKNOWN else owned

    def is_settled(self, pods: dict[str, str]) -> bool:
        """Return whether exactly these pods' consumers own every partition, and each pod some."""
        members = self.describe(pods).members
        owned = Counter(dict.fromkeys(pods.values(), 0))
        for member in members:
            owned[get_replica(member.instance)] += len(member.owned_partitions)
        return (
            len(members) == self.per_pod * len(owned) == self.per_pod * len(pods)
            and all(owned.values())
            and owned.total() == PARTITIONS
        )

    def count_changes(self) -> int:
        """Return how often the sidecar has changed replicas, or the placement."""
        return sum(
            self.read_log().count(f" trimtab.sidecar: {action}: ")
            for action in ("scale-up", "drain", "place")
        )

    def count_unread(self) -> float:
        """Return the records that nobody has read and committed yet."""
        return sum(load.backlog_records or 0.0 for load in self._monitor.measure().load.write_rates.values())

    def close(self) -> None:
        if self._sidecar is not None:
            self._sidecar.terminate()
            self._sidecar.wait(30)
        self._traffic.end()
        self._monitor.close()


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
