"""A workload and its pods as values, and the rules of removing a pod. Pure.

1. The Deployment controller deletes unready pods before ready ones, and among ready pods the one
   with the lowest `controller.kubernetes.io/pod-deletion-cost`. So a marked pod is certain to go
   only if all other pods are ready.
2. During a rollout a Deployment scales down both versions: scale-down waits.
3. A StatefulSet deletes the highest ordinal, independent of the load.
4. The new count is the number of live pods minus one, so a repeated request removes no second pod.
5. A marked pod that the controller is about to delete no longer counts as staying.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Any, Final

from trimtab.sidecar.errors import ScalingPostponedError
from trimtab.sidecar.model.observation import RequestedReplicas

FIELD_MANAGER: Final = "trimtab"  # of our writes in `managedFields`
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
PREVIOUS_COST_ANNOTATION: Final = "trimtab.io/pod-deletion-cost-before"
PAUSE_ANNOTATION: Final = "trimtab.io/pause"
PAUSE_VALUES: Final = {"scale-up": "scale-up", "scale-down": "scale-down", "all": "all", "true": "all"}
LOWEST_DELETION_COST: Final = -(2**31)  # costs are 32-bit integers
FAILED_WAITING_REASONS: Final = frozenset(
    {"CrashLoopBackOff", "CreateContainerConfigError", "ErrImagePull", "ImagePullBackOff"}
)


class WorkloadKind(StrEnum):
    """Kinds of scalable workloads."""

    DEPLOYMENT = "deployment"
    STATEFULSET = "statefulset"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod."""

    name: str
    started_at: float
    alive: bool  # running or starting, and not being deleted
    ready: bool
    deletion_cost: str | None  # the annotation
    previous_cost: str | None  # before our mark
    error: str | None
    address: str = ""  # empty without one of its own

    @property
    def is_marked(self) -> bool:
        """Whether we marked it as the cheapest to delete."""
        return self.previous_cost is not None

    @property
    def ordinal(self) -> int:
        """StatefulSet ordinal, at the end of the name."""
        return int(self.name.rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet."""

    kind: WorkloadKind
    name: str
    uid: str
    resource_version: str
    replicas: int
    requested: RequestedReplicas
    first_ordinal: int = 0  # lowest ordinal of a StatefulSet
    is_rolling_out: bool = False  # pods of two versions run
    paused_direction: str = ""  # or "scale-up", "scale-down", "all"
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadSnapshot:
    """The workload and its pods at one moment; pods are sorted by name."""

    workload: Workload
    pods: tuple[Pod, ...]

    @property
    def alive_pods(self) -> tuple[Pod, ...]:
        """Pods that are not being deleted."""
        return tuple(pod for pod in self.pods if pod.alive)

    @property
    def staying_pods(self) -> tuple[Pod, ...]:
        """Live pods that the controller will not delete (rule 5)."""
        w = self.workload
        alive = self.alive_pods
        if w.kind is WorkloadKind.STATEFULSET:
            return tuple(p for p in alive if p.ordinal < w.first_ordinal + w.replicas)
        excess = max(0, len(alive) - w.replicas)
        doomed = {p.name for p in [p for p in alive if p.is_marked][:excess]}
        return tuple(p for p in alive if p.name not in doomed)

    @property
    def errors(self) -> tuple[str, ...]:
        """Problems of the workload and its pods."""
        return (*self.workload.errors, *(p.error for p in self.alive_pods if p.error))


def compute_count_without(snapshot: WorkloadSnapshot, name: str) -> int | None:
    """Return the replica count that removes exactly this pod; None if it is gone or going.

    Raises ScalingPostponedError if the controller might delete another pod.
    """
    workload = snapshot.workload
    staying = snapshot.staying_pods
    pod = next((p for p in staying if p.name == name), None)
    if pod is None:
        return None
    if workload.kind is WorkloadKind.STATEFULSET:
        later = [p.name for p in staying if p.ordinal > pod.ordinal]
        if later:
            raise ScalingPostponedError(
                f"statefulset {workload.name}: {name} can only be stopped after {later[-1]}, "
                "the highest ordinal"
            )
        return pod.ordinal - workload.first_ordinal
    # From here on a Deployment: rules 2 and 1.
    if workload.is_rolling_out:
        raise ScalingPostponedError(
            f"deployment {workload.name}: a rollout is in progress; {name} is stopped after it"
        )
    unready = [p.name for p in staying if not p.ready and p.name != name]
    if unready:
        raise ScalingPostponedError(
            f"deployment {workload.name}: {unready[0]} is not ready, and Kubernetes would delete "
            f"it instead of {name}"
        )
    return len(staying) - 1  # from the live pods, not the count: a repeated call removes no second one


def parse_workload(kind: WorkloadKind, body: Mapping[str, Any], *, active_versions: int = 1) -> Workload:
    """Parse a workload; `active_versions` is the number of its versions with replicas."""
    metadata, spec = body["metadata"], body["spec"]
    annotation = (metadata.get("annotations") or {}).get(PAUSE_ANNOTATION)
    # A misspelt pause stops both directions: it was set to stop something.
    pause = "" if annotation is None else PAUSE_VALUES.get(annotation.lower(), "all")
    errors = list(_list_replica_failures(kind, body))
    if annotation is not None and annotation.lower() not in PAUSE_VALUES:
        known = ", ".join(PAUSE_VALUES)
        errors.append(f"annotation {PAUSE_ANNOTATION}={annotation!r} is none of {known}; treated as all")
    replicas = spec.get("replicas", 1)  # the API's default
    return Workload(
        kind=kind,
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        replicas=replicas,
        requested=_parse_requested_replicas(metadata, replicas),
        first_ordinal=(spec.get("ordinals") or {}).get("start", 0),
        is_rolling_out=active_versions > 1,
        paused_direction=pause,
        errors=tuple(errors),
    )


def parse_pods(bodies: Iterable[Mapping[str, Any]], owners: Iterable[str]) -> tuple[Pod, ...]:
    """Parse the pods controlled by one of `owners` (uids), sorted by name."""
    uids = set(owners)
    controlled = (body for body in bodies if get_controller_uid(body) in uids)
    return tuple(sorted((_parse_pod(body) for body in controlled), key=lambda p: p.name))


def get_controller_uid(body: Mapping[str, Any]) -> str | None:
    """Return the uid of an object's controller; None without one."""
    references = body["metadata"].get("ownerReferences") or ()
    return next((r["uid"] for r in references if r.get("controller")), None)


def parse_timestamp(text: str) -> float:
    """Convert an API timestamp to seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def _parse_requested_replicas(metadata: Mapping[str, Any], replicas: int) -> RequestedReplicas:
    # The requester is the newest field manager of `spec.replicas`.
    # A write through the scale subresource has no time (infinite here). A zero written through it
    # has no manager either, since a Scale omits zero replicas, and later scale writes have none.
    managers = [
        (parse_timestamp(entry["time"]) if entry.get("time") else inf, str(entry.get("manager")))
        for entry in metadata.get("managedFields") or ()
        if "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
    ]
    created_at = parse_timestamp(metadata["creationTimestamp"])
    at, by = max(managers, default=(created_at, "an unknown client"))
    ours = FIELD_MANAGER in {name for _, name in managers}
    return RequestedReplicas(replicas, by, at, is_ours=ours, is_requester_known=bool(managers))


def _list_replica_failures(kind: WorkloadKind, body: Mapping[str, Any]) -> Iterable[str]:
    name = body["metadata"]["name"]
    for condition in (body.get("status") or {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            yield f"{kind} {name}: {condition.get('reason')}: {condition.get('message')}"


def _parse_pod(body: Mapping[str, Any]) -> Pod:
    metadata, status = body["metadata"], body.get("status") or {}
    annotations = metadata.get("annotations") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    ended = status.get("phase") in ("Failed", "Succeeded")
    return Pod(
        name=metadata["name"],
        started_at=parse_timestamp(metadata["creationTimestamp"]),
        alive=not metadata.get("deletionTimestamp") and not ended,
        ready=conditions.get("Ready", {}).get("status") == "True",
        deletion_cost=annotations.get(DELETION_COST_ANNOTATION),
        previous_cost=annotations.get(PREVIOUS_COST_ANNOTATION),
        error=_explain_stuck_pod(metadata["name"], status, conditions),
        address="" if (body.get("spec") or {}).get("hostNetwork") else status.get("podIP") or "",
    )


def _explain_stuck_pod(
    name: str, status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]
) -> str | None:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("reason") == "Unschedulable":
        return f"pod {name} cannot be scheduled: {scheduled.get('message')}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in FAILED_WAITING_REASONS:
            message = waiting.get("message") or "see its log"
            return f"pod {name}: {waiting['reason']}: {message}"
    return None
