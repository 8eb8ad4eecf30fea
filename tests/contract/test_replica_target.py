"""Contract of all replica targets, and of the one with local processes."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Protocol

import pytest

from support.in_memory_target import InMemoryTarget
from trimtab.common.clock import SystemClock
from trimtab.common.errors import PeerError
from trimtab.sidecar.errors import StartupError, StateDirInUseError
from trimtab.sidecar.targets.process.process_target import ProcessTarget, WorkerRecord
from trimtab.sidecar.targets.replica_target import AdvisoryTarget, ReplicaTarget

COOPERATIVE = "import signal; signal.sigwait({signal.SIGTERM})"
STUBBORN = (
    "import signal, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('deaf', flush=True); threading.Event().wait()"
)


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Clock(SystemClock):
    """Real time plus `ahead` seconds; `set_back` are those by which someone set the machine's clock back."""

    ahead = 0.0
    set_back = 0.0

    def monotonic(self) -> float:  # type: ignore[override] # a partial in the base class
        return SystemClock.monotonic() + self.ahead

    def wall(self) -> float:
        return super().wall() + self.ahead - self.set_back


def command(program: str = COOPERATIVE) -> list[str]:
    return [sys.executable, "-c", program, "{instance}"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_target(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., ProcessTarget]]:
    """Open process targets on one state folder; kill remaining workers at the end."""
    opened: list[ProcessTarget] = []

    def start(program: str = COOPERATIVE, stop_timeout: float = 60.0) -> ProcessTarget:
        opened.append(ProcessTarget(command(program), tmp_path / "state", clock, stop_timeout))
        return opened[-1]

    yield start
    for target in opened:
        target.close()
    for file in (tmp_path / "state" / "workers").glob("*.json"):
        os.kill(json.loads(file.read_text())["pid"], signal.SIGKILL)


DEPLOYMENT = pytest.param("deployment", marks=pytest.mark.kubernetes)
STATEFULSET = pytest.param("statefulset", marks=pytest.mark.kubernetes)


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Callable[[str], ReplicaTarget]:
    """Open a target of a kind; each on Kubernetes has its own workload."""

    def start(kind: str) -> ReplicaTarget:
        if kind == "memory":
            return InMemoryTarget()
        if kind == "process":
            processes: ReplicaTarget = request.getfixturevalue("open_target")()
            return processes
        pods: ReplicaTarget = request.getfixturevalue("steered")(kind)
        pods.list_replicas()
        return pods

    return start


@pytest.fixture(params=["memory", "process", DEPLOYMENT, STATEFULSET])
def target(request: pytest.FixtureRequest, opened: Callable[[str], ReplicaTarget]) -> ReplicaTarget:
    return opened(request.param)


@pytest.fixture(params=["memory", "process", DEPLOYMENT])
def naming_target(request: pytest.FixtureRequest, opened: Callable[[str], ReplicaTarget]) -> ReplicaTarget:
    """A target that names replicas itself; those of a StatefulSet keep their ordinals."""
    return opened(request.param)


def alive(target: ReplicaTarget) -> list[str]:
    return [i.name for i in target.list_replicas() if i.alive]


def test_added_replicas_are_listed(target: ReplicaTarget) -> None:
    """The next `list_replicas` returns the added replicas as alive."""
    names = target.add_replicas(2)
    assert alive(target) == sorted(names)
    assert target.add_replicas(0) == ()


def stop(target: ReplicaTarget, name: str, eventually: Eventually) -> None:
    """Stop a replica as the control loop does: repeat the call while the target waits."""

    def done() -> bool:
        try:
            target.stop_replica(name)
        except PeerError:
            return False
        return True

    eventually(done)


def test_stopped_replicas_end(target: ReplicaTarget, eventually: Eventually) -> None:
    """A stopped replica ends, the others stay; stopping it again, or an unknown one, is no error."""
    target.add_replicas(2)
    staying, going = sorted(target.list_replicas(), key=lambda i: (i.ordinal, i.name))
    stop(target, going.name, eventually)
    stop(target, going.name, eventually)
    stop(target, "unknown", eventually)
    eventually(lambda: alive(target) == [staying.name])


def test_names_are_not_reused(naming_target: ReplicaTarget, eventually: Eventually) -> None:
    """A new replica never gets the name of a previous one."""
    (first,) = naming_target.add_replicas(1)
    stop(naming_target, first, eventually)
    eventually(lambda: not alive(naming_target))
    assert first not in naming_target.add_replicas(3)


def test_the_advisory_target_does_nothing() -> None:
    """It lists, starts and stops no replica."""
    target = AdvisoryTarget()
    assert target.advisory
    assert target.add_replicas(3) == ()
    target.stop_replica("worker-1")
    assert target.list_replicas() == ()


def pid_of(folder: Path, name: str) -> int:
    return int(json.loads((folder / "state" / "workers" / f"{name}.json").read_text())["pid"])


def test_a_killed_worker_is_removed(
    open_target: Callable[..., ProcessTarget], tmp_path: Path, eventually: Eventually
) -> None:
    """It is reaped, no longer listed, and its file is deleted."""
    target = open_target()
    (name,) = target.add_replicas(1)
    os.kill(pid_of(tmp_path, name), signal.SIGKILL)
    eventually(lambda: not alive(target))
    assert not list((tmp_path / "state" / "workers").iterdir())


def test_workers_outlive_the_sidecar(
    open_target: Callable[..., ProcessTarget], tmp_path: Path, eventually: Eventually
) -> None:
    """A reopened target lists the workers, can stop them, and continues their numbers."""
    before = open_target()
    names = before.add_replicas(2)
    before.close()
    after = open_target()
    assert alive(after) == sorted(names)
    after.stop_replica(names[0])
    eventually(lambda: alive(after) == [names[1]])
    assert after.add_replicas(1) == ("worker-3",)
    assert os.getsid(pid_of(tmp_path, names[1])) == pid_of(tmp_path, names[1])


def test_a_crash_while_starting_loses_no_worker(
    open_target: Callable[..., ProcessTarget], tmp_path: Path
) -> None:
    """A file without a pid, or a truncated one, is restored from the worker's environment."""
    before = open_target()
    one, two = before.add_replicas(2)
    pids = [pid_of(tmp_path, one), pid_of(tmp_path, two)]
    before.close()
    folder = tmp_path / "state" / "workers"
    (folder / f"{one}.json").write_text(json.dumps({"name": one, "started": 1.0}))
    (folder / f"{two}.json").write_text('{"na')
    assert alive(open_target()) == [one, two]
    assert [pid_of(tmp_path, one), pid_of(tmp_path, two)] == pids


def test_a_reused_pid_is_no_worker(open_target: Callable[..., ProcessTarget], tmp_path: Path) -> None:
    """A process that got the pid of a dead worker is neither listed nor stopped."""
    target = open_target()
    target.close()
    folder = tmp_path / "state" / "workers"
    folder.mkdir(exist_ok=True)
    body = {"name": "worker-1", "started": 1.0, "pid": os.getpid(), "ticks": 1}
    (folder / "worker-1.json").write_text(json.dumps(body))
    again = open_target()
    again.stop_replica("worker-1")
    assert alive(again) == []


def test_a_worker_without_a_start_time_is_dead(
    open_target: Callable[..., ProcessTarget], tmp_path: Path
) -> None:
    """A worker that ended before its start time was read does not count as alive."""
    gone = WorkerRecord("worker-1", 0.0, pid=99_999_999, ticks=None)
    assert not gone.is_alive
    target = open_target()
    file = tmp_path / "state" / "workers" / "worker-1.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(asdict(gone)))
    assert target.list_replicas() == ()
    assert not file.exists()


def test_a_worker_that_ignores_sigterm_is_killed(
    open_target: Callable[..., ProcessTarget], clock: Clock, tmp_path: Path, eventually: Eventually
) -> None:
    """It is killed after the stop timeout, not before, wherever the machine's clock is set meanwhile."""
    target = open_target(STUBBORN, stop_timeout=60)
    (name,) = target.add_replicas(1)
    log = tmp_path / "state" / "logs" / f"{name}.log"
    eventually(lambda: "deaf" in log.read_text())
    for set_back in (0.0, -3600.0, 7200.0):
        clock.set_back = set_back
        target.stop_replica(name)
        Event().wait(0.2)
        assert alive(target) == [name]
    clock.ahead = 61
    target.stop_replica(name)
    eventually(lambda: not alive(target))


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"name": "worker-1", "star',
        "[" * 3000,
        '{"name": "../../evil", "started": 1}',
        '{"name": "worker-1", "started": 1, "pid": "1"}',
        '{"name": "worker-1", "started": 1, "pid": -1, "ticks": 1}',
        '{"name": "worker-1", "started": Infinity, "pid": 1, "ticks": 1}',
    ],
)
def test_an_unreadable_state_file_is_a_worker_that_is_gone(
    open_target: Callable[..., ProcessTarget], tmp_path: Path, text: str
) -> None:
    """Whatever a state file holds, it ends no sidecar and names no other file or process."""
    target = open_target()
    file = tmp_path / "state" / "workers" / "worker-1.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    target.stop_replica("worker-1")
    assert target.list_replicas() == ()
    assert not file.exists()


def test_two_sidecars_cannot_share_a_state_folder(open_target: Callable[..., ProcessTarget]) -> None:
    """The second gets an error; after the first closes, it can open the folder."""
    first = open_target()
    with pytest.raises(StateDirInUseError, match="in use by another sidecar"):
        open_target()
    first.close()
    open_target()


def test_an_unknown_command_is_named(tmp_path: Path, clock: Clock) -> None:
    """A worker that cannot be started is a StartupError and leaves no file."""
    target = ProcessTarget(["/no/such/program", "{instance}"], tmp_path / "state", clock)
    with pytest.raises(StartupError, match="/no/such/program"):
        target.add_replicas(1)
    assert target.list_replicas() == ()
    target.close()


@pytest.mark.parametrize(
    ("program", "how"), [("raise SystemExit(3)", "with exit code 3"), ("import os; os.abort()", "by SIGABRT")]
)
def test_the_unexpected_end_of_a_worker_is_reported(
    program: str,
    how: str,
    open_target: Callable[..., ProcessTarget],
    tmp_path: Path,
    clock: Clock,
    eventually: Eventually,
) -> None:
    """Its exit code or signal and its log file are reported for five minutes."""
    target = open_target(program)
    (name,) = target.add_replicas(1)
    eventually(lambda: target.list_replicas() == ())
    log = tmp_path / "state" / "logs" / f"{name}.log"
    assert target.read_target_status().errors == (f"{name} exited unexpectedly {how}; see its log {log}",)
    clock.ahead = 301.0
    assert target.read_target_status().errors == ()


def test_the_requested_end_of_a_worker_is_not_reported(
    open_target: Callable[..., ProcessTarget], eventually: Eventually
) -> None:
    """Only an unexpected end is reported."""
    target = open_target()
    (name,) = target.add_replicas(1)
    target.stop_replica(name)
    eventually(lambda: target.list_replicas() == ())
    assert target.read_target_status().errors == ()
