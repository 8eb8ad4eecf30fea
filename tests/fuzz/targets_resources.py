"""ConsumerGroupScaler resources, as an API server with an older definition may hold them."""

import json
from functools import cache
from typing import Any, Final

from trimtab.sidecar.custom_resource.resource_source import ResourceSource
from trimtab.sidecar.custom_resource.scaler_resource import parse_resource
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
SEEDS: Final = {
    "read_spec": [
        json.dumps(SPEC).encode(),
        json.dumps({**SPEC, "target": "process", "workerCommand": ["x"]}).encode(),
        json.dumps({"group": 7, "capacity": None, "topics": {"a": "b"}}).encode(),
    ]
}


def read_spec(data: bytes) -> None:
    """A spec gives the group's settings, or a problem that its status tells."""
    try:
        spec = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(spec, dict):  # of which the API server makes sure
        return
    resource = parse_resource({"metadata": {"namespace": "n", "name": "a", "uid": "u"}, "spec": spec})
    (entry,) = ResourceSource(_listed(), lambda: (resource,)).list_resource_entries() or ()
    assert (entry.problem is None) == (entry.entry.settings is not None)
    assert entry.problem is None or entry.problem.message


@cache
def _listed() -> GroupListSettings:
    given: dict[str, Any] = {"bootstrap": "b:1", "custom-resources": True}
    settings = load_settings_of_groups(None, given)
    assert isinstance(settings, GroupListSettings)
    return settings
