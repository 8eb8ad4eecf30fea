"""The environment of bench_autoscale: a control plane, pods as processes, and their observation.

It uses `tests/cluster`, so PYTHONPATH needs `tests`. Both sides are observed externally, by the same
requests to the API server, the kubelet and the broker.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from cluster.control_plane import ControlPlane
from cluster.keda import Keda
from cluster.kubelet import Kubelet
from cluster.workloads import Cluster

LOOK = 0.25
"""Seconds between two looks."""
ANSWER = 3.0
"""Seconds for the broker's answer."""
PATIENCE = 120.0
"""Seconds for a group to form, or for pods to end."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample: time (epoch), requested replicas, running processes."""

    time: float
    requested_replicas: int
    running: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deleted pod before its SIGTERM, with its number of owned partitions."""

    time: float
    pod: str
    owned: int


@dataclass(frozen=True, slots=True)
class Rig:
    """The running components."""

    plane: ControlPlane
    kubelet: Kubelet
    cluster: Cluster
    keda: Keda
    watches: list["Watch"] = field(default_factory=list["Watch"])

    def note_deleted(self, pod: str) -> None:
        """Tell the watch of the pod's workload that the pod is about to get SIGTERM."""
        for watch in tuple(self.watches):
            if pod.startswith(f"{watch.name}-"):
                watch.note_deleted(pod)


@contextmanager
def run_rig(folder: Path, hpa_seconds: float) -> Iterator[Rig]:
    """Yield a control plane with a kubelet and KEDA; the HPA syncs at the given interval in seconds."""
    plane = ControlPlane(folder / "plane", hpa_seconds)
    try:
        plane.start()
        kubelet, cluster = Kubelet(plane.kubeconfig, folder / "pods"), Cluster(plane.kubeconfig)
        kubelet.start()
        keda = Keda(plane, cluster)
        try:
            keda.start()
            on = Rig(plane, kubelet, cluster, keda)
            kubelet.deleting = on.note_deleted
            yield on
        finally:
            keda.stop()
            kubelet.stop()
            cluster.close()
    finally:
        plane.stop()


@dataclass(slots=True)
class Watch:
    """Samples one workload and its consumer group in a thread."""

    on: Rig
    bootstrap: str
    name: str
    samples: list[Sample] = field(default_factory=list[Sample])
    deleted: list[Deleted] = field(default_factory=list[Deleted])
    _admin: AdminClient = field(init=False)
    _owned: Mapping[str, int] = field(default_factory=dict[str, int])
    _stop: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample within the context."""
        thread = Thread(target=self._look, name="watch")
        self.on.watches.append(self)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            self.on.watches.remove(self)

    def owned(self) -> Mapping[str, int]:
        """Return the number of partitions of each pod in the group's last stable state."""
        futures = self._admin.describe_consumer_groups([self.name], request_timeout=ANSWER)
        try:
            description = futures[self.name].result(2 * ANSWER)
        except (KafkaException, TimeoutError):  # the coordinator is not available yet
            return self._owned
        if description.state is ConsumerGroupState.STABLE:  # otherwise the response has no assignments
            self._owned = {m.client_id: _count_partitions(m) for m in description.members}
        return self._owned

    def formed(self, members: int) -> None:
        """Wait until the given number of members have joined. Raises RuntimeError."""
        pause, deadline = Event(), monotonic() + PATIENCE
        while len([n for n in self.owned().values() if n]) < members:
            if monotonic() > deadline:
                raise RuntimeError(f"{self.name}: the group has not formed: {self.owned()}")
            pause.wait(LOOK)

    def _look(self) -> None:
        while not self._stop.wait(LOOK):
            requested_replicas = self.on.cluster.replicas("deployment", self.name)
            self.owned()
            self.samples.append(Sample(time(), requested_replicas, self.on.kubelet.running(self.name)))

    def note_deleted(self, pod: str) -> None:
        """Record how many partitions a pod owns before its SIGTERM."""
        self.deleted.append(Deleted(time(), pod, self.owned().get(pod, 0)))


def _count_partitions(member: Any) -> int:
    return 0 if member.assignment is None else len(member.assignment.topic_partitions)


@contextmanager
def run_pods(on: Rig, name: str, replicas: int, command: Sequence[str]) -> Iterator[None]:
    """Run this command in `replicas` pods; `$(POD_NAME)` is replaced by the pod's name."""
    pod_name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    on.cluster.make("deployment", name, replicas, {"command": list(command), "env": [pod_name]})
    try:
        yield
    finally:
        on.cluster.delete("deployment", name)
        pause, deadline = Event(), monotonic() + PATIENCE
        while on.kubelet.running(name) and monotonic() < deadline:
            pause.wait(LOOK)
