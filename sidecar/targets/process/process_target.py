"""Replicas as local processes that outlive the sidecar: the embedded default.

A state folder holds, for each worker, `workers/NAME.json` (pid, start time) and `logs/NAME.log`,
and the last number given. A worker runs in a session of its own, so no signal meant for the
sidecar reaches it, and a sidecar that starts again finds it by pid and start time. The file is
written before the worker is started and completed after, so a crash in between leaves a file
without a pid; then the worker is looked for by the mark in its environment.
"""

import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from trimtab.common.clock import Clock
from trimtab.sidecar.errors import CannotStart, StateInUse, StateUnusable
from trimtab.sidecar.measurement.observation import Instance, Outside
from trimtab.sidecar.targets.process.linux_process import marked, start_ticks
from trimtab.sidecar.targets.process.state_dir import usable

MARK: Final = "TRIMTAB_WORKER"

TOLD: Final = 300.0
"""Seconds for which a worker's end is told."""


@dataclass(frozen=True, slots=True)
class Worker:
    """What is on file of a worker; times are seconds since the epoch, `ticks` as in `proc`.

    With a pid and no ticks it died at once: it was gone before its start time could be read.
    """

    name: str
    started: float
    pid: int | None = None
    ticks: int | None = None
    stopping: float | None = None

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        if self.pid is None or self.ticks is None:
            return False  # else "gone" would equal "gone" for ever
        return start_ticks(self.pid) == self.ticks


class Processes:
    """Starts `command` with each "{instance}" replaced by the worker's name.

    `patience` is how long a worker may take to end, in seconds, before it is killed. Raises
    StateInUse where another sidecar holds the folder.
    """

    advisory = False

    def __init__(
        self, command: Sequence[str], state: Path, clock: Clock, patience: float = 60.0
    ) -> None:
        self._command = tuple(command)
        self._state = state.resolve()
        self._clock = clock
        self._patience = patience
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._codes: dict[int, int] = {}  # of children that ended, till their files are gone
        self._ended: tuple[float, str] | None = None  # when one was seen to have ended, and how
        self._lock = _locked(self._state)

    def replicas(self) -> tuple[Instance, ...]:
        """Return the live workers, and take the files of dead ones away. Raises StateUnusable."""
        self._reap()
        found: list[Instance] = []
        with usable(self._state):
            for worker in self._workers():
                if worker.alive:
                    found.append(Instance(worker.name, alive=True, started=worker.started))
                else:
                    self._note(worker)
                    self._file(worker.name).unlink(missing_ok=True)
        return tuple(found)

    def add(self, count: int) -> tuple[str, ...]:
        """Start so many workers. Raises CannotStart, StateUnusable."""
        with usable(self._state):
            return tuple(self._start() for _ in range(count))

    def stop(self, name: str) -> None:
        """Send SIGTERM once; when the patience is over, SIGKILL. Raises StateUnusable."""
        with usable(self._state):
            self._stop(name)

    def close(self) -> None:
        """Let go of the state folder; workers go on."""
        self._reap()
        for child in self._children.values():
            child.returncode = 0  # not ours to wait for any more; else Popen warns when collected
        self._children.clear()
        self._lock.close()

    def _stop(self, name: str) -> None:
        worker = next((w for w in self._workers() if w.name == name), None)
        if worker is None or worker.pid is None or not worker.alive:
            return
        now = self._clock.wall()
        if worker.stopping is None:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
            # afterwards: whoever dies in between has it asked twice, but never killed unasked
            self._write(Worker(worker.name, worker.started, worker.pid, worker.ticks, now))
        elif now - worker.stopping > self._patience:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)  # it leads its session

    def _start(self) -> str:
        name = self._name()
        self._write(Worker(name, self._clock.wall()))
        command = [part.replace("{instance}", name) for part in self._command]
        with (self._folder("logs") / f"{name}.log").open("ab") as log:
            child = self._spawn(name, command, log)
        self._children[child.pid] = child
        ticks = start_ticks(child.pid)
        self._write(Worker(name, self._clock.wall(), child.pid, ticks))
        return name

    def _spawn(self, name: str, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - the operator's own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK: self._mark(name)},
                start_new_session=True,
            )
        except OSError as error:
            self._file(name).unlink(missing_ok=True)
            raise CannotStart(f"{command[0]}: {error.strerror}; mend the worker command") from error

    def outside(self) -> Outside:
        """Tell of the worker that ended last without being asked to, for `TOLD` seconds."""
        if self._ended is None or self._clock.wall() - self._ended[0] > TOLD:
            return Outside()
        return Outside(trouble=(self._ended[1],))

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[pid]
                self._codes[pid] = child.returncode

    def _note(self, worker: Worker) -> None:
        """Take note of a worker that ended; its exit code is known if we started it."""
        self._reap()
        code = None if worker.pid is None else self._codes.pop(worker.pid, None)
        if worker.stopping is not None:
            return
        how = "" if code is None else _how(code)
        log = self._folder("logs") / f"{worker.name}.log"
        self._ended = self._clock.wall(), f"{worker.name} ended by itself{how}; its log is {log}"

    def _workers(self) -> list[Worker]:
        files = sorted(self._folder("workers").glob("*.json"))
        return [worker for file in files if (worker := self._read(file)) is not None]

    def _read(self, file: Path) -> Worker | None:
        try:
            worker = Worker(**json.loads(file.read_text()))
        except (ValueError, TypeError):  # cut short by a crash; its name is in the file's
            worker = Worker(file.stem, self._clock.wall())
        if worker.pid is None:
            pid = marked(f"{MARK}={self._mark(worker.name)}")
            if pid is not None:
                worker = Worker(worker.name, worker.started, pid, start_ticks(pid))
                self._write(worker)
        return worker

    def _write(self, worker: Worker) -> None:
        _replace(self._file(worker.name), json.dumps(asdict(worker)))

    def _name(self) -> str:
        last = self._state / "last"
        try:
            given = int(last.read_text()) if last.exists() else 0
        except ValueError:
            raise StateUnusable(
                f"{last} does not hold a number; write that of the newest worker in "
                f"{self._state / 'logs'} into it"
            ) from None
        _replace(last, str(given + 1))
        return f"worker-{given + 1}"

    def _mark(self, name: str) -> str:
        return f"{self._state}/{name}"

    def _file(self, name: str) -> Path:
        return self._folder("workers") / f"{name}.json"

    def _folder(self, name: str) -> Path:
        folder = self._state / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _how(code: int) -> str:
    if code >= 0:
        return f" with exit code {code}"
    with suppress(ValueError):
        return f" by {signal.Signals(-code).name}"
    return f" by signal {-code}"


def _locked(state: Path) -> IO[str]:
    try:
        state.mkdir(parents=True, exist_ok=True)
        lock = (state / "lock").open("w")
    except OSError as error:
        raise CannotStart(
            f"state folder {state}: {error.strerror}; choose one that can be written (--state)"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StateInUse(
            f"state folder {state} is in use by another sidecar; stop that one, or choose another "
            "folder (--state)"
        ) from None
    return lock


def _replace(file: Path, text: str) -> None:
    """Write a file so that a crash leaves the old one or the new one."""
    draft = file.with_suffix(".tmp")
    draft.write_text(text)
    draft.replace(file)
