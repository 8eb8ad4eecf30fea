"""The processes of the demo: a real `trimtab sidecar`, and the `trimtab ingest` workers it starts.

Rules: at the end nothing of them is left. A good end is the sidecar's own: on SIGTERM it stops its
workers, and they flush and leave; so it does when the demo itself is killed, by its guard. On any
other end all are killed, found by the sidecar's state folder, so that one that was just being
started is found too.
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

from trimtab.cli.demo.scenario import CAPACITY, RECORD, Script
from trimtab.cli.supervised import Guarded
from trimtab.common.clock import Clock
from trimtab.sidecar.targets.process.process_target import Processes
from trimtab.sidecar.targets.process.rolling_restart import NAME as RESTART_FILE
from trimtab.sidecar.targets.process.rolling_restart import request

MOST: Final = 6  # consumers: what two cores can show
QUEUE: Final = {
    "max.partition.fetch.bytes": 32 * RECORD,
    "queued.max.messages.kbytes": 128,
    "queued.min.messages": 50,
    "fetch.queue.backoff.ms": 20,
}
"""A short queue before the throttle: a partition that comes late must not wait behind seconds of
others that were fetched before it."""

END_SECONDS: Final = 90.0
KILL_SECONDS: Final = 10.0


def ingest_settings(
    script: Script, client: Mapping[str, Any], group: str, out: Path, java_options: str
) -> dict[str, Any]:
    """Return the configuration of the workers: small JVMs, throttled to one consumer's capacity."""
    rate = f"{CAPACITY:.0f} B/s"
    return {
        **client,
        "group.id": group,
        "session.timeout.ms": 6000,
        **QUEUE,
        "topics": list(script.topics),
        "trimtab.capacity": rate,
        "trimtab.throttle": rate,
        "lake.format": script.format,
        "lake.warehouse": str(out / "lake"),
        "lake.tables": {topic: table(script, topic) for topic in script.topics},
        "batch.bytes": f"{4000 * RECORD} B",
        "batch.wait": "6 s",
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": False,
        "spark.driver.extraJavaOptions": f'{java_options} "-Djava.io.tmpdir={out / "tmp"}"',
    }


def table(script: Script, topic: str) -> str:
    """Return the table that a topic lands in."""
    return f"demo.{topic.removeprefix(script.prefix)}"


def sidecar_settings(
    script: Script, client: Mapping[str, Any], group: str, out: Path
) -> dict[str, Any]:
    """Return the configuration of the sidecar: quick to decide, since the show is short."""
    return {
        "bootstrap": client["bootstrap.servers"],
        "kafka": {n: value for n, value in client.items() if n != "bootstrap.servers"},
        "group": group,
        "topics": list(script.topics),
        "capacity": f"{CAPACITY:.0f} B/s",
        "headroom": 0.8,
        "interval": "1 s",
        "window": "6 s",
        "min": 1,
        "max": MOST,
        "step-out": 2,
        "step-in": 2,
        "stabilise-out": "0 s",
        "stabilise-in": "8 s",
        "cool-down": "4 s",
        "drain-target": "40 s",
        "backlog-allowance": "12 s",  # what waits in batches of `batch.wait` is no backlog
        "ask-again": "20 s",
        "target": "process",
        "worker-config": str(out / "ingest.yaml"),
        "state": str(out / "state"),
        "stop-workers": True,
    }


class Crew:
    """The sidecar and its workers, with configuration and state in the folder `out`."""

    def __init__(self, out: Path, clock: Clock) -> None:
        self._out = out
        self._state = out / "state"
        self._clock = clock
        self._sidecar: Guarded | None = None

    def write(self, ingest: Mapping[str, Any], sidecar: Mapping[str, Any]) -> None:
        """Write both configurations."""
        for name, settings in (("ingest", ingest), ("sidecar", sidecar)):
            file = self._out / f"{name}.yaml"
            file.write_text(yaml.safe_dump(dict(settings), sort_keys=False))

    def start(self) -> None:
        """Start the sidecar; it starts the workers."""
        (self._out / "tmp").mkdir(exist_ok=True)
        config = str(self._out / "sidecar.yaml")
        self._sidecar = Guarded(
            [[sys.executable, "-m", "trimtab.cli", "sidecar", "--config", config]],
            self._out / "sidecar.log",
            END_SECONDS,
            environ={"TMPDIR": str(self._out / "tmp")},  # for what killed workers leave behind
        )

    @property
    def web(self) -> str | None:
        """Address of the sidecar's web page, once there is one."""
        with suppress(OSError):
            return (self._state / "web").read_text().strip() or None
        return None

    @property
    def fault(self) -> str | None:
        """What to say if the sidecar has ended by itself."""
        if self._sidecar is not None:
            self._sidecar.hear(0.0)
        return self._fault() if self._sidecar is not None and self._sidecar.ended else None

    def kill(self, worker: str) -> bool:
        """SIGKILL a worker and its JVM, as a machine would that loses power."""
        return _kill(self._state, worker)

    def restart(self) -> tuple[str, ...]:
        """Ask for all workers to be replaced, one after the other, as `sidecar restart` does."""
        return request(self._state)

    @property
    def restarting(self) -> bool:
        """Whether some of them have not been replaced yet."""
        return (self._state / RESTART_FILE).exists()

    def finish(self) -> str | None:
        """End in good order: workers flush and leave. Returns what went wrong, if anything did."""
        if self._sidecar is None:
            return None
        self._sidecar.stop()
        return self._fault()

    def abandon(self) -> None:
        """Kill whatever still runs, and remove the temporary files; after a good end only those."""
        if self._sidecar is None:
            return
        with suppress(ProcessLookupError):
            if self._sidecar.pid and not self._sidecar.ended:
                os.kill(self._sidecar.pid, signal.SIGKILL)
        self._sidecar.stop()
        kill_workers(self._state, self._clock)
        shutil.rmtree(self._out / "tmp", ignore_errors=True)

    def _fault(self) -> str | None:
        assert self._sidecar is not None
        code = self._sidecar.code
        return None if code == 0 else f"the sidecar ended with code {code}: {self._last_words()}"

    def _last_words(self) -> str:
        lines = (self._out / "sidecar.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "(it said nothing)"


def kill_workers(state: Path, clock: Clock) -> None:
    """Kill the workers on file that still run. Raises StateInUse where a sidecar still does."""
    target = Processes((), state, clock, patience=0.0)
    deadline = clock.monotonic() + KILL_SECONDS
    try:
        while (alive := target.replicas()) and clock.monotonic() < deadline:
            for worker in alive:
                _kill(state, worker.name)
            clock.sleep(0.05)
    finally:
        target.close()


def _kill(state: Path, worker: str) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError):
        file = state / "workers" / f"{worker}.json"
        os.killpg(int(json.loads(file.read_text())["pid"]), signal.SIGKILL)
        return True
    return False
