"""What a flush leaves of an attempt that was refused: its files go, unless the table may name them.

A table that misbehaves on purpose stands in for one of a catalog that does not answer.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitRaced, LakeUnavailable
from trimtab.consumer_sdk.lake.decoding.spark_decoders import Decoded
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks, Span
from trimtab.consumer_sdk.lake.ports import Frame, LakeTable, Records, Sight, Staged
from trimtab.consumer_sdk.lake.retry import Pace
from trimtab.consumer_sdk.lake.schema.partition_spec import Parts
from trimtab.consumer_sdk.lake.writer.flush import Batch, Flush, Refused
from trimtab.consumer_sdk.lake.writer.projection import Shaping

P = TopicPartition("a", 0)
BATCH = Batch("lake.a", {P: Span(10, 10, 12)}, pa.table({"offset": [10, 11]}))


@dataclass
class Table:
    """A table whose one commit gives `answer`, and lands where that says nothing against it."""

    answer: Callable[[], Exception]
    marks: Marks = field(default_factory=lambda: Marks({"g": {P: 10}}))
    deleted: list[str] = field(default_factory=list)
    name: str = "lake.a"

    def look(self) -> Sight:
        return Sight(self.marks, self.marks.encode())

    def landed(self, attempt: str) -> bool:  # noqa: ARG002 - nobody's history is left
        return False

    def evolve(self, frame: Frame) -> None:
        raise AssertionError(frame)

    def stage(self, frame: Frame, attempt: str) -> Staged:
        return Staged(attempt, ("file",), frame.num_rows, 1)

    def gaps(self) -> Gaps:
        return Gaps()

    def commit(self, staged: Staged, marks: Marks, seen: Sight, gaps: Gaps | None = None) -> None:
        del staged, seen, gaps
        self.marks = marks
        raise self.answer()

    def discard(self, staged: Staged) -> None:
        self.deleted.append(staged.attempt)


@dataclass
class Lake:
    """A lake of that table."""

    table: Table

    def frame(self, records: Records) -> Frame:
        return records

    def empty(self, frame: Frame) -> bool:
        return bool(frame.num_rows == 0)

    def open(self, name: str) -> LakeTable | None:
        assert name == self.table.name
        return self.table

    def create(self, name: str, frame: Frame, parts: Parts = ()) -> LakeTable:
        raise AssertionError(name, frame, parts)

    def close(self) -> None: ...


class Hasty(Pace):
    """Waits for nothing."""

    def race(self, attempt: int) -> None: ...

    def away(self, attempt: int) -> float:  # noqa: ARG002 - the interface
        return 0.0


@pytest.mark.parametrize(
    ("answer", "deleted"),
    [(lambda: LakeUnavailable("no answer"), []), (lambda: CommitRaced("raced"), ["x"])],
    ids=["no answer, and the history was cut", "a lost race"],
)
def test_files_of_an_unanswered_commit_stay(
    answer: Callable[[], Exception], deleted: list[str]
) -> None:
    """The marks say that the batch is no longer due; only an answer says that the files are free.

    Iceberg's own expiry may take the snapshot that would have told.
    """
    table = Table(answer)
    shaping = Shaping("lake.a", lambda records, _: Decoded(records, None))
    flush = Flush(Lake(table), "g", lambda _: shaping, lambda: "x", lambda _: None)
    outcome = flush.run(BATCH, Hasty(random.Random(1)))  # noqa: S311 - jitter
    assert isinstance(outcome, Refused)
    assert outcome.marks == {P: 12}
    assert table.deleted == deleted
