"""A sidecar process with worker processes, a load and control topics, on a real broker."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, Final
from urllib.request import urlopen

import yaml
from confluent_kafka.admin import AdminClient

from support.steady import Background
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.model.observation import GroupState
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.process.process_target import WORKER_ENV_VARIABLE

WORKER: Final = Path(__file__).parents[1] / "workers" / "sidecar_worker.py"
CAPACITY: Final = 100_000.0
SECRET: Final = "hunter2"  # noqa: S105 - a test value
PARTITIONS: Final = 8


class Flow(Background):
    """Produces at an adjustable rate, spread over the partitions."""

    rate = 0.0  # bytes/s
    order = tuple(range(PARTITIONS))  # partitions of one record after the other

    def _run(self) -> None:
        last, due, number = monotonic(), 0.0, 0
        while not self._stop.wait(0.02):
            now = monotonic()
            due, last = due + (now - last) * self.rate, now
            while due >= 200:
                self._producer.produce(
                    self._topic, b"x" * 200, partition=self.order[number % len(self.order)]
                )
                due, number = due - 200, number + 1
            self._producer.poll(0)


@contextmanager
def run_beside_readers(config: Path, log: Path, flow: Flow, reading: Thread, stop: Event) -> Generator[None]:
    """Run a sidecar beside a load of 20 kB/s and a thread that reads it until `stop`; end all three."""
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(config), "--port", "0"]
    with ExitStack() as stack:
        reading.start()
        stack.callback(reading.join)
        stack.callback(stop.set)
        stack.callback(flow.stop)
        flow.rate = 20_000.0
        out = stack.enter_context(log.open("wb"))
        sidecar = subprocess.Popen(command, stdout=out, stderr=out)
        stack.callback(sidecar.wait)
        stack.callback(sidecar.terminate)
        yield


class SidecarBench:
    """A sidecar process with its group, load and control topics."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, folder: Path, worker: Path = WORKER, **more: Any
    ) -> None:
        self.state = folder / "state"
        self.log = folder / "sidecar.log"
        self.config = folder / "sidecar.yaml"
        self.settings: dict[str, Any] = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": topic,
            "capacity": "100 kB/s",
            "target": "process",
            "worker-command": [
                sys.executable, str(worker), "{instance}", bootstrap, group, topic, str(CAPACITY),
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
            **more,
        }  # fmt: skip
        self.config.write_text(yaml.safe_dump(self.settings))
        settings = load_settings(self.config, {})
        self.monitor = GroupMonitor(settings, SystemClock())
        self.store = ControlTopicStore(settings, AdminClient({"bootstrap.servers": bootstrap}))
        self.flow = Flow(bootstrap, topic)
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, **changes: Any) -> None:
        """Change settings of the next sidecar."""
        self.settings |= {name.replace("_", "-"): value for name, value in changes.items()}
        self.config.write_text(yaml.safe_dump(self.settings))

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
