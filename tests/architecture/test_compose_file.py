"""The compose file: Grafana gets dashboard and data source, parts start again, images have exact versions."""

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

COMPOSE: Final = Path(__file__).parents[2] / "deploy" / "compose"
PROVISIONING: Final = PurePosixPath("/etc/grafana/provisioning")
ONE_SHOT: Final = {"topics", "bucket"}
WITHOUT_DIGEST: Final = {"apicurio-registry", "versitygw", "iceberg-rest-fixture"}
"""Images whose digest nobody here could look up yet; `make compose-images` does."""


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def list_services() -> dict[str, Any]:
    return dict(read_yaml(COMPOSE / "compose.yaml")["services"])


def list_mounts(service: str) -> dict[PurePosixPath, Path]:
    """Return the mounted files of the repository by their paths in the container."""
    volumes = (one.split(":") for one in list_services()[service]["volumes"])
    return {PurePosixPath(inside): (COMPOSE / outside).resolve() for outside, inside, _ in volumes}


def test_grafana_finds_the_dashboard() -> None:
    """The provider reads the folder in which the dashboard is mounted."""
    mounts = list_mounts("grafana")
    (provisioned,) = (file for path, file in mounts.items() if path.parent == PROVISIONING / "dashboards")
    (provider,) = read_yaml(provisioned)["providers"]
    folder = PurePosixPath(provider["options"]["path"])
    assert [file.name for path, file in mounts.items() if path.parent == folder] == ["dashboard.json"]


def test_grafana_finds_prometheus() -> None:
    """The default data source is the service that scrapes the parts, at its port."""
    mounts = list_mounts("grafana")
    (provisioned,) = (file for path, file in mounts.items() if path.parent == PROVISIONING / "datasources")
    (source,) = read_yaml(provisioned)["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    (published,) = list_services()["prometheus"]["ports"]
    assert source["url"] == f"http://prometheus:{published.split(':')[-1]}"


def test_parts_start_again_after_an_error() -> None:
    """All but the parts that end by themselves have the restart policy."""
    policies = {name: service.get("restart") for name, service in list_services().items()}
    assert {name for name, policy in policies.items() if policy is None} == ONE_SHOT
    assert set(policies.values()) == {None, "on-failure"}


def test_images_have_exact_versions() -> None:
    """Each image has a version, and a digest unless it is named here; a version has one digest."""
    images = {
        image
        for file in COMPOSE.glob("*.yaml")
        for image in re.findall(r"^ *image: (\S+)", file.read_text(), re.MULTILINE)
    }
    found = [re.fullmatch(r"[a-z/-]*?([a-z-]+):(v?\d[\w.-]+)(@sha256:[0-9a-f]{64})?", one) for one in images]
    assert all(found), images
    parts = [one.groups() for one in found if one]
    assert {name for name, _, digest in parts if digest is None} <= WITHOUT_DIGEST
    assert len({(name, version) for name, version, _ in parts}) == len(images)
