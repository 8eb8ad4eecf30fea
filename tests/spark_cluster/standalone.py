"""Spark's standalone cluster from pyspark's own jars: a master and workers as processes of this machine."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyspark

from trimtab.consumer_sdk.java.java_runtime import require_java

SPARK_HOME: Final = Path(pyspark.__file__).parent
WORKER_MEMORY: Final = "640m"
EXECUTOR_MEMORY: Final = "512m"
_DAEMON_HEAP: Final = "-Xmx128m"
# spark-class finds out the version; the worker's command for an executor needs it.
_ENVIRONMENT: Final = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
_END_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL")  # also if the test run is killed
_STOP_TIMEOUT_S: Final = 30.0

# Long enough to be killed in: a task waits 2 ms for each row.
SLOW_TRANSFORM: Final = """
def slow(frame):
    return frame.selectExpr("*", "java_method('java.lang.Thread', 'sleep', 2L) AS waited")
"""


@dataclass(frozen=True, slots=True)
class Worker:
    """A process of Spark's worker; its executors write their logs below `folder`."""

    process: "subprocess.Popen[bytes]"
    folder: Path

    def has_open_task(self) -> bool:
        """Return whether an executor has begun a task and not finished it, by its log."""
        logs = (log.read_text(errors="replace") for log in self.folder.glob("app-*/*/stderr"))
        return any(log.count("Running task ") > log.count("Finished task ") for log in logs)


class StandaloneCluster:
    """A master and workers of one core each; `close` ends all of them."""

    def __init__(self, folder: Path, eventually: Callable[..., None]) -> None:
        self._folder = folder
        self._eventually = eventually
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[Worker] = []  # that live, the oldest first
        port, ui = _free_port(), _free_port()
        self.url = f"spark://127.0.0.1:{port}"
        master = ["Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui)]
        self._log = self._start("master", master)
        eventually(lambda: "New state: ALIVE" in self._log.read_text())

    def add_worker(self, wrapper: Sequence[str] = ()) -> None:
        """Start a worker and wait until the master knows it; `wrapper` is a command before its own."""
        known = self._log.read_text().count("Registering worker")
        folder = self._folder / f"worker-{len(self._processes)}"
        limits = ["--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(folder)]
        place = ["--host", "127.0.0.1", "--webui-port", str(_free_port())]
        self._start(folder.name, ["Worker", *limits, *place, self.url], wrapper)
        self._eventually(lambda: self._log.read_text().count("Registering worker") > known)
        self.workers.append(Worker(self._processes[-1], folder))

    def find_busy_worker(self) -> Worker | None:
        """Return a worker that runs a task."""
        return next((worker for worker in self.workers if worker.has_open_task()), None)

    def kill_worker(self, worker: Worker | None = None) -> None:
        """Kill a worker, by default the oldest, with its executors, as the loss of its machine."""
        killed = worker or self.workers[0]
        self.workers.remove(killed)
        _kill_group(killed.process)

    def _start(self, name: str, command: list[str], wrapper: Sequence[str] = ()) -> Path:
        daemon, *arguments = command
        java = [str(require_java()), _DAEMON_HEAP, "-cp", f"{SPARK_HOME}/jars/*"]
        log = self._folder / f"{name}.log"
        environ = {**os.environ, "SPARK_HOME": str(SPARK_HOME), **_ENVIRONMENT}
        with log.open("wb") as errors:
            main = f"org.apache.spark.deploy.{daemon.lower()}.{daemon}"
            program = [*wrapper, *_END_WITH_PARENT, *java, main, *arguments]
            # a group of its own, so that it can be killed with its executors
            made = subprocess.Popen(program, stderr=errors, stdout=errors, env=environ, process_group=0)
        self._processes.append(made)
        return log

    def close(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            _kill_group(process)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_TIMEOUT_S)


def session_settings(url: str) -> dict[str, Any]:
    """Return Spark's settings of a driver on this machine."""
    return {
        "spark.master": url,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
