"""`python -m cluster` ends all processes that it starts."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

import pytest

pytestmark = pytest.mark.kubernetes

TESTS: Final = Path(__file__).parents[1]
PARTS: Final = ["etcd", "kube-apiserver", "kube-controller"]  # a name has 15 letters


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Playground:
    """The program, and the processes started by it."""

    def __init__(self, folder: Path) -> None:
        self.started: dict[int, str] = {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cluster", str(folder)],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def look(self) -> list[str]:
        """Return the names of the processes started so far."""
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for child in task.read_text().split():
                self.started[int(child)] = Path(f"/proc/{child}/comm").read_text().strip()
        return sorted(name[:15] for name in self.started.values())

    def left(self) -> list[int]:
        """Return the processes that are still running."""
        return [pid for pid in self.started if Path(f"/proc/{pid}").exists()]

    def close(self) -> None:
        self.look()
        self.process.kill()
        self.process.communicate()
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[Playground]:
    made = Playground(tmp_path / "plane")
    yield made
    made.close()


@pytest.mark.parametrize("when", ["at work", "while it starts"])
def test_sigterm_ends_all_processes(playground: Playground, eventually: Eventually, when: str) -> None:
    """SIGTERM ends all processes, also those that are still starting."""
    if when == "at work":
        assert playground.process.stdout is not None
        assert playground.process.stdout.readline().startswith("export KUBECONFIG=")
        assert playground.look() == PARTS
    else:
        eventually(lambda: "etcd" in playground.look(), 60)
    playground.process.terminate()
    assert playground.process.wait(240) == 0
    assert playground.left() == []
