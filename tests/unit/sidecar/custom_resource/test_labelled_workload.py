"""Labelled workloads as groups: their annotations are settings, and resources come first."""

from collections.abc import Sequence
from typing import Any

import pytest

from trimtab.sidecar.custom_resource.labelled_workload import ANNOTATION_PREFIX, parse_labelled_workload
from trimtab.sidecar.custom_resource.resource_source import ResourceEntry, ResourceSource
from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource, parse_resource
from trimtab.sidecar.settings.group_list import GroupListSettings, load_settings_of_groups


def workload(name: str, kind: str = "Deployment", created: int = 1, **annotations: str) -> ScalerResource:
    own = {f"{ANNOTATION_PREFIX}{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = {
        "namespace": "shop",
        "name": name,
        "uid": f"uid-{kind}-{name}",
        "creationTimestamp": f"2026-11-25T00:00:0{created}Z",
        "annotations": {"trimtab.io/pause": "all", "other/capacity": "9 MB/s", **own},
    }
    return parse_labelled_workload(kind, {"metadata": metadata})


def entries(*resources: ScalerResource, **common: Any) -> list[ResourceEntry]:
    given = {"bootstrap": "b:1", "workload-selector": "trimtab.io/scale=true", **common}
    listed = load_settings_of_groups(None, given)
    assert isinstance(listed, GroupListSettings)

    def list_resources() -> Sequence[ScalerResource]:
        return resources

    return list(ResourceSource(listed, list_resources).list_resource_entries() or ())


def test_annotations_are_settings() -> None:
    """Text as on the command line, YAML for lists and mappings; the workload itself is the target."""
    (one,) = entries(
        workload(
            "orders",
            "StatefulSet",
            group="lake",
            capacity="2 MB/s",
            topics="orders,clicks",
            max="7",
            learn_capacity="false",
            tolerance="{scale-up: 0.05, scale-down: 0.2}",
            schedule='- {start: "0 8 * * *", end: "0 18 * * *", min: 4}',
        ),
        min=2,
    )
    settings = one.entry.settings
    assert settings is not None, one.entry.error
    assert (settings.group, settings.capacity, settings.min, settings.max) == ("lake", 2e6, 2, 7)
    assert (settings.target, settings.workload) == ("kubernetes", "statefulset/orders")
    assert (settings.namespace, settings.topics) == ("shop", ("orders", "clicks"))
    assert not settings.learn_capacity
    assert settings.tolerance.scale_down == 0.2
    assert settings.schedule[0].min == 4
    assert one.entry.origin == "StatefulSet shop/orders"


def test_a_workload_may_be_advised_only() -> None:
    """With target none nothing is scaled, so that no workload is named."""
    (one,) = entries(workload("orders", group="lake", capacity="2 MB/s", target="none"))
    assert one.entry.settings is not None
    assert (one.entry.settings.target, one.entry.settings.workload) == ("none", None)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({}, "annotation scaler.trimtab.io/group is missing"),
        ({"group": " "}, "annotation scaler.trimtab.io/group is missing"),
        ({"group": "lake", "workload": "deployment/other"}, "workload names another one; leave it out"),
        ({"group": "lake", "capcity": "1 MB/s"}, "'capcity' is not a setting"),
        ({"group": "lake", "worker-command": "rm"}, "worker-command: not a setting of a resource"),
        ({"group": "lake", "bootstrap": "evil:1"}, "bootstrap: not a setting of a resource"),
        ({"group": "lake", "namespace": "other"}, "namespace: not a setting of a resource"),
        ({"group": "lake", "schedule": "[{start"}, "schedule"),
        ({"group": "lake", "min": "9", "max": "3"}, "min=9 is above max=3"),
    ],
)
def test_wrong_annotations_are_that_workloads_problem(annotations: dict[str, str], message: str) -> None:
    """The problem names the annotation; another workload has its settings."""
    bad = workload("bad", **{"capacity": "1 MB/s", **annotations})
    good = workload("good", group="clicks", capacity="1 MB/s")
    problems = {one.resource.name: one.problem for one in entries(bad, good)}
    assert problems["good"] is None
    assert problems["bad"] is not None
    assert problems["bad"].reason == "InvalidSettings"
    assert message in problems["bad"].message


def test_a_resource_comes_before_a_workload_and_the_older_workload_first() -> None:
    """The others are told whose the group is; two without a group are in no conflict."""
    metadata = {
        "namespace": "shop",
        "name": "r",
        "uid": "uid-r",
        "generation": 1,
        "creationTimestamp": "2026-11-25T00:00:09Z",
    }
    resource = parse_resource({"metadata": metadata, "spec": {"group": "lake", "capacity": "1 MB/s"}})
    made = entries(
        workload("a", group="lake", capacity="1 MB/s"),
        resource,
        workload("b", created=2, group="clicks", capacity="1 MB/s"),
        workload("b", "StatefulSet", created=1, group="clicks", capacity="1 MB/s"),
        workload("c"),
        workload("d"),
    )
    problems = {one.resource.origin: one.problem.message for one in made if one.problem is not None}
    assert problems.keys() == {f"Deployment shop/{name}" for name in "abcd"}
    assert problems["Deployment shop/a"].startswith("group 'lake' belongs to ConsumerGroupScaler shop/r")
    assert "belongs to StatefulSet shop/b" in problems["Deployment shop/b"]
    assert len({one.entry.group for one in made if one.entry.settings is None}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "[&a [*a]]",
        "{scale-up: *a",
        "[&a [1], *a, *a]",
        "[2001-13-45]",
        f"[{'9' * 5000}]",
        "[" * 50_000,
        "[" * 900,
        "- " * 5000,
    ],
    ids=["own alias", "half a mapping", "alias", "date", "number", "depth", "recursion", "block"],
)
def test_yaml_that_does_harm_is_a_problem_of_its_workload(text: str) -> None:
    """Aliases, dates that do not exist and endless lists are told of; the next workload is managed."""
    bad, good = entries(
        workload("bad", group="lake", capacity="2 MB/s", topics=text, created=1),
        workload("good", group="shop", capacity="2 MB/s", created=2),
    )
    assert bad.problem is None or bad.problem.message
    assert good.entry.settings is not None
