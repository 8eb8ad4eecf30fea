"""Records on their way to the stager.

Gathered per destination table until there are enough, or it is time.

Rules:

1. A table is *due* when it holds `bytes` or its oldest record is `max_age_s` seconds old; the fullest
   goes first. When all tables together hold `memory_bytes`, the fullest is due whatever its size.
2. The writer is *full* when one table holds `bytes` or all together hold `memory_bytes`: then it must not
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
class BatchLimits:
    """When a batch goes: `batch_bytes` a table, `memory_bytes` bytes for all, `max_age_s` seconds."""

    batch_bytes: int
    memory_bytes: int
    max_age_s: float
    nearly_full_fraction: float = 0.8


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive accepted records of one partition; `next` is the offset after the last one."""

    partition: TopicPartition
    first: int
    next: int
    records: pa.RecordBatch


@dataclass(slots=True)
class _PartitionBuffer:
    first: int
    next: int
    bytes: int = 0
    records: list[pa.RecordBatch] = field(default_factory=list[pa.RecordBatch])


@dataclass(slots=True)
class _TableBuffer:
    opened_at: float
    partitions: dict[TopicPartition, _PartitionBuffer] = field(
        default_factory=dict[TopicPartition, _PartitionBuffer]
    )

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.partitions.values())


@dataclass(frozen=True, slots=True)
class BufferedRecords:
    """What was taken for one table.

    (first, next) of each partition, and the records in partition order.
    """

    ranges: dict[TopicPartition, tuple[int, int]]
    records: pa.Table


class BatchBuffer:
    """The batches being filled; `now` is seconds of a monotonic clock."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._buffers: dict[str, _TableBuffer] = {}
        self._buffered_bytes = 0

    def add_run(self, table: str, run: RecordRun, now: float) -> None:
        """Take records in for a table."""
        filling = self._buffers.setdefault(table, _TableBuffer(now))
        part = filling.partitions.setdefault(run.partition, _PartitionBuffer(run.first, run.next))
        part.records.append(run.records)
        part.next = run.next
        part.bytes += run.records.nbytes
        self._buffered_bytes += run.records.nbytes

    @property
    def buffered_bytes(self) -> int:
        """Bytes that are held."""
        return self._buffered_bytes

    @property
    def is_full(self) -> bool:
        """Whether no more may be taken in (rule 2)."""
        return self._buffered_bytes >= self._limits.memory_bytes or any(
            filling.bytes >= self._limits.batch_bytes for filling in self._buffers.values()
        )

    def find_due_table(self, now: float, max_age_s: float | None = None) -> str | None:
        """Return the table to be flushed now, if any (rule 1); `max_age_s` is a shorter wait."""
        wait = (
            self._limits.max_age_s if max_age_s is None else min(max_age_s, self._limits.max_age_s)
        )
        everything = self._buffered_bytes >= self._limits.memory_bytes
        sizes = sorted(
            ((filling.bytes, table) for table, filling in self._buffers.items()), reverse=True
        )
        for size, table in sizes:
            aged = now - self._buffers[table].opened_at >= wait
            if everything or size >= self._limits.batch_bytes or aged:
                return table
        return None

    def list_tables(self) -> tuple[str, ...]:
        """Return the tables with records, sorted."""
        return tuple(sorted(self._buffers))

    def find_nearly_full_tables(self, partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
        """Return the tables that hold records of these partitions and are nearly full, sorted."""
        wanted = set(partitions)
        least = self._limits.batch_bytes * self._limits.nearly_full_fraction
        return tuple(
            table
            for table, filling in sorted(self._buffers.items())
            if filling.bytes >= least and wanted & filling.partitions.keys()
        )

    def pop_table(self, table: str) -> BufferedRecords:
        """Hand out a table's records and start it afresh."""
        filling = self._buffers.pop(table)
        self._buffered_bytes -= filling.bytes
        parts = sorted(filling.partitions.items())
        records = pa.Table.from_batches([batch for _, part in parts for batch in part.records])
        return BufferedRecords({p: (part.first, part.next) for p, part in parts}, records)

    def drop_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the records of these partitions (rule 3)."""
        for partition in set(partitions):
            for filling in self._buffers.values():
                part = filling.partitions.pop(partition, None)
                self._buffered_bytes -= part.bytes if part else 0
        self._buffers = {t: filling for t, filling in self._buffers.items() if filling.partitions}
