"""A group of pods whose consumers only their addresses tell, its load, and the sidecar that scales them."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.control_plane import free_ports
from faults.traffic import Traffic
from trimtab.common.clock import SystemClock
from trimtab.common.replica_names import get_replica
from trimtab.sidecar.model.member_names import name_observed_members
from trimtab.sidecar.model.observation import GroupState, ObservedGroup
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

PARTITIONS: Final = 6
CAPACITY: Final = 40_000.0  # bytes/s
RECORD: Final = 180.0  # bytes, about
LED: Final = {"lead": True, "take-lead": True}  # a pod may have joined first


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
