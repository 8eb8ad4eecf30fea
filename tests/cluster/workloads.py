"""Workloads of the tests, and requests about them."""

import json
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config
from kubernetes.client.rest import ApiException

NAMESPACE: Final = "default"
POD_NAME: Final = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
POD_IP: Final = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
"""Pass the pod's name and address to a container, by the downward API."""


class Cluster:
    """A client of the control plane with an administrator's rights; answers are plain JSON."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.client = config.new_client_from_config(str(kubeconfig))
        self.core = client.CoreV1Api(self.client)
        self.apps = client.AppsV1Api(self.client)
        self.rbac = client.RbacAuthorizationV1Api(self.client)

    def close(self) -> None:
        self.client.close()

    def make(self, kind: str, name: str, replicas: int, container: dict[str, Any]) -> None:
        """Create a deployment or statefulset with one container."""
        labels = {"app": name}
        spec: dict[str, Any] = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 30,
                    "containers": [{"name": "worker", "image": "none", **container}],
                },
            },
        }
        if kind == "statefulset":
            spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        body = {"metadata": {"name": name}, "spec": spec}
        if kind == "deployment":
            self.apps.create_namespaced_deployment(NAMESPACE, body)
        else:
            self.apps.create_namespaced_stateful_set(NAMESPACE, body)

    def pods(self, name: str, *, ending: bool = False) -> list[str]:
        """Return the names of a workload's pods; with `ending` also those being deleted."""
        answer: Any = self.core.list_namespaced_pod(
            NAMESPACE, label_selector=f"app={name}", _preload_content=False
        )
        found = [pod["metadata"] for pod in json.loads(answer.data)["items"]]
        return sorted(m["name"] for m in found if ending or not m.get("deletionTimestamp"))

    def addresses(self, name: str, *, ending: bool = False) -> dict[str, str]:
        """Return the names of a workload's pods by IP address; with `ending` also those being deleted."""
        answer: Any = self.core.list_namespaced_pod(
            NAMESPACE, label_selector=f"app={name}", _preload_content=False
        )
        found = [(pod["metadata"], pod["status"]) for pod in json.loads(answer.data)["items"]]
        return {
            status.get("podIP", ""): m["name"]
            for m, status in found
            if ending or not m.get("deletionTimestamp")
        }

    def ready(self, name: str) -> list[str]:
        """Return the names of a workload's ready pods."""
        answer: Any = self.core.list_namespaced_pod(
            NAMESPACE, label_selector=f"app={name}", _preload_content=False
        )
        pods = json.loads(answer.data)["items"]
        return sorted(p["metadata"]["name"] for p in pods if _is_ready(p))

    def replicas(self, kind: str, name: str) -> int:
        """Return the requested count."""
        return int(self._scale(kind, "read")(name, NAMESPACE).spec.replicas or 0)

    def scale(self, kind: str, name: str, replicas: int) -> None:
        """Set the count, as a person would."""
        body = {"spec": {"replicas": replicas}}
        self._scale(kind, "patch")(name, NAMESPACE, body, field_manager="a-person")

    def annotate(self, kind: str, name: str, annotations: dict[str, str | None]) -> None:
        """Set annotations of a workload."""
        self._patch_metadata(kind, name, {"annotations": annotations})

    def label(self, kind: str, name: str, labels: dict[str, str | None]) -> None:
        """Set labels of a workload; None removes one."""
        self._patch_metadata(kind, name, {"labels": labels})

    def events(self, name: str, uid: str = "") -> list[tuple[str, str]]:
        """Return reason and message of the events on an object, with `uid` on this one only of its name."""
        selector = f"involvedObject.name={name}" + (f",involvedObject.uid={uid}" if uid else "")
        found = self.core.list_namespaced_event(NAMESPACE, field_selector=selector)
        return [(str(event.reason), str(event.message)) for event in found.items]

    def account(self, name: str, rules: list[dict[str, Any]]) -> str:
        """Create a service account with these rights only; return its token."""
        self.core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": name}})
        self.rbac.create_namespaced_role(NAMESPACE, {"metadata": {"name": name}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}
        self.rbac.create_namespaced_role_binding(NAMESPACE, binding)
        made = self.core.create_namespaced_service_account_token(name, NAMESPACE, {"spec": {}})
        return str(made.status.token)

    def delete(self, kind: str, name: str) -> None:
        """Delete a workload; its pods follow."""
        try:
            getattr(self.apps, f"delete_namespaced_{_written(kind)}")(name, NAMESPACE)
        except ApiException as error:
            if error.status != 404:
                raise

    def _patch_metadata(self, kind: str, name: str, metadata: dict[str, Any]) -> None:
        getattr(self.apps, f"patch_namespaced_{_written(kind)}")(name, NAMESPACE, {"metadata": metadata})

    def _scale(self, kind: str, verb: str) -> Any:
        return getattr(self.apps, f"{verb}_namespaced_{_written(kind)}_scale")


def _written(kind: str) -> str:
    return {"deployment": "deployment", "statefulset": "stateful_set"}[kind]


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")
