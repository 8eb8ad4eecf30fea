"""Builds the control plane's programs from their Go modules.

`go install` refuses modules that replace others, as k8s.io/kubernetes does, so a module of our own
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
ETCD: Final = "v3.6.5"
KEDA: Final = "v2.21.0"
KEDA_MODULE: Final = "github.com/kedacore/keda/v2"
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
        said = _go(folder, "mod", "download", "-json", f"k8s.io/kubernetes@{KUBERNETES}")
        text = Path(json.loads(said)["GoMod"]).read_text()
        replaced = [f"-replace={m}={m}@{staging}" for m in sorted(set(STAGING.findall(text)))]
        _go(folder, "mod", "edit", f"-require=k8s.io/kubernetes@{KUBERNETES}", *replaced)
        (folder / "main.go").write_text(MAIN % {"name": name, "command": COMMANDS[name]})
        _go(folder, "mod", "tidy")
        version = "k8s.io/component-base/version"  # else clients are told a version of "$Format"
        flags = f"-s -w -X {version}.gitVersion={KUBERNETES} "
        flags += f"-X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
        _go(folder, "build", "-trimpath", "-ldflags", flags, "-o", str(draft), ".")


def etcd(draft: Path) -> None:
    """Build etcd."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _go(folder, "mod", "init", "trimtab.test/etcd")
        _go(folder, "get", "-tool", f"go.etcd.io/etcd/server/v3@{ETCD}")
        _go(folder, "build", "-trimpath", "-o", str(draft), "go.etcd.io/etcd/server/v3")


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
    """Return the folder of KEDA's module. Raises OSError, RuntimeError where it cannot be had."""
    with tempfile.TemporaryDirectory() as made:
        said = _go(Path(made), "mod", "download", "-json", f"{KEDA_MODULE}@{KEDA}")
    return Path(json.loads(said)["Dir"])


def _go(folder: Path, *words: str) -> str:
    settings = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    ran = subprocess.run(
        ["go", *words], cwd=folder, env=settings, check=False, capture_output=True, text=True
    )
    if ran.returncode:
        raise RuntimeError(f"go {words[0]} failed:\n{ran.stderr[-2000:]}")
    return ran.stdout
