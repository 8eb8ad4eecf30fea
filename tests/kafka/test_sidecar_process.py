"""The whole sidecar as a process: a real broker, real workers, real signals."""

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
SECRET = "hunter2"  # noqa: S105 - it is nobody's
PARTITIONS = 8
TopicFactory = Callable[..., str]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Flow(Background):
    """Produces at a rate that can be changed, spread over the partitions."""

    rate = 0.0  # bytes/s

    def _run(self) -> None:
        last, owed, number = monotonic(), 0.0, 0
        while not self._stop.wait(0.02):
            now = monotonic()
            owed, last = owed + (now - last) * self.rate, now
            while owed >= 200:
                self._producer.produce(self._topic, b"x" * 200, partition=number % PARTITIONS)
                owed, number = owed - 200, number + 1
            self._producer.poll(0)


class Bench:
    """A sidecar with its group, and what a test asks about them."""

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
            "kafka": {"client.rack": SECRET},  # whatever is in there is never shown
        }  # fmt: skip
        self.config.write_text(yaml.safe_dump(body))
        settings = load_settings(self.config, {})
        self.monitor = GroupMonitor(settings, SystemClock())
        self.board = ControlTopicStore(settings, AdminClient({"bootstrap.servers": bootstrap}))
        self.flow = Flow(bootstrap, topic)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(self.config), *flags]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        return code

    def pids(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for file in (self.state / "workers").glob("*.json"):
            with suppress(FileNotFoundError):  # it may go while we look
                pid = json.loads(file.read_text()).get("pid")
                if pid is not None and Path(f"/proc/{pid}").exists():
                    found[file.stem] = pid
        return found

    def plan(self) -> GroupPlan:
        plan = self.board.read_plan()
        assert plan is not None
        return plan

    def settled(self) -> bool:
        """Tell whether every partition is read, by exactly the workers that the plan wants."""
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
        with urlopen(f"{address}{path}", timeout=10) as answer:  # noqa: S310 - our own page
            return str(answer.read().decode())

    def held(self) -> int:
        """Return how many verdicts were to do nothing, since the sidecar started."""
        found = re.search(r'decisions_total{action="hold"[^}]*} (\d+)', self.page("/metrics"))
        return int(found[1]) if found else 0

    def learned(self) -> float | None:
        """Return the first capacity that was learned, in bytes/s."""
        found = re.search(r"learned_capacity_bytes_per_second{[^}]*} (\S+)", self.page("/metrics"))
        return float(found[1]) if found else None

    def close(self) -> None:
        self.flow.stop()
        self.monitor.close()
        if self.process is not None:
            self.end(signal.SIGKILL)
        for pid in self.pids().values():
            if f"{WORKER_ENV_VARIABLE}={self.state}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def bench(bootstrap: str, group: str, topic: TopicFactory, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(bootstrap, group, topic(partitions=PARTITIONS), tmp_path)
    yield bench
    bench.close()


def test_up_killed_restarted_down(bench: Bench, eventually: Eventually) -> None:
    """Load brings workers; a killed sidecar carries on; workers are replaced, drained, stopped.

    Nothing that owns a partition is ever told to end, and no secret is ever written.
    """
    bench.flow.rate = 2.4 * CAPACITY
    bench.start()
    eventually(lambda: bench.state.exists() and len(bench.pids()) >= 3, 60)
    eventually(bench.settled, 60)
    _carries_on(bench, eventually)
    _restarts_workers(bench, eventually)
    bench.flow.rate = 0.4 * CAPACITY
    eventually(lambda: bench.plan().replicas == 1 and bench.settled(), 90)
    told = re.findall(r"told to end while owning (\d+)", bench.logs())
    assert told
    assert set(told) == {"0"}
    assert bench.end(signal.SIGTERM) == 0
    assert len(bench.pids()) == 1
    bench.start("--stop-workers")
    eventually(lambda: bench.log.read_text().count("is in force") == 2, 30)
    assert bench.end(signal.SIGTERM) == 0
    assert bench.pids() == {}
    assert SECRET not in bench.log.read_text() + bench.logs()


def _carries_on(bench: Bench, eventually: Eventually) -> None:
    before, workers = bench.plan(), bench.pids()
    bench.end(signal.SIGKILL)
    assert bench.pids() == workers
    bench.start()
    eventually(lambda: bench.log.read_text().count(f"plan {before.epoch} is in force") == 1, 30)
    address = bench.page("/healthz")
    assert address.startswith("last iteration")
    eventually(lambda: bench.held() >= 10, 30)
    assert bench.plan().epoch == before.epoch
    assert workers.items() <= bench.pids().items()


def _restarts_workers(bench: Bench, eventually: Eventually) -> None:
    old = set(bench.pids().values())
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "restart", "--state-dir"]
    asked = subprocess.run([*command, str(bench.state)], check=True, capture_output=True, text=True)
    assert "one by one" in asked.stdout
    eventually(lambda: not old & set(bench.pids().values()), 120)
    eventually(lambda: not (bench.state / "restart.json").exists() and bench.settled(), 30)


def test_a_killed_worker_is_replaced(bench: Bench, eventually: Eventually) -> None:
    """A worker that dies is replaced at once, whatever the windows and the cooldown."""
    bench.flow.rate = 0.3 * CAPACITY
    bench.start("--cooldown", "10 min")
    eventually(lambda: bench.state.exists() and bench.pids() and bench.settled(), 60)
    (name, pid) = next(iter(bench.pids().items()))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: bench.pids() and name not in bench.pids(), 15)
    eventually(bench.settled, 60)


def test_to_zero_and_back_with_the_first_record(bench: Bench, eventually: Eventually) -> None:
    """With a minimum of 0 the last worker ends when all is read, and comes back for a record."""
    bench.flow.rate = 0.3 * CAPACITY
    bench.start("--min", "0", "--set", "idle-after=4 s")
    eventually(lambda: bench.state.exists() and bench.pids() and bench.settled(), 60)
    bench.flow.rate = 0.0
    eventually(lambda: not bench.pids() and bench.plan().draining == (), 90)
    assert bench.plan().replicas == 0
    assert bench.monitor.measure().group.state is GroupState.EMPTY
    bench.flow.rate = 0.1 * CAPACITY
    eventually(lambda: bench.pids() and bench.settled(), 60)


def test_a_capacity_is_learned_from_a_worker_that_is_behind(bench: Bench, eventually: Eventually) -> None:
    """What a throttled worker sustains is found out, and published where it differs enough."""
    bench.flow.rate = 3 * CAPACITY
    flags = ("--max", "1", "--capacity", "160 kB/s", "--set", "learn-capacity=true")
    bench.start(*flags, "--set", "scale-up-evaluation-window=8 s")
    eventually(lambda: (bench.state / "web").exists() and bench.learned() is not None, 90)
    assert bench.learned() == pytest.approx(CAPACITY, rel=0.3)
    eventually(lambda: bench.plan().capacities, 60)


def test_dry_run_starts_and_publishes_nothing(bench: Bench, eventually: Eventually) -> None:
    """A dry run only writes its log: no worker, no control topic."""
    bench.flow.rate = 2.4 * CAPACITY
    bench.start("--dry-run")
    eventually(lambda: bench.log.exists() and "scale-up: " in bench.log.read_text(), 60)
    assert bench.end(signal.SIGTERM) == 0
    assert bench.board.read_plan() is None
    assert bench.pids() == {}


def test_mistakes_are_one_line(bench: Bench) -> None:
    """Contradictory settings end with exit code 2 and no traceback."""
    flags = ("--min", "5", "--max", "2")
    bench.start(*flags)
    assert bench.process is not None
    assert bench.process.wait(60) == 2
    said = bench.log.read_text()
    assert "min=5 is above max=2" in said
    assert "Traceback" not in said
