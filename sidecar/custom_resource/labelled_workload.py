"""Labelled Deployments and StatefulSets as groups to manage: their annotations are the settings. Pure.

    metadata:
      labels: {trimtab.io/scale: "true"}          # the sidecar's workload-selector
      annotations:
        scaler.trimtab.io/group: orders
        scaler.trimtab.io/capacity: 2.3 MB/s

An annotation has the name of a setting, and its value as text: as on the command line, or YAML where
it begins as a list or mapping does.
"""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource

ANNOTATION_PREFIX: Final = "scaler.trimtab.io/"
WORKLOAD_KINDS: Final = ("Deployment", "StatefulSet")
MAX_OPENINGS: Final = 1000  # of lists and mappings in an annotation
_YAML_BEGINNINGS: Final = ("[", "{", "- ")


def parse_labelled_workload(kind: str, body: Mapping[str, Any]) -> ScalerResource:
    """Return the group and settings that a workload's annotations give; `kind` is like "Deployment"."""
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    own = {
        name.removeprefix(ANNOTATION_PREFIX): text
        for name, text in annotations.items()
        if name.startswith(ANNOTATION_PREFIX)
    }
    group = own.pop("group", "").strip()
    spec = {name: _parse_value(text) for name, text in own.items()}
    if spec.get("target") != "none":
        spec.setdefault("workload", f"{kind.lower()}/{metadata['name']}")
    return ScalerResource(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=0,  # annotations do not change it
        created_at=str(metadata.get("creationTimestamp", "")),
        spec={"group": group, **spec},
        status={},
        kind=kind,
    )


def _parse_value(text: str) -> Any:
    if not text.lstrip().startswith(_YAML_BEGINNINGS):
        return text  # not 1e3 or "on" as YAML reads them
    if text.count("[") + text.count("{") > MAX_OPENINGS:
        return text  # the time to read them grows with their square
    try:
        # an alias may refer to its own list, or double it again and again
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            return text
        return yaml.safe_load(text)
    # of a date or number that does not exist, and of lists too deep
    except (yaml.YAMLError, ValueError, RecursionError):
        return text  # the check of the settings tells of it
