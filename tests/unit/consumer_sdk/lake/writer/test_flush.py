"""A flush: what a refused attempt leaves behind, in files and in side tables.

A table that raises on purpose stands in for one whose catalog does not respond.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake.decoding.spark_decoders import DecodedFrames
from trimtab.consumer_sdk.lake.interfaces import Frame, LakeTable, Records, StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.offsets.fenced_commit import MAX_STAGED_AGE_S
from trimtab.consumer_sdk.lake.offsets.offset_gaps import TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan
from trimtab.consumer_sdk.lake.retry import RetryBackoff
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitionSpec
from trimtab.consumer_sdk.lake.schema.table_names import dead_letter_table
from trimtab.consumer_sdk.lake.writer.flush import BatchCommitted, BatchFlusher, BatchRefused, FlushBatch
from trimtab.consumer_sdk.lake.writer.projection import TableProjection

P = TopicPartition("a", 0)
BATCH = FlushBatch("lake.a", {P: OffsetSpan(10, 10, 12)}, pa.table({"offset": [10, 11]}))


@dataclass
class Table:
    """A table whose one commit succeeds, and then raises `answer`."""

    answer: Callable[[], Exception]
    offsets: CommittedOffsets = field(default_factory=lambda: CommittedOffsets({"g": {P: 10}}))
    deleted: list[str] = field(default_factory=list)
    name: str = "lake.a"

    def read_offsets(self) -> VersionedOffsets:
        return VersionedOffsets(self.offsets, self.offsets.encode())

    def has_committed(self, attempt: str) -> bool:  # noqa: ARG002 - the history is cut
        return False

    def evolve_schema(self, frame: Frame) -> None:
        raise AssertionError(frame)

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        return StagedFiles(attempt, ("file",), frame.num_rows, 1)

    def read_gaps(self) -> TableGaps:
        return TableGaps()

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        del staged, expected, gaps
        self.offsets = offsets
        raise self.answer()

    def delete_staged_files(self, staged: StagedFiles) -> None:
        self.deleted.append(staged.attempt)


@dataclass
class Lake:
    """A lake of that table."""

    table: Table

    def to_frame(self, records: Records) -> Frame:
        return records

    def is_empty(self, frame: Frame) -> bool:
        return bool(frame.num_rows == 0)

    def open_table(self, name: str) -> LakeTable | None:
        assert name == self.table.name
        return self.table

    def create_table(self, name: str, frame: Frame, partition_spec: PartitionSpec = ()) -> LakeTable:
        raise AssertionError(name, frame, partition_spec)

    def close(self) -> None: ...


class NoWait(RetryBackoff):
    """A backoff without waits."""

    def wait_after_race(self, attempt: int) -> None: ...

    def wait_after_outage(self, attempt: int) -> float:  # noqa: ARG002 - the interface
        return 0.0


@pytest.mark.parametrize(
    ("answer", "deleted"),
    [(lambda: LakeUnavailableError("no answer"), []), (lambda: CommitConflictError("raced"), ["x"])],
    ids=["no answer, and the history was cut", "a lost race"],
)
def test_files_of_an_unanswered_commit_stay(answer: Callable[[], Exception], deleted: list[str]) -> None:
    """The offsets show that the batch is no longer due; only an answer shows that the files are free.

    Iceberg's own expiry may remove the snapshot of the commit.
    """
    table = Table(answer)
    shaping = TableProjection("lake.a", lambda records, _: DecodedFrames(records, None))
    flush = BatchFlusher(Lake(table), "g", lambda _: shaping, lambda: "x", lambda _: None)
    outcome = flush.flush_batch(BATCH, NoWait(random.Random(1)))  # noqa: S311 - jitter
    assert isinstance(outcome, BatchRefused)
    assert outcome.offsets == {P: 12}
    assert table.deleted == deleted


@dataclass
class PlainTable(Table):
    """A table that keeps the offsets of its commits."""

    answer: Callable[[], Exception] = LakeUnavailableError
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)

    def evolve_schema(self, frame: Frame) -> None: ...

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        del staged, gaps
        assert expected.offsets == self.offsets
        self.offsets = offsets


class PlainLake(Lake):
    """A lake of two tables."""

    def __init__(self) -> None:
        self.tables = {name: PlainTable(name=name) for name in ("lake.a", dead_letter_table("lake.a"))}

    def open_table(self, name: str) -> LakeTable | None:
        return self.tables[name]


def test_two_owners_that_begin_a_partition_elsewhere_do_not_both_write_side_tables() -> None:
    """Found by seed 900397 of the simulation: the side table skipped offsets without a gap.

    Retention had moved the log's begin, so the new owner began at 16, while a batch of the old one,
    from 0 to 3, was still in flight. The new owner's batch is refused; it must not be in side tables.
    """
    lake, steps = PlainLake(), list[str]()
    first_is_bad = TableProjection("lake.a", lambda records, _: DecodedFrames(records[1:], records[:1]))

    def flush(first: int, following: int, on_step: Callable[[str], None]) -> object:
        records = pa.table({"offset": range(first, following)})
        batch = FlushBatch("lake.a", {P: OffsetSpan(None, first, following)}, records)
        flusher = BatchFlusher(lake, "g", lambda _: first_is_bad, lambda: "x", on_step)
        return flusher.flush_batch(batch, NoWait(random.Random(1)))  # noqa: S311 - jitter

    def overtaken(step: str) -> None:
        if step == "staged":
            assert isinstance(flush(0, 3, steps.append), BatchCommitted)

    outcome = flush(16, 21, overtaken)
    assert isinstance(outcome, BatchRefused)
    assert outcome.offsets == {P: 3}
    assert {table.offsets.next_offset("g", P) for table in lake.tables.values()} == {3}


def test_files_as_old_as_orphans_are_staged_again() -> None:
    """A lake that refuses commits for hours: the files that are committed at last are fresh."""
    times, names = iter(range(0, 10**6, int(MAX_STAGED_AGE_S * 0.6))), iter("abcdef")
    committed: list[str] = []

    @dataclass
    class Refusing(Table):
        def commit(
            self,
            staged: StagedFiles,
            offsets: CommittedOffsets,
            expected: VersionedOffsets,
            gaps: TableGaps | None = None,
        ) -> None:
            del offsets, expected, gaps
            committed.append(staged.attempt)
            if committed == ["a"]:
                raise CommitConflictError("raced")

    table = Refusing(RuntimeError)
    shaping = TableProjection("lake.a", lambda records, _: DecodedFrames(records, None))
    flush = BatchFlusher(
        Lake(table), "g", lambda _: shaping, lambda: next(names), print, now=lambda: next(times)
    )
    outcome = flush.flush_batch(BATCH, NoWait(random.Random(1)))  # noqa: S311 - jitter
    assert isinstance(outcome, BatchCommitted)
    assert (committed, table.deleted) == (["a", "b"], ["a"])
