"""The processes of the demo: a real `trimtab sidecar`, and the `trimtab ingest` workers it starts.

Rules: at the end nothing of them is left. A good end is the sidecar's own: on SIGTERM it stops its
workers, and they flush and leave. On any other end all are killed, found by the sidecar's state
folder, so that one that was just being started is found too.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from trimtab.assignor.clock import Clock
from trimtab.cli.demo.script import CAPACITY, RECORD, Script
from trimtab.sidecar.restarts import NAME as RESTART_FILE
from trimtab.sidecar.restarts import request
from trimtab.sidecar.targets.process import Processes

MOST: Final = 6  # consumers: what two cores can show
END_SECONDS: Final = 90.0
KILL_SECONDS: Final = 10.0


def ingest_settings(
    script: Script, client: Mapping[str, str], group: str, out: Path, java_options: str
) -> dict[str, Any]:
    """Return the configuration of the workers: small JVMs, throttled to one consumer's capacity."""
    rate = f"{CAPACITY:.0f} B/s"
    return {
        **client,
        "group.id": group,
        "session.timeout.ms": 6000,
        "topics": list(script.topics),
        "trimtab.capacity": rate,
        "trimtab.throttle": rate,
        "lake.warehouse": str(out / "lake"),
        "lake.tables": {topic: table(script, topic) for topic in script.topics},
        "batch.bytes": f"{4000 * RECORD} B",
        "batch.wait": "6 s",
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": False,
        "spark.driver.extraJavaOptions": java_options,
    }


def table(script: Script, topic: str) -> str:
    """Return the table that a topic lands in."""
    return f"demo.{topic.removeprefix(script.prefix)}"


def sidecar_settings(
    script: Script, client: Mapping[str, str], group: str, out: Path
) -> dict[str, Any]:
    """Return the configuration of the sidecar: quick to decide, since the show is short."""
    return {
        "bootstrap": client["bootstrap.servers"],
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
        self._sidecar: subprocess.Popen[bytes] | None = None

    def write(self, ingest: Mapping[str, Any], sidecar: Mapping[str, Any]) -> None:
        """Write both configurations."""
        for name, settings in (("ingest", ingest), ("sidecar", sidecar)):
            file = self._out / f"{name}.yaml"
            file.write_text(yaml.safe_dump(dict(settings), sort_keys=False))

    def start(self) -> None:
        """Start the sidecar; it starts the workers."""
        with (self._out / "sidecar.log").open("wb") as log:
            self._sidecar = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", self._out / "sidecar.yaml"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops all in order
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
        code = None if self._sidecar is None else self._sidecar.poll()
        return None if code is None else f"the sidecar ended with code {code}: {self._last_words()}"

    def kill(self, worker: str) -> bool:
        """SIGKILL a worker and its JVM, as a machine would that loses power."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            file = self._state / "workers" / f"{worker}.json"
            os.killpg(int(json.loads(file.read_text())["pid"]), signal.SIGKILL)
            return True
        return False

    def restart(self) -> tuple[str, ...]:
        """Ask for all workers to be replaced, one after the other, as `sidecar restart` does."""
        return request(self._state)

    @property
    def restarting(self) -> bool:
        """Whether some of them have not been replaced yet."""
        return (self._state / RESTART_FILE).exists()

    def finish(self) -> str | None:
        """End in good order: workers flush and leave. Returns what went wrong, if anything did."""
        sidecar = self._sidecar
        if sidecar is None:
            return None
        sidecar.terminate()
        try:
            code = sidecar.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return f"the sidecar and its workers did not end within {END_SECONDS:.0f} s"
        return None if code == 0 else f"the sidecar ended with code {code}: {self._last_words()}"

    def abandon(self) -> None:
        """Kill whatever still runs; does nothing after a good end."""
        if self._sidecar is None:
            return
        self._sidecar.kill()
        self._sidecar.wait()
        target = Processes((), self._state, self._clock, patience=0.0)
        deadline = self._clock.monotonic() + KILL_SECONDS
        while (alive := target.replicas()) and self._clock.monotonic() < deadline:
            for worker in alive:
                self.kill(worker.name)
            self._clock.sleep(0.05)
        target.close()

    def _last_words(self) -> str:
        lines = (self._out / "sidecar.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "(it said nothing)"
