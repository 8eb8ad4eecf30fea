"""Calls of the API server about the objects that name groups: resources and labelled workloads."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from kubernetes import client

from trimtab.sidecar.custom_resource.names import API_GROUP, API_VERSION, DEFINITION_NAME, KIND, PLURAL
from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource
from trimtab.sidecar.targets.kubernetes.api_client import (
    build_event,
    call_api,
    connect_client,
    is_access_allowed,
)
from trimtab.sidecar.targets.kubernetes.object_informer import WatchedObjects, request_objects
from trimtab.sidecar.targets.kubernetes.scaling_events import ScalingEvent
from trimtab.sidecar.targets.kubernetes.workload import FIELD_MANAGER

_MERGE_PATCH: Final = "application/merge-patch+json"
_AS_METADATA: Final = "application/json;as={};g=meta.k8s.io;v=v1"  # leaves out the pods' template
_WORKLOAD_METHODS: Final = {"Deployment": "deployment", "StatefulSet": "stateful_set"}
MISSING_DEFINITION: Final = f"{DEFINITION_NAME} is not defined in this cluster; apply its definition"


class ScalerResourceApi:
    """Connection for the objects of one namespace. Raises SidecarSettingError without a server address."""

    def __init__(self, namespace: str, kubeconfig: Path | None, timeout: float) -> None:
        self.namespace = namespace
        self._timeout = timeout  # seconds per call
        self._client = connect_client(kubeconfig)
        self._core: Any = client.CoreV1Api(self._client)
        self._apps: Any = client.AppsV1Api(self._client)
        self._objects: Any = client.CustomObjectsApi(self._client)
        self._place = {"group": API_GROUP, "version": API_VERSION, "namespace": namespace, "plural": PLURAL}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def describe_objects(self, kind: str) -> WatchedObjects:
        """Return how messages name the objects of a kind."""
        if kind == KIND:
            return WatchedObjects(PLURAL, self.namespace, MISSING_DEFINITION)
        return WatchedObjects(f"{kind.lower()}s", self.namespace)

    def build_request(self, kind: str, label_selector: str = "") -> Callable[..., Any]:
        """Return the request that lists or watches objects of a kind; workloads without their spec."""
        if kind == KIND:
            method = partial(self._objects.list_namespaced_custom_object, **self._place)
            return partial(request_objects, method, self._timeout)
        listed = getattr(self._apps, f"list_namespaced_{_WORKLOAD_METHODS[kind]}")
        method = partial(listed, self.namespace, label_selector=label_selector)
        return partial(_request_metadata, method, self._timeout)

    def list_objects(self, kind: str, label_selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind. Raises as `write_status` does."""
        request = self.build_request(kind, label_selector)

        def send(**_options: object) -> Any:
            return request()

        plural = self.describe_objects(kind).plural
        # the API server writes null for an empty list of metadata
        items: list[dict[str, Any]] | None = self._call(send, f"list {plural}")["items"]
        return items or []

    def write_status(self, resource: ScalerResource, status: Mapping[str, Any]) -> None:
        """Replace the fields of the status; None removes one.

        Raises ResourceConflictError, KubernetesUnavailableError, KubernetesRejectedError.
        """
        request = partial(
            self._objects.patch_namespaced_custom_object_status,
            **self._place,
            name=resource.name,
            body={"status": dict(status)},
            field_manager=FIELD_MANAGER,
            _content_type=_MERGE_PATCH,
        )
        self._call(request, f"patch {PLURAL}/status")

    def create_event(self, resource: ScalerResource, event: ScalingEvent) -> None:
        """Create an event on the object. Raises as `write_status` does."""
        involved = {
            "apiVersion": "apps/v1" if resource.is_workload else f"{API_GROUP}/{API_VERSION}",
            "kind": resource.kind,
            "name": resource.name,
            "namespace": resource.namespace,
            "uid": resource.uid,
        }
        body = build_event(
            involved, event.reason, event.message, event.timestamp, is_warning=event.is_warning
        )
        request = partial(self._core.create_namespaced_event, namespace=self.namespace, body=body)
        self._call(request, "create events")

    def is_allowed(self, verb: str, group: str, resource: str) -> bool:
        """Return whether this account may do `verb`; `resource` is like "deployments". Raises as above."""
        return is_access_allowed(self._client, self.namespace, (group, resource, verb, ""), self._timeout)

    def _call(self, method: Callable[..., Any], what: str) -> dict[str, Any]:
        return call_api(method, f"{what} in namespace {self.namespace}", self._timeout)


def _request_metadata(method: Callable[..., Any], timeout: float, **options: Any) -> Any:
    form = "PartialObjectMetadata" if options.get("watch") else "PartialObjectMetadataList"
    headers = {"Accept": _AS_METADATA.format(form)}
    return request_objects(method, timeout, _headers=headers, **options)
