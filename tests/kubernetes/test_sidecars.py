"""Sidecars as processes on a real control plane: two of them, an external count, a wrong name."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from cluster.control_plane import ControlPlane
from cluster.workloads import POD_NAME, Cluster
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.model.observation import GroupState
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]

WORKER: Final = Path(__file__).parents[1] / "workers" / "sidecar_worker.py"
PARTITIONS: Final = 6


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Bench:
    """A group of pods, and the sidecars beside it."""

    def __init__(self, bootstrap: str, group: str, topic: str, folder: Path) -> None:
        self._folder = folder
        self._address = (bootstrap, group, topic)
        self.settings: dict[str, Any] = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": topic,
            "capacity": "100 kB/s",
            "interval": "500 ms",
            "window": "4 s",
            "min": 2,
            "max": 5,
            "offset-reset": "earliest",
            "target": "kubernetes",
        }
        settings = load_settings(None, {**self.settings, "target": "none"})
        self.monitor = GroupMonitor(settings, SystemClock())
        self.board = ControlTopicStore(settings, AdminClient({"bootstrap.servers": bootstrap}))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(PARTITIONS):
            producer.produce(topic, b"x" * 200, partition=number)
        producer.flush(30)

    def container(self) -> dict[str, Any]:
        command = [sys.executable, str(WORKER), "$(POD_NAME)", *self._address, "100000"]
        return {"env": [POD_NAME], "command": command}

    def start(self, name: str, **more: Any) -> None:
        config = self._folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump({**self.settings, **more}))
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(config)]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running.pop(name).wait()

    def ended(self, name: str) -> int:
        return self._running[name].wait(60)

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def plan(self) -> GroupPlan:
        plan = self.board.read_plan()
        assert plan is not None
        return plan

    def owners(self) -> dict[TopicPartition, str]:
        return {p: r.instance for r in self.monitor.describe_group().members for p in r.owned_partitions}

    def settled(self, pods: list[str]) -> bool:
        group = self.monitor.describe_group()
        names = sorted(r.instance for r in group.members)
        stable = group.state is GroupState.STABLE
        return stable and names == pods and len(self.owners()) == PARTITIONS

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)
        self.monitor.close()


@pytest.fixture
def bench(bootstrap: str, group: str, topic: Callable[..., str], tmp_path: Path) -> Iterator[Bench]:
    made = Bench(bootstrap, group, topic(partitions=PARTITIONS), tmp_path)
    yield made
    made.close()


def test_the_second_sidecar_takes_over(
    bench: Bench, cluster: Cluster, plane: ControlPlane, workload: Callable[..., str], eventually: Eventually
) -> None:
    """After the leader's crash the other leads within 20 s and nothing moves; it adopts an external count."""
    name = workload("deployment", 2, **bench.container())
    more = {"workload": f"deployment/{name}", "kubeconfig": str(plane.kubeconfig)}
    bench.start("one", **more)
    eventually(lambda: ": acquired" in bench.log("one"), 60)
    bench.start("two", **more)
    eventually(lambda: "standing by" in bench.log("two"), 60)
    eventually(lambda: bench.settled(cluster.ready(name)), 90)
    eventually(lambda: bench.log("one").count("2 is the desired count") > 4, 60)
    plan, owners = bench.plan(), bench.owners()
    bench.kill("one")
    begun = monotonic()
    eventually(lambda: f"plan {plan.epoch} is in force" in bench.log("two"), 40)
    assert monotonic() - begun < 20.0
    eventually(lambda: bench.log("two").count("2 is the desired count") > 4, 60)
    assert (bench.plan(), bench.owners()) == (plan, owners)
    cluster.scale("deployment", name, 3)
    eventually(lambda: "adopt-external: a-person set 3 replicas, adopted" in bench.log("two"), 60)
    eventually(lambda: bench.plan().replicas == 3, 60)
    assert "scale-up" not in bench.log("one") + bench.log("two")


def test_a_missing_workload_ends_the_sidecar(bench: Bench, plane: ControlPlane) -> None:
    """A missing workload is one line at the start, not a loop that waits for it."""
    bench.start("one", workload="deployment/nobody", kubeconfig=str(plane.kubeconfig))
    assert bench.ended("one") == 1
    output = bench.log("one")
    assert re.search("deployment nobody is not in namespace default; create it", output)
    assert "Traceback" not in output
