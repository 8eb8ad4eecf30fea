"""An error of one table, at any step of its flushes: nothing is lost, doubled, or held up elsewhere.

The tables are in memory; the writer, its flush threads, positions and halts are the product's.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import local
from typing import Any, Final
from unittest import mock

import pytest
from confluent_kafka import TopicPartition as RawPartition
from hypothesis import given
from hypothesis import strategies as st
from writer_steps import FLUSH_STEPS

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError, TrimtabError
from trimtab.consumer_sdk.consumer.offset_reset import OffsetReset
from trimtab.consumer_sdk.errors import (
    CommitConflictError,
    CommittedOffsetsLostError,
    TableAccessError,
    TableSchemaMismatchError,
    TransformError,
)
from trimtab.consumer_sdk.lake.interfaces import Records, StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.offsets.offset_gaps import TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.retry import RetryBackoff
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitionSpec
from trimtab.consumer_sdk.lake.writer.flush import BatchFlusher, FlushBatch
from trimtab.consumer_sdk.lake.writer.flush_threads import wait_for_flushes
from trimtab.consumer_sdk.lake.writer.projection import ProjectedRows
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

TOPICS: Final = ("a", "b", "c")
PARTITIONS: Final = 2
STEPS: Final = tuple(step for step in FLUSH_STEPS if step != "offsets-committed")  # of the flush itself
ERRORS: Final = (
    TableSchemaMismatchError,
    TransformError,
    CommittedOffsetsLostError,
    TableAccessError,
    SettingError,
    ValueError,  # nobody expected it
)
CONFIG: Final = {
    "group.id": "g",
    "enable.auto.commit": False,
    "lake.warehouse": "lake",
    "lake.table": "lake.{topic}",
    "batch.max.age": "2 s",
}
MOST_ROUNDS: Final = 400


@dataclass
class Table:
    """A table with the offsets of its rows."""

    name: str
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    rows: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    attempts: set[str] = field(default_factory=set[str])

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:  # noqa: ARG002 - never stale
        return VersionedOffsets(self.offsets, self.offsets.encode())

    def read_gaps(self) -> TableGaps:
        return TableGaps()

    def read_property(self, name: str) -> str | None:
        raise AssertionError(name)

    def has_committed(self, attempt: str) -> bool:
        return attempt in self.attempts

    def evolve_schema(self, frame: Any) -> None:
        raise AssertionError(frame)

    def stage_rows(self, frame: Any, attempt: str) -> StagedFiles:
        places = list(
            zip(frame.column("partition").to_pylist(), frame.column("offset").to_pylist(), strict=True)
        )
        return StagedFiles(attempt, tuple(places), len(places))

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        assert gaps is None
        if expected.version != self.offsets.encode():
            raise CommitConflictError(self.name)
        self.offsets = offsets
        self.rows += staged.files
        self.attempts.add(staged.attempt)

    def delete_staged_files(self, staged: StagedFiles) -> None: ...


class Lake:
    """Tables in memory."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}

    def to_frame(self, records: Records) -> Any:
        return records

    def is_empty(self, frame: Any) -> bool:
        return bool(frame.num_rows == 0)

    def open_table(self, name: str) -> Table | None:
        return self.tables.get(name)

    def create_table(self, name: str, frame: Any, partition_spec: PartitionSpec = ()) -> Table:
        del frame, partition_spec
        return self.tables.setdefault(name, Table(name))

    def close(self) -> None: ...


@dataclass(frozen=True)
class Message:
    """A record."""

    where: TopicPartition
    at: int

    def topic(self) -> str:
        return self.where.topic

    def partition(self) -> int:
        return self.where.partition

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None: ...
    def error(self) -> None: ...


@dataclass
class Consumer:
    """Reads logs of these lengths, each partition from its position."""

    ends: dict[TopicPartition, int]
    positions: dict[TopicPartition, int]

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        del timeout
        messages: list[Message] = []
        for where, offset in self.positions.items():
            end = min(self.ends[where], offset + num_messages)
            messages += [Message(where, at) for at in range(offset, end)]
            self.positions[where] = end
        return messages

    def incremental_assign(self, partitions: Sequence[RawPartition]) -> None:
        self.positions |= {TopicPartition(p.topic, p.partition): p.offset for p in partitions}

    def incremental_unassign(self, partitions: Sequence[RawPartition]) -> None:
        for p in partitions:
            self.positions.pop(TopicPartition(p.topic, p.partition), None)

    def pop_offset_resets(self) -> list[OffsetReset]:
        return []

    def batch_max_age_s(self) -> float | None:
        return None

    def commit(self, *, offsets: Any, asynchronous: bool = True) -> None: ...


class ManualClock(SystemClock):
    """A clock that is advanced by hand."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class WithOddRows:
    """A transform to all rows, and those with an odd offset in a second table."""

    def __init__(self, table: str) -> None:
        self._table = table

    def project_records(self, records: Records, to_frame: Callable[[Any], Any]) -> ProjectedRows:
        odd = records.filter([offset % 2 == 1 for offset in records.column("offset").to_pylist()])
        return ProjectedRows(to_frame(records), {f"{self._table}_odd": to_frame(odd)})


@dataclass
class Fault:
    """Fails one table's flushes at a step, until it is mended."""

    table: str
    step: str
    error: type[Exception]
    mended: bool = False
    flushed: local = field(default_factory=local)

    def reach(self, step: str) -> None:
        if getattr(self.flushed, "table", "") == self.table and step == self.step and not self.mended:
            raise self.error(f"{self.table}: not today")

    @contextmanager
    def installed(self) -> Generator[None]:
        flush_batch = BatchFlusher.flush_batch

        def named(flusher: BatchFlusher, batch: FlushBatch, backoff: RetryBackoff) -> Any:
            self.flushed.table = batch.table
            return flush_batch(flusher, batch, backoff)

        with mock.patch.object(BatchFlusher, "flush_batch", named):
            yield


class Rig:
    """A writer of all topics, driven round by round: one second each, and no flush outlasts it."""

    def __init__(self, ends: dict[TopicPartition, int], fault: Fault, parallelism: int, most: int) -> None:
        self.lake, self.clock, self.metrics, self.most = Lake(), ManualClock(), LakeMetrics(), most
        self.ends = ends
        self.consumer = Consumer(ends, dict.fromkeys(ends, 0))
        stepped = type(
            "Stepped",
            (LakeWriter,),
            {
                "_reach_step": lambda _, step: fault.reach(step),
                "_create_projection": lambda _, table: WithOddRows(table),
            },
        )
        config = CONFIG | {"lake.flush.parallelism": parallelism}
        self.writer = stepped(self.consumer, config, lake=self.lake, clock=self.clock, metrics=self.metrics)
        self.writer.on_assign(None, [RawPartition(*partition) for partition in ends])

    def run_until(self, condition: Callable[[], bool], *, seconds: float = 1.0) -> None:
        for _ in range(MOST_ROUNDS):
            if condition():
                return
            self.writer.write(self.consumer.consume(self.most))  # raises nothing
            wait_for_flushes(self.writer._flushes.in_flight.values(), 30)
            self.clock.now += seconds
        raise AssertionError("it never happens")

    def reassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Take partitions away and give them back; a group without offsets begins at 0."""
        raw = [RawPartition(*partition) for partition in partitions]
        self.writer.on_revoke(None, raw)
        self.consumer.incremental_unassign(raw)
        self.consumer.positions |= dict.fromkeys(partitions, 0)
        self.writer.on_assign(None, raw)

    def list_missing(self, topic: str) -> set[tuple[int, int]]:
        return self.list_due(topic) - set(self.read_rows(f"lake.{topic}"))

    def list_due(self, topic: str) -> set[tuple[int, int]]:
        return {(p.partition, n) for p, end in self.ends.items() if p.topic == topic for n in range(end)}

    def read_rows(self, table: str) -> list[tuple[int, int]]:
        return self.lake.tables[table].rows if table in self.lake.tables else []

    def check(self, topic: str) -> None:
        due = sorted(self.list_due(topic))
        assert sorted(self.read_rows(f"lake.{topic}")) == due
        assert sorted(self.read_rows(f"lake.{topic}_odd")) == [place for place in due if place[1] % 2]

    def is_halted(self, table: str) -> bool:
        return self.metrics.registry.get_sample_value("trimtab_halted_tables", {"table": table}) == 1


@dataclass(frozen=True)
class Case:
    """Which table fails at which step, and how its records come."""

    topic: str
    step: str
    error: type[Exception]
    lengths: list[int]
    parallelism: int
    most: int  # records of a partition in one poll
    seconds: float  # from round to round after the mending
    is_flushed: bool  # before the mending
    is_reassigned: bool


CASES: Final = st.builds(
    Case,
    topic=st.sampled_from(TOPICS),
    step=st.sampled_from(STEPS),
    error=st.sampled_from(ERRORS),
    lengths=st.lists(st.integers(0, 30), min_size=6, max_size=6),
    parallelism=st.integers(1, 2),
    most=st.integers(1, 20),
    seconds=st.sampled_from([1.0, 40.0]),
    is_flushed=st.booleans(),
    is_reassigned=st.booleans(),
)


@given(CASES)
def test_a_table_that_cannot_be_written_touches_no_other(case: Case) -> None:
    """Others have all rows while it fails; it has them exactly once after the mending, wherever it failed."""
    partitions = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
    ends = dict(zip(partitions, case.lengths, strict=True))
    ends[TopicPartition(case.topic, 0)] += 1
    fault = Fault(f"lake.{case.topic}", case.step, case.error)
    others = [topic for topic in TOPICS if topic != case.topic]
    with fault.installed():
        rig = Rig(ends, fault, case.parallelism, case.most)
        rig.run_until(lambda: rig.is_halted(fault.table))
        rig.run_until(lambda: not any(map(rig.list_missing, others)))
        for other in others:
            rig.check(other)
        # behind the commit nothing is left to fail: the table may have come over it by itself
        with suppress(TrimtabError) if case.step == "committed" else pytest.raises(TrimtabError):
            (rig.writer.flush if case.is_flushed else rig.writer.raise_if_halted)()
        if case.is_reassigned:
            rig.reassign([p for p in partitions if p.topic == case.topic])
        fault.mended = True
        rig.run_until(
            lambda: not rig.list_missing(case.topic) and not rig.is_halted(fault.table), seconds=case.seconds
        )
        rig.writer.close()
    for topic in TOPICS:
        rig.check(topic)


def test_tables_have_rows_at_all() -> None:
    """The property would hold of empty tables, too."""
    fault = Fault("lake.a", "begun", ValueError, mended=True)
    rig = Rig({TopicPartition("a", 0): 5, TopicPartition("b", 1): 4}, fault, 2, 3)
    rig.run_until(lambda: not rig.list_missing("a") and not rig.list_missing("b"))
    rig.writer.close()
    counts = defaultdict(int, {table: len(content.rows) for table, content in rig.lake.tables.items()})
    assert counts == {"lake.a": 5, "lake.a_odd": 2, "lake.b": 4, "lake.b_odd": 2}
