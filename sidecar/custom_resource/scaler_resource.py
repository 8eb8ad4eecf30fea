"""ConsumerGroupScaler resources and labelled workloads as values, and which of them has a group."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.sidecar.custom_resource.names import KIND


@dataclass(frozen=True, slots=True)
class ScalerResource:
    """One resource, or labelled workload, as the API server last told it."""

    namespace: str
    name: str
    uid: str
    generation: int  # of the spec
    created_at: str  # in the API's format, which sorts by time
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    kind: str = KIND

    @property
    def is_workload(self) -> bool:
        """Whether it is a workload: annotations are its spec, and it has no status of ours."""
        return self.kind != KIND

    @property
    def group(self) -> str:
        """Consumer group."""
        return str(self.spec.get("group", ""))

    @property
    def origin(self) -> str:
        """Return what errors and `/groups` call it."""
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ResourceProblem:
    """Why a resource's group is not managed: the condition's reason and message."""

    reason: str  # in CamelCase, for programs
    message: str


def parse_resource(body: Mapping[str, Any]) -> ScalerResource:
    """Return the resource of an API object."""
    metadata = body["metadata"]
    return ScalerResource(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation", 0)),
        created_at=str(metadata.get("creationTimestamp", "")),
        spec=body.get("spec") or {},
        status=body.get("status") or {},
    )


def find_conflicts(
    resources: Iterable[ScalerResource], listed_groups: Collection[str]
) -> dict[str, ResourceProblem]:
    """Return the problems, by uid, of resources whose group belongs to the file or to another one.

    A group belongs to the oldest resource that names it, without one to the oldest workload.
    """
    owners: dict[str, ScalerResource] = {}
    problems: dict[str, ResourceProblem] = {}
    named = (one for one in resources if one.group)
    for one in sorted(named, key=lambda r: (r.is_workload, r.created_at, r.namespace, r.kind, r.name)):
        if one.group in listed_groups:
            here = "this label" if one.is_workload else "this resource"
            text = f"group {one.group!r} is in the sidecar's file (groups); remove it there, or {here}"
            problems[one.uid] = ResourceProblem("GroupConflict", text)
        elif (owner := owners.setdefault(one.group, one)) is not one:
            why = "which is older" if owner.kind == one.kind else "which comes first"
            text = f"group {one.group!r} belongs to {owner.origin}, {why}; remove one of the two"
            problems[one.uid] = ResourceProblem("GroupConflict", text)
    return problems
