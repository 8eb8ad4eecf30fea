"""Finds the Kubernetes workload whose pods are the members of a group, and the resources that scale it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from pathlib import Path
from statistics import mode
from typing import Any, Final

from trimtab.cli.init.group_findings import FoundWorkload
from trimtab.common.replica_names import get_replica
from trimtab.sidecar.custom_resource.names import API_GROUP, API_VERSION, KIND, PLURAL
from trimtab.sidecar.model.observation import ObservedMember
from trimtab.sidecar.targets.kubernetes.rival_autoscalers import WORKLOAD_KINDS, find_rival_autoscalers

TIMEOUT_S: Final = 10.0


def find_workload(
    members: Iterable[ObservedMember], namespace: str | None, kubeconfig: Path | None
) -> tuple[FoundWorkload | None, str]:
    """Return the workload, and what could not be found out: no API server, permission or pod of a member."""
    try:
        from kubernetes import client  # noqa: PLC0415 - an extra

        from trimtab.sidecar.targets.kubernetes import api_client  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None, "the extra kubernetes is not installed, so no Deployment was looked for"
    from trimtab.sidecar.errors import SidecarSettingError  # noqa: PLC0415 - beside the extra

    try:
        connection = api_client.connect_client(kubeconfig)
    except SidecarSettingError:
        return None, "no Kubernetes API server is configured here"
    space = namespace or api_client.resolve_namespace(kubeconfig)
    try:
        return _find_in_namespace(client, connection, frozenset(members), space)
    except client.ApiException as error:
        return None, f"the API server refuses to list the pods of namespace {space}: {error.reason}"
    except Exception as error:  # noqa: BLE001 - urllib3's, of an API server that does not answer
        return None, f"the Kubernetes API server does not answer: {type(error).__name__}"
    finally:
        connection.close()


def _find_in_namespace(
    client: Any, connection: Any, members: frozenset[ObservedMember], namespace: str
) -> tuple[FoundWorkload | None, str]:
    core, apps = client.CoreV1Api(connection), client.AppsV1Api(connection)
    names = {name for member in members for name in (member.instance, get_replica(member.instance))}
    hosts = {member.host for member in members if member.host}
    pods = core.list_namespaced_pod(namespace, _request_timeout=TIMEOUT_S).items
    # by name before by address: pods of the node's network share one address
    ours = [pod for pod in pods if pod.metadata.name in names] or [
        p for p in pods if p.status.pod_ip in hosts
    ]
    owners = Counter(
        (owner.kind, owner.name)
        for pod in ours
        for owner in pod.metadata.owner_references or ()
        if owner.controller
    )
    if not owners:
        return None, f"no pod of namespace {namespace} is a member of the group"
    (kind, name), _ = owners.most_common(1)[0]
    if kind == "ReplicaSet":
        owner = apps.read_namespaced_replica_set(name, namespace, _request_timeout=TIMEOUT_S)
        kind, name = next(
            (one.kind, one.name) for one in owner.metadata.owner_references or () if one.controller
        )
    if kind not in WORKLOAD_KINDS:
        return (None, f"the members are pods of {kind} {name}, not of a Deployment or StatefulSet")
    read = apps.read_namespaced_deployment if kind == "Deployment" else apps.read_namespaced_stateful_set
    replicas = read(name, namespace, _request_timeout=TIMEOUT_S).spec.replicas
    scaled, unread = find_scaled_object(client, connection, kind, name, namespace)
    rivals, unseen = _list_rivals(
        client, connection, f"{WORKLOAD_KINDS[kind]}/{name}", namespace, keda=scaled is not None
    )
    resources, unlisted = list_scaler_resources(client, connection, namespace)
    per_replica = count_consumers_per_pod(members, [(p.metadata.name, p.status.pod_ip) for p in ours])
    found = FoundWorkload(
        WORKLOAD_KINDS[kind], name, namespace, replicas, scaled, rivals, resources, per_replica
    )
    return found, "; ".join(filter(None, (unread, unseen, unlisted)))


def count_consumers_per_pod(members: Iterable[ObservedMember], pods: Sequence[tuple[str, str]]) -> int:
    """Return how many members most pods have, by name or else by address; `pods` are both."""
    listed = list(members)
    by_name = Counter(name for m in listed for name in {m.instance, get_replica(m.instance)})
    by_host = Counter(m.host for m in listed)
    pods_at = Counter(address for _, address in pods)
    counts = (by_name[name] or by_host[address] // pods_at[address] for name, address in pods)
    # During a rollout a pod has none yet, or one more that has left and not timed out.
    return mode(sorted(filter(None, counts)) or [1])


def _list_rivals(
    client: Any, connection: Any, workload: str, namespace: str, *, keda: bool
) -> tuple[tuple[str, ...], str]:
    """Return what else scales a workload, and why that could not be found out."""
    api = client.AutoscalingV2Api(connection)
    try:
        found = api.list_namespaced_horizontal_pod_autoscaler(namespace, _request_timeout=TIMEOUT_S)
    except client.ApiException as error:
        return (), _describe_failure(error, "HorizontalPodAutoscalers", namespace)
    items = connection.sanitize_for_serialization(found)["items"]
    return find_rival_autoscalers(items, workload, keda=keda), ""


def find_scaled_object(
    client: Any, connection: Any, kind: str, name: str, namespace: str
) -> tuple[dict[str, Any] | None, str]:
    """Return the ScaledObject of a workload; None without one, and why they could not be listed."""
    api = client.CustomObjectsApi(connection)
    try:
        found = api.list_namespaced_custom_object(
            "keda.sh", "v1alpha1", namespace, "scaledobjects", _request_timeout=TIMEOUT_S
        )
    except client.ApiException as error:
        return None, _describe_failure(error, "ScaledObjects", namespace)
    for body in found["items"]:
        reference = body["spec"]["scaleTargetRef"]
        if reference["name"] == name and reference.get("kind", "Deployment") == kind:
            return dict(body), ""
    return None, ""


def list_scaler_resources(
    client: Any, connection: Any, namespace: str
) -> tuple[tuple[dict[str, Any], ...] | None, str]:
    """Return the ConsumerGroupScalers of a namespace; None if the cluster does not define them, or why."""
    api = client.CustomObjectsApi(connection)
    try:
        found = api.list_namespaced_custom_object(
            API_GROUP, API_VERSION, namespace, PLURAL, _request_timeout=TIMEOUT_S
        )
    except client.ApiException as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return _ask_for_definition(client, api, namespace)
        return None, _describe_failure(error, f"{KIND}s", namespace)
    return tuple(found["items"]), ""


def _ask_for_definition(client: Any, api: Any, namespace: str) -> tuple[tuple[()] | None, str]:
    """Ask whether the cluster defines the resource, which every account may."""
    try:
        api.get_api_resources(API_GROUP, API_VERSION, _request_timeout=TIMEOUT_S)
    except client.ApiException as error:
        return None, _describe_failure(error, f"{KIND}s", namespace)
    return (), ""


def _describe_failure(error: Any, what: str, namespace: str) -> str:
    """Return what the API server refused; "" if it does not define these resources."""
    if error.status == HTTPStatus.NOT_FOUND:
        return ""
    return f"{what} of namespace {namespace} could not be listed: {error.status} {error.reason}"
