"""Target `process`: replicas as local processes that outlive the sidecar.

The state directory holds `workers/NAME.json` and `logs/NAME.log` of each worker, and the last
worker number. The file is the worker's state, so a restarted sidecar resumes in any of them:

1. Starting: a file without a pid, written before the process starts. After a crash in between, the
   next sidecar finds the process by the mark in its environment, else the worker is gone.
2. Running: pid and start time, by which a sidecar tells the process from a later one of that pid.
3. Stopping: `stopping_since` is written after SIGTERM, so that a crash repeats the signal but never
   skips it. Once that is longer ago than the stop timeout, each further stop sends SIGKILL. It counts
   from the machine's boot, as the process's start time does: a clock that is set changes nothing.
4. Gone: no such process. The file is deleted; the exit of a worker that was not stopping is
   reported for `EXIT_REPORT_PERIOD_S` seconds.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import IO, Final

from trimtab.common.clock import Clock
from trimtab.common.control_topics.number_ranges import Count, Figure, Int32, Timestamp
from trimtab.common.control_topics.versioned_json import validate_json
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.errors import StartupError, StateDirError, StateDirInUseError
from trimtab.sidecar.model.observation import ReplicaInstance, TargetStatus
from trimtab.sidecar.targets.process.linux_process import find_marked_process, read_start_ticks
from trimtab.sidecar.targets.process.state_dir import translate_state_dir_errors, write_atomically

WORKER_ENV_VARIABLE: Final = "TRIMTAB_WORKER"

EXIT_REPORT_PERIOD_S: Final = 300.0  # for which an unexpected worker exit is reported


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """State file of a worker."""

    name: str
    started: Timestamp
    pid: Int32 | None = None
    ticks: Count | None = None  # since boot; None with a pid: it exited before its start time could be read
    stopping_since: Figure | None = None  # seconds since boot

    @property
    def is_alive(self) -> bool:
        """Whether the process is still running."""
        if self.pid is None or self.ticks is None:
            return False  # None would equal the None that read_start_ticks returns for no process
        return read_start_ticks(self.pid) == self.ticks


def parse_worker(data: bytes, name: str) -> WorkerRecord | None:
    """Return the worker `name` of a state file; None if it was truncated by a crash, or changed."""
    with suppress(InvalidPayloadError):
        worker = validate_json(WorkerRecord, data, name)
        return worker if worker.name == name else None
    return None


class ProcessTarget:
    """Starts `command` with each "{instance}" replaced by the worker's name.

    Raises StateDirInUseError if another sidecar uses the state directory.
    """

    advisory = False

    def __init__(
        self, command: Sequence[str], state_dir: Path, clock: Clock, stop_timeout: float = 60.0
    ) -> None:
        self._command = tuple(command)
        self._state_dir = state_dir.resolve()
        self._clock = clock
        self._stop_timeout = stop_timeout  # seconds from SIGTERM to SIGKILL
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._exit_codes: dict[int, int] = {}  # of exited children whose state file still exists
        self._last_unexpected_exit: tuple[float, str] | None = None  # time, description
        self._lock = _lock_state_dir(self._state_dir)

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return live workers and delete the state files of dead ones. Raises StateDirError."""
        self._reap_children()
        replicas: list[ReplicaInstance] = []
        with translate_state_dir_errors(self._state_dir):
            for worker in self._load_workers():
                if worker.is_alive:
                    replicas.append(ReplicaInstance(worker.name, alive=True, started_at=worker.started))
                else:
                    self._note_worker_exit(worker)
                    self._get_worker_file(worker.name).unlink(missing_ok=True)
        return tuple(replicas)

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Start `count` workers and return their names. Raises StartupError, StateDirError."""
        with translate_state_dir_errors(self._state_dir):
            return tuple(self._start_worker() for _ in range(count))

    def stop_replica(self, name: str) -> None:
        """Send SIGTERM once, and SIGKILL after the stop timeout. Raises StateDirError."""
        with translate_state_dir_errors(self._state_dir):
            self._terminate_worker(name)

    def close(self) -> None:
        """Release the state directory; workers keep running."""
        self._reap_children()
        for child in self._children.values():
            child.returncode = 0  # without it Popen warns about a running child when collected
        self._children.clear()
        self._lock.close()

    def _terminate_worker(self, name: str) -> None:
        worker = next((w for w in self._load_workers() if w.name == name), None)
        if worker is None or worker.pid is None or not worker.is_alive:
            return
        now = self._clock.monotonic()
        if worker.stopping_since is None or worker.stopping_since > now:  # above: an earlier boot's file
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
            # saved after the signal: a crash in between repeats SIGTERM, but never skips it
            self._save_worker(WorkerRecord(worker.name, worker.started, worker.pid, worker.ticks, now))
        elif now - worker.stopping_since > self._stop_timeout:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)  # it leads its session

    def _start_worker(self) -> str:
        name = self._allocate_worker_name()
        # saved before the start and completed after it: a crash in between leaves a file without a
        # pid, and the next sidecar finds the worker by the mark in its environment
        self._save_worker(WorkerRecord(name, self._clock.wall()))
        command = [part.replace("{instance}", name) for part in self._command]
        with (self._ensure_subfolder("logs") / f"{name}.log").open("ab") as log:
            child = self._spawn_process(name, command, log)
        self._children[child.pid] = child
        ticks = read_start_ticks(child.pid)
        self._save_worker(WorkerRecord(name, self._clock.wall(), child.pid, ticks))
        return name

    def _spawn_process(self, name: str, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - the operator's own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, WORKER_ENV_VARIABLE: self._format_worker_mark(name)},
                start_new_session=True,  # signals to the sidecar's group do not reach the worker
            )
        except OSError as error:
            self._get_worker_file(name).unlink(missing_ok=True)
            raise StartupError(f"{command[0]}: {error.strerror}; correct the worker command") from error

    def read_target_status(self) -> TargetStatus:
        """Report the last unexpected worker exit for `EXIT_REPORT_PERIOD_S` seconds."""
        at, exited = self._last_unexpected_exit or (-inf, "")
        recent = self._clock.monotonic() - at <= EXIT_REPORT_PERIOD_S
        return TargetStatus(errors=(exited,) if recent else ())

    def _reap_children(self) -> None:
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[pid]
                self._exit_codes[pid] = child.returncode

    def _note_worker_exit(self, worker: WorkerRecord) -> None:
        self._reap_children()
        code = None if worker.pid is None else self._exit_codes.pop(worker.pid, None)
        if worker.stopping_since is not None:
            return
        how = "" if code is None else _format_exit_code(code)  # None: started by an earlier sidecar
        log = self._ensure_subfolder("logs") / f"{worker.name}.log"
        text = f"{worker.name} exited unexpectedly{how}; see its log {log}"
        self._last_unexpected_exit = self._clock.monotonic(), text

    def _load_workers(self) -> list[WorkerRecord]:
        files = sorted(self._ensure_subfolder("workers").glob("*.json"))
        return [worker for file in files if (worker := self._load_worker(file)) is not None]

    def _load_worker(self, file: Path) -> WorkerRecord | None:
        worker = parse_worker(file.read_bytes(), file.stem) or WorkerRecord(file.stem, self._clock.wall())
        if worker.pid is None:
            pid = find_marked_process(f"{WORKER_ENV_VARIABLE}={self._format_worker_mark(worker.name)}")
            if pid is not None:
                worker = WorkerRecord(worker.name, worker.started, pid, read_start_ticks(pid))
                self._save_worker(worker)
        return worker

    def _save_worker(self, worker: WorkerRecord) -> None:
        write_atomically(self._get_worker_file(worker.name), json.dumps(asdict(worker)))

    def _allocate_worker_name(self) -> str:
        last = self._state_dir / "last"
        text = last.read_text(errors="replace").strip() if last.exists() else "0"
        if not re.fullmatch(r"[0-9]{1,9}", text):
            raise StateDirError(
                f"{last} does not contain a number; write the number of the newest worker in "
                f"{self._state_dir / 'logs'} into it"
            )
        number = int(text) + 1
        write_atomically(last, str(number))
        return f"worker-{number}"

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
            f"state directory {state_dir}: {error.strerror}; choose a writable one (--state-dir)"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StateDirInUseError(
            f"state directory {state_dir} is in use by another sidecar; stop that sidecar, or "
            "choose another directory (--state-dir)"
        ) from None
    return lock
