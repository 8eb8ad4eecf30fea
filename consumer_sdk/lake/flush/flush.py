"""One flush: writes a batch into its tables, exactly once.

Steps (`table_offsets` has the rules of offsets):

1. Read the topic table's offsets; refuse a batch that does not continue them. A table that was dropped is not
   created again: TableSchemaMismatchError.
2. Stage the topic table's rows: the likeliest failures come before anything is visible.
3. Before side tables (fan-out, dead letters), commit where the batch begins in partitions that the
   topic table does not know: two owners that begin at different offsets must not both write them.
4. Stage and commit each side table, trimmed to the rows it lacks, by name.
5. Commit the topic table, fenced. Only this commit counts.

A batch whose decoded columns would take too much memory is flushed in parts, each by these steps.

A crash between two steps leaves the topic table's offsets at the batch's beginning: it is read again,
and the tables of step 4 trim the rows they have.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.errors import DROPPED_ADVICE, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.commits.fenced_commit import (
    CommitFenced,
    CommitSucceeded,
    FilesOutdated,
    commit_fenced,
)
from trimtab.consumer_sdk.lake.commits.retry import FlushAbandonedError, RetryBackoff
from trimtab.consumer_sdk.lake.decoding.decoded_records import BatchTooLargeError
from trimtab.consumer_sdk.lake.model.interfaces import Frame, Lake, LakeTable, Records, StagedFiles
from trimtab.consumer_sdk.lake.model.partition_spec import PartitioningRules
from trimtab.consumer_sdk.lake.model.table_names import dead_letter_table
from trimtab.consumer_sdk.lake.offsets.table_offsets import (
    CommittedOffsets,
    OffsetConflict,
    OffsetSpan,
    SpanByPartition,
    gaps_before,
    trim_spans,
)
from trimtab.consumer_sdk.lake.projection.projection import ProjectedRows
from trimtab.consumer_sdk.lake.projection.topic_projections import BatchProjection
from trimtab.consumer_sdk.lake.schema import record_columns


@dataclass(frozen=True, slots=True)
class FlushBatch:
    """Records of one topic table, in partition order, and their spans."""

    table: str
    spans: SpanByPartition
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
    """A batch refused for `conflicts`, failed behind its first parts (`error`), or cancelled (neither)."""

    batch: FlushBatch
    offsets: Mapping[TopicPartition, int | None]  # the table's, or those behind the parts that are committed
    conflicts: tuple[OffsetConflict, ...] = ()
    error: Exception | None = None


FlushOutcome: TypeAlias = BatchCommitted | BatchRefused
FlushRun: TypeAlias = Callable[[FlushBatch, RetryBackoff], FlushOutcome]


@dataclass(frozen=True, slots=True)
class BatchFlusher:
    """Flushes batches of one group; `on_step` is called with the name of each completed step."""

    lake: Lake
    group: str
    projection_for: Callable[[str], BatchProjection]
    new_attempt_id: Callable[[], str]
    on_step: Callable[[str], None]
    partitioning: PartitioningRules = field(default_factory=PartitioningRules)
    evolves_schema: bool = False
    now: Callable[[], float] = SystemClock.monotonic
    # called with the partitions of a batch, and those that the table knows of its topics
    check_partitions: Callable[[Collection[TopicPartition]], None] | None = None
    measure: Callable[[FlushRun], FlushRun] = lambda run: run  # of each part: later ones may fail

    def flush_batch(self, batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
        """Write a batch, retrying retryable errors until it is cancelled or its patience has run out.

        Raises TableSchemaMismatchError, TransformError, CommittedOffsetsLostError, LakeUnavailableError,
        unless a part is committed: its offsets would be lost.
        """
        parts, writes = [batch], list[TableWrite]()
        committed: dict[TopicPartition, int | None] = {p: span.expected for p, span in batch.spans.items()}
        flush_part = self.measure(self._flush_part)
        while parts:
            part = parts.pop()
            try:
                outcome = flush_part(part, backoff)
            except BatchTooLargeError as error:
                parts += reversed(_split_batch(part, error.records))
                continue
            except Exception as error:
                if not writes:
                    raise
                return BatchRefused(batch, committed, error=error)
            if isinstance(outcome, BatchRefused):
                return BatchRefused(batch, {**committed, **outcome.offsets}, outcome.conflicts)
            writes += outcome.table_writes
            committed |= {p: span.next for p, span in part.spans.items()}
        return BatchCommitted(batch, tuple(writes))

    def _flush_part(self, part: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
        flush = _BatchFlush(self, part, backoff)
        try:
            return flush.run()
        except FlushAbandonedError:
            return flush.refuse()


@dataclass(frozen=True, slots=True)
class _BatchFlush:
    flusher: BatchFlusher
    batch: FlushBatch
    backoff: RetryBackoff

    def run(self) -> FlushOutcome:
        batch = self.batch
        flusher = self.flusher
        flusher.on_step("begun")
        table, offsets = self._open_with_offsets(batch.table)
        if table is None and any(span.expected is not None for span in batch.spans.values()):
            # created again, it would lack the rows of the dropped one
            raise TableSchemaMismatchError(f"table {batch.table}: {DROPPED_ADVICE}")
        if conflicts := offsets.find_conflicts(flusher.group, batch.spans):
            return self.refuse(conflicts)
        self._check_partitions(offsets)
        projected = self._project(batch.records)
        frame = projected.topic_table
        if table is None:
            # A transform may return no rows for the topic table, which still keeps the offsets.
            readable, _ = record_columns.split_unreadable(batch.records)
            columns = flusher.lake.to_frame(readable) if frame is None else frame
            table = self._create_table(batch.table, columns, is_topic_table=True)
        staged = self._stage_rows(table, frame, evolves_schema=flusher.evolves_schema)
        return self._commit_tables(table, staged, projected)

    def _check_partitions(self, offsets: CommittedOffsets) -> None:
        if self.flusher.check_partitions is not None:
            topics = {p.topic for p in self.batch.spans}
            known = offsets.groups.get(self.flusher.group, {})
            self.flusher.check_partitions({*self.batch.spans, *(p for p in known if p.topic in topics)})

    def _commit_tables(
        self, topic_table: LakeTable, staged: StagedFiles, projected: ProjectedRows
    ) -> FlushOutcome:
        try:
            self.flusher.on_step("staged")
            sides = projected.remaining_tables(self.batch.records.num_rows, staged.rows)
            spans = self._commit_starts(topic_table) if sides else self.batch.spans
            # without a start the topic table refuses the batch below
            writes = [self._flush_side_table(*side) for side in (sides if spans else ())]
            self.flusher.on_step("side-tables-committed")
        except BaseException:  # not yet committed: no snapshot references the files
            topic_table.delete_staged_files(staged)
            raise
        answer = self._commit(topic_table, staged, spans or self.batch.spans, projected.topic_table)
        if not isinstance(answer, CommitSucceeded):
            return self.refuse(answer.conflicts)
        self.flusher.on_step("committed")
        writes.append(TableWrite(topic_table.name, staged.rows, staged.bytes))
        return BatchCommitted(self.batch, tuple(write for write in writes if write is not None))

    def _commit_starts(self, topic_table: LakeTable) -> SpanByPartition | None:
        """Commit the start of new partitions; return the spans from there, None if refused (step 3)."""
        starts = {p: s.first for p, s in self.batch.spans.items() if s.expected is None}
        empty = {p: OffsetSpan(None, first, first) for p, first in starts.items()}
        staged = StagedFiles(self.flusher.new_attempt_id())
        if starts and isinstance(self._commit(topic_table, staged, empty), CommitFenced):
            return None
        spans = self.batch.spans.items()
        return {p: replace(span, expected=starts.get(p, span.expected)) for p, span in spans}

    def _flush_side_table(self, name: str, frame: Frame) -> TableWrite | None:
        """Write a side table up to the end of the batch; None if it gets neither rows nor a gap."""
        while True:  # a fenced commit means that another owner has advanced the table: trim again
            table, offsets = self._open_with_offsets(name)
            spans = trim_spans(self.flusher.group, offsets, self.batch.spans)
            rows = self._trim_frame(name, frame, spans)
            if table is None:
                if self.flusher.lake.is_empty(rows):
                    return None
                table = self._create_table(name, rows, is_topic_table=False)
            # Dead-letter tables of earlier versions lack columns.
            evolves_schema = self.flusher.evolves_schema or name == dead_letter_table(self.batch.table)
            staged = self._stage_rows(table, rows, evolves_schema=evolves_schema)
            if staged.rows == 0 and not gaps_before(spans):
                return None
            if isinstance(self._commit(table, staged, spans, rows), CommitSucceeded):
                return TableWrite(name, staged.rows, staged.bytes)

    def _commit(
        self, table: LakeTable, staged: StagedFiles, spans: SpanByPartition, frame: Frame | None = None
    ) -> CommitSucceeded | CommitFenced:
        """Commit files, staged from `frame` again when they are outdated."""
        flusher = self.flusher
        while True:
            answer = commit_fenced(table, staged, flusher.group, spans, self.backoff, flusher.now)
            if not isinstance(answer, FilesOutdated):
                return answer
            staged = self._stage_rows(table, frame, evolves_schema=False)

    def _trim_frame(self, name: str, frame: Frame, spans: SpanByPartition) -> Frame | None:
        firsts = {p: span.first for p, span in spans.items()}
        # Fewer records than the batch only after a crash between commits.
        if firsts == {p: span.first for p, span in self.batch.spans.items()}:
            return frame
        if not firsts:
            return None
        records = record_columns.select_from_offsets(self.batch.records, firsts)
        return self._project(records).side_tables.get(name)

    def _project(self, records: Records) -> ProjectedRows:
        projection = self.flusher.projection_for(self.batch.table)
        return self.backoff.retry_until_cancelled(
            f"decoding for {self.batch.table}",
            lambda: projection.project_records(records, self.flusher.lake.to_frame),
        )

    def _open_with_offsets(self, name: str) -> tuple[LakeTable | None, CommittedOffsets]:
        def read() -> tuple[LakeTable | None, CommittedOffsets]:
            table = self.flusher.lake.open_table(name)
            return table, CommittedOffsets() if table is None else table.read_offsets(refresh=False).offsets

        return self.backoff.retry_until_cancelled(f"reading the offsets of {name}", read)

    def _create_table(self, name: str, frame: Frame, *, is_topic_table: bool) -> LakeTable:
        spec = self.flusher.partitioning.spec_for(name, is_topic_table=is_topic_table)
        return self.backoff.retry_until_cancelled(
            f"creating {name}", lambda: self.flusher.lake.create_table(name, frame, spec)
        )

    def _stage_rows(self, table: LakeTable, frame: Frame | None, *, evolves_schema: bool) -> StagedFiles:
        if frame is None:
            return StagedFiles(self.flusher.new_attempt_id())
        if evolves_schema:
            self.backoff.retry_until_cancelled(
                f"adding columns to {table.name}", lambda: table.evolve_schema(frame)
            )

        def stage() -> StagedFiles:
            begun_at = self.flusher.now()
            # A new id for each try: files of a failed one may be left behind under its id.
            return replace(table.stage_rows(frame, self.flusher.new_attempt_id()), begun_at=begun_at)

        return self.backoff.retry_until_cancelled(f"staging for {table.name}", stage)

    def refuse(self, conflicts: tuple[OffsetConflict, ...] = ()) -> BatchRefused:
        offsets = {p: span.expected for p, span in self.batch.spans.items()}
        return BatchRefused(self.batch, offsets | {c.partition: c.actual for c in conflicts}, conflicts)


def _split_batch(batch: FlushBatch, count: int) -> tuple[FlushBatch, FlushBatch]:
    """Return the first records of a batch, and the others as a batch that continues them."""
    head, rest = batch.records[:count], batch.records[count:]
    cut, at = _read_position(rest)
    spans = sorted(batch.spans.items())
    before, after = ({p: s for p, s in spans if p < cut}, {p: s for p, s in spans if p >= cut})
    if _read_position(head[-1:])[0] == cut:
        span = batch.spans[cut]
        known = tuple(gap for gap in span.gaps if gap.next <= at)
        before[cut] = replace(span, next=at, gaps=known)
        after[cut] = OffsetSpan(at, at, span.next, span.gaps[len(known) :])
    return replace(batch, spans=before, records=head), replace(batch, spans=after, records=rest)


def _read_position(records: Records) -> tuple[TopicPartition, int]:
    topic, partition, offset = (records.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
    return TopicPartition(topic, partition), offset
