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
from trimtab.sidecar.errors import StartupError, StateDirError, StateDirInUseError
from trimtab.sidecar.measurement.observation import ExternalScaling, ReplicaInstance
from trimtab.sidecar.targets.process.linux_process import find_marked_process, read_start_ticks
from trimtab.sidecar.targets.process.state_dir import translate_state_dir_errors

WORKER_ENV_VARIABLE: Final = "TRIMTAB_WORKER"

EXIT_REPORT_PERIOD_S: Final = 300.0
"""Seconds for which a worker's end is told."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """What is on file of a worker; times are seconds since the epoch, `ticks` as in `proc`.

    With a pid and no ticks it died at once: it was gone before its start time could be read.
    """

    name: str
    started: float
    pid: int | None = None
    ticks: int | None = None
    stopping: float | None = None

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        if self.pid is None or self.ticks is None:
            return False  # else "gone" would equal "gone" for ever
        return read_start_ticks(self.pid) == self.ticks


class ProcessTarget:
    """Starts `command` with each "{instance}" replaced by the worker's name.

    `stop_timeout` is how long a worker may take to end, in seconds, before it is killed. Raises
    StateDirInUseError where another sidecar holds the folder.
    """

    advisory = False

    def __init__(
        self, command: Sequence[str], state_dir: Path, clock: Clock, stop_timeout: float = 60.0
    ) -> None:
        self._command = tuple(command)
        self._state_dir = state_dir.resolve()
        self._clock = clock
        self._stop_timeout = stop_timeout
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._exit_codes: dict[int, int] = {}  # of children that ended, till their files are gone
        self._last_unexpected_exit: tuple[float, str] | None = (
            None  # when one was seen to have ended, and how
        )
        self._lock = _lock_state_dir(self._state_dir)

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return the live workers, and take the files of dead ones away. Raises StateDirError."""
        self._reap_children()
        found: list[ReplicaInstance] = []
        with translate_state_dir_errors(self._state_dir):
            for worker in self._load_workers():
                if worker.is_alive:
                    found.append(
                        ReplicaInstance(worker.name, alive=True, started_at=worker.started)
                    )
                else:
                    self._note_worker_exit(worker)
                    self._get_worker_file(worker.name).unlink(missing_ok=True)
        return tuple(found)

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Start so many workers. Raises StartupError, StateDirError."""
        with translate_state_dir_errors(self._state_dir):
            return tuple(self._start_worker() for _ in range(count))

    def stop_replica(self, name: str) -> None:
        """Send SIGTERM once; when the patience is over, SIGKILL. Raises StateDirError."""
        with translate_state_dir_errors(self._state_dir):
            self._terminate_worker(name)

    def close(self) -> None:
        """Let go of the state folder; workers go on."""
        self._reap_children()
        for child in self._children.values():
            child.returncode = 0  # not ours to wait for any more; else Popen warns when collected
        self._children.clear()
        self._lock.close()

    def _terminate_worker(self, name: str) -> None:
        worker = next((w for w in self._load_workers() if w.name == name), None)
        if worker is None or worker.pid is None or not worker.is_alive:
            return
        now = self._clock.wall()
        if worker.stopping is None:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
            # afterwards: whoever dies in between has it asked twice, but never killed unasked
            self._save_worker(
                WorkerRecord(worker.name, worker.started, worker.pid, worker.ticks, now)
            )
        elif now - worker.stopping > self._stop_timeout:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)  # it leads its session

    def _start_worker(self) -> str:
        name = self._allocate_worker_name()
        self._save_worker(WorkerRecord(name, self._clock.wall()))
        command = [part.replace("{instance}", name) for part in self._command]
        with (self._ensure_subfolder("logs") / f"{name}.log").open("ab") as log:
            child = self._spawn_process(name, command, log)
        self._children[child.pid] = child
        ticks = read_start_ticks(child.pid)
        self._save_worker(WorkerRecord(name, self._clock.wall(), child.pid, ticks))
        return name

    def _spawn_process(
        self, name: str, command: Sequence[str], log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - the operator's own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, WORKER_ENV_VARIABLE: self._format_worker_mark(name)},
                start_new_session=True,
            )
        except OSError as error:
            self._get_worker_file(name).unlink(missing_ok=True)
            raise StartupError(
                f"{command[0]}: {error.strerror}; mend the worker command"
            ) from error

    def read_external_scaling(self) -> ExternalScaling:
        """Tell of the worker that ended last without being asked to.

        For `EXIT_REPORT_PERIOD_S` seconds.
        """
        if (
            self._last_unexpected_exit is None
            or self._clock.wall() - self._last_unexpected_exit[0] > EXIT_REPORT_PERIOD_S
        ):
            return ExternalScaling()
        return ExternalScaling(trouble=(self._last_unexpected_exit[1],))

    def _reap_children(self) -> None:
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[pid]
                self._exit_codes[pid] = child.returncode

    def _note_worker_exit(self, worker: WorkerRecord) -> None:
        """Take note of a worker that ended; its exit code is known if we started it."""
        self._reap_children()
        code = None if worker.pid is None else self._exit_codes.pop(worker.pid, None)
        if worker.stopping is not None:
            return
        how = "" if code is None else _format_exit_code(code)
        log = self._ensure_subfolder("logs") / f"{worker.name}.log"
        self._last_unexpected_exit = (
            self._clock.wall(),
            f"{worker.name} ended by itself{how}; its log is {log}",
        )

    def _load_workers(self) -> list[WorkerRecord]:
        files = sorted(self._ensure_subfolder("workers").glob("*.json"))
        return [worker for file in files if (worker := self._load_worker(file)) is not None]

    def _load_worker(self, file: Path) -> WorkerRecord | None:
        try:
            worker = WorkerRecord(**json.loads(file.read_text()))
        except (ValueError, TypeError):  # cut short by a crash; its name is in the file's
            worker = WorkerRecord(file.stem, self._clock.wall())
        if worker.pid is None:
            pid = find_marked_process(
                f"{WORKER_ENV_VARIABLE}={self._format_worker_mark(worker.name)}"
            )
            if pid is not None:
                worker = WorkerRecord(worker.name, worker.started, pid, read_start_ticks(pid))
                self._save_worker(worker)
        return worker

    def _save_worker(self, worker: WorkerRecord) -> None:
        _write_atomically(self._get_worker_file(worker.name), json.dumps(asdict(worker)))

    def _allocate_worker_name(self) -> str:
        last = self._state_dir / "last"
        try:
            given = int(last.read_text()) if last.exists() else 0
        except ValueError:
            raise StateDirError(
                f"{last} does not hold a number; write that of the newest worker in "
                f"{self._state_dir / 'logs'} into it"
            ) from None
        _write_atomically(last, str(given + 1))
        return f"worker-{given + 1}"

    def _format_worker_mark(self, name: str) -> str:
        return f"{self._state_dir}/{name}"

    def _get_worker_file(self, name: str) -> Path:
        return self._ensure_subfolder("workers") / f"{name}.json"

    def _ensure_subfolder(self, name: str) -> Path:
        folder = self._state_dir / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _format_exit_code(code: int) -> str:
    if code >= 0:
        return f" with exit code {code}"
    with suppress(ValueError):
        return f" by {signal.Signals(-code).name}"
    return f" by signal {-code}"


def _lock_state_dir(state_dir: Path) -> IO[str]:
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        lock = (state_dir / "lock").open("w")
    except OSError as error:
        raise StartupError(
            f"state folder {state_dir}: {error.strerror}; choose one that can be written (--state)"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StateDirInUseError(
            f"state folder {state_dir} is in use by another sidecar; stop that one, or choose "
            "another "
            "folder (--state)"
        ) from None
    return lock


def _write_atomically(file: Path, text: str) -> None:
    """Write a file so that a crash leaves the old one or the new one."""
    draft = file.with_suffix(".tmp")
    draft.write_text(text)
    draft.replace(file)
