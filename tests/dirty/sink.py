"""A sink behind the consumers that takes less than all of them read together."""

import re
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any, Final

from dirty.run import DirtyRun, Figures, wait
from support.advised_group import Surfaces
from support.sidecar_bench import CAPACITY, SidecarBench

SINK_RATE: Final = 1.4 * CAPACITY  # of all workers together
WINDOW_S: Final = 10.0
CAUSE: Final = r"[3-5] consumers read no more than 2 \(1\d\d\.\d kB/s\).*the sink behind them is the limit"


def take_back_useless(bench: SidecarBench, folder: Path, wait_for: Callable[..., Any]) -> None:
    """One worker, then more for a load beyond the sink, then the two that it serves, with the cause."""
    command = [*bench.settings["worker-command"], str(folder / "sink"), str(SINK_RATE)]
    bench.configure(worker_command=command, scale_up_evaluation_window=f"{WINDOW_S:g} s")
    bench.flow.rate = 0.6 * CAPACITY
    bench.start()
    wait_for(lambda: bench.state.exists() and len(bench.pids()) == 1, timeout=60)
    wait_for(lambda: bench.is_settled() and bench.count_holds() >= 20, timeout=60)
    bench.flow.rate = 3.4 * CAPACITY
    # Five, unless the limit shows at three: on a busy machine the load is measured while it rises.
    wait_for(lambda: bench.plan().replicas >= 3, timeout=60)
    wait_for(lambda: bench.plan().replicas == 2 and bench.is_settled(), timeout=240)
    wait_for(lambda: re.search(CAUSE, bench.page("/groups")), timeout=60)
    sleep(2 * WINDOW_S)
    assert bench.plan().replicas == 2
    stopped = re.findall(r"SIGTERM while owning (\d+)", bench.logs())
    assert stopped
    assert set(stopped) == {"0"}


def measure_sink_limit(run: DirtyRun) -> Figures:
    """The useless workers are taken back, and every surface names the cause."""
    topic = run.create_topic()
    bench = SidecarBench(run.bootstrap, f"group-of-{topic}", topic, run.folder)
    try:
        take_back_useless(bench, run.folder, wait)
        run.drive(Surfaces(bench.config, bench.log, bench.settings["group"]), "ScaleUpSuspended")
    finally:
        bench.close()
    return {}
