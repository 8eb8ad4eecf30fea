"""A flush: its steps and commits, and what a refused or failed attempt leaves behind.

The tables are in memory (`support.lake.writer_stand_ins`).
"""

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest

from support.lake.writer_stand_ins import ROW_BYTES, nothing
from support.lake.writer_stand_ins import MemoryLake as Lake
from support.lake.writer_stand_ins import MemoryTable as Table
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.commits.fenced_commit import MAX_STAGED_AGE_S
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.decoding.decoded_records import BatchTooLargeError
from trimtab.consumer_sdk.lake.decoding.spark_frames import DecodedFrames
from trimtab.consumer_sdk.lake.flush.flush import (
    BatchCommitted,
    BatchFlusher,
    BatchRefused,
    FlushBatch,
    FlushOutcome,
    FlushRun,
    TableWrite,
)
from trimtab.consumer_sdk.lake.model.interfaces import Frame, Records
from trimtab.consumer_sdk.lake.model.partition_spec import parse_partitioning
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.offsets.table_offsets import (
    CommittedOffsets,
    OffsetConflict,
    OffsetSpan,
    trim_spans,
)
from trimtab.consumer_sdk.lake.projection.projection import ProjectedRows, TableProjection
from trimtab.consumer_sdk.lake.projection.topic_decoders import FrameFactory
from trimtab.consumer_sdk.lake.schema.record_columns import select_from_offsets

P = TopicPartition("a", 0)


def batch_of(first: int, following: int, **span: object) -> FlushBatch:
    """Return a batch of P that continues a table at `first`, unless the span says otherwise."""
    offsets = range(first, following)
    rows = {"topic": ["a"] * len(offsets), "partition": [0] * len(offsets), "offset": offsets}
    continued = replace(OffsetSpan(first, first, following), **span)  # type: ignore[arg-type]
    return FlushBatch("lake.a", {P: continued}, pa.table(rows))


BATCH = batch_of(10, 14)


class NoWait(RetryBackoff):
    """A backoff without waits."""

    def wait_after_race(self, attempt: int) -> None: ...

    def wait_after_outage(self, attempt: int) -> None: ...


class EvensApart(TableProjection):
    """A transform to rows of lake.evens only."""

    def project_records(self, records: Records, to_frame: FrameFactory) -> ProjectedRows:
        evens = pa.array([offset % 2 == 0 for offset in records["offset"].to_pylist()], pa.bool_())
        return ProjectedRows(None, {"lake.evens": to_frame(records.filter(evens))})


class EvensIfAny(EvensApart):
    """A transform that leaves out a table without rows."""

    def project_records(self, records: Records, to_frame: FrameFactory) -> ProjectedRows:
        sides: Mapping[str, Frame] = super().project_records(records, to_frame).side_tables
        return ProjectedRows(None, {name: frame for name, frame in sides.items() if frame.num_rows})


PLAIN = TableProjection("lake.a", lambda records, _: DecodedFrames(records, None))
FIRST_IS_BAD = TableProjection("lake.a", lambda records, _: DecodedFrames(records[1:], records[:1]))
EVENS_APART = EvensApart("lake.a", PLAIN.decoder)
EVENS_IF_ANY = EvensIfAny("lake.a", PLAIN.decoder)
LETTERS = "lake.a_dead_letter"


def table_at(offset: int, name: str = "lake.a") -> Table:
    table = Table(name)
    move(table, offset)
    return table


def move(table: Table, offset: int) -> None:
    """Set the offset of P, as another writer does."""
    table.offsets = CommittedOffsets({"g": {P: offset}})


def list_offsets(table: Table) -> list[int]:
    """Return the offsets of its rows."""
    return [offset for _, offset in table.places]


def backoff() -> NoWait:
    return NoWait(random.Random(1))  # noqa: S311 - jitter


def flusher_of(
    lake: Lake, projection: TableProjection = PLAIN, on_step: Callable[[str], None] = print
) -> BatchFlusher:
    attempts = count(1)
    return BatchFlusher(lake, "g", lambda _: projection, lambda: f"attempt-{next(attempts)}", on_step)


def raise_error(error: Exception) -> None:
    raise error


# -- steps and commits --------------------------------------------------------------------------------


def test_a_flush_creates_its_tables_and_reports_each_step_and_write() -> None:
    """Side tables first. The partitioning of all topic tables is not that of dead letters."""
    lake, steps = Lake(), list[str]()
    partitioning = parse_partitioning("partition")
    flusher = replace(flusher_of(lake, FIRST_IS_BAD, steps.append), partitioning=partitioning)
    batch = batch_of(10, 14, expected=None)
    letters, rows = TableWrite(LETTERS, 1, ROW_BYTES), TableWrite("lake.a", 3, 3 * ROW_BYTES)
    assert flusher.flush_batch(batch, backoff()) == BatchCommitted(batch, (letters, rows))
    assert steps == ["begun", "staged", "side-tables-committed", "committed"]
    assert {t.name: list_offsets(t) for t in lake.tables.values()} == {"lake.a": [11, 12, 13], LETTERS: [10]}
    specs = {t.name: t.spec for t in lake.tables.values()}
    assert specs == {"lake.a": partitioning.topic_tables, LETTERS: ()}


def test_a_batch_that_does_not_continue_its_table_is_refused_before_it_is_staged() -> None:
    """The outcome has the table's offset, from which the partition is read on."""
    table = table_at(12)
    outcome = flusher_of(Lake(table)).flush_batch(BATCH, backoff())
    assert outcome == BatchRefused(BATCH, {P: 12}, (OffsetConflict(P, 10, 12),))
    assert (table.staged, table.attempts) == ([], [])


def test_a_dropped_table_is_not_created_again() -> None:
    """A new one would lack the rows of the dropped one, whichever partitions are new to it."""
    lake = Lake()
    batch = replace(BATCH, spans={TopicPartition("a", 1): OffsetSpan(None, 7, 7), **BATCH.spans})
    with pytest.raises(TableSchemaMismatchError, match=r"^table lake\.a: the table was dropped"):
        flusher_of(lake).flush_batch(batch, backoff())
    assert lake.tables == {}


def test_a_batch_whose_partitions_are_refused_is_not_staged() -> None:
    """The check gets those of the batch, and those of its topic that the table has offsets of."""
    table, checked = table_at(10), set[TopicPartition]()
    table.offsets = table.offsets.advanced_by("g", {TopicPartition(P.topic, 7): OffsetSpan(None, 0, 1)})
    table.offsets = table.offsets.advanced_by("g", {TopicPartition("renamed", 8): OffsetSpan(None, 0, 1)})

    def refuse(partitions: Collection[TopicPartition]) -> None:
        checked.update(partitions)
        raise TableSchemaMismatchError("two partitions")

    flusher = replace(flusher_of(Lake(table)), check_partitions=refuse)
    with pytest.raises(TableSchemaMismatchError, match="two partitions"):
        flusher.flush_batch(BATCH, backoff())
    assert (checked, table.staged) == ({P, TopicPartition(P.topic, 7)}, [])


def test_a_table_that_was_just_opened_is_not_refreshed_for_its_offsets() -> None:
    """Only the commit must know the newest ones: a refresh costs an object store a request."""
    refused, written = table_at(15), table_at(10)
    for table in (refused, written):
        flusher_of(Lake(table)).flush_batch(BATCH, backoff())
    assert (refused.refreshes, written.refreshes) == (0, 1)


def test_a_transform_without_rows_for_the_topic_table_advances_its_offsets() -> None:
    """The table is made with the record columns, for the offsets; a row table without rows is not made."""
    lake = Lake()
    batch = batch_of(11, 12, expected=None)
    outcome = flusher_of(lake, EVENS_APART).flush_batch(batch, backoff())
    assert outcome == BatchCommitted(batch, (TableWrite("lake.a", 0, 0),))
    (table,) = lake.tables.values()
    assert table.columns == ["topic", "partition", "offset"]
    assert table.offsets.next_offset("g", P) == 12


@pytest.mark.parametrize(
    ("projection", "side", "evolves", "is_evolved"),
    [
        (EVENS_APART, "lake.evens", False, False),
        (EVENS_APART, "lake.evens", True, True),
        (FIRST_IS_BAD, LETTERS, False, True),
    ],
)
def test_a_dead_letter_table_of_an_earlier_version_gets_its_columns(
    projection: TableProjection, side: str, *, evolves: bool, is_evolved: bool
) -> None:
    """Other tables get new columns only with lake.schema.evolution."""
    table = table_at(10, side)
    flusher = replace(flusher_of(Lake(table_at(10), table), projection), evolves_schema=evolves)
    assert isinstance(flusher.flush_batch(BATCH, backoff()), BatchCommitted)
    assert table.is_evolved is is_evolved


# -- batches that take too much memory ---------------------------------------------------------------


class AtMostThree(TableProjection):
    """Decodes three records at a time; even offsets have rows in a table of their own."""

    def project_records(self, records: Records, to_frame: FrameFactory) -> ProjectedRows:
        if records.num_rows > 3:
            raise BatchTooLargeError(3)
        sides = EVENS_IF_ANY.project_records(records, to_frame).side_tables
        return ProjectedRows(to_frame(records), sides)


Q, R = TopicPartition("a", 1), TopicPartition("a", 2)


def large_batch() -> FlushBatch:
    """Return records of three partitions with gaps, in the log and by expiry."""
    rows = [("a", 0, at) for at in (10, 11, 12)] + [("a", 1, at) for at in (5, 7, 9, 20, 21)] + [("a", 2, 0)]
    spans = {
        P: OffsetSpan(10, 10, 13),
        Q: OffsetSpan(3, 5, 22, (OffsetGap(3, 5), OffsetGap(10, 20))),
        R: OffsetSpan(None, 0, 4),
    }
    table = pa.table(dict(zip(("topic", "partition", "offset"), zip(*rows, strict=True), strict=True)))
    return FlushBatch("lake.a", spans, table)


@pytest.mark.parametrize("crash_after", range(6))
def test_a_batch_that_takes_too_much_memory_is_flushed_in_parts(crash_after: int) -> None:
    """Every record once in each table, offsets and gaps as of one batch; also after a crash in between."""
    batch, commits = large_batch(), count(1)
    table = Table("lake.a", CommittedOffsets({"g": {P: 10, Q: 3}}))
    lake = Lake(table, evens := Table("lake.evens"))

    class Crash(BaseException):
        """The end of the process."""

    def crash() -> None:
        if next(commits) == crash_after:
            raise Crash

    table.after_commit = evens.after_commit = crash
    flusher = flusher_of(lake, AtMostThree("lake.a", PLAIN.decoder))
    if crash_after:
        with pytest.raises(Crash):
            flusher.flush_batch(batch, backoff())
        spans = trim_spans("g", table.offsets, batch.spans)
        records = select_from_offsets(batch.records, {p: span.first for p, span in spans.items()})
        batch = FlushBatch("lake.a", spans, records)
    outcome = flusher.flush_batch(batch, backoff())
    assert isinstance(outcome, BatchCommitted)
    assert outcome.batch is batch
    assert [offset for _, offset in table.places] == [10, 11, 12, 5, 7, 9, 20, 21, 0]
    assert [offset for _, offset in evens.places] == [10, 12, 20, 0]
    assert table.offsets.groups == {"g": {P: 13, Q: 22, R: 4}}
    assert table.gaps.missing_offsets("g", Q).ranges == (OffsetGap(3, 5), OffsetGap(10, 20))


def test_a_part_that_is_refused_tells_what_the_table_has() -> None:
    """The parts before it are committed: their partitions continue there."""
    table = Table("lake.a", CommittedOffsets({"g": {P: 10, Q: 3}}))

    def let_another_begin() -> None:
        table.offsets = CommittedOffsets({"g": {**table.offsets.groups["g"], R: 2}})

    table.after_commit = let_another_begin
    flusher = flusher_of(Lake(table), AtMostThree("lake.a", PLAIN.decoder))
    batch = large_batch()
    outcome = flusher.flush_batch(batch, backoff())
    assert outcome == BatchRefused(batch, {P: 13, Q: 3, R: 2}, (OffsetConflict(R, None, 2),))
    assert [offset for _, offset in table.places] == [10, 11, 12]


def test_a_part_that_fails_behind_others_tells_what_the_table_has() -> None:
    """Its error would hide that the parts before it are committed, which are measured each by itself."""
    table = Table("lake.a", CommittedOffsets({"g": {P: 10, Q: 3}}))
    failure, measured = TableSchemaMismatchError("no column"), list[FlushBatch]()

    def measure(run: FlushRun) -> FlushRun:
        def run_measured(part: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
            outcome = run(part, backoff)
            measured.append(outcome.batch)
            return outcome

        return run_measured

    table.after_commit = lambda: setattr(table, "before_commit", lambda: raise_error(failure))
    flusher = replace(flusher_of(Lake(table), AtMostThree("lake.a", PLAIN.decoder)), measure=measure)
    batch = large_batch()
    assert flusher.flush_batch(batch, backoff()) == BatchRefused(batch, {P: 13, Q: 3, R: None}, (), failure)
    assert [offset for _, offset in table.places] == [10, 11, 12]
    assert [[*part.spans] for part in measured] == [[P]]
    table.offsets = CommittedOffsets({"g": {P: 10, Q: 3}})
    with pytest.raises(TableSchemaMismatchError):  # nothing is committed
        flusher.flush_batch(batch, backoff())


# -- side tables that are ahead -----------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "rows"), [(10, [10, 12]), (11, [12]), (12, [12]), (13, []), (14, [])])
def test_after_a_crash_between_commits_a_side_table_gets_the_rows_that_it_lacks(
    offset: int, rows: list[int]
) -> None:
    """The batch is read again from the topic table's offset; one without new rows makes no commit."""
    evens = table_at(offset, "lake.evens")
    topic = TableWrite("lake.a", 0, 0)
    writes = (TableWrite("lake.evens", len(rows), len(rows) * ROW_BYTES), topic) if rows else (topic,)
    outcome = flusher_of(Lake(table_at(10), evens), EVENS_APART).flush_batch(BATCH, backoff())
    assert outcome == BatchCommitted(BATCH, writes)
    assert (list_offsets(evens), len(evens.attempts)) == (rows, len(writes) - 1)


@pytest.mark.parametrize("projection", [EVENS_APART, EVENS_IF_ANY])
def test_a_side_table_without_new_rows_records_a_gap(projection: TableProjection) -> None:
    """Each table has its own gaps, also if the transform has no more rows for it (offset_gaps, rule 3)."""
    evens = table_at(11, "lake.evens")
    gap = OffsetGap(11, 13)
    batch = batch_of(10, 14, gaps=(gap,))
    batch = replace(batch, records=batch.records.take([0, 3]))  # 10 and 13
    outcome = flusher_of(Lake(table_at(10), evens), projection).flush_batch(batch, backoff())
    assert isinstance(outcome, BatchCommitted)
    assert evens.gaps.missing_offsets("g", P).ranges == (gap,)
    assert (list_offsets(evens), evens.offsets.next_offset("g", P)) == ([], 14)


def test_a_side_table_that_another_owner_advances_gets_the_rest() -> None:
    """The rows are trimmed again; the refused files stay, as a commit of them was tried."""
    evens = table_at(10, "lake.evens")

    def overtake() -> None:
        evens.before_commit = nothing
        move(evens, 12)
        raise CommitConflictError("raced")

    evens.before_commit = overtake
    outcome = flusher_of(Lake(table_at(10), evens), EVENS_APART).flush_batch(BATCH, backoff())
    assert isinstance(outcome, BatchCommitted)
    assert outcome.table_writes[0] == TableWrite("lake.evens", 1, ROW_BYTES)
    assert (list_offsets(evens), evens.deleted) == ([12], [])


def test_two_owners_that_begin_a_partition_elsewhere_do_not_both_write_side_tables() -> None:
    """Found by seed 900397 of the simulation: the side table skipped offsets without a gap.

    Retention had moved the log's begin, so the new owner began at 16, while a batch of the old one,
    from 0 to 3, was still in flight. The new owner's batch is refused; it must not be in side tables.
    """
    lake, steps, attempts = Lake(Table("lake.a"), Table(LETTERS)), list[str](), map(str, count())

    def flush(first: int, following: int, on_step: Callable[[str], None]) -> FlushOutcome:
        batch = batch_of(first, following, expected=None)
        flusher = replace(flusher_of(lake, FIRST_IS_BAD, on_step), new_attempt_id=lambda: next(attempts))
        return flusher.flush_batch(batch, backoff())

    def overtaken(step: str) -> None:
        if step == "staged":
            assert isinstance(flush(0, 3, steps.append), BatchCommitted)

    outcome = flush(16, 21, overtaken)
    assert isinstance(outcome, BatchRefused)
    assert outcome.offsets == {P: 3}
    assert {table.offsets.next_offset("g", P) for table in lake.tables.values()} == {3}


# -- what an attempt leaves behind --------------------------------------------------------------------


@pytest.mark.parametrize("answer", [LakeUnavailableError("no answer"), CommitConflictError("raced")])
def test_files_of_a_tried_commit_stay(answer: Exception) -> None:
    """The offsets show that the batch is no longer due, and nothing that the files are free.

    Iceberg's own expiry may remove the snapshot of the commit; a client that repeats a request whose answer
    was lost loses the race against itself.
    """
    table = table_at(10)

    def cut_history() -> None:
        table.history.clear()
        raise answer

    table.after_commit = cut_history
    outcome = flusher_of(Lake(table)).flush_batch(BATCH, backoff())
    assert isinstance(outcome, BatchRefused)
    assert outcome.offsets == {P: 14}
    assert table.deleted == []


@pytest.mark.parametrize("is_tried", [False, True])
def test_a_cancelled_batch_leaves_files_only_if_a_commit_was_tried(*, is_tried: bool) -> None:
    """The outcome has no conflicts and the expected offsets; a tried commit may land yet."""
    table, waits = table_at(10), backoff()

    def cancel_commit() -> None:
        waits.cancelled.set()
        raise CommitConflictError("raced")

    def cancel_before(step: str) -> None:
        if step == "side-tables-committed":
            waits.cancelled.set()

    table.before_commit = cancel_commit
    on_step = print if is_tried else cancel_before
    outcome = flusher_of(Lake(table), on_step=on_step).flush_batch(BATCH, waits)
    assert outcome == BatchRefused(BATCH, {P: 10}, ())
    assert table.attempts == (table.staged if is_tried else [])
    assert table.deleted == ([] if is_tried else table.staged)


def test_a_failed_side_table_leaves_no_files_of_the_topic_table() -> None:
    """They are staged before it, and nothing references them; the error is the side table's."""
    table, letters = table_at(10), table_at(10, LETTERS)
    letters.before_commit = lambda: raise_error(TableSchemaMismatchError("no column"))
    with pytest.raises(TableSchemaMismatchError, match="no column"):
        flusher_of(Lake(table, letters), FIRST_IS_BAD).flush_batch(BATCH, backoff())
    assert (table.attempts, table.deleted) == ([], table.staged)


def test_files_as_old_as_orphans_are_staged_again() -> None:
    """A lake that refuses commits for hours: the files that are committed at last are fresh."""
    times = iter(range(0, 10**6, int(MAX_STAGED_AGE_S * 0.6)))
    table = table_at(10)

    def refuse_once() -> None:
        if len(table.attempts) == 1:
            raise CommitConflictError("raced")

    table.before_commit = refuse_once
    flusher = replace(flusher_of(Lake(table)), now=lambda: float(next(times)))
    assert isinstance(flusher.flush_batch(BATCH, backoff()), BatchCommitted)
    assert (table.attempts, table.deleted) == (["attempt-1", "attempt-2"], [])
    assert not table.is_evolved  # without lake.schema.evolution
