"""Pods of two unmodified consumers on a Kubernetes control plane; their sink serves three consumers."""

import re
import sys
from contextlib import ExitStack
from pathlib import Path
from time import sleep
from typing import Final

from cluster.control_plane import ControlPlane
from cluster.kubelet import Kubelet
from cluster.pod_group import CAPACITY, LED, Scene
from cluster.source_address import build_environment
from cluster.workloads import Cluster
from dirty.run import DirtyRun, Figures, wait
from support.advised_group import Surfaces

PER_POD: Final = 2
STEADY_S: Final = 20.0
NAME: Final = "orders"
WORKER: Final = Path(__file__).parents[1] / "workers" / "librdkafka_worker.py"
SETTINGS: Final = {
    **LED,
    "backlog-grace": "3 s",
    "consumers-per-replica": PER_POD,
    "scale-up-evaluation-window": "10 s",
}
CAUSE: Final = r"[68] consumers read no more than 4 \(\d+\.\d kB/s\).*the sink behind them is the limit"


def measure_pods(run: DirtyRun) -> Figures:
    """1, then 2 or 3 pods by the load, and steady; beyond the sink those that it serves; 1 at the end."""
    with ExitStack() as stack:
        plane = ControlPlane(run.folder / "plane")
        stack.callback(plane.stop)
        plane.start()
        kubelet = Kubelet(plane.kubeconfig, run.folder / "pods")
        kubelet.start()
        stack.callback(kubelet.stop)
        cluster = Cluster(plane.kubeconfig)
        stack.callback(cluster.close)
        scene = Scene(run.bootstrap, run.folder, SETTINGS)
        stack.callback(scene.close)
        kubelet.deleting = lambda pod: scene.record_deletion(pod, cluster.addresses(NAME, ending=True))
        _start_pods(run, cluster, scene)
        scene.steer("kubernetes", f"deployment/{NAME}", plane.kubeconfig)
        return _drive_load(run, cluster, scene)


def _start_pods(run: DirtyRun, cluster: Cluster, scene: Scene) -> None:
    sink = [str(run.folder / "sink"), str(3 * CAPACITY)]
    to = [run.bootstrap, scene.group, scene.topic, str(1.5 * CAPACITY), str(PER_POD), *sink]
    command = [sys.executable, str(WORKER), NAME, *to]
    cluster.make("deployment", NAME, 1, {"env": build_environment(run.folder), "command": command})


def _drive_load(run: DirtyRun, cluster: Cluster, scene: Scene) -> Figures:
    surfaces = Surfaces(run.folder / "sidecar.yaml", run.folder / "sidecar.log", scene.group)

    def follow(consumers: float, least: int, most: int) -> None:
        scene.load(consumers)
        wait(lambda: least <= cluster.replicas("deployment", NAME) <= most, f"{least} to {most} pods")
        wait(lambda: scene.is_settled(cluster.addresses(NAME)), "the pods read")

    follow(0.4, 1, 1)
    follow(2.6, 2, 3)
    sleep(STEADY_S)  # what was written meanwhile is read
    before = scene.count_changes()
    sleep(STEADY_S)
    changes = scene.count_changes() - before
    scene.load(5.0)
    wait(lambda: cluster.replicas("deployment", NAME) >= 3, "useless pods")
    wait(lambda: re.search(CAUSE, surfaces.ask("/groups")), f"the cause: {surfaces.ask('/groups')[-900:]}")
    wait(lambda: cluster.replicas("deployment", NAME) == 2, "the pods that the sink serves")
    run.drive(surfaces, "ScaleUpSuspended")
    scene.load(0)
    wait(lambda: scene.count_unread() == 0, "the backlog is read")
    follow(0.4, 1, 1)
    strangers = [line for line in surfaces.lines if "ForeignMembers" in line]
    undrained = [pod for pod, owned in scene.deleted.items() if owned]
    return {
        "scalings_at_steady_load": changes,
        "false_strangers": len(strangers),
        "undrained_pods": len(undrained),
    }
