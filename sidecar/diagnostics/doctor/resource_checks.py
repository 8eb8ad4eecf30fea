"""Checks of `trimtab doctor` about the Kubernetes object that names a group. They change nothing."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, Final

from trimtab.common.errors import PeerError
from trimtab.sidecar.custom_resource.factory import list_watched_kinds, open_resource_api
from trimtab.sidecar.custom_resource.names import API_GROUP, KIND, PLURAL
from trimtab.sidecar.custom_resource.resource_status import find_condition
from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource
from trimtab.sidecar.diagnostics.doctor.checks import Finding, check_access, failed, noted, passed
from trimtab.sidecar.settings.group_list import GroupListSettings

OWN_RIGHTS: Final = (
    (API_GROUP, PLURAL, "list"),
    (API_GROUP, PLURAL, "watch"),
    (API_GROUP, f"{PLURAL}/status", "patch"),
)
EVENT_RIGHT: Final = ("", "events", "create")
REMEDY: Final = "see docs/custom-resource.md"
NOT_TAKEN_UP: Final = (
    "check that the sidecar runs, and its settings custom-resources and watch-namespace, and read its log"
)


def run_resource_checks(listed: GroupListSettings, resource: ScalerResource) -> Iterable[Finding]:
    """Yield the findings about the sidecar's rights and the object. Raises SidecarSettingError."""
    with closing(open_resource_api(listed)) as api:
        try:
            for group, plural, verb in list_resource_rights(list_watched_kinds(listed.options)):
                yield check_access(verb, plural, allowed=api.is_allowed(verb, group, plural))
        except PeerError as error:
            yield failed("resource", str(error), REMEDY)
    yield from check_resource(resource)


def check_resource(resource: ScalerResource) -> Iterable[Finding]:
    """Yield what the status of a resource tells; of a workload, that its annotations name the group."""
    if resource.is_workload:
        yield passed(resource.origin, f"its annotations name group {resource.group}")
        return
    status = resource.status
    if not status:
        yield failed(resource.origin, "no sidecar has written its status yet", NOT_TAKEN_UP)
        return
    observed = status.get("observedGeneration", 0)
    if observed < resource.generation:
        text = f"its spec has generation {resource.generation}; the status is that of {observed}"
        yield noted(resource.origin, f"{text}; a sidecar takes it up in its next round")
    yield _check_ready(
        f"{resource.origin} Ready", find_condition(status, "Ready")
    )  # the others are the group's


def _check_ready(check: str, condition: Mapping[str, Any]) -> Finding:
    text = f"{condition.get('reason')}: {condition.get('message')}"
    if condition.get("status") == "True":
        return passed(check, text)
    if condition.get("status") == "Unknown":
        return noted(check, text)
    return failed(check, text, "correct what the message names")


def list_resource_rights(kinds: Iterable[str]) -> Iterable[tuple[str, str, str]]:
    """Yield API group, resource and verb of what a sidecar does with objects of these kinds."""
    for kind in kinds:
        if kind == KIND:
            yield from OWN_RIGHTS
        else:
            yield from (("apps", f"{kind.lower()}s", verb) for verb in ("list", "watch"))
    yield EVENT_RIGHT
