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


def read_events(folder: Path) -> list[Event]:
    """Return the events of all runs in order of time; a run prints to a file MEMBER.NUMBER."""
    return sorted((event for file in folder.glob("*.*") for event in _read_file(file)), key=lambda e: e.at)


def _read_file(file: Path) -> Iterator[Event]:
    run = Run(file.stem, int(file.suffix[1:]))
    for line in file.read_text(errors="replace").splitlines(keepends=True):
        event = parse_line(line.rstrip("\n"), run) if line.endswith("\n") else None  # cut off by a kill
        if event is not None:
            yield event
