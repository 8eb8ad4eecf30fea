"""Figures of a bounce from the instances' logs: pauses, handovers, lost and duplicated records.

A partition's pause is the time beyond 100 ms between two handled records, on any instance. A handover
lasts from the last record of one instance to the first of another.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

PATIENCE = 0.1
"""Tolerance: seconds between two records of a partition that do not count as a pause."""

Handled: TypeAlias = tuple[float, int, str]
"""A handled record: monotonic seconds, offset, instance."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a run; `curve` has (seconds since the first stop, ms paused until then)."""

    pause_ms: float
    longest_ms: float
    still_ms: float  # pause of the same duration without a bounce, from the time before
    handovers: tuple[float, ...]  # seconds each
    lost: int
    doubled: int
    curve: tuple[tuple[float, float], ...]


def read_handled_records(folder: Path) -> dict[int, list[Handled]]:
    """Return the handled records of each partition, in order of time."""
    records_by_partition: defaultdict[int, list[Handled]] = defaultdict(list)
    for log in sorted(folder.iterdir()):
        for line in log.read_text().splitlines():
            partition, offset, when, instance = line.split()
            records_by_partition[int(partition)].append((float(when), int(offset), instance))
    return {partition: sorted(records) for partition, records in records_by_partition.items()}


def summarize_bounce(
    records_by_partition: Mapping[int, Sequence[Handled]], begin: float, end: float
) -> Figures:
    """Return the figures between `begin` (the first stop) and `end`; the time before is the baseline."""
    waits = sorted(w for records in records_by_partition.values() for w in _find_waits(records, begin, end))
    quiet = max(min(records[0][0] for records in records_by_partition.values()), begin - 5)
    still = sum(w for records in records_by_partition.values() for _, w in _find_waits(records, quiet, begin))
    return Figures(
        pause_ms=sum(w for _, w in waits) * 1000,
        longest_ms=max((w + PATIENCE for _, w in waits), default=0.0) * 1000,
        still_ms=still * 1000 * (end - begin) / (begin - quiet),
        handovers=tuple(
            h for records in records_by_partition.values() for h in _find_handovers(records, begin, end)
        ),
        lost=sum(_count_lost(records) for records in records_by_partition.values()),
        doubled=sum(len(r) - len({offset for _, offset, _ in r}) for r in records_by_partition.values()),
        curve=tuple(_sum_waits(waits, begin)),
    )


def _find_waits(records: Iterable[Handled], begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield (end, seconds beyond the tolerance) of each pause between two times."""
    times = [begin, *(when for when, _, _ in records if begin < when < end), end]
    for one, two in pairwise(times):
        if two - one > PATIENCE:
            yield two, two - one - PATIENCE


def _find_handovers(records: Iterable[Handled], begin: float, end: float) -> Iterator[float]:
    inside = [record for record in records if begin < record[0] < end]
    for one, two in pairwise(inside):
        if one[2] != two[2]:
            yield two[0] - one[0]


def _count_lost(records: Iterable[Handled]) -> int:
    """Return the number of unhandled offsets between the first and the last."""
    offsets = {offset for _, offset, _ in records}
    return max(offsets) - min(offsets) + 1 - len(offsets)


def _sum_waits(waits: Iterable[tuple[float, float]], begin: float) -> Iterator[tuple[float, float]]:
    total = 0.0
    for when, wait in waits:
        total += wait * 1000
        yield when - begin, total
