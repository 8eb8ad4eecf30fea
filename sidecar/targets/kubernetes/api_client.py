"""The Kubernetes API as the sidecar needs it: few calls, plain values, errors by name.

Every call has a time limit and is made once: whoever asks decides whether to ask again. A 409 is
`Changed`; what cannot be reached or is overloaded is KubernetesAway; what is not allowed, not there
or not valid is KubernetesRefuses, and says which verb on which resource it was about.
"""

import hashlib
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from trimtab.sidecar.errors import BadSetting, KubernetesAway, KubernetesRefuses
from trimtab.sidecar.targets.kubernetes.workload import US, Found, Kind, owner, pods, workload

_CONFIG: Final[Any] = config  # it has no types
SERVICE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONFLICT: Final = 409
NOT_FOUND: Final = 404
TOO_MANY: Final = 429
SERVER: Final = 500
LONGEST: Final = 1000
"""Characters of an event's message; the API takes 1,024."""


class Changed(Exception):
    """Somebody else was quicker (409), or it is not there any more (404 on a pod or lease)."""


@dataclass(frozen=True, slots=True)
class Place:
    """What is steered, and where: a `kubeconfig` file, or none within a pod."""

    kind: Kind
    name: str
    namespace: str
    kubeconfig: Path | None = None

    def __str__(self) -> str:
        """Return how operators call it."""
        return f"{self.kind} {self.name}"

    @property
    def lease(self) -> str:
        """Return the name of the lease by which sidecars elect who leads."""
        return f"{US}-{self.kind}-{self.name}"


class KubeApi:
    """A connection; `timeout` is seconds of one call. Raises BadSetting where it has no address."""

    def __init__(self, place: Place, timeout: float) -> None:
        self.place = place
        self._timeout = timeout
        self._client = _connected(place.kubeconfig)
        self._core = client.CoreV1Api(self._client)
        self._apps = client.AppsV1Api(self._client)
        self._leases = client.CoordinationV1Api(self._client)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @property
    def cluster(self) -> str:
        """Return what no other cluster has: a digest of its authority, else its address.

        Within pods the address is often the same in two clusters.
        """
        authority = self._client.configuration.ssl_ca_cert
        if not authority or not Path(authority).is_file():
            return str(self._client.configuration.host)
        return hashlib.sha256(Path(authority).read_bytes().strip()).hexdigest()[:16]

    def look(self) -> Found:
        """Return the workload and its pods as they are. Raises KubernetesAway, KubernetesRefuses.

        The lists are asked of the store, not of a cache, so that they hold all that was done.
        """
        kind = self.place.kind
        body = self._workload("get", "", self._method("read"))
        labels = body["spec"]["selector"].get("matchLabels") or {}
        asked = {"label_selector": ",".join(f"{k}={v}" for k, v in sorted(labels.items()))}
        owners, versions = [body["metadata"]["uid"]], 1
        if kind is Kind.DEPLOYMENT:
            sets = self._listed("replicasets", self._apps.list_namespaced_replica_set, asked)
            ours = [s for s in sets if owner(s) == body["metadata"]["uid"]]
            owners = [s["metadata"]["uid"] for s in ours]
            versions = sum(1 for s in ours if s["spec"].get("replicas"))
        found = self._listed("pods", self._core.list_namespaced_pod, asked)
        return Found(workload(kind, body, versions=versions), pods(found, owners))

    def scale(self, replicas: int, version: str) -> None:
        """Ask for a count, if the workload is still of this version. Raises Changed as well."""
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": self.place.name,
                "namespace": self.place.namespace,
                "resourceVersion": version,
            },
            "spec": {"replicas": replicas},
        }
        method = self._method("replace", "_scale")
        self._workload("update", "/scale", method, body=body, field_manager=US)

    def annotate(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a pod; None takes one away. Raises Changed if it is gone."""
        body = {"metadata": {"annotations": dict(annotations)}}
        try:
            self._ask("patch", "pods", self._core.patch_namespaced_pod, name=pod, body=body)
        except KubernetesRefuses as error:
            if error.status == NOT_FOUND:
                raise Changed from error
            raise

    def tell(self, uid: str, reason: str, message: str, at: str, *, wrong: bool = False) -> None:
        """Record an event on the workload; `at` is a timestamp of the API."""
        kinds = {Kind.DEPLOYMENT: "Deployment", Kind.STATEFULSET: "StatefulSet"}
        body = {
            "metadata": {"generateName": f"{self.place.name}."},
            "involvedObject": {
                "apiVersion": "apps/v1",
                "kind": kinds[self.place.kind],
                "name": self.place.name,
                "namespace": self.place.namespace,
                "uid": uid,
            },
            "reason": reason,
            "message": message[:LONGEST],
            "type": "Warning" if wrong else "Normal",
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
            "source": {"component": US},
            "reportingComponent": US,
        }
        self._ask("create", "events", self._core.create_namespaced_event, body=body)

    def lease(self, name: str) -> dict[str, Any] | None:
        """Return a lease; None where there is none."""
        try:
            return self._ask("get", "leases", self._leases.read_namespaced_lease, name=name)
        except KubernetesRefuses as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def make_lease(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make a lease. Raises Changed if there is one."""
        method = self._leases.create_namespaced_lease
        return self._ask("create", "leases", method, body=body)

    def put_lease(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the lease of the version that `body` names. Raises Changed if it is another."""
        method = self._leases.replace_namespaced_lease
        return self._ask("update", "leases", method, name=name, body=body)

    def may(self, verb: str, group: str, resource: str, name: str = "") -> bool:
        """Tell whether we have a right in the namespace, on "pods" or "deployments/scale".

        With a `name` on that object, else on all: a role may name what it is about. Asked by a
        SelfSubjectAccessReview, which everybody may. Raises KubernetesAway, KubernetesRefuses.
        """
        whole, _, part = resource.partition("/")
        asked = {"verb": verb, "group": group, "resource": whole, "subresource": part, "name": name}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**asked, "namespace": self.place.namespace}},
        }
        reviews = client.AuthorizationV1Api(self._client)

        def review(*, namespace: str, **named: Any) -> Any:
            del namespace  # a review is in none; what it asks about is
            return reviews.create_self_subject_access_review(**named)

        answer = self._ask("create", "selfsubjectaccessreviews", review, body=body)
        return bool(answer["status"].get("allowed"))

    def _method(self, verb: str, tail: str = "") -> Callable[..., Any]:
        noun = "deployment" if self.place.kind is Kind.DEPLOYMENT else "stateful_set"
        method: Callable[..., Any] = getattr(self._apps, f"{verb}_namespaced_{noun}{tail}")
        return method

    def _workload(
        self, verb: str, part: str, method: Callable[..., Any], **named: Any
    ) -> dict[str, Any]:
        try:
            return self._ask(verb, f"{self.place.kind}s{part}", method, self.place.name, **named)
        except KubernetesRefuses as error:
            if error.status == NOT_FOUND:
                raise KubernetesRefuses(
                    f"{self.place} is not in namespace {self.place.namespace}; make it, or mend "
                    "workload and namespace",
                    NOT_FOUND,
                ) from error
            raise

    def _listed(
        self, resource: str, method: Callable[..., Any], asked: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("list", resource, method, **asked)["items"]
        return found

    def _ask(
        self, verb: str, resource: str, method: Callable[..., Any], *args: Any, **named: Any
    ) -> dict[str, Any]:
        limits = {"_request_timeout": self._timeout, "_preload_content": False}
        what = f"{verb} {resource} in namespace {self.place.namespace}"
        try:
            answer = method(*args, namespace=self.place.namespace, **named, **limits)
            body: dict[str, Any] = json.loads(answer.data)
        except ApiException as error:
            raise _named(error, what) from error
        except (HTTPError, OSError, ssl.SSLError, ValueError) as error:
            raise KubernetesAway(
                f"the Kubernetes API server did not answer to {what}: {_short(error)}"
            ) from error
        return body


def namespace(kubeconfig: Path | None) -> str:
    """Return the namespace of the pod that we are, or of the kubeconfig's context."""
    own = SERVICE / "namespace"
    if kubeconfig is None and own.is_file():
        return own.read_text().strip()
    try:
        contexts = _CONFIG.list_kube_config_contexts(_file(kubeconfig))
    except (ConfigException, OSError):
        return "default"
    return str(contexts[1]["context"].get("namespace") or "default")


def _connected(kubeconfig: Path | None) -> Any:
    made = client.Configuration()
    made.retries = False
    try:
        if kubeconfig is None and SERVICE.is_dir():
            _CONFIG.load_incluster_config(client_configuration=made)
        else:
            _CONFIG.load_kube_config(_file(kubeconfig), client_configuration=made)
    except (ConfigException, OSError) as error:
        raise BadSetting(
            f"no way to a Kubernetes API server: {_short(error)}; run in a pod with a service "
            "account, or give a kubeconfig"
        ) from error
    return client.ApiClient(made)


def _file(kubeconfig: Path | None) -> str | None:
    return None if kubeconfig is None else str(kubeconfig)


def _named(error: ApiException, what: str) -> Exception:
    status, said = int(error.status or 0), _said(error)
    if status == CONFLICT:
        return Changed(what)
    if not status or status == TOO_MANY or status >= SERVER:
        return KubernetesAway(f"the Kubernetes API server could not {what}: {status} {said}")
    if status in (401, 403):
        return KubernetesRefuses(
            f"not allowed to {what}: {said}; give the sidecar's role this verb", status
        )
    return KubernetesRefuses(f"Kubernetes refuses to {what}: {status} {said}", status)


def _said(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
