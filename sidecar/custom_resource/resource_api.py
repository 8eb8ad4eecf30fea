"""Calls of the API server about ConsumerGroupScaler resources, and their informer.

The informer of the client library lists and watches, resumes, and lists again after 410 Gone. What it
lacks is here: it takes model objects only, it reconnects without a pause, and logs each try with a stack.
"""

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, Final

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.informer import ERROR, SharedInformer

from trimtab.sidecar.custom_resource.names import API_GROUP, API_VERSION, DEFINITION_NAME, KIND, PLURAL
from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource, parse_resource
from trimtab.sidecar.targets.kubernetes.api_client import (
    HTTP_NOT_FOUND,
    build_event,
    call_api,
    connect_client,
)
from trimtab.sidecar.targets.kubernetes.scaling_events import ScalingEvent
from trimtab.sidecar.targets.kubernetes.workload import FIELD_MANAGER

log = logging.getLogger("trimtab.sidecar")

RELIST_INTERVAL_S: Final = 300.0  # a watch ends by then, so that one whose connection hangs does, too
WATCH_SLACK_S: Final = 15.0  # for the server to end the watch itself
LIST_TIMEOUT_S: Final = 30.0
MAX_BACKOFF_S: Final = 30.0
HTTP_ERROR: Final = 400
HTTP_FORBIDDEN: Final = 403
HTTP_GONE: Final = 410
_SharedInformer: Final[Any] = SharedInformer  # the package has no type hints
_MERGE_PATCH: Final = "application/merge-patch+json"


class ScalerResourceApi:
    """Connection for the resources of one namespace. Raises SidecarSettingError without a server address."""

    def __init__(self, namespace: str, kubeconfig: Path | None, timeout: float) -> None:
        self.namespace = namespace
        self._timeout = timeout  # seconds per call
        self._client = connect_client(kubeconfig)
        self._core: Any = client.CoreV1Api(self._client)
        self._objects: Any = client.CustomObjectsApi(self._client)
        self._place = {"group": API_GROUP, "version": API_VERSION, "namespace": namespace, "plural": PLURAL}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request_resources(self, **options: Any) -> Any:
        """Return the response to a list or watch, unread. Raises ApiException and urllib3's errors."""
        timeout = (self._timeout, LIST_TIMEOUT_S)
        if options.get("watch"):
            timeout = (self._timeout, RELIST_INTERVAL_S + WATCH_SLACK_S)
        response = self._objects.list_namespaced_custom_object(
            **self._place, **{**options, "_preload_content": False, "_request_timeout": timeout}
        )
        if response.status >= HTTP_ERROR:
            raise ApiException(status=response.status, reason=response.reason)
        return response

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
        call_api(request, f"patch {PLURAL}/status in namespace {self.namespace}", self._timeout)

    def create_event(self, resource: ScalerResource, event: ScalingEvent) -> None:
        """Create an event on the resource. Raises as `write_status` does."""
        involved = {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": KIND,
            "name": resource.name,
            "namespace": resource.namespace,
            "uid": resource.uid,
        }
        body = build_event(
            involved, event.reason, event.message, event.timestamp, is_warning=event.is_warning
        )
        request = partial(self._core.create_namespaced_event, namespace=self.namespace, body=body)
        call_api(request, f"create events in namespace {self.namespace}", self._timeout)


class ResourceInformer:
    """The resources of a namespace, kept current by the client library's informer."""

    def __init__(
        self, request: Callable[..., Any], namespace: str, wait: Callable[[float], bool] | None = None
    ) -> None:
        self._request = request
        self._namespace = namespace
        self._stopped = Event()
        self._wait = wait or self._stopped.wait
        self._failures = 0
        self._last_error = ""
        self._is_listed = False
        # it logs each try of an outage with a stack; `_log_error` logs an error once
        logging.getLogger("kubernetes.informer.informer").setLevel(logging.CRITICAL)
        self._informer = _SharedInformer(self._list, resync_period=RELIST_INTERVAL_S)
        self._informer.add_event_handler(ERROR, self._log_error)

    def start(self) -> None:
        """Start listing and watching in a thread."""
        self._informer.start()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._informer.stop()

    def list_resources(self) -> tuple[ScalerResource, ...] | None:
        """Return the resources as last known; None before the first list has been read."""
        if not self._is_listed:
            return None
        return tuple(parse_resource(body) for body in self._informer.cache.list())

    def _list(self, **options: Any) -> Any:
        """List, or watch with `watch=True`, for the informer.

        :rtype: object
        """
        is_watch = bool(options.get("watch"))
        # a watch begins once the cache holds the list
        self._is_listed = self._is_listed or is_watch
        try:
            response = self._request(**options)
            made = response if is_watch else _parse_list(response.data)
        except Exception as error:
            if isinstance(error, ApiException) and error.status == HTTP_GONE:
                raise
            self._failures += 1
            self._wait(min(MAX_BACKOFF_S, 2.0 ** min(self._failures, 10) / 2))
            raise
        self._failures, self._last_error = 0, ""
        return made

    def _log_error(self, error: Exception) -> None:
        text = self._explain_error(error)
        if text != self._last_error and not self._stopped.is_set():
            log.warning("%s; groups of resources known before are managed as they were", text)
        self._last_error = text

    def _explain_error(self, error: Exception) -> str:
        status = error.status if isinstance(error, ApiException) else None
        if status == HTTP_NOT_FOUND:
            return f"{DEFINITION_NAME} is not defined in this cluster; apply its definition"
        if status == HTTP_FORBIDDEN:
            verbs = f"list and watch {PLURAL} in namespace {self._namespace}"
            return f"not allowed to {verbs}; add these verbs to the sidecar's role"
        return f"{PLURAL} cannot be watched now: {type(error).__name__} {str(error).splitlines()[0][:200]}"


def _parse_list(data: bytes) -> Any:
    # the informer reads attributes, as of the library's models
    body = json.loads(data)
    metadata = SimpleNamespace(resource_version=body["metadata"]["resourceVersion"])
    return SimpleNamespace(items=body["items"], metadata=metadata)
