"""An outage of the real API server while resources steer groups."""

import json
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from cluster.control_plane import ControlPlane
from cluster.scaler_resources import ManyGroupsSidecar, ScalerResourceClient
from cluster.workloads import Cluster
from trimtab.sidecar.groups.group_manager import GroupManager

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def test_an_outage_forgets_no_group_and_scales_nothing_down(
    scalers: ScalerResourceClient,
    cluster: Cluster,
    plane: ControlPlane,
    workload: Callable[..., str],
    sidecar: ManyGroupsSidecar,
    eventually: Eventually,
) -> None:
    """Groups are managed as known before; afterwards the status is current, and changes are taken up."""
    name, group = workload("deployment", 1), sidecar.group
    advised = f"{group}-advised"
    own: dict[str, Any] = {"topics": [sidecar.topic], "capacity": "10 kB/s", "max": 2}

    def is_scaled() -> bool:
        sidecar.produce()
        return cluster.replicas("deployment", name) == 2

    with sidecar.running() as manager:
        scalers.apply("orders", group=group, workload=f"deployment/{name}", **own)
        scalers.apply("advised", group=advised, capacity="1 MB/s")
        eventually(is_scaled, 60)
        eventually(lambda: scalers.reason("advised") == "AdviceOnly", 60)
        plane.stop_api()
        try:
            eventually(lambda: "did not answer" in str(describe(manager)[group]["conditions"]), 60)
            begun = manager.ended_round
            eventually(lambda: manager.ended_round >= begun + 4, 60)
            groups = describe(manager)
            assert {name: one["state"] for name, one in groups.items()} == dict.fromkeys(groups, "managed")
            assert groups.keys() == {group, advised}
            assert not groups[advised]["conditions"]
        finally:
            plane.start_api()
        assert cluster.replicas("deployment", name) == 2
        scalers.patch("advised", capacity="2 MB/s")
        scalers.patch("orders", min=2)
        eventually(lambda: scalers.status("advised").get("observedGeneration") == 2, 90)
        eventually(lambda: scalers.status("orders").get("observedGeneration") == 2, 90)
        eventually(lambda: scalers.reason("orders") == "Managed", 60)
        assert cluster.replicas("deployment", name) == 2


def describe(manager: GroupManager) -> dict[str, dict[str, Any]]:
    """Return what `/groups` tells of each group."""
    _, _, body = manager._parts.web_server.handle_path("/groups")
    return {one["group"]: one for one in json.loads(body)["groups"]}
