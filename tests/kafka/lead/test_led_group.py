"""A sidecar process scales and drains unmodified librdkafka consumers, on a real broker."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

import pytest

from support.sidecar_bench import CAPACITY, PARTITIONS, SidecarBench

pytestmark = pytest.mark.broker

WORKER: Final = Path(__file__).parents[2] / "workers" / "librdkafka_worker.py"


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@pytest.fixture
def led(bootstrap: str, group: str, topic: Callable[..., str], tmp_path: Path) -> Iterator[SidecarBench]:
    bench = SidecarBench(bootstrap, group, topic(partitions=PARTITIONS), tmp_path, worker=WORKER)
    yield bench
    bench.close()


def _run_command(command: str, bench: SidecarBench) -> str:
    arguments = [sys.executable, "-m", "trimtab.cli", command, "-c", str(bench.config)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False).stdout


def test_unmodified_consumers_are_scaled_and_drained(led: SidecarBench, eventually: Eventually) -> None:
    """Scale-up, the sidecar's death and return, and a scale-down that stops nobody who reads."""
    led.flow.rate = 2.4 * CAPACITY
    led.start("--lead")
    eventually(lambda: led.state.exists() and len(led.pids()) >= 3, 60)
    eventually(lambda: led.is_settled() and "as planned" in led.log.read_text(), 60)
    assert "leads the group" in led.log.read_text()
    assert "GroupUnsteered" not in led.page("/metrics")
    assert "Plan carrier: leads the group (since" in _run_command("explain", led)
    assert "; leads the group" in _run_command("doctor", led)
    before = led.pids()
    led.stop(signal.SIGKILL)
    led.start("--lead")
    eventually(lambda: led.log.read_text().count("leads the group") == 2, 60)
    assert before.items() <= led.pids().items()
    led.flow.rate = 0.4 * CAPACITY
    eventually(lambda: led.plan().replicas == 1 and led.is_settled(), 90)
    stopped = re.findall(r"SIGTERM while owning (\d+)", led.logs())
    assert stopped
    assert set(stopped) == {"0"}
    assert "unsteered" not in led.log.read_text()
