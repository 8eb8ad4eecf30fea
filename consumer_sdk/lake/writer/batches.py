"""Batches being filled, one per destination table.

Rules:

1. A table is *due* when it holds `batch_bytes` or its oldest record is `max_age_s` seconds old; the
   fullest table first. When all tables together hold `memory_bytes`, the fullest is due. A table
   whose previous batch is in flight is not.
2. A table is *full* when it holds `batch_bytes`, the memory when all together hold `memory_bytes`. The
   writer must then submit a batch before it accepts records: memory is bounded, fetching waits.
3. A partition can be dropped at any time; its next owner reads the records again.

Sizes are bytes of the Arrow buffers.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.lake.options.batch_limits import BatchLimits
from trimtab.consumer_sdk.lake.schema.record_columns import join_batches


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive accepted records of one partition."""

    partition: TopicPartition
    first: int
    next: int  # the offset behind the last record, like Kafka's committed offsets
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
    """Batch of one table: (first, next) of each partition, and the records in partition order."""

    ranges: dict[TopicPartition, tuple[int, int]]
    records: pa.Table


class BatchBuffer:
    """Batches being filled; `now` is in seconds of a monotonic clock."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._buffers: dict[str, _TableBuffer] = {}
        self._buffered_bytes = 0

    def add_run(self, table: str, run: RecordRun, now: float) -> None:
        """Add records to a table's batch."""
        buffer = self._buffers.setdefault(table, _TableBuffer(now))
        part = buffer.partitions.setdefault(run.partition, _PartitionBuffer(run.first, run.next))
        part.records.append(run.records)
        part.next = run.next
        part.bytes += run.records.nbytes
        self._buffered_bytes += run.records.nbytes

    @property
    def buffered_bytes(self) -> int:
        """Bytes of all tables."""
        return self._buffered_bytes

    @property
    def is_memory_full(self) -> bool:
        """Whether no more records of any table may be added (rule 2)."""
        return self._buffered_bytes >= self._limits.memory_bytes

    def find_full_tables(self) -> set[str]:
        """Return the tables to which no more records may be added (rule 2)."""
        return {table for table, buffer in self._buffers.items() if buffer.bytes >= self._limits.batch_bytes}

    def find_due_table(
        self,
        now: float,
        max_age_s: float | None = None,
        in_flight: Container[str] = (),
        at_once: Container[str] = (),
    ) -> str | None:
        """Return the table to flush now, if any (rule 1), but those in flight; some are due at once.

        `max_age_s` may lower the limit.
        """
        max_age = self._limits.max_age_s if max_age_s is None else min(max_age_s, self._limits.max_age_s)
        buffers = ((table, buffer) for table, buffer in self._buffers.items() if table not in in_flight)
        for size, table in sorted(((buffer.bytes, table) for table, buffer in buffers), reverse=True):
            aged = table in at_once or now - self._buffers[table].opened_at >= max_age
            if self.is_memory_full or size >= self._limits.batch_bytes or aged:
                return table
        return None

    def list_tables(self) -> tuple[str, ...]:
        """Return the tables with records, sorted."""
        return tuple(sorted(self._buffers))

    def find_nearly_full_tables(self, partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
        """Return the nearly full tables with records of these partitions, sorted."""
        selected = set(partitions)
        threshold = self._limits.batch_bytes * self._limits.nearly_full_fraction
        return tuple(
            table
            for table, buffer in sorted(self._buffers.items())
            if buffer.bytes >= threshold and selected & buffer.partitions.keys()
        )

    def pop_table(self, table: str) -> BufferedRecords:
        """Remove and return a table's records."""
        buffer = self._buffers.pop(table)
        self._buffered_bytes -= buffer.bytes
        parts = sorted(buffer.partitions.items())
        records = join_batches(batch for _, part in parts for batch in part.records)
        return BufferedRecords({p: (part.first, part.next) for p, part in parts}, records)

    def drop_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the records of these partitions (rule 3)."""
        for partition in set(partitions):
            for buffer in self._buffers.values():
                part = buffer.partitions.pop(partition, None)
                self._buffered_bytes -= part.bytes if part else 0
        self._buffers = {t: buffer for t, buffer in self._buffers.items() if buffer.partitions}
