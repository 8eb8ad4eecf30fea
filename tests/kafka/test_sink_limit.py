"""A sink behind the consumers that is slower than all of them, on a real broker."""

import re
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Final, Protocol

import pytest
from sidecar_bench import CAPACITY, SidecarBench

pytestmark = pytest.mark.broker

SINK_RATE: Final = 1.4 * CAPACITY  # of all workers together
WINDOW_S: Final = 10.0


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def test_consumers_that_a_sink_cannot_serve_are_taken_back(
    bench: SidecarBench, eventually: Eventually, tmp_path: Path
) -> None:
    """One worker, then more for a load beyond the sink, then the two that it serves, with the cause."""
    command = [*bench.settings["worker-command"], str(tmp_path / "sink"), str(SINK_RATE)]
    bench.configure(worker_command=command, scale_up_evaluation_window=f"{WINDOW_S:g} s")
    bench.flow.rate = 0.6 * CAPACITY
    bench.start()
    eventually(lambda: bench.state.exists() and len(bench.pids()) == 1, 60)
    eventually(lambda: bench.is_settled() and bench.count_holds() >= 20, 60)
    bench.flow.rate = 3.4 * CAPACITY
    # Five, unless the limit shows at three: on a busy machine the load is measured while it rises.
    eventually(lambda: bench.plan().replicas >= 3, 60)
    eventually(lambda: bench.plan().replicas == 2 and bench.is_settled(), 240)
    cause = r"[3-5] consumers read no more than 2 \(1\d\d\.\d kB/s\).*the sink behind them is the limit"
    eventually(lambda: re.search(cause, bench.page("/groups")), 60)
    sleep(2 * WINDOW_S)
    assert bench.plan().replicas == 2
    stopped = re.findall(r"SIGTERM while owning (\d+)", bench.logs())
    assert stopped
    assert set(stopped) == {"0"}
