"""The demo as a user starts it: it proves itself, and leaves nothing behind however it ends."""

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
    """Start a demo of the minimum duration."""
    command = [sys.executable, "-m", "trimtab.cli", "demo", "--bootstrap", bootstrap]
    return subprocess.Popen(
        [*command, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DEMO_SECONDS": "20"},
    )


def left(out: Path) -> list[str]:
    """Command lines of processes that work for this demo."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if f"{out}/" in words:
            found.append(words.replace("\0", " ")[:200])
    return found


def test_short_demo(bootstrap: str, tmp_path: Path, admin: Any) -> None:
    """It ends with the verdict and exit 0; killed, restarted and pictured; nothing runs on."""
    before = set(admin.list_topics(timeout=10).topics)
    with start(bootstrap, tmp_path) as demo:
        said, _ = demo.communicate(timeout=280)
    lines = said.splitlines()
    assert demo.returncode == 0, said
    assert re.fullmatch(r"exactly once: \d{4,} records, 0 lost, 0 duplicated", lines[-1]), said
    assert re.search(r"killed: worker-\d+ with \d+ partitions", said)
    assert re.search(r"restart: worker-\d+.* replaced", said)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert left(tmp_path) == []
    made = set(admin.list_topics(timeout=10).topics) - before
    assert {topic for topic in made if topic.startswith("demo-")} == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(bootstrap: str, tmp_path: Path, number: int, eventually: Callable[..., None]) -> None:
    """Ctrl-C and SIGTERM end it with 130 and without a trace, while a consumer is being started."""
    with start(bootstrap, tmp_path) as demo:
        eventually(lambda: any("ingest" in words for words in left(tmp_path)), timeout=120)
        demo.send_signal(number)
        said, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, said
    assert "Traceback" not in said
    assert left(tmp_path) == []
    assert not (tmp_path / "tmp").exists()


def test_no_broker(tmp_path: Path) -> None:
    """A broker that is not there is one clear message and exit 1."""
    with start("127.0.0.1:1", tmp_path) as demo:
        said, _ = demo.communicate(timeout=120)
    assert demo.returncode == 1
    assert "trimtab: no Kafka broker answers at 127.0.0.1:1" in said
    assert "Traceback" not in said


def test_other_people_s_folder_is_not_emptied(tmp_path: Path) -> None:
    """A folder with files that no demo has made is left alone, and named."""
    (tmp_path / "lake").mkdir()
    with start("127.0.0.1:1", tmp_path) as demo:
        said, _ = demo.communicate(timeout=60)
    assert (demo.returncode, (tmp_path / "lake").exists()) == (2, True)
    assert "has files that are not of a demo" in said.replace("\n", " ")
