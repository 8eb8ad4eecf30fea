"""`explain`, `top` and `doctor` for groups that only a resource or a labelled workload names."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from cluster.scaler_resources import ManyGroupsSidecar, ScalerResourceClient
from cluster.workloads import Cluster

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Commands:
    """Runs `trimtab` with the sidecar's settings file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "trimtab.cli", *words, "-c", str(self._file)]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert "Traceback" not in completed.stderr, completed.stderr
        return completed

    def run_json(self, group: str, *words: str) -> Any:
        completed = self.run(*words, "--group", group, "--format", "json")
        assert completed.stdout, completed.stderr
        return json.loads(completed.stdout)

    def refuse(self, *words: str) -> str:
        """Return the error of a command that must end with exit code 2."""
        completed = self.run(*words)
        assert completed.returncode == 2, completed.stdout
        return completed.stderr


@pytest.fixture
def commands(sidecar: ManyGroupsSidecar, tmp_path: Path) -> Commands:
    file = tmp_path / "sidecar.yaml"
    file.write_text(json.dumps(sidecar.given))
    return Commands(file)


def test_commands_find_the_group_of_a_resource(
    scalers: ScalerResourceClient,
    cluster: Cluster,
    workload: Callable[..., str],
    sidecar: ManyGroupsSidecar,
    commands: Commands,
    eventually: Eventually,
) -> None:
    """They have the resource's settings; the doctor checks its rights, workload and status, too."""
    name, group = workload("deployment", 1), sidecar.group

    def is_scaled() -> bool:
        sidecar.produce()
        return cluster.replicas("deployment", name) == 2

    own: dict[str, Any] = {"topics": [sidecar.topic], "capacity": "10 kB/s", "max": 2}
    scalers.apply("orders", group=group, workload=f"deployment/{name}", **own)
    scalers.apply("twin", group=group, capacity="1 MB/s")
    scalers.apply("bad", group=f"{group}-bad", capacity="1 MB/s", heuristic="no-such")
    before = {one["check"]: one for one in commands.run_json(group, "doctor")["findings"]}
    assert before["ConsumerGroupScaler default/orders"]["level"] == "failed"
    with sidecar.running():
        eventually(is_scaled, 60)
        eventually(lambda: scalers.status("orders").get("lastScaling"), 60)
        top = commands.run_json(group, "top", "--once")
        assert (top["is_managed"], top["planned"]) == (True, 2)
        explained = commands.run_json(group, "explain")
        assert explained["decision"]["group"] == group
        assert explained["last_change"]["action"] == "scale-up"
        findings = [
            (one["check"], one["level"], one["message"])
            for one in commands.run_json(group, "doctor")["findings"]
        ]
    levels = {message: level for _, level, message in findings}
    assert levels["watch consumergroupscalers allowed"] == "ok"
    assert levels["update deployments/scale allowed"] == "ok"
    assert levels[f"deployment {name} in default: 2 pods"] == "ok"
    ready = "ConsumerGroupScaler default/orders Ready", "ok", "Managed: the sidecar manages the group"
    assert ready in findings
    assert "default/bad: heuristic 'no-such' is not known" in commands.refuse(
        "explain", "--group", f"{group}-bad"
    )
    unknown = "those of ConsumerGroupScaler resources; no Kubernetes object names it"
    assert unknown in commands.refuse("top", "--once", "--group", "other")


def test_without_kubernetes_the_error_says_so(commands: Commands, tmp_path: Path) -> None:
    """The group may be a resource's: the error names what is missing to find out."""
    del tmp_path
    file = commands._file
    given = json.loads(file.read_text())
    empty = file.with_name("no-cluster")
    empty.write_text("{}")
    file.write_text(json.dumps({**given, "kubeconfig": str(empty)}))
    error = commands.refuse("explain", "--group", "orders")
    assert "group 'orders' is none of the file's groups, and Kubernetes cannot be asked" in error
    assert "no Kubernetes API server is configured" in error
