"""Processes of the demo: a real `trimtab sidecar` and the `trimtab ingest` workers that it starts.

1. No process outlives the demo.
2. Normal end: SIGTERM to the sidecar, which stops its workers; they flush and leave the group. The
   supervisor does the same if the demo itself is killed.
3. Any other end: SIGKILL to all workers in the sidecar's state folder, starting ones included.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from trimtab.cli.demo.scenario import DEMO_CONSUMER_CAPACITY, RECORD_BYTES, DemoScenario
from trimtab.cli.supervised import SupervisedProcess
from trimtab.common.clock import Clock
from trimtab.sidecar.targets.process.process_target import ProcessTarget
from trimtab.sidecar.targets.process.rolling_restart import RESTART_REQUEST_FILE as RESTART_FILE
from trimtab.sidecar.targets.process.rolling_restart import request_restart

MAX_DEMO_CONSUMERS: Final = 6  # two cores carry no more
# short: a newly assigned partition must not wait behind seconds of prefetched records
FETCH_QUEUE_SETTINGS: Final = {
    "max.partition.fetch.bytes": 32 * RECORD_BYTES,
    "queued.max.messages.kbytes": 128,
    "queued.min.messages": 50,
    "fetch.queue.backoff.ms": 20,
}
SIDECAR_STOP_TIMEOUT_S: Final = 90.0
KILL_TIMEOUT_S: Final = 10.0


def ingest_settings(
    scenario: DemoScenario, client: Mapping[str, Any], group: str, out: Path, java_options: str
) -> dict[str, Any]:
    """Return the workers' configuration: small JVMs, throttled to the capacity of one consumer."""
    # `client` keeps its secret references: the file holds no secret
    rate = f"{DEMO_CONSUMER_CAPACITY:.0f} B/s"
    return {
        **client,
        "group.id": group,
        "session.timeout.ms": 6000,  # the shortest that brokers allow by default: a fast takeover
        **FETCH_QUEUE_SETTINGS,
        "topics": list(scenario.topics),
        "trimtab.capacity": rate,
        "trimtab.throttle": rate,
        "lake.format": scenario.format,
        "lake.warehouse": str(out / "lake"),
        "lake.tables": {topic: table_name(scenario, topic) for topic in scenario.topics},
        "batch.bytes": f"{4000 * RECORD_BYTES} B",
        "batch.max.age": "6 s",
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": False,
        "spark.driver.extraJavaOptions": f'{java_options} "-Djava.io.tmpdir={out / "tmp"}"',
    }


def table_name(scenario: DemoScenario, topic: str) -> str:
    """Return the table of a topic."""
    return f"demo.{topic.removeprefix(scenario.prefix)}"


def sidecar_settings(
    scenario: DemoScenario, client: Mapping[str, Any], group: str, out: Path
) -> dict[str, Any]:
    """Return the sidecar's configuration, with short windows for a short demo."""
    return {
        "bootstrap": client["bootstrap.servers"],
        "kafka": {n: value for n, value in client.items() if n != "bootstrap.servers"},
        "group": group,
        "topics": list(scenario.topics),
        "capacity": f"{DEMO_CONSUMER_CAPACITY:.0f} B/s",
        "headroom": 0.8,  # of the capacity: the rest works off the backlog of a takeover
        "interval": "1 s",
        "window": "6 s",
        "min": 1,
        "max": MAX_DEMO_CONSUMERS,
        "scale-up-policies": 2,
        "scale-down-policies": 2,
        "scale-up-stabilization-window": "0 s",
        "scale-down-stabilization-window": "8 s",
        "cooldown": "4 s",
        "catch-up-time": "40 s",
        "backlog-grace": "12 s",  # what waits in batches of `batch.max.age` is no backlog
        "drain-retry": "20 s",
        "target": "process",
        "worker-config": str(out / "ingest.yaml"),
        "state-dir": str(out / "state"),
        "stop-workers": True,  # with the sidecar; elsewhere workers outlive it
    }


class DemoProcesses:
    """The sidecar and its workers; configuration and state are in the folder `out`."""

    def __init__(self, out: Path, clock: Clock) -> None:
        self._out, self._state, self._clock = out, out / "state", clock
        self._sidecar: SupervisedProcess | None = None

    def write_configs(self, ingest: Mapping[str, Any], sidecar: Mapping[str, Any]) -> None:
        """Write both configuration files."""
        for name, settings in (("ingest", ingest), ("sidecar", sidecar)):
            (self._out / f"{name}.yaml").write_text(yaml.safe_dump(dict(settings), sort_keys=False))

    def start(self) -> None:
        """Start the sidecar; it starts the workers."""
        (self._out / "tmp").mkdir(exist_ok=True)
        config = str(self._out / "sidecar.yaml")
        self._sidecar = SupervisedProcess(
            [[sys.executable, "-m", "trimtab.cli", "sidecar", "--config", config]],
            self._out / "sidecar.log",
            SIDECAR_STOP_TIMEOUT_S,
            environ={"TMPDIR": str(self._out / "tmp")},  # killed workers leave files behind
        )

    @property
    def web_address(self) -> str | None:
        """Address of the sidecar's web page, once it is up."""
        with suppress(OSError):
            return (self._state / "web").read_text().strip() or None
        return None

    @property
    def failure(self) -> str | None:
        """Error text if the sidecar has ended by itself."""
        if self._sidecar is None:
            return None
        self._sidecar.read_status(0.0)
        return self._describe_failure() if self._sidecar.has_ended else None

    def kill_worker(self, worker: str) -> bool:
        """SIGKILL a worker and its JVM, like a power failure."""
        return _kill_worker(self._state, worker)

    def restart_workers(self) -> tuple[str, ...]:
        """Request a rolling restart of the workers, as `sidecar restart` does."""
        return request_restart(self._state)

    @property
    def is_restarting(self) -> bool:
        """Whether the rolling restart is still in progress."""
        return (self._state / RESTART_FILE).exists()

    def stop_gracefully(self) -> str | None:
        """Stop in order: workers flush and leave the group. Return the failure, if any."""
        if self._sidecar is None:
            return None
        self._sidecar.stop()
        return self._describe_failure()

    def kill_all(self) -> None:
        """Kill remaining processes and remove temporary files."""
        if self._sidecar is None:
            return
        with suppress(ProcessLookupError):
            if self._sidecar.pid and not self._sidecar.has_ended:
                os.kill(self._sidecar.pid, signal.SIGKILL)
        self._sidecar.stop()  # before its workers: it would replace them
        kill_workers(self._state, self._clock)
        shutil.rmtree(self._out / "tmp", ignore_errors=True)

    def _describe_failure(self) -> str | None:
        assert self._sidecar is not None
        code = self._sidecar.exit_code
        if code == 0:
            return None
        lines = (self._out / "sidecar.log").read_text(errors="replace").splitlines()
        return f"the sidecar ended with code {code}: {lines[-1] if lines else '(no output)'}"


def kill_workers(state: Path, clock: Clock) -> None:
    """Kill the running workers of the state folder. Raises StateDirInUseError if a sidecar runs."""
    target = ProcessTarget((), state, clock, stop_timeout=0.0)
    deadline = clock.monotonic() + KILL_TIMEOUT_S
    try:
        while (alive := target.list_replicas()) and clock.monotonic() < deadline:
            for worker in alive:
                _kill_worker(state, worker.name)
            clock.sleep(0.05)
    finally:
        target.close()


def _kill_worker(state: Path, worker: str) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError):
        file = state / "workers" / f"{worker}.json"
        # the group: the worker's JVM is a process of its own
        os.killpg(int(json.loads(file.read_text())["pid"]), signal.SIGKILL)
        return True
    return False
