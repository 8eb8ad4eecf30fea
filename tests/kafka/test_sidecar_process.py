"""The sidecar as a process, with a real broker, worker processes and signals."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Protocol
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from steady import Background

from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.measurement.group_monitor import GroupMonitor
from trimtab.sidecar.measurement.observation import GroupState
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.process.process_target import WORKER_ENV_VARIABLE

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

WORKER = Path(__file__).with_name("sidecar_worker.py")
CAPACITY = 100_000.0
SECRET = "hunter2"  # noqa: S105 - a test value
PARTITIONS = 8
TopicFactory = Callable[..., str]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Flow(Background):
    """Produces at an adjustable rate, spread over the partitions."""

    rate = 0.0  # bytes/s

    def _run(self) -> None:
        last, due, number = monotonic(), 0.0, 0
        while not self._stop.wait(0.02):
            now = monotonic()
            due, last = due + (now - last) * self.rate, now
            while due >= 200:
                self._producer.produce(self._topic, b"x" * 200, partition=number % PARTITIONS)
                due, number = due - 200, number + 1
            self._producer.poll(0)


class SidecarBench:
    """A sidecar process with its group, load and control topics."""

    def __init__(self, bootstrap: str, group: str, topic: str, folder: Path) -> None:
        self.state = folder / "state"
        self.log = folder / "sidecar.log"
        self.config = folder / "sidecar.yaml"
        body: dict[str, Any] = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": topic,
            "capacity": "100 kB/s",
            "target": "process",
            "worker-command": [
                sys.executable, str(WORKER), "{instance}", bootstrap, group, topic, str(CAPACITY),
            ],
            "state-dir": str(self.state),
            "max": 5,
            "interval": "500 ms",
            "window": "4 s",
            "cooldown": "2 s",
            "scale-down-stabilization-window": "4 s",
            "catch-up-time": "20 s",
            "backlog-grace": "3 s",
            "offset-reset": "earliest",
            "kafka": {"client.rack": SECRET},  # no output may show the kafka settings
        }  # fmt: skip
        self.config.write_text(yaml.safe_dump(body))
        settings = load_settings(self.config, {})
        self.monitor = GroupMonitor(settings, SystemClock())
        self.store = ControlTopicStore(settings, AdminClient({"bootstrap.servers": bootstrap}))
        self.flow = Flow(bootstrap, topic)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(self.config), *flags]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        return code

    def pids(self) -> dict[str, int]:
        pids: dict[str, int] = {}
        for file in (self.state / "workers").glob("*.json"):
            with suppress(FileNotFoundError):  # the sidecar deletes the files of ended workers
                pid = json.loads(file.read_text()).get("pid")
                if pid is not None and Path(f"/proc/{pid}").exists():
                    pids[file.stem] = pid
        return pids

    def plan(self) -> GroupPlan:
        plan = self.store.read_plan()
        assert plan is not None
        return plan

    def is_settled(self) -> bool:
        """Return whether the planned workers, and only they, own every partition."""
        group = self.monitor.describe_group()
        owned = [p for r in group.members for p in r.owned_partitions]
        names = {r.instance for r in group.members}
        return (
            group.state is GroupState.STABLE
            and len(owned) == len(set(owned)) == PARTITIONS
            and names == set(self.pids())
            and len(names) == self.plan().replicas
        )

    def logs(self) -> str:
        return "\n".join(f.read_text() for f in (self.state / "logs").glob("*.log"))

    def page(self, path: str) -> str:
        address = (self.state / "web").read_text().strip()
        with urlopen(f"{address}{path}", timeout=10) as response:  # noqa: S310 - the sidecar's own page
            return str(response.read().decode())

    def count_holds(self) -> int:
        """Return the number of hold decisions since the sidecar started."""
        match = re.search(r'decisions_total{action="hold"[^}]*} (\d+)', self.page("/metrics"))
        return int(match[1]) if match else 0

    def learned_capacity(self) -> float | None:
        """Return the first learned capacity in bytes/s."""
        match = re.search(r"learned_capacity_bytes_per_second{[^}]*} (\S+)", self.page("/metrics"))
        return float(match[1]) if match else None

    def close(self) -> None:
        self.flow.stop()
        self.monitor.close()
        if self.process is not None:
            self.stop(signal.SIGKILL)
        for pid in self.pids().values():
            if f"{WORKER_ENV_VARIABLE}={self.state}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def bench(bootstrap: str, group: str, topic: TopicFactory, tmp_path: Path) -> Iterator[SidecarBench]:
    bench = SidecarBench(bootstrap, group, topic(partitions=PARTITIONS), tmp_path)
    yield bench
    bench.close()


def test_scale_up_crash_restart_and_scale_down(bench: SidecarBench, eventually: Eventually) -> None:
    """The sidecar scales up, survives SIGKILL, restarts its workers and scales down.

    No worker gets SIGTERM while it owns a partition, and no log contains a secret.
    """
    bench.flow.rate = 2.4 * CAPACITY
    bench.start()
    eventually(lambda: bench.state.exists() and len(bench.pids()) >= 3, 60)
    eventually(bench.is_settled, 60)
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
    address = bench.page("/healthz")
    assert address.startswith("last iteration")
    eventually(lambda: bench.count_holds() >= 10, 30)
    assert bench.plan().epoch == before.epoch
    assert workers.items() <= bench.pids().items()


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
