"""A group of strangers: processes that start, end in order, or are killed, and what they printed."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Pause
from time import monotonic, time
from types import TracebackType
from typing import Final, Self

from strangers.events import Event, EventReader
from strangers.figures import list_ownerships
from strangers.programs import TESTS, find_command

STOP_TIMEOUT_S: Final = 30.0
DEFAULTS: Final = {"protocol": "classic", "heartbeat": "500", "session": "10000", "rate": "0"}


@dataclass(slots=True)
class Member:
    """A consumer that keeps its name over restarts; `process` is its present run."""

    name: str
    kind: str
    options: Mapping[str, str]
    runs: int = 0
    process: "subprocess.Popen[bytes] | None" = None


@dataclass
class StrangerGroup:
    """Members of a group; `folder` gets a file of lines per run, and a log beside it."""

    bootstrap: str
    group: str
    topic: str
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    _reader: EventReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = EventReader(self.folder / "lines")

    def __enter__(self) -> Self:
        (self.folder / "lines").mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            if member.process is not None:
                member.process.kill()
                member.process.wait()

    def add(self, name: str, kind: str, **options: str) -> None:
        """Start a member; its client id is its name."""
        self.members[name] = Member(name, kind, {**DEFAULTS, **self.options, **options})
        self.start(name)

    def start(self, name: str) -> None:
        member = self.members[name]
        member.runs += 1
        common = {"bootstrap": self.bootstrap, "group": self.group, "topic": self.topic, "client": name}
        words = [f"{key}={value}" for key, value in {**common, **member.options}.items()]
        with self._lines(member).open("wb") as out, self.log(name).open("ab") as log:
            member.process = subprocess.Popen(
                [*find_command(member.kind), *words],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(TESTS)},
            )

    def stop(self, *names: str) -> None:
        """Let members leave in order, all at a time. Raises RuntimeError if one ends with an error."""
        running = {n: p for n in names if (p := self.members[n].process) is not None}
        for process in running.values():
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
        for name, process in running.items():
            if process.wait(STOP_TIMEOUT_S):
                raise RuntimeError(f"{name} ended with {process.returncode}:\n{self.log(name).read_text()}")
            self.members[name].process = None

    def kill(self, name: str) -> None:
        """End a member without a word to the group."""
        member = self.members[name]
        assert member.process is not None
        member.process.send_signal(signal.SIGKILL)
        member.process.wait()
        member.process = None
        with self._lines(member).open("ab") as lines:
            lines.write(f"\n{time():.6f} killed\n".encode())

    def suspend(self, name: str) -> None:
        """Let a member do nothing until it is resumed."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def restart(self, name: str, kind: str | None = None, **options: str) -> None:
        """Restart a member, with another client if `kind` is given, and with changed options."""
        self.stop(name)
        member = self.members[name]
        member.kind = kind or member.kind
        member.options = {**member.options, **options}
        self.start(name)

    def events(self) -> list[Event]:
        """Return what all members have printed so far."""
        return self._reader.read_events()

    def owners(self) -> dict[str, str]:
        """Return the member that owns each partition now."""
        now = time()
        return {o.partition: o.run.member for o in list_ownerships(self.events()) if o.end > now}

    def has_read(self, written: Mapping[str, Iterable[int]]) -> bool:
        """Return whether each written offset has been read."""
        read: dict[str, set[int]] = {}
        for event in self.events():
            if event.kind == "read":
                read.setdefault(event.partitions[0], set()).update(range(event.first, event.last + 1))
        return all(read.get(partition, set()).issuperset(offsets) for partition, offsets in written.items())

    def log(self, name: str) -> Path:
        """Return the file with a member's standard error."""
        return self.folder / f"{name}.log"

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self.members[name].process
        assert process is not None
        process.send_signal(number)

    def _lines(self, member: Member) -> Path:
        return self.folder / "lines" / f"{member.name}.{member.runs}"


def wait_until(condition: Callable[[], object], timeout: float) -> bool:
    """Poll a condition; return whether it held within `timeout` seconds."""
    pause, deadline = Pause(), monotonic() + timeout
    while not condition():
        if monotonic() > deadline:
            return False
        pause.wait(0.2)
    return True
