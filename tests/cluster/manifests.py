"""What `deploy/` renders: the overlays by kustomize, the chart by helm, as plain objects."""

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from cluster.binaries import KUBERNETES, find

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "helm" / "trimtab"
OVERLAYS: Final = ("local-lake", "two-sidecars", "keda")
NAMESPACE: Final = "trimtab"
LOCAL_LAKE: Final = {  # the chart's values for the overlay of that name
    r"consumer.settings.lake\.warehouse": "/lake",
    r"consumer.settings.lake\.catalog\.type": "null",
    r"consumer.settings.lake\.catalog\.uri": "null",
    "consumer.volume.enabled": "true",
}
VALUES: Final[Mapping[str, Mapping[str, str]]] = {
    "local-lake": LOCAL_LAKE,
    "two-sidecars": {"sidecar.replicas": "2", "monitoring.enabled": "true"},
    "keda": {"keda.enabled": "true", "sidecar.settings.min": "0"},
}
"""The chart's values that give what an overlay gives."""

DIGEST: Final = re.compile(r"(?<=-settings)-[0-9a-z]{10}$")
"""What kustomize appends to the name of a config map."""

Object: TypeAlias = dict[str, Any]


def overlay(name: str) -> list[Object]:
    """Return what `kubectl apply -k` applies."""
    folder = DEPLOY / "kustomize" / "overlays" / name
    return _objects(_said([str(find("kustomize")), "build", str(folder)]))


def chart(values: Mapping[str, str], release: str = NAMESPACE) -> list[Object]:
    """Return what `helm install` installs. Raises CalledProcessError with what helm says."""
    given = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    words = ["template", release, str(CHART), "--namespace", NAMESPACE]
    flags = ["--kube-version", KUBERNETES]  # else that of its own client library
    return _objects(_said([str(find("helm")), *words, *flags, *given]))


def lint() -> str:
    """Return what helm says of the chart. Raises CalledProcessError."""
    return _said([str(find("helm")), "lint", "--strict", "--kube-version", KUBERNETES, str(CHART)])


def named(objects: Iterable[Object]) -> dict[tuple[str, str], Object]:
    """Return objects by kind and name; of config maps without the digest in the name."""
    return {(o["kind"], _plain(o)): o for o in objects}


def settings(objects: Iterable[Object], part: str) -> dict[str, Any]:
    """Return the settings that a part, "consumer" or "sidecar", is given as a file."""
    file = {"consumer": "ingest.yaml", "sidecar": "sidecar.yaml"}[part]
    (data,) = [o["data"] for o in objects if o["kind"] == "ConfigMap" and file in o["data"]]
    body: dict[str, Any] = yaml.safe_load(data[file])
    return body


def _plain(body: Object) -> str:
    return DIGEST.sub("", str(body["metadata"]["name"]))


def _objects(text: str) -> list[Object]:
    return [body for body in yaml.safe_load_all(text) if body]


def _said(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
