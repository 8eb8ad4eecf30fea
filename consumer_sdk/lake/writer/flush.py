"""One flush: writes a batch into its tables, exactly once.

Steps (`table_offsets` has the rules of offsets):

1. Read the topic table's offsets; refuse a batch that does not continue them.
2. Stage the topic table's rows: the likeliest failures come before anything is visible.
3. Stage and commit each side table (fan-out, dead letters), trimmed to the rows it lacks, by name.
4. Commit the topic table, fenced. Only this commit counts.

A crash between two steps leaves the topic table's offsets unchanged: the batch is read again, and
the tables of step 3 trim the rows they have.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.offsets.fenced_commit import CommitFenced, CommitSucceeded, commit_fenced
from trimtab.consumer_sdk.lake.offsets.table_offsets import (
    CommittedOffsets,
    OffsetConflict,
    OffsetSpan,
    gaps_before,
    trim_spans,
)
from trimtab.consumer_sdk.lake.ports import Frame, Lake, LakeTable, Records, StagedFiles
from trimtab.consumer_sdk.lake.retry import FlushAbandonedError, RetryBackoff
from trimtab.consumer_sdk.lake.schema import record_columns
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitioningRules, PartitionSpec
from trimtab.consumer_sdk.lake.schema.table_names import dead_letter_table
from trimtab.consumer_sdk.lake.writer.projection import ProjectedRows, TableProjection


@dataclass(frozen=True, slots=True)
class FlushBatch:
    """Records of one topic table, in partition order, and their spans."""

    table: str
    spans: Mapping[TopicPartition, OffsetSpan]
    records: pa.Table


@dataclass(frozen=True, slots=True)
class TableWrite:
    """Rows and bytes of data files added to one table."""

    table: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """A committed batch."""

    batch: FlushBatch
    table_writes: tuple[TableWrite, ...]  # in the order of the commits


@dataclass(frozen=True, slots=True)
class BatchRefused:
    """A batch refused for `conflicts`, or cancelled (no conflicts)."""

    batch: FlushBatch
    offsets: Mapping[TopicPartition, int | None]  # the table's; for a cancelled batch, the expected ones
    conflicts: tuple[OffsetConflict, ...] = ()


FlushOutcome: TypeAlias = BatchCommitted | BatchRefused


@dataclass(frozen=True, slots=True)
class BatchFlusher:
    """Flushes batches of one group; `on_step` is called with the name of each completed step."""

    lake: Lake
    group: str
    projection_for: Callable[[str], TableProjection]
    new_attempt_id: Callable[[], str]
    on_step: Callable[[str], None]
    partitioning: PartitioningRules = field(default_factory=PartitioningRules)
    evolves_schema: bool = False

    def flush_batch(self, batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
        """Write a batch, retrying retryable errors until cancelled.

        Raises TableSchemaMismatchError, TransformError, CommittedOffsetsLostError.
        """
        try:
            return self._flush_batch(batch, backoff)
        except FlushAbandonedError:
            return BatchRefused(batch, {p: span.expected for p, span in batch.spans.items()})

    def _flush_batch(self, batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
        self.on_step("begun")
        table, offsets = self._open_with_offsets(batch.table, backoff)
        if conflicts := offsets.find_conflicts(self.group, batch.spans):
            return self._refuse_batch(batch, conflicts)
        projected = self._project_records(batch.table, batch.records, backoff)
        if table is None:
            frame = projected.topic_table
            if frame is None:  # a transform without rows for it: the table still keeps the offsets
                frame = self.lake.to_frame(batch.records)
            partition_spec = self.partitioning.spec_for(batch.table, is_topic_table=True)
            table = self._create_table(batch.table, frame, partition_spec, backoff)
        staged = self._stage_rows(table, projected.topic_table, backoff, evolves_schema=self.evolves_schema)
        return self._commit_tables(batch, table, staged, projected, backoff)

    def _commit_tables(
        self,
        batch: FlushBatch,
        topic_table: LakeTable,
        staged: StagedFiles,
        projected: ProjectedRows,
        backoff: RetryBackoff,
    ) -> FlushOutcome:
        try:
            self.on_step("staged")
            sides = projected.remaining_tables(batch.records.num_rows, staged.rows)
            written = [self._flush_side_table(batch, *side, backoff) for side in sides]
            self.on_step("side-tables-committed")
        except BaseException:  # not yet committed: no snapshot references the files
            topic_table.delete_staged_files(staged)
            raise
        answer = self._commit_or_delete(topic_table, staged, batch.spans, backoff)
        if not isinstance(answer, CommitSucceeded):
            return self._refuse_batch(batch, answer.conflicts)
        self.on_step("committed")
        written.append(TableWrite(topic_table.name, staged.rows, staged.bytes))
        return BatchCommitted(batch, tuple(w for w in written if w is not None))

    def _flush_side_table(
        self, batch: FlushBatch, name: str, frame: Frame, backoff: RetryBackoff
    ) -> TableWrite | None:
        """Write a side table up to the end of the batch; None if it gets neither rows nor a gap."""
        while True:  # a fenced commit means that another owner has advanced the table: trim again
            table, offsets = self._open_with_offsets(name, backoff)
            spans = trim_spans(self.group, offsets, batch.spans)
            rows = self._trim_frame(batch, name, frame, spans, backoff)
            if rows is None or (table is None and self.lake.is_empty(rows)):
                return None
            if table is None:
                partition_spec = self.partitioning.spec_for(name, is_topic_table=False)
                table = self._create_table(name, rows, partition_spec, backoff)
            # Dead-letter tables of earlier versions lack columns.
            evolve = self.evolves_schema or name == dead_letter_table(batch.table)
            staged = self._stage_rows(table, rows, backoff, evolves_schema=evolve)
            if staged.rows == 0 and not gaps_before(spans):
                return None
            if isinstance(self._commit_or_delete(table, staged, spans, backoff), CommitSucceeded):
                return TableWrite(name, staged.rows, staged.bytes)

    def _commit_or_delete(
        self,
        table: LakeTable,
        staged: StagedFiles,
        spans: Mapping[TopicPartition, OffsetSpan],
        backoff: RetryBackoff,
    ) -> CommitSucceeded | CommitFenced:
        # A commit without an answer may still succeed: its snapshot would reference these files.
        try:
            answer = commit_fenced(table, staged, self.group, spans, backoff)
        except FlushAbandonedError as error:
            if not error.outcome_unknown:
                table.delete_staged_files(staged)
            raise
        if isinstance(answer, CommitFenced) and not answer.unanswered:
            table.delete_staged_files(staged)
        return answer

    def _trim_frame(
        self,
        batch: FlushBatch,
        name: str,
        frame: Frame,
        spans: Mapping[TopicPartition, OffsetSpan],
        backoff: RetryBackoff,
    ) -> Frame | None:
        """Return the rows that a side table lacks."""
        firsts = {p: span.first for p, span in spans.items()}
        # Fewer than all only after a crash between commits: else the frame is evaluated once.
        if firsts == {p: span.first for p, span in batch.spans.items()}:
            return frame
        if not firsts:
            return None
        records = record_columns.select_from_offsets(batch.records, firsts)
        return self._project_records(batch.table, records, backoff).side_tables.get(name)

    def _project_records(self, table: str, records: Records, backoff: RetryBackoff) -> ProjectedRows:
        projection = self.projection_for(table)
        return backoff.retry_until_cancelled(
            f"decoding for {table}", lambda: projection.project_records(records, self.lake.to_frame)
        )

    def _open_with_offsets(
        self, name: str, backoff: RetryBackoff
    ) -> tuple[LakeTable | None, CommittedOffsets]:
        def read() -> tuple[LakeTable | None, CommittedOffsets]:
            table = self.lake.open_table(name)
            return table, CommittedOffsets() if table is None else table.read_offsets().offsets

        return backoff.retry_until_cancelled(f"reading the offsets of {name}", read)

    def _create_table(
        self, name: str, frame: Frame, partition_spec: PartitionSpec, backoff: RetryBackoff
    ) -> LakeTable:
        return backoff.retry_until_cancelled(
            f"creating {name}", lambda: self.lake.create_table(name, frame, partition_spec)
        )

    def _stage_rows(
        self, table: LakeTable, frame: Frame | None, backoff: RetryBackoff, *, evolves_schema: bool
    ) -> StagedFiles:
        if frame is None:
            return StagedFiles(self.new_attempt_id())
        if evolves_schema:
            backoff.retry_until_cancelled(
                f"adding columns to {table.name}", lambda: table.evolve_schema(frame)
            )
        return backoff.retry_until_cancelled(
            f"staging for {table.name}", lambda: table.stage_rows(frame, self.new_attempt_id())
        )

    def _refuse_batch(self, batch: FlushBatch, conflicts: tuple[OffsetConflict, ...]) -> BatchRefused:
        offsets = {p: span.expected for p, span in batch.spans.items()}
        offsets.update({conflict.partition: conflict.actual for conflict in conflicts})
        return BatchRefused(batch, offsets, conflicts)
