"""The groups that resources name: their settings, conflicts and errors."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.sidecar.custom_resource.resource_source import ResourceSource
from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource, parse_resource
from trimtab.sidecar.settings.group_list import GroupEntry, GroupListSettings, load_settings_of_groups


def listed(**more: Any) -> GroupListSettings:
    given = {"bootstrap": "b:1", "custom-resources": True, **more}
    settings = load_settings_of_groups(None, given)
    assert isinstance(settings, GroupListSettings)
    return settings


def resource(name: str, created: int = 1, **spec: Any) -> ScalerResource:
    metadata = {
        "namespace": "shop",
        "name": name,
        "uid": f"uid-{name}",
        "generation": 1,
        "creationTimestamp": f"2026-11-25T00:00:0{created}Z",
    }
    return parse_resource({"metadata": metadata, "spec": {"group": "lake", "capacity": "2 MB/s", **spec}})


def source(*resources: ScalerResource, settings: GroupListSettings | None = None) -> ResourceSource:
    def list_resources() -> Sequence[ScalerResource]:
        return resources

    return ResourceSource(settings or listed(), list_resources)


def entries_of(made: ResourceSource) -> list[GroupEntry]:
    return list(made.list_entries() or ())


def problems(made: ResourceSource) -> dict[str, str]:
    entries = made.list_resource_entries() or ()
    return {e.resource.name: "" if e.problem is None else e.problem.reason for e in entries}


def test_a_resource_has_the_common_settings_and_its_own() -> None:
    """Own settings win; the workload is that of the resource's namespace, and the target follows from it."""
    spec: dict[str, Any] = {
        "workload": "deployment/a",
        "scaleUpPolicies": {"policies": [{"type": "pods", "value": 2, "period": 60}]},
    }
    (entry,) = entries_of(source(resource("a", **spec), settings=listed(max=7, min=2)))
    settings = entry.settings
    assert settings is not None
    assert (settings.group, settings.max, settings.min, settings.capacity) == ("lake", 7, 2, 2e6)
    assert (settings.target, settings.workload, settings.namespace) == ("kubernetes", "deployment/a", "shop")
    assert settings.scale_up_policies.policies[0].value == 2


def test_the_oldest_resource_has_the_group() -> None:
    """The others are told whose it is; a group of the file belongs to the file."""
    one, two, three = resource("a", 2), resource("b", 1), resource("c", 1, group="clicks")
    made = source(one, two, three, settings=listed(groups=[{"group": "clicks", "capacity": "1 MB/s"}]))
    assert problems(made) == {"a": "GroupConflict", "b": "", "c": "GroupConflict"}
    assert [entry.origin for entry in entries_of(made)] == ["ConsumerGroupScaler shop/b"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"min": 9, "max": 3}, "min=9 is above max=3"),
        ({"workerCommand": ["rm"]}, "worker-command: not a setting of a resource"),
        ({"namespace": "other"}, "namespace: not a setting of a resource"),
        ({"bootstrap": "evil:1"}, "bootstrap: not a setting of a resource"),
        ({"target": "process"}, "target=process: a resource's target is none, kubernetes, keda"),
        ({"heuristic": "no-such"}, "no-such"),
        ({"schedule": [{"start": "0 8 * *", "end": "0 9 * * *", "min": 1}]}, "is no cron line"),
    ],
)
def test_wrong_settings_are_that_resources_problem(spec: dict[str, Any], message: str) -> None:
    """The problem says what is wrong; the other resource has settings."""
    made = source(resource("bad", **spec), resource("good", group="clicks"))
    assert problems(made) == {"bad": "InvalidSettings", "good": ""}
    (bad,) = (e for e in made.list_resource_entries() or () if e.resource.name == "bad")
    assert bad.problem is not None
    assert message in bad.problem.message
    assert [entry.settings is None for entry in entries_of(made)] == [True, False]


def test_a_secret_of_the_sidecar_is_not_read_for_a_resource() -> None:
    """A reference in a spec stays text: its author may not read the sidecar's environment."""
    made = source(resource("a", queue="kmq", topics=["t"], queueMarkers="${env:PATH}"))
    (entry,) = entries_of(made)
    assert entry.settings is not None
    assert entry.settings.queue_markers == "${env:PATH}"


def test_a_spec_is_checked_once_for_a_generation() -> None:
    """The same generation has the same entry; a new one is checked again."""
    resources = [resource("a")]
    made = ResourceSource(listed(), lambda: tuple(resources))
    (first,), (again,) = entries_of(made), entries_of(made)
    assert again is first
    resources[0] = replace(resources[0], generation=2, spec={"group": "lake", "capacity": "3 MB/s"})
    (changed,) = entries_of(made)
    assert changed.settings is not None
    assert changed.settings.capacity == 3e6


def test_nothing_is_known_before_the_first_list() -> None:
    """Groups known before are not closed then."""
    assert ResourceSource(listed(), lambda: None).list_entries() is None


def test_a_namespace_without_custom_resources_is_refused() -> None:
    """The error names the other setting."""
    with pytest.raises(SettingError, match="write custom-resources: true, too"):
        load_settings_of_groups(None, {"bootstrap": "b:1", "watch-namespace": "shop"})
