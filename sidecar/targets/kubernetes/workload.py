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

from trimtab.sidecar.errors import ScalingWaits
from trimtab.sidecar.measurement.observation import Asked

US: Final = "trimtab"
"""Our name among the managers of a workload's fields."""

COST: Final = "controller.kubernetes.io/pod-deletion-cost"
BEFORE: Final = "trimtab.io/pod-deletion-cost-before"
PAUSE: Final = "trimtab.io/pause"
PAUSES: Final[Mapping[str, str]] = {"in": "in", "out": "out", "all": "all", "true": "all"}
CHEAPEST: Final = -(2**31)
"""The least deletion cost that there is."""

BROKEN: Final = frozenset(
    {"CrashLoopBackOff", "CreateContainerConfigError", "ErrImagePull", "ImagePullBackOff"}
)


class Kind(StrEnum):
    """What can be scaled."""

    DEPLOYMENT = "deployment"
    STATEFULSET = "statefulset"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; `cost` and `before` are annotations: the deletion cost now, and before our mark.

    `alive` means that it runs, or is on its way, and nobody has deleted it.
    """

    name: str
    started: float
    alive: bool
    ready: bool
    cost: str | None
    before: str | None
    trouble: str | None

    @property
    def marked(self) -> bool:
        """Whether we have made it the cheapest to delete."""
        return self.before is not None

    @property
    def ordinal(self) -> int:
        """Return the number at the end of its name, as a StatefulSet gives it."""
        return int(self.name.rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet; `first` is the lowest ordinal, `version` the resource's.

    `rolling` says that two versions of it run side by side.
    """

    kind: Kind
    name: str
    uid: str
    version: str
    replicas: int
    asked: Asked
    first: int = 0
    rolling: bool = False
    pause: str = ""
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """One look: the workload and its pods, sorted by name."""

    workload: Workload
    pods: tuple[Pod, ...]

    @property
    def alive(self) -> tuple[Pod, ...]:
        """Pods that nobody has deleted yet."""
        return tuple(pod for pod in self.pods if pod.alive)

    @property
    def staying(self) -> tuple[Pod, ...]:
        """Pods that are alive and that the controller will not take (rule 5)."""
        w, alive = self.workload, self.alive
        if w.kind is Kind.STATEFULSET:
            return tuple(p for p in alive if p.ordinal < w.first + w.replicas)
        excess = max(0, len(alive) - w.replicas)
        doomed = {p.name for p in [p for p in alive if p.marked][:excess]}
        return tuple(p for p in alive if p.name not in doomed)

    @property
    def trouble(self) -> tuple[str, ...]:
        """What is wrong with the workload and its pods, in words."""
        return (*self.workload.trouble, *(p.trouble for p in self.alive if p.trouble))


def count_without(found: Found, name: str) -> int | None:
    """Return the count that takes this pod away and no other; None where it is gone or going.

    Raises ScalingWaits.
    """
    workload, staying = found.workload, found.staying
    pod = next((p for p in staying if p.name == name), None)
    if pod is None:
        return None
    if workload.kind is Kind.STATEFULSET:
        later = [p.name for p in staying if p.ordinal > pod.ordinal]
        if later:
            raise ScalingWaits(
                f"statefulset {workload.name}: {name} cannot go before {later[-1]}, the last one"
            )
        return pod.ordinal - workload.first
    if workload.rolling:
        raise ScalingWaits(
            f"deployment {workload.name}: a rollout is under way; {name} goes when it is over"
        )
    unready = [p.name for p in staying if not p.ready and p.name != name]
    if unready:
        raise ScalingWaits(
            f"deployment {workload.name}: {unready[0]} is not ready, so that Kubernetes would take "
            f"it instead of {name}"
        )
    return len(staying) - 1


def workload(kind: Kind, body: Mapping[str, Any], *, versions: int = 1) -> Workload:
    """Read a workload; `versions` is the number of its versions that have replicas."""
    metadata, spec = body["metadata"], body["spec"]
    annotation = (metadata.get("annotations") or {}).get(PAUSE)
    pause = "" if annotation is None else PAUSES.get(annotation.lower(), "all")
    trouble = list(_failures(kind, body))
    if annotation is not None and annotation.lower() not in PAUSES:
        known = ", ".join(PAUSES)
        trouble.append(f"annotation {PAUSE}={annotation!r} is none of {known}: taken as all")
    return Workload(
        kind=kind,
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        replicas=spec.get("replicas", 1),
        asked=_asked(metadata, spec.get("replicas", 1)),
        first=(spec.get("ordinals") or {}).get("start", 0),
        rolling=versions > 1,
        pause=pause,
        trouble=tuple(trouble),
    )


def pods(bodies: Iterable[Mapping[str, Any]], owners: Iterable[str]) -> tuple[Pod, ...]:
    """Read those pods that one of these owners (uids) controls, sorted by name."""
    known = set(owners)
    mine = (body for body in bodies if owner(body) in known)
    return tuple(sorted((_pod(body) for body in mine), key=lambda p: p.name))


def owner(body: Mapping[str, Any]) -> str | None:
    """Return the uid of whoever controls an object."""
    references = body["metadata"].get("ownerReferences") or ()
    return next((r["uid"] for r in references if r.get("controller")), None)


def seconds(text: str) -> float:
    """Return a timestamp of the API as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def _asked(metadata: Mapping[str, Any], replicas: int) -> Asked:
    """Say who set the count: the manager of that field, the newest of several.

    Whoever sets it takes it from the others. What is set through the scale subresource has no time
    (`at` is infinite then), and a zero that is set through it has no manager either: a Scale leaves
    out the replicas that are zero. From then on the server notes nobody there.
    """
    held = [
        (seconds(entry["time"]) if entry.get("time") else inf, str(entry.get("manager")))
        for entry in metadata.get("managedFields") or ()
        if "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
    ]
    at, by = max(held, default=(seconds(metadata["creationTimestamp"]), "somebody"))
    return Asked(replicas, by, at, ours=US in {name for _, name in held}, traced=bool(held))


def _failures(kind: Kind, body: Mapping[str, Any]) -> Iterable[str]:
    name = body["metadata"]["name"]
    for condition in (body.get("status") or {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            yield f"{kind} {name}: {condition.get('reason')}: {condition.get('message')}"


def _pod(body: Mapping[str, Any]) -> Pod:
    metadata, status = body["metadata"], body.get("status") or {}
    annotations = metadata.get("annotations") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    ended = status.get("phase") in ("Failed", "Succeeded")
    return Pod(
        name=metadata["name"],
        started=seconds(metadata["creationTimestamp"]),
        alive=not metadata.get("deletionTimestamp") and not ended,
        ready=conditions.get("Ready", {}).get("status") == "True",
        cost=annotations.get(COST),
        before=annotations.get(BEFORE),
        trouble=_trouble(metadata["name"], status, conditions),
    )


def _trouble(
    name: str, status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]
) -> str | None:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("reason") == "Unschedulable":
        return f"pod {name} cannot be scheduled: {scheduled.get('message')}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in BROKEN:
            said = waiting.get("message") or "look into its log"
            return f"pod {name}: {waiting['reason']}: {said}"
    return None
