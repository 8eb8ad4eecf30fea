"""`trimtab demo` as a process: its result, and clean-up however it ends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def start(bootstrap: str, out: Path) -> "subprocess.Popen[str]":
    """Start a demo of the shortest duration."""
    command = [sys.executable, "-m", "trimtab.cli", "demo", "--bootstrap", bootstrap]
    return subprocess.Popen(
        [*command, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DEMO_SECONDS": "20"},
    )


def demo_processes(out: Path) -> list[str]:
    """Return the command lines of this demo's running processes."""
    commands: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if f"{out}/" in command:
            commands.append(command.replace("\0", " ")[:200])
    return commands


def test_short_demo(bootstrap: str, tmp_path: Path, admin: Any) -> None:
    """The demo kills and restarts a worker, loses no record, saves its plot and leaves no process."""
    before = set(admin.list_topics(timeout=10).topics)
    with start(bootstrap, tmp_path) as demo:
        output, _ = demo.communicate(timeout=560)
    lines = output.splitlines()
    assert demo.returncode == 0, output
    assert re.fullmatch(r"exactly once: \d{4,} records, 0 lost, 0 duplicated", lines[-1]), output
    assert re.search(r"killed: worker-\d+ with \d+ partitions", output)
    assert re.search(r"restart: worker-\d+.* replaced", output)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert demo_processes(tmp_path) == []
    created = set(admin.list_topics(timeout=10).topics) - before
    assert {topic for topic in created if topic.startswith("demo-")} == set()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupted_demo_cleans_up(
    bootstrap: str, tmp_path: Path, number: int, eventually: Callable[..., None]
) -> None:
    """SIGINT and SIGTERM while a consumer starts end the demo with 130, without leftovers."""
    with start(bootstrap, tmp_path) as demo:
        eventually(lambda: any("ingest" in command for command in demo_processes(tmp_path)), timeout=120)
        demo.send_signal(number)
        output, _ = demo.communicate(timeout=180)
    assert demo.returncode == 130, output
    assert "Traceback" not in output
    assert demo_processes(tmp_path) == []
    assert not (tmp_path / "tmp").exists()


def test_unreachable_broker_is_reported(tmp_path: Path) -> None:
    """An unreachable broker ends the demo with one message and exit code 1."""
    with start("127.0.0.1:1", tmp_path) as demo:
        output, _ = demo.communicate(timeout=240)
    assert demo.returncode == 1
    assert "trimtab: no Kafka broker answers at 127.0.0.1:1" in output
    assert "Traceback" not in output


def test_foreign_output_folder_is_not_emptied(tmp_path: Path) -> None:
    """The demo refuses an output folder with foreign files and does not touch it."""
    (tmp_path / "lake").mkdir()
    with start("127.0.0.1:1", tmp_path) as demo:
        output, _ = demo.communicate(timeout=180)
    assert (demo.returncode, (tmp_path / "lake").exists()) == (2, True)
    assert "has files that are not of a demo" in output.replace("\n", " ")
