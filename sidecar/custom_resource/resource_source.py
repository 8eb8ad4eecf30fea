"""The groups that ConsumerGroupScaler resources and labelled workloads name.

1. A resource has the common settings of the sidecar's file, its own spec in their place, and the
   workloads of its own namespace.
2. With a workload and no target, here or in the file, the target is `kubernetes`.
3. A group belongs to the sidecar's file (`groups`), else to the oldest resource that names it, else to
   the oldest labelled workload.
4. The group of a deleted resource, or of a workload without the label, is managed no longer. Its replicas
   stay as they are.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.sidecar.custom_resource.labelled_workload import ANNOTATION_PREFIX
from trimtab.sidecar.custom_resource.names import NOT_IN_RESOURCES, RESOURCE_TARGETS, to_setting_values
from trimtab.sidecar.custom_resource.scaler_resource import ResourceProblem, ScalerResource, find_conflicts
from trimtab.sidecar.settings.group_list import GroupEntry, GroupListSettings


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """A resource, and its group to manage or what is wrong with it."""

    resource: ScalerResource
    entry: GroupEntry
    problem: ResourceProblem | None


class ResourceSource:
    """Names the resources' groups."""

    def __init__(
        self, listed: GroupListSettings, list_resources: Callable[[], Sequence[ScalerResource] | None]
    ) -> None:
        self._listed = listed
        self._listed_groups = frozenset(entry.group for entry in listed.list_entries())
        self._list_resources = list_resources
        # by uid, for one spec: it is checked once
        self._checked: dict[str, tuple[Mapping[str, Any], GroupEntry]] = {}

    def list_entries(self) -> Collection[GroupEntry] | None:
        """Return the groups, with an error in place of settings that are wrong."""
        resources = self.list_resource_entries()
        if resources is None:
            return None
        return tuple(
            one.entry for one in resources if one.problem is None or one.problem.reason == "InvalidSettings"
        )

    def list_resource_entries(self) -> tuple[ResourceEntry, ...] | None:
        """Return all resources; None before they are known."""
        resources = self._list_resources()
        if resources is None:
            return None
        conflicts = find_conflicts(resources, self._listed_groups)
        checked = {one.uid: (one.spec, self._check_spec(one)) for one in resources}
        self._checked = checked
        return tuple(_build_entry(one, checked[one.uid][1], conflicts.get(one.uid)) for one in resources)

    def _check_spec(self, resource: ScalerResource) -> GroupEntry:
        known = self._checked.get(resource.uid)
        if known is not None and known[0] == resource.spec:
            return known[1]
        own = to_setting_values(dict(resource.spec))
        own.pop("group", None)
        refused = _find_refused_setting(own) or _find_workload_problem(resource)
        if refused:
            group = resource.group or f"({resource.origin})"
            return GroupEntry(group, resource.origin, None, f"{resource.origin}: {refused}")
        if "workload" in own and "target" not in {**self._listed.common, **own}:
            own["target"] = "kubernetes"
        own["namespace"] = resource.namespace
        return self._listed.build_entry(resource.group, own, resource.origin)


def _build_entry(
    resource: ScalerResource, entry: GroupEntry, conflict: ResourceProblem | None
) -> ResourceEntry:
    problem = conflict
    if problem is None and entry.settings is None:
        text = entry.error.removeprefix(f"{resource.origin}: ")
        problem = ResourceProblem("InvalidSettings", text)
    return ResourceEntry(resource, entry, problem)


def _find_refused_setting(own: Mapping[str, Any]) -> str:
    """Return what a resource must not have: the definition excludes it, an older one may not."""
    names = " and ".join(sorted(NOT_IN_RESOURCES & own.keys()))
    if names:
        return f"{names}: not a setting of a resource; write it into the sidecar's file"
    if own.get("target", "none") not in RESOURCE_TARGETS:
        return f"target={own['target']}: a resource's target is {', '.join(RESOURCE_TARGETS)}"
    return ""


def _find_workload_problem(resource: ScalerResource) -> str:
    """Return what the annotations of a labelled workload lack or must not have."""
    if not resource.is_workload:
        return ""
    if not resource.group:
        return f"annotation {ANNOTATION_PREFIX}group is missing; it names the consumer group"
    own = f"{resource.kind.lower()}/{resource.name}"
    if resource.spec.get("workload", own) != own:
        return f"annotation {ANNOTATION_PREFIX}workload names another one; leave it out: it is {own}"
    return ""
