"""A sidecar process that steers a group of strangers."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from strangers.group import wait_until

READY: Final = "leads the group"
FAST: Final = """--interval 1s --window 4s --cooldown 2s --target none
    --set offset-reset=earliest --set drain-retry=6s"""
"""Settings for a group whose loads change within seconds."""
LEAD: Final = "--lead --set lead-session-timeout=2m"


class Sidecar:
    """A sidecar with flags of its own; its log is appended to over restarts."""

    def __init__(self, bootstrap: str, group: str, topic: str, log: Path, flags: str) -> None:
        words = f"--bootstrap {bootstrap} --group {group} --topics {topic} {FAST} {flags}"
        self._command = [sys.executable, "-m", "trimtab.cli", "sidecar", *words.split()]
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self.log = log

    def start(self) -> None:
        """Start it; again, it waits for no sidecar that was killed."""
        command = [*self._command, "--take-over"] if self._starts else self._command
        self._starts += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it. Raises RuntimeError with its log if it has ended by itself."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the sidecar has ended:\n{self.read_log()}")
        self._process.send_signal(number)
        self._process.wait(30)
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.stop(signal.SIGKILL)

    def read_log(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait_ready(self, timeout: float) -> None:
        """Wait until it leads the group. Raises TimeoutError with its log."""
        if not wait_until(lambda: self.read_log().count(READY) >= self._starts, timeout):
            raise TimeoutError(f"the sidecar is not ready after {timeout} s:\n{self.read_log()}")


@contextmanager
def run_sidecar(bootstrap: str, group: str, topic: str, log: Path, flags: str) -> Iterator[Sidecar]:
    """Run a sidecar within the context."""
    sidecar = Sidecar(bootstrap, group, topic, log, flags)
    sidecar.start()
    try:
        yield sidecar
    finally:
        sidecar.close()
