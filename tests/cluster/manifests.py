"""The rendered `deploy/`: overlays by kustomize, the chart by helm, as plain objects."""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from cluster.binaries import KUBERNETES, find

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "helm" / "trimtab"
STORAGE_OVERLAYS: Final = ("aws", "gcs", "azure", "s3-compatible")
OVERLAYS: Final = (
    "local-lake",
    "two-sidecars",
    "keda",
    "custom-resources",
    "labelled-workloads",
    "spark-executors",
    *STORAGE_OVERLAYS,
)
NAMESPACE: Final = "trimtab"
LOCAL_LAKE: Final = {  # the chart's values for the overlay of that name
    r"consumer.settings.lake\.warehouse": "/lake",
    r"consumer.settings.lake\.catalog\.type": "null",
    r"consumer.settings.lake\.catalog\.uri": "null",
    r"consumer.settings.lake\.storage": "null",
    "consumer.volume.enabled": "true",
}
TWO_SIDECARS: Final = {"sidecar.replicas": "2", "monitoring.enabled": "true"}
VALUES: Final[Mapping[str, Mapping[str, str] | Path]] = {
    "local-lake": LOCAL_LAKE,
    "two-sidecars": TWO_SIDECARS,
    "keda": {"keda.enabled": "true", "sidecar.settings.min": "0"},
    "custom-resources": {"customResources.enabled": "true"},
    "labelled-workloads": {"workloadSelector": "trimtab.io/scale=true"},
    "spark-executors": {"consumer.executors.enabled": "true"},
    **{name: CHART / "examples" / f"{name}.yaml" for name in STORAGE_OVERLAYS},
}
"""Values, or a file of them, with which the chart equals an overlay."""

SECRETS: Final = "/var/run/secrets/trimtab"
TLS: Final[Mapping[str, str]] = {
    **TWO_SIDECARS,
    "sidecar.settings.tls-certificate": f"{SECRETS}/page.crt",
    "sidecar.settings.tls-key": f"{SECRETS}/page.key",
    "sidecar.settings.token-file": f"{SECRETS}/token",
    r"consumer.settings.trimtab\.metrics\.tls\.certificate": f"{SECRETS}/page.crt",
    r"consumer.settings.trimtab\.metrics\.tls\.key": f"{SECRETS}/page.key",
    r"consumer.settings.trimtab\.metrics\.token\.file": f"{SECRETS}/token",
    **{
        f"monitoring.{part}.{name}": value
        for part in ("sidecar", "consumer")
        for name, value in (
            ("tlsConfig.ca.secret.name", "trimtab-kafka"),
            ("tlsConfig.ca.secret.key", "page-ca.crt"),
            ("tlsConfig.serverName", "trimtab"),
            ("authorization.credentials.name", "trimtab-kafka"),
            ("authorization.credentials.key", "token"),
        )
    },
}
"""Values with which the chart equals the component `tls`, beside the settings."""

DIGEST: Final = re.compile(r"(?<=-settings)-[0-9a-z]{10}$")
"""Suffix that kustomize appends to the name of a config map."""

Object: TypeAlias = dict[str, Any]


def overlay(name: str) -> list[Object]:
    """Return the objects that `kubectl apply -k` applies."""
    return built(DEPLOY / "kustomize" / "overlays" / name)


def encrypted(folder: Path) -> list[Object]:
    """Return an overlay with two sidecars and the component `tls`, created in `folder`."""
    above = Path(os.path.relpath(DEPLOY / "kustomize", folder))
    body = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(above / "overlays" / "two-sidecars")],
        "components": [str(above / "components" / "tls")],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(body))
    return built(folder)


def built(folder: Path) -> list[Object]:
    """Return the objects that kustomize renders from a folder."""
    return _objects(_run([str(find("kustomize")), "build", str(folder)]))


def chart(values: Mapping[str, str] | Path, release: str = NAMESPACE) -> list[Object]:
    """Return the objects that `helm install` installs. Raises CalledProcessError with helm's output."""
    if isinstance(values, Path):
        given = ["--values", str(values)]
    else:
        given = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    words = ["template", release, str(CHART), "--namespace", NAMESPACE]
    flags = ["--kube-version", KUBERNETES]  # the default is the version of helm's client library
    return _objects(_run([str(find("helm")), *words, *flags, *given]))


def lint() -> str:
    """Return the output of `helm lint`. Raises CalledProcessError."""
    return _run([str(find("helm")), "lint", "--strict", "--kube-version", KUBERNETES, str(CHART)])


def named(objects: Iterable[Object]) -> dict[tuple[str, str], Object]:
    """Return objects by kind and name, without the digest in names of config maps."""
    return {(o["kind"], _plain(o)): o for o in objects}


def settings(objects: Iterable[Object], part: str) -> dict[str, Any]:
    """Return the settings in the file of a component, "consumer" or "sidecar"."""
    file = {"consumer": "ingest.yaml", "sidecar": "sidecar.yaml"}[part]
    (data,) = [o["data"] for o in objects if o["kind"] == "ConfigMap" and file in o["data"]]
    body: dict[str, Any] = yaml.safe_load(data[file])
    return body


def _plain(body: Object) -> str:
    return DIGEST.sub("", str(body["metadata"]["name"]))


def _objects(text: str) -> list[Object]:
    return [body for body in yaml.safe_load_all(text) if body]


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
