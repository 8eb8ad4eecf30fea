"""ConsumerGroupScaler resources on the tests' API server, and a sidecar of many groups."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import Producer
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from cluster.manifests import DEPLOY
from cluster.workloads import NAMESPACE, Cluster
from trimtab.common.clock import SystemClock
from trimtab.sidecar.custom_resource.names import API_GROUP, API_VERSION, KIND, PLURAL
from trimtab.sidecar.groups.bootstrap import open_group_manager
from trimtab.sidecar.groups.group_manager import GroupManager
from trimtab.sidecar.settings.group_list import GroupListSettings, load_settings_of_groups

DEFINITION: Final = DEPLOY / "kustomize" / "overlays" / "custom-resources" / "definition.yaml"
PLACE: Final = (API_GROUP, API_VERSION, NAMESPACE, PLURAL)
PARTITIONS: Final = 4


class ScalerResourceClient:
    """Changes and reads the resources of a control plane, as plain JSON."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
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

    def events(self, name: str) -> list[tuple[str, str]]:
        """Return reason and message of a resource's events, without those of an earlier one of its name."""
        uid = self.get(name)["metadata"]["uid"]
        return self._cluster.events(name, uid)

    def reason(self, name: str) -> str:
        return str(self.condition(name, "Ready").get("reason", ""))

    def show(self, name: str) -> dict[str, Any]:
        """Return the cells that `kubectl get -o wide` shows, by column."""
        table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        answer = self._api.get_namespaced_custom_object(*PLACE, name, _headers=table, _preload_content=False)
        body = json.loads(answer.data)
        names = [column["name"] for column in body["columnDefinitions"]]
        return dict(zip(names, body["rows"][0]["cells"], strict=True))


class ManyGroupsSidecar:
    """The sidecar of many groups, in a thread; its group has the name of the test's."""

    def __init__(self, bootstrap: str, group: str, topic: str, kubeconfig: Path, **more: Any) -> None:
        self.group, self.topic = group, topic
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self.given = {
            "bootstrap": bootstrap,
            "interval": "250 ms",
            "window": "1 s",
            "timeout": "5 s",
            "kubeconfig": str(kubeconfig),
            "watch-namespace": NAMESPACE,
            "offset-reset": "earliest",
            **{f"{name}-topic": f"{group}.{name}" for name in ("plan", "write-rate", "decision")},
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        settings = load_settings_of_groups(None, self.given)
        assert isinstance(settings, GroupListSettings)
        self.settings = settings

    @contextmanager
    def running(self) -> Generator[GroupManager]:
        stop = Event()
        with open_group_manager(self.settings, SystemClock()) as manager:
            thread = Thread(target=manager.run, args=(stop.wait,), daemon=True)
            thread.start()
            try:
                yield manager
            finally:
                stop.set()
                thread.join(30)

    def produce(self) -> None:
        for number in range(PARTITIONS):
            self._producer.produce(self.topic, b"x" * 1000, partition=number)
        self._producer.flush(30)
