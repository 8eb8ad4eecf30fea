"""The custom resource on a real API server: a resource is a group that the sidecar scales."""

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Protocol

import pytest
import yaml
from confluent_kafka import Producer
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from cluster.control_plane import ControlPlane
from cluster.definitions import define
from cluster.manifests import DEPLOY
from cluster.workloads import NAMESPACE, Cluster
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError
from trimtab.sidecar.custom_resource.names import API_GROUP, API_VERSION, KIND, PLURAL, to_setting_values
from trimtab.sidecar.groups.bootstrap import open_group_manager
from trimtab.sidecar.settings.group_list import GroupListSettings, load_settings_of_groups
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]

DEFINITION: Final = DEPLOY / "kustomize" / "overlays" / "custom-resources" / "definition.yaml"
PLACE: Final = (API_GROUP, API_VERSION, NAMESPACE, PLURAL)
PARTITIONS: Final = 4


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Scalers:
    """The resources of a control plane, as plain JSON."""

    def __init__(self, cluster: Cluster) -> None:
        self._api: Any = client.CustomObjectsApi(cluster.client)

    def apply(self, name: str, *, dry_run: bool = False, **spec: Any) -> None:
        """Create a resource. Raises ApiException with the server's reasons."""
        body = {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": KIND,
            "metadata": {"name": name},
            "spec": spec,
        }
        options = {"dry_run": "All"} if dry_run else {}
        self._api.create_namespaced_custom_object(*PLACE, body, field_validation="Strict", **options)

    def is_refused(self, name: str, **spec: Any) -> bool:
        """Return whether the API server finds the spec invalid."""
        try:
            self.apply(name, dry_run=True, **spec)
        except ApiException as error:
            return error.status in (400, 422)  # an unknown field, an invalid value
        return False

    def patch(self, name: str, **spec: Any) -> None:
        body = {"spec": spec}
        merge = "application/merge-patch+json"
        self._api.patch_namespaced_custom_object(*PLACE, name, body, _content_type=merge)

    def delete(self, name: str) -> None:
        self._api.delete_namespaced_custom_object(*PLACE, name)

    def delete_all(self) -> None:
        self._api.delete_collection_namespaced_custom_object(*PLACE)

    def get(self, name: str) -> dict[str, Any]:
        body: dict[str, Any] = self._api.get_namespaced_custom_object(*PLACE, name)
        return body

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.get(name).get("status") or {})

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        found = (one for one in self.status(name).get("conditions", ()) if one["type"] == kind)
        return next(found, {})

    def reason(self, name: str) -> str:
        return str(self.condition(name, "Ready").get("reason", ""))

    def show(self, name: str) -> dict[str, Any]:
        """Return the cells that `kubectl get -o wide` shows, by column."""
        table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        answer = self._api.get_namespaced_custom_object(*PLACE, name, _headers=table, _preload_content=False)
        body = json.loads(answer.data)
        names = [column["name"] for column in body["columnDefinitions"]]
        return dict(zip(names, body["rows"][0]["cells"], strict=True))


@pytest.fixture
def scalers(cluster: Cluster) -> Iterator[Scalers]:
    define(cluster, [DEFINITION])
    made = Scalers(cluster)
    yield made
    made.delete_all()


class Sidecar:
    """The sidecar of many groups, in a thread; its group has the name of the test's."""

    def __init__(self, bootstrap: str, group: str, topic: str, kubeconfig: Path) -> None:
        self.group, self.topic = group, topic
        self._producer = Producer({"bootstrap.servers": bootstrap})
        given = {
            "bootstrap": bootstrap,
            "interval": "250 ms",
            "window": "1 s",
            "timeout": "5 s",
            "kubeconfig": str(kubeconfig),
            "custom-resources": True,
            "watch-namespace": NAMESPACE,
            "offset-reset": "earliest",
            **{f"{name}-topic": f"{group}.{name}" for name in ("plan", "write-rate", "decision")},
        }
        settings = load_settings_of_groups(None, given)
        assert isinstance(settings, GroupListSettings)
        self._settings = settings

    @contextmanager
    def running(self) -> Generator[None]:
        stop = Event()
        with open_group_manager(self._settings, SystemClock()) as manager:
            thread = Thread(target=manager.run, args=(stop.wait,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                stop.set()
                thread.join(30)

    def produce(self) -> None:
        for number in range(PARTITIONS):
            self._producer.produce(self.topic, b"x" * 1000, partition=number)
        self._producer.flush(30)


@pytest.fixture
def kubeconfig(cluster: Cluster, plane: ControlPlane, tmp_path: Path) -> Path:
    """Access with the rights of the overlay's role only."""
    rules = yaml.safe_load(DEFINITION.with_name("role.yaml").read_text())["rules"]
    file = tmp_path / "kubeconfig"
    file.write_text(plane.config_for(cluster.account("sidecar-of-resources", rules)))
    return file


@pytest.fixture
def sidecar(bootstrap: str, group: str, topic: Callable[..., str], kubeconfig: Path) -> Sidecar:
    return Sidecar(bootstrap, group, topic(partitions=PARTITIONS), kubeconfig)


def test_a_resource_is_scaled_and_a_bad_one_touches_no_other(
    scalers: Scalers, cluster: Cluster, workload: Callable[..., str], sidecar: Sidecar, eventually: Eventually
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
        eventually(lambda: "ScaledUp" in dict(cluster.events("orders")))
        eventually(lambda: "InvalidSettings" in dict(cluster.events("bad")))
        check_refused(scalers)
        assert scalers.reason("twin") == "GroupConflict"

        scalers.patch("bad", heuristic="steady")
        eventually(lambda: scalers.reason("bad") == "AdviceOnly")
        assert scalers.status("bad")["observedGeneration"] == 2
        scalers.delete("orders")
        eventually(lambda: scalers.reason("twin") == "AdviceOnly")  # the next oldest
        assert cluster.replicas("deployment", name) == 2


def check_managed(scalers: Scalers, group: str) -> None:
    status, shown = scalers.status("orders"), scalers.show("orders")
    assert status["observedGeneration"] == 1
    assert status["load"]["required"].endswith("B/s")
    assert status["lastScaling"]["action"] == "scale-up"
    assert (shown["Group"], shown["Desired"]) == (group, status["desiredReplicas"])
    assert (shown["Ready"], shown["Reason"]) == ("True", "Managed")


def check_refused(scalers: Scalers) -> None:
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
    {"queue": "share", "topics": ["a"], "certify": True},
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


def test_server_and_loader_agree(scalers: Scalers) -> None:
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
