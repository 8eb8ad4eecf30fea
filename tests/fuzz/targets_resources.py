"""ConsumerGroupScaler resources, as an API server with an older definition may hold them, and annotations."""

import json
from functools import cache
from typing import Any, Final

from trimtab.sidecar.custom_resource.labelled_workload import ANNOTATION_PREFIX, parse_labelled_workload
from trimtab.sidecar.custom_resource.resource_source import ResourceEntry, ResourceSource
from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource, parse_resource
from trimtab.sidecar.settings.group_list import GroupListSettings, load_settings_of_groups

SPEC: Final = {
    "group": "lake",
    "capacity": "2 MB/s",
    "workload": "deployment/a",
    "min": 1,
    "max": 8,
    "heuristic": "steady:calm",
    "tolerance": {"scaleUp": 0.1, "scaleDown": 0.2},
    "scaleUpPolicies": {"policies": [{"type": "pods", "value": 4, "period": "60 s"}]},
    "schedule": [{"start": "0 8 * * *", "end": "0 18 * * *", "timezone": "Europe/Paris", "replicas": 3}],
}
ANNOTATIONS: Final = {
    "group": "lake",
    "capacity": "2 MB/s",
    "topics": "[orders, clicks]",
    "max": "8",
    "tolerance": "{scale-up: 0.1, scale-down: 0.2}",
    "schedule": '- {start: "0 8 * * *", end: "0 18 * * *", timezone: Europe/Paris, replicas: 3}',
}
SEEDS: Final = {
    "read_spec": [
        json.dumps(SPEC).encode(),
        json.dumps({**SPEC, "target": "process", "workerCommand": ["x"]}).encode(),
        json.dumps({"group": 7, "capacity": None, "topics": {"a": "b"}}).encode(),
    ],
    "read_annotations": [
        json.dumps(ANNOTATIONS).encode(),
        json.dumps({"group": " ", "workload": "deployment/other", "target": "none"}).encode(),
        json.dumps({**ANNOTATIONS, "tolerance": "{scale-up: *a", "topics": "- [&a [*a]]"}).encode(),
    ],
}


def read_spec(data: bytes) -> None:
    """A spec gives the group's settings, or a problem that its status tells."""
    try:
        spec = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(spec, dict):  # of which the API server makes sure
        return
    _check_entry(parse_resource({"metadata": {"namespace": "n", "name": "a", "uid": "u"}, "spec": spec}))


def read_annotations(data: bytes) -> None:
    """A workload's annotations give its group's settings, or a problem that an event tells."""
    try:
        texts = json.loads(data)
    except (ValueError, RecursionError):
        return
    # the API server has texts only
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        return
    annotations = {f"{ANNOTATION_PREFIX}{name}": text for name, text in texts.items()}
    metadata = {"namespace": "n", "name": "a", "uid": "u", "annotations": annotations}
    resource = parse_labelled_workload("Deployment", {"metadata": metadata})
    entry = _check_entry(resource)
    settings = entry.entry.settings
    assert settings is None or settings.workload in (None, "deployment/a")
    assert settings is None or settings.bootstrap == "b:1"


def _check_entry(resource: ScalerResource) -> ResourceEntry:
    (entry,) = ResourceSource(_listed(), lambda: (resource,)).list_resource_entries() or ()
    assert (entry.problem is None) == (entry.entry.settings is not None)
    assert entry.problem is None or entry.problem.message
    return entry


@cache
def _listed() -> GroupListSettings:
    given: dict[str, Any] = {"bootstrap": "b:1", "custom-resources": True}
    settings = load_settings_of_groups(None, given)
    assert isinstance(settings, GroupListSettings)
    return settings
