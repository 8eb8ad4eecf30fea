"""What every replica target promises, and what the one with real processes promises besides."""

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

from trimtab.common.clock import SystemClock
from trimtab.common.errors import PeerError
from trimtab.sidecar.errors import StartupError, StateDirInUseError
from trimtab.sidecar.targets.advisory import AdvisoryTarget
from trimtab.sidecar.targets.in_memory import InMemoryTarget
from trimtab.sidecar.targets.process.process_target import ProcessTarget, WorkerRecord
from trimtab.sidecar.targets.replica_target import ReplicaTarget

POLITE = "import signal; signal.sigwait({signal.SIGTERM})"
STUBBORN = (
    "import signal, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('deaf', flush=True); threading.Event().wait()"
)


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Clock(SystemClock):
    """Real time, and more of it when a test says so."""

    ahead = 0.0

    def wall(self) -> float:
        return super().wall() + self.ahead


def command(program: str = POLITE) -> list[str]:
    return [sys.executable, "-c", program, "{instance}"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_target(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., ProcessTarget]]:
    """Opens process targets on one state folder, and ends what they leave behind."""
    opened: list[ProcessTarget] = []

    def start(program: str = POLITE, patience: float = 60.0) -> ProcessTarget:
        opened.append(ProcessTarget(command(program), tmp_path / "state", clock, patience))
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
    """Opens a target of a sort; those on Kubernetes have a workload of their own."""

    def start(sort: str) -> ReplicaTarget:
        if sort == "memory":
            return InMemoryTarget()
        if sort == "process":
            processes: ReplicaTarget = request.getfixturevalue("open_target")()
            return processes
        pods: ReplicaTarget = request.getfixturevalue("steered")(sort)
        pods.list_replicas()
        return pods

    return start


@pytest.fixture(params=["memory", "process", DEPLOYMENT, STATEFULSET])
def target(request: pytest.FixtureRequest, opened: Callable[[str], ReplicaTarget]) -> ReplicaTarget:
    return opened(request.param)


@pytest.fixture(params=["memory", "process", DEPLOYMENT])
def naming_target(request: pytest.FixtureRequest, opened: Callable[[str], ReplicaTarget]) -> ReplicaTarget:
    """A target whose replicas have no places; those of a StatefulSet come back to theirs."""
    return opened(request.param)


def alive(target: ReplicaTarget) -> list[str]:
    return [i.name for i in target.list_replicas() if i.alive]


def test_added_replicas_are_there(target: ReplicaTarget) -> None:
    """What `add_replicas` names is alive when `list_replicas` is asked next."""
    names = target.add_replicas(2)
    assert alive(target) == sorted(names)
    assert target.add_replicas(0) == ()


def stop(target: ReplicaTarget, name: str, eventually: Eventually) -> None:
    """Stop one, as the loop does: where the target says that it waits, it is asked again."""

    def done() -> bool:
        try:
            target.stop_replica(name)
        except PeerError:
            return False
        return True

    eventually(done)


def test_stopped_replicas_go(target: ReplicaTarget, eventually: Eventually) -> None:
    """A stopped one ends, the others stay; stopping again, or a stranger, is no error."""
    target.add_replicas(2)
    staying, going = sorted(target.list_replicas(), key=lambda i: (i.ordinal, i.name))
    stop(target, going.name, eventually)
    stop(target, going.name, eventually)
    stop(target, "nobody", eventually)
    eventually(lambda: alive(target) == [staying.name])


def test_names_are_given_once(naming_target: ReplicaTarget, eventually: Eventually) -> None:
    """A new replica never gets the name of one that is gone."""
    (first,) = naming_target.add_replicas(1)
    stop(naming_target, first, eventually)
    eventually(lambda: not alive(naming_target))
    assert first not in naming_target.add_replicas(3)


def test_advice_does_nothing() -> None:
    """The advisory target shows, starts and stops nothing."""
    target = AdvisoryTarget()
    assert target.advisory
    assert target.add_replicas(3) == ()
    target.stop_replica("worker-1")
    assert target.list_replicas() == ()


def pid_of(folder: Path, name: str) -> int:
    return int(json.loads((folder / "state" / "workers" / f"{name}.json").read_text())["pid"])


def test_the_dead_are_noticed(
    open_target: Callable[..., ProcessTarget], tmp_path: Path, eventually: Eventually
) -> None:
    """A killed worker is gone, reaped, and its file with it."""
    target = open_target()
    (name,) = target.add_replicas(1)
    os.kill(pid_of(tmp_path, name), signal.SIGKILL)
    eventually(lambda: not alive(target))
    assert not list((tmp_path / "state" / "workers").iterdir())


def test_workers_outlive_the_sidecar(
    open_target: Callable[..., ProcessTarget], tmp_path: Path, eventually: Eventually
) -> None:
    """A target opened again finds the workers, can stop them, and goes on counting names."""
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
    """A file without a pid, or cut short, is completed from the worker's own mark."""
    before = open_target()
    one, two = before.add_replicas(2)
    pids = [pid_of(tmp_path, one), pid_of(tmp_path, two)]
    before.close()
    folder = tmp_path / "state" / "workers"
    (folder / f"{one}.json").write_text(json.dumps({"name": one, "started": 1.0}))
    (folder / f"{two}.json").write_text('{"na')
    assert alive(open_target()) == [one, two]
    assert [pid_of(tmp_path, one), pid_of(tmp_path, two)] == pids


def test_a_pid_that_came_back_is_not_ours(open_target: Callable[..., ProcessTarget], tmp_path: Path) -> None:
    """A file whose pid now belongs to another process is no worker, and that process is spared."""
    target = open_target()
    target.close()
    folder = tmp_path / "state" / "workers"
    folder.mkdir(exist_ok=True)
    body = {"name": "worker-1", "started": 1.0, "pid": os.getpid(), "ticks": 1}
    (folder / "worker-1.json").write_text(json.dumps(body))
    again = open_target()
    again.stop_replica("worker-1")
    assert alive(again) == []


def test_one_that_died_at_once_is_dead(open_target: Callable[..., ProcessTarget], tmp_path: Path) -> None:
    """A worker that was gone before its start time could be read does not count as alive."""
    gone = WorkerRecord("worker-1", 0.0, pid=99_999_999, ticks=None)
    assert not gone.is_alive
    target = open_target()
    file = tmp_path / "state" / "workers" / "worker-1.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(asdict(gone)))
    assert target.list_replicas() == ()
    assert not file.exists()


def test_the_stubborn_are_killed(
    open_target: Callable[..., ProcessTarget], clock: Clock, tmp_path: Path, eventually: Eventually
) -> None:
    """One that ignores SIGTERM is killed when the patience is over, not before."""
    target = open_target(STUBBORN, patience=60)
    (name,) = target.add_replicas(1)
    log = tmp_path / "state" / "logs" / f"{name}.log"
    eventually(lambda: "deaf" in log.read_text())
    target.stop_replica(name)
    target.stop_replica(name)
    Event().wait(0.2)
    assert alive(target) == [name]
    clock.ahead = 61
    target.stop_replica(name)
    eventually(lambda: not alive(target))


def test_two_sidecars_cannot_share_a_folder(open_target: Callable[..., ProcessTarget]) -> None:
    """The second is told so; when the first lets go, it can have the folder."""
    first = open_target()
    with pytest.raises(StateDirInUseError, match="in use by another sidecar"):
        open_target()
    first.close()
    open_target()


def test_a_command_that_is_not_there(tmp_path: Path, clock: Clock) -> None:
    """What cannot be started is a named error and leaves no file behind."""
    target = ProcessTarget(["/no/such/program", "{instance}"], tmp_path / "state", clock)
    with pytest.raises(StartupError, match="/no/such/program"):
        target.add_replicas(1)
    assert target.list_replicas() == ()
    target.close()


@pytest.mark.parametrize(
    ("program", "how"), [("raise SystemExit(3)", "with exit code 3"), ("import os; os.abort()", "by SIGABRT")]
)
def test_the_end_of_a_worker_is_told(
    program: str,
    how: str,
    open_target: Callable[..., ProcessTarget],
    tmp_path: Path,
    clock: Clock,
    eventually: Eventually,
) -> None:
    """Exit code or signal, and where its log is, for five minutes."""
    target = open_target(program)
    (name,) = target.add_replicas(1)
    eventually(lambda: target.list_replicas() == ())
    log = tmp_path / "state" / "logs" / f"{name}.log"
    assert target.read_external_scaling().trouble == (f"{name} exited unexpectedly {how}; see its log {log}",)
    clock.ahead = 301.0
    assert target.read_external_scaling().trouble == ()


def test_who_was_told_to_end_is_no_trouble(
    open_target: Callable[..., ProcessTarget], eventually: Eventually
) -> None:
    """A worker that ends as it was asked to is as it should be."""
    target = open_target()
    (name,) = target.add_replicas(1)
    target.stop_replica(name)
    eventually(lambda: target.list_replicas() == ())
    assert target.read_external_scaling().trouble == ()
