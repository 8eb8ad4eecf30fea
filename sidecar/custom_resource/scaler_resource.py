"""ConsumerGroupScaler resources as values, and which of them names a group."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.sidecar.custom_resource.names import KIND


@dataclass(frozen=True, slots=True)
class ScalerResource:
    """One resource as the API server last told it."""

    namespace: str
    name: str
    uid: str
    generation: int  # of the spec
    created_at: str  # in the API's format, which sorts by time
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @property
    def group(self) -> str:
        """Consumer group."""
        return str(self.spec.get("group", ""))

    @property
    def origin(self) -> str:
        """Return what errors and `/groups` call it."""
        return f"{KIND} {self.namespace}/{self.name}"


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
    """Return the problems, by uid, of resources whose group belongs to the file or to an older resource."""
    owners: dict[str, ScalerResource] = {}
    problems: dict[str, ResourceProblem] = {}
    for one in sorted(resources, key=lambda r: (r.created_at, r.namespace, r.name)):
        if one.group in listed_groups:
            text = f"group {one.group!r} is in the sidecar's file (groups); remove it there, or this resource"
            problems[one.uid] = ResourceProblem("GroupConflict", text)
        elif (owner := owners.setdefault(one.group, one)) is not one:
            text = f"group {one.group!r} belongs to {owner.origin}, which is older; remove one of the two"
            problems[one.uid] = ResourceProblem("GroupConflict", text)
    return problems
