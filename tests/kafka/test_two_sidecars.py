"""Two sidecars of one group that know nothing of each other, as processes on a real broker."""

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

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]


class Sidecar:
    """A process; what it says is in its log and on its web page."""

    def __init__(self, folder: Path, body: dict[str, Any], *flags: str) -> None:
        folder.mkdir()
        config, self.state = folder / "sidecar.yaml", folder / "state"
        config.write_text(yaml.safe_dump({**body, "state-dir": str(self.state)}))
        self.log = folder / "log"
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(config), *flags]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def last(self) -> str:
        """Return the reasons of its last verdict; empty before the first."""
        address = (self.state / "web").read_text().strip() if self.state.exists() else ""
        if not address:
            return ""
        with urlopen(f"{address}/decisions", timeout=10) as answer:  # noqa: S310 - our own page
            told = json.loads(answer.read())
        return "; ".join(told[-1]["reasons"]) if told else ""

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(60)


@pytest.fixture
def start(bootstrap: str, group: str, topic: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start sidecars of one group that give advice; all are gone at the end."""
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
    for one in running:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


def test_one_steers_and_the_others_say_so(
    start: Any, bootstrap: str, group: str, admin: Any, eventually: Any, tmp_path: Path
) -> None:
    """A second one changes nothing, takes over from a dead one, from a living one if it is told to.

    The capacity of the plan in force tells whose it is.
    """
    given = {"bootstrap": bootstrap, "group": group, "capacity": 1}
    board = ControlTopicStore(load_settings(None, {**given, "plan-topic": f"{group}.plan"}), admin)

    def steers(capacity: float) -> bool:
        plan = board.read_plan()
        return plan is not None and plan.capacity == capacity

    first = start("1 kB/s")
    eventually(lambda: steers(1000), 60)
    eventually(first.last, 60)
    assert "(pid " not in first.last()
    second = start("2 kB/s")
    eventually(lambda: f"(pid {first.process.pid}, since" in second.last(), 60)
    assert steers(1000)
    assert "stands by" in second.log.read_text()
    assert _told(tmp_path, "explain", first.process.pid)

    first.end(signal.SIGKILL)
    eventually(lambda: steers(2000), 60)
    third = start("3 kB/s", "--take-over")
    eventually(lambda: steers(3000), 60)
    eventually(lambda: f"(pid {third.process.pid}, since" in second.last(), 60)
    assert _told(tmp_path, "top", third.process.pid)

    third.end(signal.SIGTERM)
    eventually(lambda: steers(2000), 12)  # silence would last 16.5 s


def _told(folder: Path, command: str, pid: int) -> bool:
    """Tell whether a command names the sidecar with this pid."""
    words = [sys.executable, "-m", "trimtab.cli", command, "-c", str(folder / "0/sidecar.yaml")]
    once = ["--once", "--window", "1 s"] if command == "top" else []
    ran = subprocess.run([*words, *once], capture_output=True, text=True, timeout=60, check=True)
    return f"(pid {pid}," in ran.stdout
