"""Builds the programs of the control plane, and those that render manifests, from Go modules.

`go install` rejects modules that replace others, as k8s.io/kubernetes does, so our own module
requires it and replaces each of its staging modules by the published one.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

KUBERNETES: Final = "v1.36.3"
KEDA: Final = "v2.21.0"
KEDA_MODULE: Final = "github.com/kedacore/keda/v2"
OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
PLAIN: Final = {
    "etcd": ("go.etcd.io/etcd/server/v3", "v3.6.5"),
    "helm": ("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    "kustomize": ("sigs.k8s.io/kustomize/kustomize/v5", "v5.7.1"),
    "versitygw": ("github.com/versity/versitygw/cmd/versitygw", "v1.8.0"),
}
"""Program, package and version of modules that build unchanged."""

Make: TypeAlias = Callable[[Path], None]
"""Makes a program at a path."""

STAGING: Final = re.compile(r"^\s*(?:replace )?(k8s\.io/[a-z0-9-]+) => \./staging", re.MULTILINE)
COMMANDS: Final = {
    "kube-apiserver": "app.NewAPIServerCommand()",
    "kube-controller-manager": "app.NewControllerManagerCommand()",
}
KEDA_COMMANDS: Final = {"keda-operator": "operator", "keda-metrics-adapter": "adapter"}
REPLACED: Final = re.compile(r"^replace (\S+) (\S+) => (\S+) (\S+)$", re.MULTILINE)
MAIN: Final = """package main

import (
	"os"
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/cmd/%(name)s/app"
)

func main() { os.Exit(cli.Run(%(command)s)) }
"""


def kubernetes(name: str, draft: Path) -> None:
    """Build kube-apiserver or kube-controller-manager."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    staging = f"v0.{KUBERNETES.removeprefix('v1.')}"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _go(folder, "mod", "init", "trimtab.test/kubernetes")
        output = _go(folder, "mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}")
        text = Path(json.loads(output)["GoMod"]).read_text()
        replaced = [f"-replace={m}={m}@{staging}" for m in sorted(set(STAGING.findall(text)))]
        _go(folder, "mod", "edit", f"-require=k8s.io/kubernetes@{KUBERNETES}", *replaced)
        (folder / "main.go").write_text(MAIN % {"name": name, "command": COMMANDS[name]})
        _go(folder, "mod", "tidy")
        version = "k8s.io/component-base/version"  # otherwise the server reports the version "$Format"
        flags = f"-s -w -X {version}.gitVersion={KUBERNETES} "
        flags += f"-X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
        _go(folder, "build", "-trimpath", "-ldflags", flags, "-o", str(draft), ".")


def plain(name: str, draft: Path) -> None:
    """Build one of PLAIN."""
    package, version = PLAIN[name]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _go(folder, "mod", "init", f"trimtab.test/{name}")
        _go(folder, "get", "-tool", f"{package}@{version}")
        _go(folder, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(draft), package)


def keda(name: str, draft: Path) -> None:
    """Build keda-operator or keda-metrics-adapter."""
    package = f"{KEDA_MODULE}/cmd/{KEDA_COMMANDS[name]}"
    text = (keda_source() / "go.mod").read_text()
    replaced = [f"-replace={a}@{b}={c}@{d}" for a, b, c, d in REPLACED.findall(text)]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _go(folder, "mod", "init", "trimtab.test/keda")
        _go(folder, "mod", "edit", *replaced)
        _go(folder, "get", "-tool", f"{package}@{KEDA}")
        _go(folder, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(draft), package)


def keda_source() -> Path:
    """Return the folder of KEDA's module. Raises OSError, RuntimeError."""
    return _source(f"{KEDA_MODULE}@{KEDA}")


def operator_source() -> Path:
    """Return the folder of the Prometheus Operator's module. Raises OSError, RuntimeError."""
    return _source(OPERATOR)


def _source(module: str) -> Path:
    with tempfile.TemporaryDirectory() as made:
        output = _go(Path(made), "mod", "download", "-json", module)
    return Path(json.loads(output)["Dir"])


def _go(folder: Path, *words: str) -> str:
    settings = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    ran = subprocess.run(
        ["go", *words], cwd=folder, env=settings, check=False, capture_output=True, text=True
    )
    if ran.returncode:
        raise RuntimeError(f"go {words[0]} failed:\n{ran.stderr[-2000:]}")
    return ran.stdout
