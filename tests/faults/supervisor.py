"""The consumers, and the sidecar in some rounds; dead ones are replaced.

The sidecar starts and stops the workers; in rounds without one this module does, by the sidecar's own
process target and in the same state folder. So the workers live on from round to round.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import yaml

from faults.order_socket import OrderSocket
from trimtab.common.clock import SystemClock
from trimtab.sidecar.targets.process.linux_process import read_start_ticks
from trimtab.sidecar.targets.process.process_target import ProcessTarget

TICK: Final = 0.2
LEAST, MOST = 2, 3
COMPACT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Worker:
    """A consumer's process, from the state folder."""

    name: str
    pid: int
    folder: Path

    @property
    def orders(self) -> OrderSocket:
        return OrderSocket(self.folder / "orders" / self.name)

    @property
    def suspended(self) -> Path:
        """File with the seconds that it was suspended for (`suspended_clock`)."""
        return self.folder / "suspended" / self.name

    @property
    def wall_clock(self) -> Path:
        """File with the seconds by which its JVM's wall clock is ahead (`wall_clock`)."""
        return self.folder / "wall-clock" / self.name

    @property
    def ready(self) -> bool:
        """Whether its Spark is up and it is joining or has joined the group."""
        return (self.folder / "handed" / f"{self.name}.{self.pid}").exists()

    @property
    def alive(self) -> bool:
        return read_start_ticks(self.pid) is not None

    @property
    def jvm(self) -> int | None:
        """Process id of its Spark JVM."""
        for file in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with suppress(OSError):
                for child in file.read_text().split():
                    if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                        return int(child)
        return None

    def signal(self, number: signal.Signals, *, whole: bool = False) -> bool:
        """Send a signal to the process, or to its JVM as well; return whether it existed."""
        with suppress(ProcessLookupError):
            (os.killpg if whole else os.kill)(self.pid, number)
            return True
        return False


class WorkerSupervisor:
    """Keeps consumers running, `steered` by a sidecar or not."""

    def __init__(self, folder: Path, ingest: dict[str, Any], sidecar: dict[str, Any]) -> None:
        self.steered = False
        self._folder = folder
        self._state = folder / "state"
        python = (sys.executable, "-m", "faults.worker", str(folder))
        self._ingest = ingest
        self.write_settings({})
        self._worker = (*python, "{instance}", str(folder / "ingest.yaml"))
        command = {"worker-command": list(self._worker), "state-dir": str(self._state)}
        (folder / "sidecar.yaml").write_text(yaml.safe_dump(sidecar | command))
        self._sidecar = (*python, "sidecar", str(folder / "sidecar.yaml"))
        self.sidecar: subprocess.Popen[bytes] | None = None
        self.compactions = Counter[str]()  # commands by how they ended: "done", "failed" or "killed"
        self._stop = Event()
        self._thread: Thread | None = None

    def work(self, *, steered: bool, settings: Mapping[str, str]) -> None:
        """Continue with a sidecar, or without one; workers that have other settings are replaced."""
        self._rest()
        if settings != self._settings:
            self.write_settings(settings)
            self._kill_workers()
        self._stop.clear()
        self.steered = steered
        run = self._keep_sidecar if steered else self._keep_workers
        self._thread = Thread(target=run, name="supervisor")
        self._thread.start()

    def write_settings(self, settings: Mapping[str, str]) -> None:
        """Change the settings of the workers that start from now on."""
        self._settings = settings
        (self._folder / "ingest.yaml").write_text(yaml.safe_dump({**self._ingest, **settings}))

    def close(self) -> None:
        """Kill all processes."""
        self._rest()
        self._kill_workers()

    def workers(self) -> list[Worker]:
        """Return the live workers, by number."""
        found: list[Worker] = []
        for file in (self._state / "workers").glob("*.json"):
            with suppress(OSError, ValueError):
                facts = json.loads(file.read_text())
                if facts["pid"] is not None and read_start_ticks(facts["pid"]) == facts["ticks"]:
                    found.append(Worker(file.stem, facts["pid"], self._folder))
        return sorted(found, key=lambda w: int(w.name.rpartition("-")[2]))

    def compact(self, table: str) -> bool:
        """Compact a table with the product's command, or kill it; return False if it failed."""
        config = str(self._folder / "ingest.yaml")
        command = [sys.executable, "-m", "trimtab.cli", "tables", "compact", table, "--config", config]
        outcome = "killed"
        with (self._folder / "compact.log").open("ab") as log, suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, stdout=log, stderr=log, check=False, timeout=COMPACT_SECONDS)
            outcome = "failed" if done.returncode else "done"
        self.compactions[outcome] += 1
        return outcome != "failed"

    def kill_sidecar(self) -> bool:
        """Kill the sidecar; it is restarted at once."""
        sidecar = self.sidecar
        if sidecar is None or sidecar.poll() is not None:
            return False
        sidecar.kill()
        return True

    def _rest(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.sidecar is not None:
            self.sidecar.kill()
            self.sidecar.wait()
            self.sidecar = None

    def _kill_workers(self) -> None:
        while workers := self.workers():
            for worker in workers:
                worker.signal(signal.SIGCONT, whole=True)
                worker.signal(signal.SIGKILL, whole=True)
            self._stop.clear()
            self._stop.wait(TICK)

    def _keep_workers(self) -> None:
        target = ProcessTarget(self._worker, self._state, SystemClock())
        try:
            while not self._stop.wait(TICK):
                target.add_replicas(max(0, MOST - len(target.list_replicas())))
        finally:
            target.close()

    def _keep_sidecar(self) -> None:
        with (self._folder / "sidecar.log").open("ab") as log:
            while not self._stop.is_set():
                if self.sidecar is None or self.sidecar.poll() is not None:
                    self.sidecar = subprocess.Popen(self._sidecar, stdout=log, stderr=log)
                self._stop.wait(TICK)
