"""Was each record read, and once? A pure check of what all members of a group printed.

1. A record that was written and never read is lost.
2. A record read again is doubled by the group's fault, unless rule 3 excuses it. So are those that two
   members read while both own the partition, and those below an offset that had been committed.
3. A record read again is repeated: nothing had been committed beyond it, and its last reader had been
   killed, or the group had taken the partition from it without asking (`lost`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strangers.events import Event, Run


@dataclass(frozen=True, slots=True)
class Verdict:
    """Numbers of records; `faults` describes the first of those that were lost or doubled."""

    read: int
    lost: int
    doubled: int
    repeated: int
    faults: tuple[str, ...]


@dataclass(slots=True)
class _Books:
    readers: defaultdict[str, dict[int, Run]] = field(default_factory=lambda: defaultdict(dict))
    committed: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    gone: set[tuple[Run, str]] = field(default_factory=set)  # could not commit what it had read
    doubled: int = 0
    repeated: int = 0
    faults: list[str] = field(default_factory=list)


def check_group(events: Iterable[Event], written: Mapping[str, Iterable[int]]) -> Verdict:
    """Return what became of the written records: `written` has their offsets by partition."""
    books = _Books()
    for event in events:
        _enter(books, event)
    missing = {p: sorted(set(offsets) - books.readers[p].keys()) for p, offsets in written.items()}
    faults = [f"lost: {p} {_shorten(offsets)}" for p, offsets in sorted(missing.items()) if offsets]
    return Verdict(
        read=sum(map(len, books.readers.values())),
        lost=sum(map(len, missing.values())),
        doubled=books.doubled,
        repeated=books.repeated,
        faults=tuple(faults + books.faults),
    )


def _enter(books: _Books, event: Event) -> None:
    match event.kind:
        case "read":
            _enter_read(books, event)
        case "committed":
            (partition,) = event.partitions
            books.committed[partition] = max(books.committed[partition], event.first)
        case "lost":
            books.gone.update((event.run, partition) for partition in event.partitions)
        case "killed":
            books.gone.update((event.run, partition) for partition in books.readers)
        case _:
            pass


def _enter_read(books: _Books, event: Event) -> None:
    (partition,) = event.partitions
    readers, committed = books.readers[partition], books.committed[partition]
    again = [offset for offset in range(event.first, event.last + 1) if offset in readers]
    doubled = [o for o in again if o < committed or (readers[o], partition) not in books.gone]
    books.repeated += len(again) - len(doubled)
    books.doubled += len(doubled)
    if doubled:
        books.faults.append(
            f"doubled at {event.at:.3f}: {partition} {_shorten(doubled)} by {event.run} "
            f"after {readers[doubled[0]]}, committed {committed}"
        )
    readers.update(dict.fromkeys(range(event.first, event.last + 1), event.run))


def _shorten(offsets: Sequence[int]) -> str:
    return f"{offsets[0]}..{offsets[-1]} ({len(offsets)})"
