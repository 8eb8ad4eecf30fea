"""Several sidecar processes of one group, on a real broker: one leads, the others stand by."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker


class Sidecar:
    """A sidecar process with its log and web page."""

    def __init__(self, folder: Path, body: dict[str, Any], *flags: str) -> None:
        folder.mkdir()
        config, self.state = folder / "sidecar.yaml", folder / "state"
        config.write_text(yaml.safe_dump({**body, "state-dir": str(self.state)}))
        self.log = folder / "log"
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(config), *flags]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def last_reasons(self) -> str:
        """Return the reasons of the last decision; empty before the first."""
        if not (self.state / "web").exists():
            return ""
        address = (self.state / "web").read_text().strip()
        with urlopen(f"{address}/decisions", timeout=10) as response:  # noqa: S310 - the sidecar's own page
            decisions = json.loads(response.read())
        return "; ".join(decisions[-1]["reasons"]) if decisions else ""

    def stop(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(60)


@pytest.fixture
def start(bootstrap: str, group: str, topic: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start sidecars of one group without a scaling target; all are killed after the test."""
    body = {
        "bootstrap": bootstrap,
        "group": group,
        "topics": topic(partitions=2),
        "interval": "500 ms",
        "window": "2 s",
        **{f"{name}-topic": f"{group}.{name}" for name in ("plan", "write-rate", "decision")},
    }
    running: list[Sidecar] = []

    def start(capacity: str, *flags: str) -> Sidecar:
        folder = tmp_path / str(len(running))
        running.append(Sidecar(folder, {**body, "capacity": capacity}, *flags))
        return running[-1]

    yield start
    for sidecar in running:
        if sidecar.process.poll() is None:
            sidecar.stop(signal.SIGKILL)


def test_one_sidecar_leads_and_the_others_stand_by(
    start: Any, bootstrap: str, group: str, admin: Any, eventually: Any, tmp_path: Path
) -> None:
    """A standby takes over from a dead leader, or from a live one with --take-over."""
    values = {"bootstrap": bootstrap, "group": group, "capacity": 1}
    store = ControlTopicStore(load_settings(None, {**values, "plan-topic": f"{group}.plan"}), admin)

    def leads(capacity: float) -> bool:  # the plan's capacity identifies its sidecar
        plan = store.read_plan()
        return plan is not None and plan.capacity == capacity

    first = start("1 kB/s")
    eventually(lambda: leads(1000), 60)
    eventually(first.last_reasons, 60)
    assert "(pid " not in first.last_reasons()
    second = start("2 kB/s")
    eventually(lambda: f"(pid {first.process.pid}, since" in second.last_reasons(), 60)
    assert leads(1000)
    assert "stands by" in second.log.read_text()
    assert _names_sidecar(tmp_path, "explain", first.process.pid)

    first.stop(signal.SIGKILL)
    eventually(lambda: leads(2000), 60)
    third = start("3 kB/s", "--take-over")
    eventually(lambda: leads(3000), 60)
    eventually(lambda: f"(pid {third.process.pid}, since" in second.last_reasons(), 60)
    assert _names_sidecar(tmp_path, "top", third.process.pid)

    third.stop(signal.SIGTERM)
    eventually(lambda: leads(2000), 12)  # before the 16.5 s after which a silent leader is replaced


def _names_sidecar(folder: Path, command: str, pid: int) -> bool:
    """Return whether the command's output names the sidecar by its pid."""
    arguments = [sys.executable, "-m", "trimtab.cli", command, "-c", str(folder / "0/sidecar.yaml")]
    once = ["--once", "--window", "1 s"] if command == "top" else []
    completed = subprocess.run([*arguments, *once], capture_output=True, text=True, timeout=60, check=True)
    return f"(pid {pid}," in completed.stdout
