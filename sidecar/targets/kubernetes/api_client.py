"""Client for the few Kubernetes API calls of the sidecar, with plain values and typed errors.

Status 409 raises ResourceConflictError. An unreachable or overloaded server raises
KubernetesUnavailableError. A forbidden, missing or invalid request raises KubernetesRejectedError
with verb and resource.
"""

import hashlib
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from trimtab.sidecar.errors import KubernetesRejectedError, KubernetesUnavailableError, SidecarSettingError
from trimtab.sidecar.targets.kubernetes.rival_autoscalers import find_rival_autoscalers
from trimtab.sidecar.targets.kubernetes.workload import (
    FIELD_MANAGER,
    WorkloadKind,
    WorkloadSnapshot,
    get_controller_uid,
    parse_pods,
    parse_workload,
)

_KUBE_CONFIG: Final[Any] = config  # the package has no type hints
SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HTTP_CONFLICT: Final = 409
HTTP_NOT_FOUND: Final = 404
HTTP_TOO_MANY_REQUESTS: Final = 429
HTTP_SERVER_ERROR: Final = 500
MAX_EVENT_MESSAGE_CHARS: Final = 1000  # the API accepts 1,024 characters

AccessRight: TypeAlias = tuple[str, str, str, str]
"""API group, resource such as "pods" or "deployments/scale", verb, and object name; "" for any object."""


class ResourceConflictError(Exception):
    """The resource was changed concurrently (409), or deleted (404 on a pod or lease)."""


@dataclass(frozen=True, slots=True)
class ScaleTargetRef:
    """The scaled workload and its cluster."""

    kind: WorkloadKind
    name: str
    namespace: str
    kubeconfig: Path | None = None  # None inside a pod

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def lease_name(self) -> str:
        """Name of the Lease for leader election."""
        return f"{FIELD_MANAGER}-{self.kind}-{self.name}"


class KubernetesApi:
    """Connection to one API server. Raises SidecarSettingError if no server address is configured."""

    def __init__(self, scale_target: ScaleTargetRef, timeout: float) -> None:
        self.scale_target = scale_target
        self._timeout = timeout  # seconds per call; no retries: callers decide
        self._client = connect_client(scale_target.kubeconfig)
        self._core = client.CoreV1Api(self._client)
        self._apps = client.AppsV1Api(self._client)
        self._leases = client.CoordinationV1Api(self._client)
        self._autoscaling = client.AutoscalingV2Api(self._client)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @property
    def cluster_id(self) -> str:
        """Cluster identifier: a digest of its CA certificate, else the server address."""
        # inside pods the server address is often the same in two clusters
        authority = self._client.configuration.ssl_ca_cert
        if not authority or not Path(authority).is_file():
            return str(self._client.configuration.host)
        return hashlib.sha256(Path(authority).read_bytes().strip()).hexdigest()[:16]

    def fetch_snapshot(self) -> WorkloadSnapshot:
        """Return the workload and its pods."""
        # no resourceVersion: lists come from etcd, not from a cache, and include all past writes
        kind = self.scale_target.kind
        body = self._call_workload_api("get", "", self._get_workload_method("read"))
        labels = body["spec"]["selector"].get("matchLabels") or {}
        selector = {"label_selector": ",".join(f"{k}={v}" for k, v in sorted(labels.items()))}
        owners, versions = [body["metadata"]["uid"]], 1
        if kind is WorkloadKind.DEPLOYMENT:
            sets = self._list_resources("replicasets", self._apps.list_namespaced_replica_set, selector)
            ours = [s for s in sets if get_controller_uid(s) == body["metadata"]["uid"]]
            owners = [s["metadata"]["uid"] for s in ours]
            versions = sum(1 for s in ours if s["spec"].get("replicas"))  # 2 during a rollout
        pods = self._list_resources("pods", self._core.list_namespaced_pod, selector)
        workload = parse_workload(kind, body, active_versions=versions)
        return WorkloadSnapshot(workload, parse_pods(pods, owners))

    def find_rivals(self, *, keda: bool) -> tuple[str, ...]:
        """Return what else scales the workload (`rival_autoscalers`)."""
        method: Any = self._autoscaling.list_namespaced_horizontal_pod_autoscaler
        items = self._list_resources("horizontalpodautoscalers", method, {})
        target = self.scale_target
        return find_rival_autoscalers(items, f"{target.kind}/{target.name}", keda=keda)

    def set_replicas(self, replicas: int, resource_version: str) -> None:
        """Set the replica count if the workload still has this resource version."""
        target = self.scale_target
        metadata = {"name": target.name, "namespace": target.namespace, "resourceVersion": resource_version}
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": metadata,
            "spec": {"replicas": replicas},
        }
        method = self._get_workload_method("replace", "_scale")  # no right on the workload itself
        self._call_workload_api("update", "/scale", method, body=body, field_manager=FIELD_MANAGER)

    def annotate_pod(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        """Set pod annotations; None removes one. Raises ResourceConflictError for a gone pod."""
        body = {"metadata": {"annotations": dict(annotations)}}
        try:
            self._call_api("patch", "pods", self._core.patch_namespaced_pod, name=pod, body=body)
        except KubernetesRejectedError as error:
            if error.status == HTTP_NOT_FOUND:
                raise ResourceConflictError from error
            raise

    def create_event(
        self, uid: str, reason: str, message: str, timestamp: str, *, is_warning: bool = False
    ) -> None:
        """Create an event on the workload; `timestamp` has the format of the API."""
        kinds = {WorkloadKind.DEPLOYMENT: "Deployment", WorkloadKind.STATEFULSET: "StatefulSet"}
        target = self.scale_target
        involved = {
            "apiVersion": "apps/v1",
            "kind": kinds[target.kind],
            "name": target.name,
            "namespace": target.namespace,
            "uid": uid,
        }
        body = build_event(involved, reason, message, timestamp, is_warning=is_warning)
        self._call_api("create", "events", self._core.create_namespaced_event, body=body)

    def read_lease(self, name: str) -> dict[str, Any] | None:
        """Return a lease, or None if it does not exist."""
        try:
            return self._call_api("get", "leases", self._leases.read_namespaced_lease, name=name)
        except KubernetesRejectedError as error:
            if error.status == HTTP_NOT_FOUND:
                return None
            raise

    def create_lease(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a lease. Raises ResourceConflictError if it exists."""
        return self._call_api("create", "leases", self._leases.create_namespaced_lease, body=body)

    def replace_lease(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a lease. Raises ResourceConflictError if its resource version changed."""
        method = self._leases.replace_namespaced_lease
        return self._call_api("update", "leases", method, name=name, body=body)

    def is_allowed(self, verb: str, group: str, resource: str, name: str = "") -> bool:
        """Return whether the role grants `verb` on a resource such as "pods" or "deployments/scale".

        A `name` restricts the check to that object.
        """
        right = (group, resource, verb, name)
        return is_access_allowed(self._client, self.scale_target.namespace, right, self._timeout)

    def _get_workload_method(self, verb: str, tail: str = "") -> Callable[..., Any]:
        noun = "deployment" if self.scale_target.kind is WorkloadKind.DEPLOYMENT else "stateful_set"
        method: Callable[..., Any] = getattr(self._apps, f"{verb}_namespaced_{noun}{tail}")
        return method

    def _call_workload_api(
        self, verb: str, part: str, method: Callable[..., Any], **named: Any
    ) -> dict[str, Any]:
        target = self.scale_target
        try:
            return self._call_api(verb, f"{target.kind}s{part}", method, target.name, **named)
        except KubernetesRejectedError as error:
            if error.status != HTTP_NOT_FOUND:
                raise
            raise KubernetesRejectedError(
                f"{target} is not in namespace {target.namespace}; "
                "create it, or correct the settings workload and namespace",
                HTTP_NOT_FOUND,
            ) from error

    def _list_resources(
        self, resource: str, method: Callable[..., Any], selector: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._call_api("list", resource, method, **selector)["items"]
        return items

    def _call_api(
        self, verb: str, resource: str, method: Callable[..., Any], *args: Any, **named: Any
    ) -> dict[str, Any]:
        namespace = self.scale_target.namespace
        what = f"{verb} {resource} in namespace {namespace}"
        return call_api(partial(method, *args, namespace=namespace, **named), what, self._timeout)


def call_api(method: Callable[..., Any], what: str, timeout: float) -> dict[str, Any]:
    """Return the answer to one request; `what` names it in errors, `timeout` is in seconds.

    Raises ResourceConflictError, KubernetesUnavailableError, KubernetesRejectedError.
    """
    try:
        # Raw JSON: the client would build model objects for every field of every pod.
        response = method(_request_timeout=timeout, _preload_content=False)
        body: dict[str, Any] = json.loads(response.data)
    except ApiException as error:
        raise _translate_api_error(error, what) from error
    except (HTTPError, OSError, ssl.SSLError, ValueError) as error:
        raise KubernetesUnavailableError(
            f"the Kubernetes API server did not answer to {what}: {_shorten_error(error)}"
        ) from error
    return body


def is_access_allowed(connection: Any, namespace: str, right: AccessRight, timeout: float) -> bool:
    """Return whether the account of a connection has a right. Raises as `call_api` does."""
    group, resource, verb, name = right
    whole, _, part = resource.partition("/")
    access = {"verb": verb, "group": group, "resource": whole, "subresource": part, "name": name}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",  # every account may create one
        "spec": {"resourceAttributes": {**access, "namespace": namespace}},
    }
    reviews: Any = client.AuthorizationV1Api(connection)
    request = partial(reviews.create_self_subject_access_review, body)
    response = call_api(request, "create selfsubjectaccessreviews", timeout)
    return bool(response["status"].get("allowed"))


def build_event(
    involved: Mapping[str, str], reason: str, message: str, timestamp: str, *, is_warning: bool
) -> dict[str, Any]:
    """Return an event on the `involved` object; `timestamp` has the format of the API."""
    return {
        "metadata": {"generateName": f"{involved['name']}."},
        "involvedObject": dict(involved),
        "reason": reason,
        "message": message[:MAX_EVENT_MESSAGE_CHARS],
        "type": "Warning" if is_warning else "Normal",
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
    }


def format_timestamp(seconds: float) -> str:
    """Return seconds since the epoch in the format of the API."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def resolve_namespace(kubeconfig: Path | None) -> str:
    """Return the namespace of this pod, else of the kubeconfig's context, else "default"."""
    own = SERVICE_ACCOUNT_DIR / "namespace"
    if kubeconfig is None and own.is_file():
        return own.read_text().strip()
    try:
        contexts = _KUBE_CONFIG.list_kube_config_contexts(kubeconfig and str(kubeconfig))
    except (ConfigException, OSError):
        return "default"
    return str(contexts[1]["context"].get("namespace") or "default")


def connect_client(kubeconfig: Path | None) -> Any:
    """Return a client of the API server. Raises SidecarSettingError if none is configured."""
    made = client.Configuration()
    made.retries = False  # urllib3 would multiply the timeout; the control loop retries
    try:
        if kubeconfig is None and SERVICE_ACCOUNT_DIR.is_dir():
            _KUBE_CONFIG.load_incluster_config(client_configuration=made)
        else:
            _KUBE_CONFIG.load_kube_config(kubeconfig and str(kubeconfig), client_configuration=made)
    except (ConfigException, OSError) as error:
        raise SidecarSettingError(
            f"no Kubernetes API server is configured: {_shorten_error(error)}; run in a pod with "
            "a service account, or set kubeconfig"
        ) from error
    return client.ApiClient(made)


def _translate_api_error(error: ApiException, what: str) -> Exception:
    status, message = int(error.status or 0), _extract_api_message(error)
    if status == HTTP_CONFLICT:
        return ResourceConflictError(what)
    if not status or status == HTTP_TOO_MANY_REQUESTS or status >= HTTP_SERVER_ERROR:
        return KubernetesUnavailableError(f"the Kubernetes API server could not {what}: {status} {message}")
    if status in (401, 403):
        return KubernetesRejectedError(
            f"not allowed to {what}: {message}; add this verb to the sidecar's role", status
        )
    return KubernetesRejectedError(f"Kubernetes refused to {what}: {status} {message}", status)


def _extract_api_message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)


def _shorten_error(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
