"""The custom resource on a real API server: a resource is a group that the sidecar scales."""

from collections.abc import Callable
from typing import Any, Final, Protocol

import pytest
from kubernetes.client.exceptions import ApiException

from cluster.scaler_resources import ManyGroupsSidecar, ScalerResourceClient
from cluster.workloads import Cluster
from trimtab.common.errors import SettingError
from trimtab.sidecar.custom_resource.names import to_setting_values
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def test_a_resource_is_scaled_and_a_bad_one_touches_no_other(
    scalers: ScalerResourceClient,
    cluster: Cluster,
    workload: Callable[..., str],
    sidecar: ManyGroupsSidecar,
    eventually: Eventually,
) -> None:
    """Replicas follow the load, status and events tell why; a deleted resource's replicas stay."""
    name, group = workload("deployment", 1), sidecar.group

    def is_scaled() -> bool:
        sidecar.produce()
        return cluster.replicas("deployment", name) == 2

    with sidecar.running():
        own: dict[str, Any] = {"topics": [sidecar.topic], "capacity": "10 kB/s", "max": 2}
        scalers.apply("orders", group=group, workload=f"deployment/{name}", **own)
        scalers.apply("bad", group=f"{group}-bad", capacity="1 MB/s", heuristic="no-such")
        scalers.apply("twin", group=group, capacity="1 MB/s")
        eventually(is_scaled, 60)
        eventually(lambda: scalers.status("orders").get("plannedReplicas") == 2)
        check_managed(scalers, group)
        eventually(lambda: "ScaledUp" in dict(scalers.events("orders")))
        eventually(lambda: "InvalidSettings" in dict(scalers.events("bad")))
        check_refused(scalers)
        assert scalers.reason("twin") == "GroupConflict"

        scalers.patch("bad", heuristic="steady")
        eventually(lambda: scalers.reason("bad") == "AdviceOnly")
        assert scalers.status("bad")["observedGeneration"] == 2
        scalers.delete("orders")
        eventually(lambda: scalers.reason("twin") == "AdviceOnly")  # the next oldest
        assert cluster.replicas("deployment", name) == 2


def check_managed(scalers: ScalerResourceClient, group: str) -> None:
    status, shown = scalers.status("orders"), scalers.show("orders")
    assert status["observedGeneration"] == 1
    assert status["load"]["required"].endswith("B/s")
    assert status["lastScaling"]["action"] == "scale-up"
    assert (shown["Group"], shown["Desired"]) == (group, status["desiredReplicas"])
    assert (shown["Ready"], shown["Reason"]) == ("True", "Managed")


def check_refused(scalers: ScalerResourceClient) -> None:
    assert "no-such" in scalers.condition("bad", "Ready")["message"]
    assert scalers.condition("bad", "Ready")["status"] == "False"
    assert scalers.condition("bad", "Degraded")["status"] == "True"


REFUSED: Final[list[dict[str, Any]]] = [
    {"min": 5, "max": 4},
    {"min": -1},
    {"max": 0},
    {"min": 0},
    {"headroom": 0},
    {"headroom": 1.5},
    {"learnedCapacityMin": 0},
    {"learnedCapacityMax": 0.5},
    {"target": "kubernetes"},
    {"target": "none", "workload": "deployment/a"},
    {"target": "process", "workload": "deployment/a"},
    {"target": "keda"},
    {"workload": "pod/a", "target": "kubernetes"},
    {"capacity": "fast"},
    {"window": "3 weeks"},
    {"offsetReset": "middle"},
    {"heuristic": "mbf", "moveCost": "15 s"},
    {"freshnessSlo": "30 s"},
    {"freshnessSlo": "p99-freshness 40 s", "catchUpTime": "10 s"},
    {"fallback": "current", "fallbackReplicas": 2},
    {"fallback": "static", "fallbackReplicas": 7, "max": 4},
    {"queue": "kmq", "topics": ["a", "b"]},
    {"queue": "share", "topics": ["a"], "queueMarkers": "m"},
    {"queue": "share", "topics": ["a"], "learnCapacity": True},
    {"queue": "share", "topics": ["a"], "lead": True},
    {"lead": True, "protocol": "consumer"},
    {"lead": False, "takeLead": True},
    {"lead": True, "leadAssignors": []},
    {"coPartitioned": [["a"]]},
    {"tolerance": {"scaleUp": 1.0}},
    {"tolerance": {"scaleDown": -0.1, "scaleUp": 0.1}},
    {"scaleUpPolicies": {"policies": []}},
    {"scaleDownPolicies": {"policies": [{"type": "pods", "value": 0, "period": "1 min"}]}},
    {"scaleDownPolicies": {"policies": [{"type": "nodes", "value": 1, "period": "1 min"}]}},
    {"schedule": [{"start": "0 8 * * *", "end": "0 8 * * *", "min": 2}]},
    {"schedule": [{"start": "0 8 * * *", "end": "0 9 * * *"}]},
    {"schedule": [{"start": "0 8 * * *", "end": "0 9 * * *", "min": 3, "max": 2}]},
    {"maximum": 3},
    {"workerCommand": ["rm"]},
    {"bootstrap": "localhost:1"},
]
VALID: Final[list[dict[str, Any]]] = [
    {"min": 0, "topics": ["a"], "max": 1},
    {"workload": "statefulset/a", "target": "keda", "headroom": 1},
    {"fallback": "static", "fallbackReplicas": 2, "tolerance": {"scaleUp": 0.05, "scaleDown": 0.2}},
    {"queue": "kmq", "topics": ["a"], "queueMarkers": "m"},
    {"lead": True, "leadAssignors": ["range"], "leadSessionTimeout": "30s"},
    {"coPartitioned": [["a", "b"]], "freshnessSlo": "p99-freshness 40 s", "capacity": 2300000},
    {
        "scaleUpPolicies": {
            "select": "min",
            "policies": [{"type": "percent", "value": 100, "period": "1 min"}],
        },
        "scaleDownPolicies": {"select": "disabled"},
        "schedule": [{"start": "0 8 * * *", "end": "0 9 * * *", "timezone": "Europe/Rome", "min": 4}],
    },
]


def test_server_and_loader_agree(scalers: ScalerResourceClient) -> None:
    """What the API server refuses, the loader refuses, too; both accept what is valid."""
    for number, fields in enumerate(REFUSED):
        spec = {"group": "g", "capacity": "1 MB/s", **fields}
        if not fields.keys() & {"workerCommand", "bootstrap"}:  # settings of the file, not of a resource
            with pytest.raises(SettingError):
                load_settings(None, {**to_setting_values(spec), "bootstrap": "b:1"})
        assert scalers.is_refused(f"refused-{number}", **spec), fields
    for number, fields in enumerate(VALID):
        spec = {"group": "g", "capacity": "1 MB/s", **fields}
        load_settings(None, {**to_setting_values(spec), "bootstrap": "b:1"})
        scalers.apply(f"valid-{number}", dry_run=True, **spec)
    with pytest.raises(ApiException, match="group"):
        scalers.apply("nameless", dry_run=True, capacity="1 MB/s")
