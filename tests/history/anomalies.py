"""Anomalies of a history, by the classes of Jepsen's Kafka workload. Pure.

Readers are the consumers together, and each table. Rules:

1. *Lost write*: a committed write that a reader lacks although it has a later one of the partition.
   *Unseen*: it lacks it, and everything later. Offsets in a gap, deleted unread, are neither.
2. *Duplicate*: a write at two offsets; in a table, also a record in two rows. A write that the topic
   itself holds at two offsets is its producer's duplicate, which every reader must have.
3. *Inconsistent offsets*: two writes at one offset, whoever says so.
4. *Aborted read* (G1a): a reader of committed records has an aborted one.
5. A consumer reads from a start on in ascending order. *Non-monotonic poll*: a record at or below the
   one before, or below its start. *Poll skip*: a record passed over that retention has left and another
   consumer was handed (one that none was handed is a lost write).
6. A start may go back, also across a handover, to the offset committed at that time: polls are
   at-least-once. Committed offsets themselves never go back: a start at an older one makes the
   records read again a non-monotonic poll. A start beyond the committed offset skips what lies between.
   A start counts from the first record that follows it: a frozen consumer may log one too late.

A reader of uncommitted records may have aborted ones; nobody has to.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from history.events import History, Outcome, Poll, Start, Write

Place = tuple[str, int]
"""Partition, and an offset or a number."""

Readers = Mapping[str, Sequence[tuple[str, int, int]]]
"""Partition, offset and number of each record that a reader got, in any order."""

CONSUMERS = "consumers"


class Kind(StrEnum):
    """Classes of anomalies."""

    LOST_WRITE = "lost write"
    UNSEEN = "unseen"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    POLL_SKIP = "poll skip"
    NONMONOTONIC_POLL = "non-monotonic poll"
    ABORTED_READ = "aborted read"


class Anomaly(NamedTuple):
    """One anomaly; `at` is an offset, `reader` a consumer, a table, or all consumers."""

    kind: Kind
    reader: str
    partition: str
    at: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.reader}: {self.partition} offset {self.at}"


def find_anomalies(history: History) -> list[Anomaly]:
    """Return the anomalies of a history, by class and place."""
    readers = _readers(history)
    return sorted(
        chain(
            _missing(history, readers),
            _duplicates(readers, history.rewritten),
            _inconsistent(history, readers),
            _aborted(history, readers),
            _disorder(history),
        )
    )


def count_kinds(anomalies: Iterable[Anomaly]) -> dict[str, int]:
    """Return the number of anomalies of every class."""
    found = Counter(anomaly.kind for anomaly in anomalies)
    return {kind.value: found[kind] for kind in Kind}


def longest_lag(history: History) -> float:
    """Return the longest time in seconds from an acknowledgement to the first poll of the record."""
    seen: dict[Place, float] = {}
    for poll in history.polls:
        for _, number in poll.records:
            place = (poll.partition, number)
            seen[place] = min(poll.time, seen.get(place, poll.time))
    acked = ((seen.get((w.partition, w.number)), w.time) for w in history.writes)
    return max((at - time for at, time in acked if at is not None), default=0.0)


# -- what readers have --------------------------------------------------------------------------------


def _readers(history: History) -> Readers:
    readers: dict[str, list[tuple[str, int, int]]] = {name: [] for name in history.tables}
    for row in history.rows:
        readers.setdefault(row.table, []).append(row[1:])
    if history.polls:
        readers[CONSUMERS] = [(p.partition, *record) for p in history.polls for record in p.records]
    return readers


def _missing(history: History, readers: Readers) -> Iterator[Anomaly]:
    gaps = {(partition, offset) for partition, offsets in history.gaps.items() for offset in offsets}
    for reader, records in readers.items():
        has = {(partition, number) for partition, _, number in records}
        ends: defaultdict[str, int] = defaultdict(lambda: -1)
        for partition, offset, _ in records:
            ends[partition] = max(ends[partition], offset)
        for write in _committed(history.writes):
            assert write.offset is not None
            if (write.partition, write.number) in has or (write.partition, write.offset) in gaps:
                continue
            if write.offset < ends[write.partition]:
                yield Anomaly(Kind.LOST_WRITE, reader, write.partition, write.offset)
            elif history.settled:
                yield Anomaly(Kind.UNSEEN, reader, write.partition, write.offset)


def _committed(writes: Iterable[Write]) -> Iterator[Write]:
    return (w for w in writes if w.outcome is Outcome.COMMITTED and w.offset is not None)


def _duplicates(readers: Readers, rewritten: frozenset[tuple[str, int, int]]) -> Iterator[Anomaly]:
    for reader, records in readers.items():
        first: dict[Place, int] = {}
        for partition, offset, number in sorted(set(records)):
            if (partition, offset, number) in rewritten:
                continue
            if first.setdefault((partition, number), offset) != offset:
                yield Anomaly(Kind.DUPLICATE, reader, partition, offset)
        if reader == CONSUMERS:  # a record may be polled again (rule 6)
            continue
        for (partition, offset, _), count in Counter(records).items():
            if count > 1:
                yield Anomaly(Kind.DUPLICATE, reader, partition, offset)


def _inconsistent(history: History, readers: Readers) -> Iterator[Anomaly]:
    known = {(w.partition, w.offset): w.number for w in history.writes if w.offset is not None}
    for reader, records in readers.items():
        for partition, offset, number in sorted(set(records)):
            if known.setdefault((partition, offset), number) != number:
                yield Anomaly(Kind.INCONSISTENT_OFFSETS, reader, partition, offset)


def _aborted(history: History, readers: Readers) -> Iterator[Anomaly]:
    if not history.read_committed:
        return
    aborted = {(w.partition, w.number) for w in history.writes if w.outcome is Outcome.ABORTED}
    for reader, records in readers.items():
        for partition, offset, number in sorted(set(records)):
            if (partition, number) in aborted:
                yield Anomaly(Kind.ABORTED_READ, reader, partition, offset)


# -- the order of polls -------------------------------------------------------------------------------


def _disorder(history: History) -> Iterator[Anomaly]:
    """Follow the consumers of each partition through their starts and polls (rules 5 and 6)."""
    events: defaultdict[str, list[Start | Poll]] = defaultdict(list)
    for event in (*history.starts, *history.polls):
        events[event.partition].append(event)
    for partition in sorted(events):
        seen = {o for e in events[partition] if isinstance(e, Poll) for o, _ in e.records}
        course = _Course(partition, sorted(seen))
        for event in sorted(events[partition], key=lambda event: (event.time, isinstance(event, Poll))):
            yield from course.follow(event)


@dataclass(slots=True)
class _Course:
    """Where the consumers of one partition stand; keys are consumer and epoch."""

    partition: str
    seen: list[int]  # offsets that consumers were handed
    committed: int = 0
    starts: dict[tuple[str, int], Start] = field(default_factory=dict[tuple[str, int], Start])
    least: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    following: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def follow(self, event: Start | Poll) -> Iterator[Anomaly]:
        """Return the anomalies of the next event."""
        key = (event.consumer, event.epoch)
        if isinstance(event, Start):
            self.starts[key] = event
            return
        if key in self.starts:
            self._begin(key, self.starts.pop(key))
        for offset, _ in event.records:
            if offset < self.least.get(key, offset):
                yield Anomaly(Kind.NONMONOTONIC_POLL, event.consumer, self.partition, offset)
                self.following[key] = max(offset + 1, self.following.get(key, 0))
                continue
            for skipped in self._between(max(event.log_begin, self.following.get(key, offset)), offset):
                yield Anomaly(Kind.POLL_SKIP, event.consumer, self.partition, skipped)
            self.least[key] = self.following[key] = offset + 1

    def _begin(self, key: tuple[str, int], start: Start) -> None:
        begin = start.committed if start.offset is None else start.offset
        read = self.following.pop(key, 0)
        self.committed = max(self.committed, start.committed or 0)
        self.least[key] = max(begin or 0, self.committed)
        if start.committed is not None and begin is not None:
            self.following[key] = min(begin, max(start.committed, read))

    def _between(self, first: int, end: int) -> list[int]:
        return self.seen[bisect_left(self.seen, first) : bisect_left(self.seen, end)]
