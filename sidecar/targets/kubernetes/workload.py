"""A workload and its pods as values, and what may be done to them. Pure.

Rules of taking a pod away:

1. Of a Deployment the controller takes pods that are not ready before ready ones, and of ready ones
   the one with the least `controller.kubernetes.io/pod-deletion-cost`. So one pod goes for certain
   if it is marked and all others are ready.
2. While two versions of a Deployment run side by side, scaling in takes from both: it waits.
3. Of a StatefulSet the highest ordinal goes, whatever the load says.
4. The count asked for is that of the live pods less one: asked again, nothing more is taken.
5. A marked pod that the controller will take when it comes to it is not counted on any more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Any, Final

from trimtab.sidecar.errors import ScalingPostponedError
from trimtab.sidecar.measurement.observation import RequestedReplicas

FIELD_MANAGER: Final = "trimtab"
"""Our name among the managers of a workload's fields."""

DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
PREVIOUS_COST_ANNOTATION: Final = "trimtab.io/pod-deletion-cost-before"
PAUSE_ANNOTATION: Final = "trimtab.io/pause"
PAUSE_VALUES: Final[Mapping[str, str]] = {
    "scale-up": "scale-up",
    "scale-down": "scale-down",
    "all": "all",
    "true": "all",
}
LOWEST_DELETION_COST: Final = -(2**31)
"""The least deletion cost that there is."""

FAILED_WAITING_REASONS: Final = frozenset(
    {"CrashLoopBackOff", "CreateContainerConfigError", "ErrImagePull", "ImagePullBackOff"}
)


class WorkloadKind(StrEnum):
    """What can be scaled."""

    DEPLOYMENT = "deployment"
    STATEFULSET = "statefulset"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; `deletion_cost` and `previous_cost` are annotations: the deletion cost now.

    And before our mark.

    `alive` means that it runs, or is on its way, and nobody has deleted it.
    """

    name: str
    started_at: float
    alive: bool
    ready: bool
    deletion_cost: str | None
    previous_cost: str | None
    trouble: str | None

    @property
    def is_marked(self) -> bool:
        """Whether we have made it the cheapest to delete."""
        return self.previous_cost is not None

    @property
    def ordinal(self) -> int:
        """Return the number at the end of its name, as a StatefulSet gives it."""
        return int(self.name.rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet; `first_ordinal` is the lowest ordinal.

    `resource_version` the resource's.

    `is_rolling_out` says that two versions of it run side by side.
    """

    kind: WorkloadKind
    name: str
    uid: str
    resource_version: str
    replicas: int
    requested: RequestedReplicas
    first_ordinal: int = 0
    is_rolling_out: bool = False
    paused_direction: str = ""
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadSnapshot:
    """One look: the workload and its pods, sorted by name."""

    workload: Workload
    pods: tuple[Pod, ...]

    @property
    def alive_pods(self) -> tuple[Pod, ...]:
        """Pods that nobody has deleted yet."""
        return tuple(pod for pod in self.pods if pod.alive)

    @property
    def staying_pods(self) -> tuple[Pod, ...]:
        """Pods that are alive and that the controller will not take (rule 5)."""
        w, alive = self.workload, self.alive_pods
        if w.kind is WorkloadKind.STATEFULSET:
            return tuple(p for p in alive if p.ordinal < w.first_ordinal + w.replicas)
        excess = max(0, len(alive) - w.replicas)
        doomed = {p.name for p in [p for p in alive if p.is_marked][:excess]}
        return tuple(p for p in alive if p.name not in doomed)

    @property
    def trouble(self) -> tuple[str, ...]:
        """What is wrong with the workload and its pods, in words."""
        return (*self.workload.trouble, *(p.trouble for p in self.alive_pods if p.trouble))


def compute_count_without(snapshot: WorkloadSnapshot, name: str) -> int | None:
    """Return the count that takes this pod away and no other; None where it is gone or going.

    Raises ScalingPostponedError.
    """
    workload, staying = snapshot.workload, snapshot.staying_pods
    pod = next((p for p in staying if p.name == name), None)
    if pod is None:
        return None
    if workload.kind is WorkloadKind.STATEFULSET:
        later = [p.name for p in staying if p.ordinal > pod.ordinal]
        if later:
            raise ScalingPostponedError(
                f"statefulset {workload.name}: {name} cannot go before {later[-1]}, the last one"
            )
        return pod.ordinal - workload.first_ordinal
    if workload.is_rolling_out:
        raise ScalingPostponedError(
            f"deployment {workload.name}: a rollout is under way; {name} goes when it is over"
        )
    unready = [p.name for p in staying if not p.ready and p.name != name]
    if unready:
        raise ScalingPostponedError(
            f"deployment {workload.name}: {unready[0]} is not ready, so that Kubernetes would take "
            f"it instead of {name}"
        )
    return len(staying) - 1


def parse_workload(
    kind: WorkloadKind, body: Mapping[str, Any], *, active_versions: int = 1
) -> Workload:
    """Read a workload; `active_versions` is the number of its versions that have replicas."""
    metadata, spec = body["metadata"], body["spec"]
    annotation = (metadata.get("annotations") or {}).get(PAUSE_ANNOTATION)
    pause = "" if annotation is None else PAUSE_VALUES.get(annotation.lower(), "all")
    trouble = list(_list_replica_failures(kind, body))
    if annotation is not None and annotation.lower() not in PAUSE_VALUES:
        known = ", ".join(PAUSE_VALUES)
        trouble.append(
            f"annotation {PAUSE_ANNOTATION}={annotation!r} is none of {known}: taken as all"
        )
    return Workload(
        kind=kind,
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        replicas=spec.get("replicas", 1),
        requested=_parse_requested_replicas(metadata, spec.get("replicas", 1)),
        first_ordinal=(spec.get("ordinals") or {}).get("start", 0),
        is_rolling_out=active_versions > 1,
        paused_direction=pause,
        trouble=tuple(trouble),
    )


def parse_pods(bodies: Iterable[Mapping[str, Any]], owners: Iterable[str]) -> tuple[Pod, ...]:
    """Read those pods that one of these owners (uids) controls, sorted by name."""
    known = set(owners)
    mine = (body for body in bodies if get_controller_uid(body) in known)
    return tuple(sorted((_parse_pod(body) for body in mine), key=lambda p: p.name))


def get_controller_uid(body: Mapping[str, Any]) -> str | None:
    """Return the uid of whoever controls an object."""
    references = body["metadata"].get("ownerReferences") or ()
    return next((r["uid"] for r in references if r.get("controller")), None)


def parse_timestamp(text: str) -> float:
    """Return a timestamp of the API as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def _parse_requested_replicas(metadata: Mapping[str, Any], replicas: int) -> RequestedReplicas:
    """Say who set the count: the manager of that field, the newest of several.

    Whoever sets it takes it from the others. What is set through the scale subresource has no time
    (`at` is infinite then), and a zero that is set through it has no manager either: a Scale leaves
    out the replicas that are zero. From then on the server notes nobody there.
    """
    held = [
        (parse_timestamp(entry["time"]) if entry.get("time") else inf, str(entry.get("manager")))
        for entry in metadata.get("managedFields") or ()
        if "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
    ]
    at, by = max(held, default=(parse_timestamp(metadata["creationTimestamp"]), "somebody"))
    return RequestedReplicas(
        replicas,
        by,
        at,
        is_ours=FIELD_MANAGER in {name for _, name in held},
        is_requester_known=bool(held),
    )


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
        trouble=_explain_stuck_pod(metadata["name"], status, conditions),
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
            said = waiting.get("message") or "look into its log"
            return f"pod {name}: {waiting['reason']}: {said}"
    return None
