"""One flush: a batch becomes rows of its tables, once.

The order, and why (the reasoning about marks stands in `progress`):

1. look at the own table's marks; a batch that no longer fits is refused before any work is done;
2. stage the own table's rows: what is most likely to fail, fails before anything is visible;
3. stage and commit each other table (fan-out, dead letters), trimmed to what it lacks, in the order
   of names;
4. commit the own table, fenced: only now the batch counts.

A crash between any two steps leaves the own table's mark where it was. The batch is read again; the
tables of step 3 trim what they have. Files of a refused or abandoned attempt are deleted if every
commit of it was answered: else a live snapshot may name them, or come to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.offsets.fenced_commit import Added, Fenced, commit_fenced
from trimtab.consumer_sdk.lake.offsets.table_offsets import Clash, Marks, Span, lost, trimmed
from trimtab.consumer_sdk.lake.ports import CrashPoint, Frame, Lake, LakeTable, Records, Staged
from trimtab.consumer_sdk.lake.retry import Abandoned, Pace
from trimtab.consumer_sdk.lake.schema import record_columns
from trimtab.consumer_sdk.lake.schema.partition_spec import Partitioning, Parts
from trimtab.consumer_sdk.lake.schema.table_names import dead_letter
from trimtab.consumer_sdk.lake.writer.projection import Shaped, Shaping


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one own table, in partition order, and the spans they fill."""

    table: str
    spans: Mapping[TopicPartition, Span]
    records: pa.Table


@dataclass(frozen=True, slots=True)
class Written:
    """What one table got: rows, and bytes of its data files."""

    table: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Landed:
    """The batch is in; `tables` in the order of their commits."""

    batch: Batch
    tables: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The batch is not in: the table's marks are others (`clashes`), or nobody wanted it any more.

    `marks` is where the table stands; for an abandoned batch, where it stood.
    """

    batch: Batch
    marks: Mapping[TopicPartition, int | None]
    clashes: tuple[Clash, ...] = ()


Outcome: TypeAlias = Landed | Refused


@dataclass(frozen=True, slots=True)
class Flush:
    """How batches are flushed; `ids` gives each attempt a name of its own.

    `evolve`: a table gets the columns that it lacks. The sink's own dead-letter tables always do.
    """

    lake: Lake
    group: str
    shaping: Callable[[str], Shaping]
    ids: Callable[[], str]
    crash: CrashPoint
    partition: Partitioning = field(default_factory=Partitioning)
    evolve: bool = False

    def run(self, batch: Batch, pace: Pace) -> Outcome:
        """Bring a batch in, waiting out what is retryable.

        Raises TableMismatch, TransformFailed, MarksLost.
        """
        try:
            return self._run(batch, pace)
        except Abandoned:
            return Refused(batch, {p: span.expected for p, span in batch.spans.items()})

    def _run(self, batch: Batch, pace: Pace) -> Outcome:
        self.crash("begun")
        own, marks = self._look(batch.table, pace)
        clashes = marks.clashes(self.group, batch.spans)
        if clashes:
            return self._refused(batch, clashes)
        shaped = self._shape(batch.table, batch.records, pace)
        if own is None:
            columns_of = self.lake.frame(batch.records) if shaped.own is None else shaped.own
            parts = self.partition.of(batch.table, own=True)
            own = self._create(batch.table, columns_of, parts, pace)
        staged = self._stage(own, shaped.own, pace, evolve=self.evolve)
        return self._commit(batch, own, staged, shaped, pace)

    def _commit(
        self, batch: Batch, own: LakeTable, staged: Staged, shaped: Shaped, pace: Pace
    ) -> Outcome:
        try:
            self.crash("staged")
            sides = shaped.left(batch.records.num_rows, staged.rows)
            written = [self._side(batch, *side, pace) for side in sides]
            self.crash("sides-committed")
        except BaseException:
            own.discard(staged)
            raise
        answer = self._fenced(own, staged, batch.spans, pace)
        if not isinstance(answer, Added):
            return self._refused(batch, answer.clashes)
        self.crash("committed")
        written.append(Written(own.name, staged.rows, staged.bytes))
        return Landed(batch, tuple(w for w in written if w is not None))

    def _side(self, batch: Batch, name: str, frame: Frame, pace: Pace) -> Written | None:
        """Bring one other table up to the batch's end.

        None where it had all of it already, or gets neither rows nor a gap.
        """
        while True:
            table, marks = self._look(name, pace)
            spans = trimmed(self.group, marks, batch.spans)
            rows = self._trimmed_frame(batch, name, frame, spans, pace)
            if rows is None or (table is None and self.lake.empty(rows)):
                return None
            if table is None:
                table = self._create(name, rows, self.partition.of(name, own=False), pace)
            evolve = self.evolve or name == dead_letter(batch.table)
            staged = self._stage(table, rows, pace, evolve=evolve)
            if staged.rows == 0 and not lost(spans):
                return None
            if isinstance(self._fenced(table, staged, spans, pace), Added):
                return Written(name, staged.rows, staged.bytes)

    def _fenced(
        self, table: LakeTable, staged: Staged, spans: Mapping[TopicPartition, Span], pace: Pace
    ) -> Added | Fenced:
        """Commit, or delete the files of an attempt that no snapshot can come to name."""
        try:
            answer = commit_fenced(table, staged, self.group, spans, pace)
        except Abandoned as error:
            if not error.unsure:
                table.discard(staged)
            raise
        if isinstance(answer, Fenced) and not answer.unanswered:
            table.discard(staged)
        return answer

    def _trimmed_frame(
        self,
        batch: Batch,
        name: str,
        frame: Frame,
        spans: Mapping[TopicPartition, Span],
        pace: Pace,
    ) -> Frame | None:
        """Return the rows that another table lacks.

        All as a rule, fewer after a crash between two commits.
        """
        firsts = {partition: span.first for partition, span in spans.items()}
        if firsts == {partition: span.first for partition, span in batch.spans.items()}:
            return frame
        if not firsts:
            return None
        records = record_columns.since(batch.records, firsts)
        return self._shape(batch.table, records, pace).sides.get(name)

    def _shape(self, table: str, records: Records, pace: Pace) -> Shaped:
        shaping = self.shaping(table)
        return pace.persist(
            f"decoding for {table}", lambda: shaping.shape(records, self.lake.frame)
        )

    def _look(self, name: str, pace: Pace) -> tuple[LakeTable | None, Marks]:
        def look() -> tuple[LakeTable | None, Marks]:
            table = self.lake.open(name)
            return table, Marks() if table is None else table.look().marks

        return pace.persist(f"reading the marks of {name}", look)

    def _create(self, name: str, frame: Frame, parts: Parts, pace: Pace) -> LakeTable:
        return pace.persist(f"making {name}", lambda: self.lake.create(name, frame, parts))

    def _stage(self, table: LakeTable, frame: Frame | None, pace: Pace, *, evolve: bool) -> Staged:
        if frame is None:
            return Staged(self.ids())
        if evolve:
            pace.persist(f"new columns of {table.name}", lambda: table.evolve(frame))
        return pace.persist(f"staging for {table.name}", lambda: table.stage(frame, self.ids()))

    def _refused(self, batch: Batch, clashes: tuple[Clash, ...]) -> Refused:
        found = {p: span.expected for p, span in batch.spans.items()}
        found.update({clash.partition: clash.found for clash in clashes})
        return Refused(batch, found, clashes)
