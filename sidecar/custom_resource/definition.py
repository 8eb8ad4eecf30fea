"""The definition of the custom resource, made from the sidecar's settings.

`make crd` writes it into the chart and the overlay; a test compares them.
"""

import re
import sys
import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import yaml

from trimtab.common.settings.settings_model import (
    ByteRate,
    ByteSize,
    Duration,
    Setting,
    SettingsModel,
    list_settings,
)
from trimtab.sidecar.custom_resource.names import (
    API_GROUP,
    API_VERSION,
    DEFINITION_NAME,
    KIND,
    PLURAL,
    RESOURCE_SETTINGS,
    RESOURCE_TARGETS,
    list_field_names,
    to_field_name,
)
from trimtab.sidecar.custom_resource.rules import BOUNDS, RULES
from trimtab.sidecar.settings.fields import FreshnessSlo, WorkloadRef

HEADER: Final = "# Made from the sidecar's settings by `make crd`; do not edit.\n"

# the API server limits the cost of rules, and estimates it by these
MAX_ITEMS: Final = 100
MAX_LENGTH: Final = 256

_NUMBER_PATTERN: Final = r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"
_DURATION_PATTERN: Final = rf"{_NUMBER_PATTERN} *(?i:ms|s|m|min|h|d)?"
_SIZE_PATTERN: Final = rf"{_NUMBER_PATTERN} *((?i:[kmgt]|[kmg]i)?B)?"
_TEXT_PATTERNS: Final[Mapping[Any, str]] = {
    Duration: rf"^{_DURATION_PATTERN}$",
    ByteRate: rf"^{_SIZE_PATTERN} *(/ *s(ec)?)?$",
    ByteSize: rf"^{_SIZE_PATTERN}$",
    FreshnessSlo: rf"^p99-freshness +{_DURATION_PATTERN}$",
    WorkloadRef: r"^(deployment|statefulset)/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
}
_NUMBER_OR_TEXT: Final = (Duration, ByteRate, ByteSize)
_SCALAR_SCHEMAS: Final[Mapping[Any, Mapping[str, Any]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int32"},
    float: {"type": "number"},
    str: {"type": "string", "maxLength": MAX_LENGTH},
}

# of settings whose short forms in text a resource does not have
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "topics": 'Topic names, or one "^pattern".',
    "lead-assignors": "Names of assignors, the preferred one first; all members must name the one used.",
    "target": "Replica target: none publishes plans only, kubernetes scales the workload, keda lets KEDA "
    "scale it. Default: kubernetes with a workload, else none.",
    "scale-up-policies": "Most replicas to add, as policies of the HPA.",
    "scale-down-policies": "Most replicas to remove, as policies of the HPA.",
    "tolerance": "Fraction by which the load must differ from the replica count's before it changes.",
}
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")

COLUMNS: Final = (
    ("Group", "string", ".spec.group", 0),
    ("Replicas", "integer", ".status.replicas", 0),
    ("Desired", "integer", ".status.desiredReplicas", 0),
    ("Load", "string", ".status.load.required", 0),
    ("Backlog", "string", ".status.load.backlog", 0),
    ("Fullest", "string", ".status.load.fullest", 1),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Degraded", "string", '.status.conditions[?(@.type=="Degraded")].status', 1),
    ("Decision", "string", ".status.lastDecision.action", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)


def build_definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition."""
    version = {
        "name": API_VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_build_column(*column) for column in COLUMNS],
        "schema": {"openAPIV3Schema": _build_resource_schema()},
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["cgs"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION_NAME, "labels": {"app.kubernetes.io/name": "trimtab"}},
        "spec": {"group": API_GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def render_definition() -> str:
    """Return the definition as YAML."""
    return HEADER + yaml.safe_dump(build_definition(), sort_keys=False, width=100)


def build_spec_schema() -> dict[str, Any]:
    """Return the schema of the spec: one field for each setting of one group."""
    fields: dict[str, Any] = {}
    for one in RESOURCE_SETTINGS:
        name = to_field_name(one.name)
        schema = _build_schema(one.annotation, name)
        if one.name == "target":
            schema["enum"] = list(RESOURCE_TARGETS)
        fields[name] = {"description": _describe(one), **schema}
    return _add_rules({"type": "object", "required": ["group"], "properties": fields}, "")


def _describe(one: Setting) -> str:
    text = _DESCRIPTIONS.get(one.name) or _LINK.sub(r"\1", one.description)
    has_default = one.default_is_value and one.name != "target"  # it depends on the workload
    return f"{text} Default: {one.default}." if has_default else text


def _build_resource_schema() -> dict[str, Any]:
    text = "The settings and the state of one consumer group, which the sidecar scales and places."
    return {
        "type": "object",
        "description": text,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "description": "The sidecar's settings for this group; its file has the common ones.",
                **build_spec_schema(),
            },
            "status": _build_status_schema(),
        },
    }


def _build_schema(annotation: Any, path: str) -> dict[str, Any]:
    """Return the schema of a setting's type, with its bounds and rules."""
    return _add_rules({**_build_type_schema(annotation, path), **BOUNDS.get(path, {})}, path)


def _build_type_schema(annotation: Any, path: str) -> dict[str, Any]:
    annotation = _remove_optional(annotation)
    if (pattern := _TEXT_PATTERNS.get(annotation)) is not None:
        kind = {"x-kubernetes-int-or-string": True} if annotation in _NUMBER_OR_TEXT else {"type": "string"}
        return {**kind, "pattern": pattern, "maxLength": MAX_LENGTH}
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _build_type_schema(parts[0], path)
    if origin is tuple:
        return {"type": "array", "maxItems": MAX_ITEMS, "items": _build_schema(parts[0], f"{path}[]")}
    choices = _list_choices(annotation)
    if choices:
        return {"type": "string", "enum": choices}
    if issubclass(annotation, SettingsModel):
        return _build_object_schema(annotation, path)
    return dict(_SCALAR_SCHEMAS[annotation])


def _remove_optional(annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    (one,) = (part for part in get_args(annotation) if part is not type(None))
    return one


def _list_choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [member.value for member in annotation] if issubclass(annotation, Enum) else []


def _build_object_schema(model: type[SettingsModel], path: str) -> dict[str, Any]:
    fields = {
        name: _build_schema(annotation, f"{path}.{name}")
        for name, annotation in list_field_names(model).items()
    }
    required = _list_required_fields(model)
    return {"type": "object", **({"required": required} if required else {}), "properties": fields}


def _list_required_fields(model: type[SettingsModel]) -> list[str]:
    return [to_field_name(one.name) for one in list_settings(model) if one.default is None]


def _add_rules(schema: dict[str, Any], path: str) -> dict[str, Any]:
    rules = [{"rule": rule.expression, "message": rule.message} for rule in RULES.get(path, ())]
    return {**schema, "x-kubernetes-validations": rules} if rules else schema


def _build_column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    wide = {"priority": priority} if priority else {}  # shown by `-o wide` only
    return {"name": name, "type": kind, "jsonPath": path, **wide}


def _build_status_schema() -> dict[str, Any]:
    text, time, count = {"type": "string"}, {"type": "string", "format": "date-time"}, {"type": "integer"}
    decision = {"type": "object", "properties": {"time": time, "action": text, "reason": text}}
    load = dict.fromkeys(("required", "written", "backlog", "fullest"), text)
    condition = {
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": text,
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "lastTransitionTime": time,
            "reason": text,
            "message": text,
        },
    }
    return {
        "type": "object",
        "description": "What the sidecar that manages the group last did and saw.",
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "replicas": {"description": "Live replicas that are not draining.", **count},
            "plannedReplicas": {"description": "Replicas of the plan in force.", **count},
            "desiredReplicas": {"description": "Replicas after tolerance, limits and windows.", **count},
            "load": {
                "type": "object",
                "description": "Rates to read and written, bytes not yet committed, fill of the fullest "
                "consumer.",
                "properties": load,
            },
            "lastDecision": {"description": "The newest decision; hold changes nothing.", **decision},
            "lastScaling": {"description": "The last decision that was not hold.", **decision},
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": condition,
            },
        },
    }


if __name__ == "__main__":
    for path in sys.argv[1:]:
        Path(path).write_text(render_definition())
