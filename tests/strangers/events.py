"""What a stranger, a consumer of any client, prints on standard output: one line per event.

SECONDS is the time since the epoch, TP a partition as TOPIC-NUMBER:

    SECONDS assigned TP TP ...    newly assigned partitions, perhaps none
    SECONDS revoked TP TP ...     after it has committed what it handled of them
    SECONDS lost TP TP ...        the group gave them away without asking
    SECONDS read TP FIRST LAST    handled offsets, both inclusive
    SECONDS committed TP NEXT     acknowledged by the broker: the next offset to read
    SECONDS closed                it has left the group in order
    SECONDS killed                written by who killed it

Other lines are the client library's log.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LINE: Final = re.compile(r"(\d+\.\d+) (assigned|revoked|lost|read|committed|closed|killed)( .*)?")
WITH_OFFSETS: Final = ("read", "committed")
ENDS: Final = ("closed", "killed")


@dataclass(frozen=True, slots=True)
class Run:
    """One life of a member: it has a new number after each restart."""

    member: str
    number: int


@dataclass(frozen=True, slots=True)
class Event:
    """A line; `first` and `last` are offsets of `read`, `first` alone is the next offset of `committed`."""

    at: float
    run: Run
    kind: str
    partitions: tuple[str, ...] = ()
    first: int = -1
    last: int = -1


def parse_line(line: str, run: Run) -> Event | None:
    """Return the event of a line; None if it is another program's."""
    match = LINE.fullmatch(line)
    if match is None:
        return None
    at, kind, words = float(match[1]), match[2], (match[3] or "").split()
    if kind not in WITH_OFFSETS:
        return Event(at, run, kind, tuple(words))
    first, last = int(words[1]), int(words[-1])
    return Event(at, run, kind, (words[0],), first, last)


class EventReader:
    """Reads the events of all runs in a folder; a run prints to a file MEMBER.NUMBER.

    Each line is read once: tests ask five times a second, while the consumers need the machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}  # bytes by file
        self._events: list[Event] = []

    def read_events(self) -> list[Event]:
        """Return the events so far in order of time."""
        for file in self._folder.glob("*.*"):
            self._events += self._read_file(file)
        self._events.sort(key=lambda event: event.at)
        return [*self._events]

    def _read_file(self, file: Path) -> Iterator[Event]:
        run = Run(file.stem, int(file.suffix[1:]))
        with file.open("rb") as lines:
            lines.seek(self._read.get(file, 0))
            for line in lines:
                if not line.endswith(b"\n"):
                    return  # not written to its end, or cut off by a kill
                self._read[file] = self._read.get(file, 0) + len(line)
                event = parse_line(line.decode(errors="replace").rstrip("\n"), run)
                if event is not None:
                    yield event
