"""Records on their way to the stager.

Gathered per destination table until there are enough, or it is time.

Rules:

1. A table is *due* when it holds `bytes` or its oldest record is `wait` seconds old; the fullest
   goes first. When all tables together hold `memory`, the fullest is due whatever its size.
2. The writer is *full* when one table holds `bytes` or all together hold `memory`: then it must not
   take more records before the stager has taken a batch. That bounds the memory and pushes back on
   fetching.
3. A partition can be dropped at any time; its records are then read again by whoever owns it.

Sizes are bytes of the Arrow buffers, so they bound real memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from trimtab.assignor.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Limits:
    """When a batch goes: `bytes` a table, `memory` bytes for all, `wait` seconds."""

    bytes: int
    memory: int
    wait: float
    nearly_full: float = 0.8


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive accepted records of one partition; `next` is the offset after the last one."""

    partition: TopicPartition
    first: int
    next: int
    records: pa.RecordBatch


@dataclass(slots=True)
class _Part:
    first: int
    next: int
    bytes: int = 0
    records: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])


@dataclass(slots=True)
class _Filling:
    opened: float
    parts: dict[TopicPartition, _Part] = field(default_factory=dict[TopicPartition, _Part])

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts.values())


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was taken for one table.

    (first, next) of each partition, and the records in partition order.
    """

    ranges: dict[TopicPartition, tuple[int, int]]
    records: pa.Table


class Batches:
    """The batches being filled; `now` is seconds of a monotonic clock."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._filling: dict[str, _Filling] = {}
        self._bytes = 0

    def add(self, table: str, run: Run, now: float) -> None:
        """Take records in for a table."""
        filling = self._filling.setdefault(table, _Filling(now))
        part = filling.parts.setdefault(run.partition, _Part(run.first, run.next))
        part.records.append(run.records)
        part.next = run.next
        part.bytes += run.records.nbytes
        self._bytes += run.records.nbytes

    @property
    def bytes(self) -> int:
        """Bytes that are held."""
        return self._bytes

    @property
    def full(self) -> bool:
        """Whether no more may be taken in (rule 2)."""
        return self._bytes >= self._limits.memory or any(
            filling.bytes >= self._limits.bytes for filling in self._filling.values()
        )

    def due(self, now: float, longest: float | None = None) -> str | None:
        """Return the table to be flushed now, if any (rule 1); `longest` is a shorter wait."""
        wait = self._limits.wait if longest is None else min(longest, self._limits.wait)
        everything = self._bytes >= self._limits.memory
        sizes = sorted(
            ((filling.bytes, table) for table, filling in self._filling.items()), reverse=True
        )
        for size, table in sizes:
            aged = now - self._filling[table].opened >= wait
            if everything or size >= self._limits.bytes or aged:
                return table
        return None

    def tables(self) -> tuple[str, ...]:
        """Return the tables with records, sorted."""
        return tuple(sorted(self._filling))

    def nearly_full(self, partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
        """Return the tables that hold records of these partitions and are nearly full, sorted."""
        wanted = set(partitions)
        least = self._limits.bytes * self._limits.nearly_full
        return tuple(
            table
            for table, filling in sorted(self._filling.items())
            if filling.bytes >= least and wanted & filling.parts.keys()
        )

    def take(self, table: str) -> Gathered:
        """Hand out a table's records and start it afresh."""
        filling = self._filling.pop(table)
        self._bytes -= filling.bytes
        parts = sorted(filling.parts.items())
        records = pa.Table.from_batches([batch for _, part in parts for batch in part.records])
        return Gathered({p: (part.first, part.next) for p, part in parts}, records)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the records of these partitions (rule 3)."""
        for partition in set(partitions):
            for filling in self._filling.values():
                part = filling.parts.pop(partition, None)
                self._bytes -= part.bytes if part else 0
        self._filling = {t: filling for t, filling in self._filling.items() if filling.parts}
