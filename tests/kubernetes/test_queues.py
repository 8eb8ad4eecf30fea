"""A queue's workers as pods, from none to several and back, on a real control plane."""

import re
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.control_plane import ControlPlane
from cluster.kubelet import Kubelet
from cluster.workloads import POD_NAME, Cluster
from support.queued import Sidecar, handled_messages, running_tracker, write_messages

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]

MESSAGES: Final = 120
PATIENCE: Final = 90.0
RESTS: Final = re.compile("hold: nothing to read .*, 0 messages waiting")


@pytest.mark.parametrize(("kind", "partitions"), [("kmq", 3), ("share", 1)])
def test_pods_scale_from_zero_to_several_and_back(  # noqa: PLR0913 - fixtures
    kind: str,
    partitions: int,
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    tmp_path: Path,
    *,
    plane: ControlPlane,
    cluster: Cluster,
    kubelet: Kubelet,
    workload: Callable[..., str],
    eventually: Callable[..., None],
) -> None:
    """Idle pods stop, messages start several (of a share group more than partitions), and all are handled."""
    messages = topic(partitions=partitions)
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group}
    with ExitStack() as running:
        if kind == "kmq":
            running.enter_context(running_tracker(messages, config))
        sidecar = Sidecar(tmp_path, bootstrap, group, messages, kind)
        running.enter_context(closing(sidecar))
        name = workload("deployment", 1, env=[POD_NAME], command=sidecar.worker("$(POD_NAME)"))
        sidecar.start(target="kubernetes", workload=f"deployment/{name}", kubeconfig=str(plane.kubeconfig))
        eventually(lambda: cluster.ready(name), PATIENCE)
        eventually(lambda: cluster.pods(name, ending=True) == [], PATIENCE)
        written = write_messages(bootstrap, messages, MESSAGES, partitions)
        eventually(lambda: len(cluster.ready(name)) > 1, PATIENCE)
        eventually(lambda: handled_messages(kubelet.logs(name)) == written, PATIENCE)
        eventually(lambda: cluster.pods(name, ending=True) == [], PATIENCE)
        assert cluster.replicas("deployment", name) == 0
        eventually(lambda: RESTS.search(sidecar.read_log().splitlines()[-1]), PATIENCE)
