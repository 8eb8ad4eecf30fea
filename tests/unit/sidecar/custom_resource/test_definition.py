"""The definition of the custom resource: it has the sidecar's settings, and their checks."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

from trimtab.common.errors import SettingError
from trimtab.common.settings.settings_model import list_settings
from trimtab.common.units import parse_rate, parse_seconds
from trimtab.sidecar.custom_resource.definition import build_spec_schema, render_definition
from trimtab.sidecar.custom_resource.names import (
    NOT_IN_RESOURCES,
    RESOURCE_SETTINGS,
    to_field_name,
    to_setting_name,
    to_setting_values,
)
from trimtab.sidecar.custom_resource.rules import BOUNDS, RULES
from trimtab.sidecar.settings.settings import SidecarSettings

DEPLOY: Final = Path(__file__).parents[4] / "deploy"
OVERLAY: Final = DEPLOY / "kustomize" / "overlays" / "custom-resources" / "definition.yaml"
CHART: Final = DEPLOY / "helm" / "trimtab" / "files" / "definition.yaml"


@pytest.mark.parametrize("file", [OVERLAY, CHART])
def test_the_definition_is_that_of_the_settings(file: Path) -> None:
    """A setting that changes needs `make crd`."""
    assert file.read_text() == render_definition()


def test_each_setting_of_a_group_is_a_field() -> None:
    """Every setting is a field, or is excluded by name; an excluded name is a setting."""
    names = {one.name for one in list_settings(SidecarSettings)}
    fields = build_spec_schema()["properties"]
    assert names - {to_setting_name(field) for field in fields} == NOT_IN_RESOURCES
    assert len(fields) == len(RESOURCE_SETTINGS)
    assert all(to_setting_name(to_field_name(one.name)) == one.name for one in RESOURCE_SETTINGS)


def test_no_resource_runs_commands_or_reads_files_of_the_sidecar() -> None:
    """Settings of files and commands are excluded, and so is the target of local processes."""
    paths = {one.name for one in list_settings(SidecarSettings) if "Path" in str(one.annotation)}
    assert {"kubeconfig", "worker-config", "token-file"} <= paths <= NOT_IN_RESOURCES
    assert {"worker-command", "kafka", "namespace"} <= NOT_IN_RESOURCES
    assert build_spec_schema()["properties"]["target"]["enum"] == ["none", "kubernetes", "keda"]


def test_a_replica_has_a_consumer_at_least() -> None:
    """The API server refuses what the sidecar would."""
    assert build_spec_schema()["properties"]["consumersPerReplica"]["minimum"] == 1


def test_every_rule_and_bound_is_at_a_field() -> None:
    """A renamed setting leaves no rule behind: paths exist, and rules name fields that exist."""
    spec = build_spec_schema()
    for path in [*BOUNDS, *RULES]:
        schema = find_schema(spec, path)
        named = {name for rule in RULES.get(path, ()) for name in re.findall(r"self\.(\w+)", rule.expression)}
        assert named <= schema.get("properties", {}).keys(), path
        expected = [{"rule": rule.expression, "message": rule.message} for rule in RULES.get(path, ())]
        assert schema.get("x-kubernetes-validations", []) == expected
        assert schema.items() >= BOUNDS.get(path, {}).items()


def find_schema(spec: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the schema at a path as `BOUNDS` writes it."""
    for part in filter(None, path.split(".")):
        name = part.removesuffix("[]")
        spec = spec["properties"][name]
        spec = spec["items"] if part.endswith("[]") else spec
    return spec


@pytest.mark.parametrize(
    ("field", "parse", "texts"),
    [
        ("window", parse_seconds, ["30 s", "30s", "250 ms", "1.5 Min", "2h", "7", "1e3 s", "1 d"]),
        ("capacity", parse_rate, ["2.3 MB/s", "2.3mB/s", "500", "1 GiB/s", "8 kB / sec", "1e6", "7 B/s"]),
    ],
)
def test_the_server_accepts_what_the_loader_reads(field: str, parse: Any, texts: list[str]) -> None:
    """Patterns accept the units of `common.units`, and no others."""
    pattern = build_spec_schema()["properties"][field]["pattern"]
    for text in texts:
        assert parse(text) > 0
        assert re.search(pattern, text), text
    for text in ("fast", "", "3 weeks", "-1 s", "1 MB/h", "2.3 Mb/s"):
        with pytest.raises(SettingError, match=r"not understood|in bits"):
            parse(text)
        assert not re.search(pattern, text), text


def test_names_are_translated_inside_of_values() -> None:
    """Fields of nested values are settings' names, too; values stay."""
    spec = {
        "tolerance": {"scaleUp": 0.1},
        "scaleUpPolicies": {"policies": [{"type": "pods"}]},
        "queue": "kmq",
    }
    assert to_setting_values(spec) == {
        "tolerance": {"scale-up": 0.1},
        "scale-up-policies": {"policies": [{"type": "pods"}]},
        "queue": "kmq",
    }
