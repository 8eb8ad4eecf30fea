"""Checks a round: produced records against the table, and the owners of partitions. Pure.

1. Partition and offset identify a record. Each record that the broker holds or has acknowledged must
   be in the table once: fewer is lost, more is duplicated; any other row is wrong.
2. Key and value follow from the record's sequence number, which the producer's acknowledgements map
   to offsets, or else the topic: other content is wrong.
3. The table is partitioned as its round asks, or the round tried another layout than it claims.
4. A tenure is the time in which a process owns a partition, from the first record handed out to the
   last. Tenures of two processes must not overlap.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from history.events import Outcome, Write

Acknowledged: TypeAlias = Mapping[int, Mapping[int, int]]
"""Partition → offset → sequence number."""


class Row(NamedTuple):
    """A row of the table."""

    partition: int
    offset: int
    key: bytes
    value: bytes


class Handed(NamedTuple):
    """Records of one partition that a process handed out at `time`, in seconds of one clock."""

    process: str
    tenure: int
    partition: int
    time: float


@dataclass(frozen=True, slots=True)
class Findings:
    """Violations of a round; `descriptions` has the first ones."""

    records: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    double_owners: int = 0
    descriptions: tuple[str, ...] = field(default=())

    @property
    def good(self) -> bool:
        """Whether there is no violation."""
        return not (self.lost or self.duplicated or self.wrong or self.double_owners)


MAX_DESCRIPTIONS = 5  # of each kind


def record_number(key: bytes | None) -> int:
    """Return the number in a record's key, -1 if it has none."""
    name = (key or b"").rpartition(b"/")[2]
    return int(name) if name.isdigit() else -1


def record(topic: str, partition: int, number: int) -> tuple[bytes, bytes]:
    """Return key and value of a partition's record; values have 40 to 295 bytes."""
    key = f"{partition}/{number}".encode()
    digest = hashlib.sha256(topic.encode() + b"/" + key).hexdigest().encode()
    return key, digest[:40] + digest[:1] * int(digest[:2], 16)


def place_writes(writes: Iterable[Write], held: Mapping[tuple[int, int], int]) -> list[Write]:
    """Return the writes; a committed one without an offset gets the first one that has its number.

    librdkafka knows no offset of a record that a broker acknowledges as written before. A write that the
    topic lacks gets one below 0, which no table can have: it is lost.
    """
    offsets = {(str(p), number): offset for (p, offset), number in sorted(held.items(), reverse=True)}
    return [
        write._replace(offset=offsets.get((write.partition, write.number), -1 - write.number))
        if (write.outcome, write.offset) == (Outcome.COMMITTED, None)
        else write
        for write in writes
    ]


def acknowledge(writes: Iterable[Write]) -> Acknowledged:
    """Return the acknowledgements; of transactions, those of the committed ones."""
    found: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for write in writes:
        if write.outcome is Outcome.COMMITTED and write.offset is not None:
            found[int(write.partition)][write.offset] = write.number
    return found


def abort_withdrawn(transactional: Iterable[Write], withdrawn: Collection[tuple[int, int]]) -> list[Write]:
    """Return the writes; those of withdrawn records are aborted, so that no table may have them."""
    return [
        write._replace(outcome=Outcome.ABORTED)
        if (int(write.partition), write.offset) in withdrawn
        else write
        for write in transactional
    ]


def find_rewritten(held: Mapping[tuple[int, int], int]) -> frozenset[tuple[str, int, int]]:
    """Return partition, offset and number of each record that the topic also holds at a lower offset.

    librdkafka's idempotent producer may write a batch again, with a new epoch, after it has lost brokers.
    """
    first: set[tuple[int, int]] = set()
    rewritten: set[tuple[str, int, int]] = set()
    for (partition, offset), number in sorted(held.items()):
        if (partition, number) in first:
            rewritten.add((str(partition), offset, number))
        first.add((partition, number))
    return frozenset(rewritten)


def check(
    topic: str,
    acknowledged: Acknowledged,
    held: Mapping[tuple[int, int], int],
    rows: Iterable[Row],
    handed: Iterable[Handed],
) -> Findings:
    """Compare the records that the broker holds with the rows, and check the owners."""
    counts: Counter[tuple[int, int]] = Counter()
    wrong: list[str] = []
    for row in rows:
        counts[row.partition, row.offset] += 1
        place = (row.partition, row.offset)
        # the broker may die between append and acknowledgement: then only the topic has the number
        number = acknowledged.get(row.partition, {}).get(row.offset, held.get(place, -1))
        if place not in held or (row.key, row.value) != record(topic, row.partition, number):
            wrong.append(f"wrong: partition {row.partition} offset {row.offset}: {row.key!r}")
    due = {*held, *((p, offset) for p, offsets in acknowledged.items() for offset in offsets)}
    lost = [f"lost: partition {p} offset {o}" for p, o in sorted(due - counts.keys())]
    twice = [f"twice: partition {p} offset {o}" for (p, o), n in sorted(counts.items()) if n > 1]
    owners = overlaps(handed)
    return Findings(
        records=len(due),
        lost=len(lost),
        duplicated=sum(n - 1 for n in counts.values()),
        wrong=len(wrong),
        double_owners=len(owners),
        descriptions=(
            *lost[:MAX_DESCRIPTIONS],
            *twice[:MAX_DESCRIPTIONS],
            *wrong[:MAX_DESCRIPTIONS],
            *owners[:MAX_DESCRIPTIONS],
        ),
    )


def check_layout(found: Findings, due: tuple[str, ...], columns: tuple[str, ...] | None) -> Findings:
    """Count a table that is not partitioned by the due columns as wrong; None: there is no table."""
    if columns is None or columns == due:
        return found
    line = f"wrong: the table is partitioned by {columns}, not by {due}"
    return replace(found, wrong=found.wrong + 1, descriptions=(*found.descriptions, line))


def overlaps(handed: Iterable[Handed]) -> list[str]:
    """Return the overlapping tenures of different processes."""
    spans: dict[tuple[int, str, int], tuple[float, float]] = {}
    for one in handed:
        key = (one.partition, one.process, one.tenure)
        begin, end = spans.get(key, (one.time, one.time))
        spans[key] = (min(begin, one.time), max(end, one.time))
    by_partition: defaultdict[int, list[tuple[float, float, str]]] = defaultdict(list)
    for (partition, process, _), (begin, end) in spans.items():
        by_partition[partition].append((begin, end, process))
    return [overlap for p in sorted(by_partition) for overlap in _overlaps(p, by_partition[p])]


def _overlaps(partition: int, spans: list[tuple[float, float, str]]) -> list[str]:
    found: list[str] = []
    for i, (begin, end, process) in enumerate(sorted(spans)):
        found += [
            f"two owners: partition {partition}: {other} {since:.3f}-{until:.3f}, "
            f"{process} {begin:.3f}-{end:.3f}"
            for since, until, other in sorted(spans)[:i]
            if other != process and begin < until
        ]
    return found
