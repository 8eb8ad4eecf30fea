"""The sidecar as a process, with a real broker, worker processes and signals."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Protocol

import pytest

from support.sidecar_bench import CAPACITY, SECRET, SidecarBench
from trimtab.sidecar.model.observation import GroupState

pytestmark = pytest.mark.broker


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def test_scale_up_crash_restart_and_scale_down(bench: SidecarBench, eventually: Eventually) -> None:
    """The sidecar scales up, survives SIGKILL, restarts its workers and scales down.

    No worker gets SIGTERM while it owns a partition, and no log contains a secret.
    """
    bench.flow.rate = 2.4 * CAPACITY
    bench.start()
    eventually(lambda: bench.state.exists() and len(bench.pids()) >= 3, 60)
    eventually(bench.is_settled, 60)
    eventually(lambda: bench.count_holds() >= 20, 30)  # the windows have forgotten the backlog of the start
    _assert_restart_keeps_the_plan(bench, eventually)
    _assert_rolling_restart(bench, eventually)
    bench.flow.rate = 0.4 * CAPACITY
    eventually(lambda: bench.plan().replicas == 1 and bench.is_settled(), 90)
    owned_at_sigterm = re.findall(r"SIGTERM while owning (\d+)", bench.logs())
    assert owned_at_sigterm
    assert set(owned_at_sigterm) == {"0"}
    assert bench.stop(signal.SIGTERM) == 0
    assert len(bench.pids()) == 1
    bench.start("--stop-workers")
    eventually(lambda: bench.log.read_text().count("is in force") == 2, 30)
    assert bench.stop(signal.SIGTERM) == 0
    assert bench.pids() == {}
    assert SECRET not in bench.log.read_text() + bench.logs()


def _assert_restart_keeps_the_plan(bench: SidecarBench, eventually: Eventually) -> None:
    before, workers = bench.plan(), bench.pids()
    bench.stop(signal.SIGKILL)
    assert bench.pids() == workers
    bench.start()
    eventually(lambda: bench.log.read_text().count(f"plan {before.epoch} is in force") == 1, 30)
    assert bench.plan().replicas == before.replicas  # no decision before the new window is full
    assert workers.items() <= bench.pids().items()
    address = bench.page("/healthz")
    assert address.startswith("last iteration")
    eventually(lambda: bench.count_holds() >= 10, 30)
    # measured rates vary on a busy machine: a worker may be added or drained, but none starts anew
    now = bench.pids()
    assert all(now[name] == pid for name, pid in workers.items() if name in now)


def _assert_rolling_restart(bench: SidecarBench, eventually: Eventually) -> None:
    old = set(bench.pids().values())
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "restart", "--state-dir"]
    completed = subprocess.run([*command, str(bench.state)], check=True, capture_output=True, text=True)
    assert "one by one" in completed.stdout
    eventually(lambda: not old & set(bench.pids().values()), 120)
    eventually(lambda: not (bench.state / "restart.json").exists() and bench.is_settled(), 30)


def test_killed_worker_is_replaced(bench: SidecarBench, eventually: Eventually) -> None:
    """A dead worker is replaced at once, regardless of windows and cooldown."""
    bench.flow.rate = 0.3 * CAPACITY
    bench.start("--cooldown", "10 min")
    eventually(lambda: bench.state.exists() and bench.pids() and bench.is_settled(), 60)
    (name, pid) = next(iter(bench.pids().items()))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: bench.pids() and name not in bench.pids(), 15)
    eventually(bench.is_settled, 60)


def test_group_scales_to_zero_and_back(bench: SidecarBench, eventually: Eventually) -> None:
    """With min=0 the last worker stops once idle, and the first record starts a worker again."""
    bench.flow.rate = 0.3 * CAPACITY
    bench.start("--min", "0", "--set", "idle-after=4 s")
    eventually(lambda: bench.state.exists() and bench.pids() and bench.is_settled(), 60)
    bench.flow.rate = 0.0
    eventually(lambda: not bench.pids() and bench.plan().draining == (), 90)
    assert bench.plan().replicas == 0
    assert bench.monitor.measure().group.state is GroupState.EMPTY
    bench.flow.rate = 0.1 * CAPACITY
    eventually(lambda: bench.pids() and bench.is_settled(), 60)


@pytest.mark.slow
def test_capacity_is_learned_from_a_lagging_worker(bench: SidecarBench, eventually: Eventually) -> None:
    """The sidecar learns the throughput of a throttled worker and publishes it in the plan."""
    bench.flow.rate = 3 * CAPACITY
    flags = ("--max", "1", "--capacity", "160 kB/s", "--set", "learn-capacity=true")
    bench.start(*flags, "--set", "scale-up-evaluation-window=8 s")
    eventually(lambda: (bench.state / "web").exists() and bench.learned_capacity() is not None, 90)
    assert bench.learned_capacity() == pytest.approx(CAPACITY, rel=0.3)
    eventually(lambda: bench.plan().capacities, 60)


def test_dry_run_starts_and_publishes_nothing(bench: SidecarBench, eventually: Eventually) -> None:
    """A dry run logs its decisions, but starts no worker and publishes no plan."""
    bench.flow.rate = 2.4 * CAPACITY
    bench.start("--dry-run")
    eventually(lambda: bench.log.exists() and "scale-up: " in bench.log.read_text(), 60)
    assert bench.stop(signal.SIGTERM) == 0
    assert bench.store.read_plan() is None
    assert bench.pids() == {}


def test_contradictory_settings_end_with_2(bench: SidecarBench) -> None:
    """Contradictory settings end the sidecar with exit code 2 and without a traceback."""
    flags = ("--min", "5", "--max", "2")
    bench.start(*flags)
    assert bench.process is not None
    assert bench.process.wait(60) == 2
    log = bench.log.read_text()
    assert "min=5 is above max=2" in log
    assert "Traceback" not in log
