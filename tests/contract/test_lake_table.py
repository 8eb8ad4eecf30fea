"""What every table format promises to the sink; another format is one more of `formats`.

So is another way to write its files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitRaced, TableMismatch
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gap, Gaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks, Span
from trimtab.consumer_sdk.lake.ports import Lake, LakeTable, Staged
from trimtab.consumer_sdk.lake.schema.record_columns import SCHEMA

pytestmark = pytest.mark.spark

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
MARKS = Marks({"g": {P: 3}})


@pytest.fixture(params=["iceberg", "delta", "iceberg_arrow", "delta_arrow"])
def formats(request: pytest.FixtureRequest) -> Any:
    """The lake of each format and way of staging, by the name of its fixture."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def spark(formats: Any) -> Any:
    return formats.spark


@pytest.fixture
def frame(formats: Lake) -> Callable[[int], Any]:
    def make(rows: int) -> Any:
        offsets = [{"topic": "t", "partition": 0, "offset": n} for n in range(rows)]
        return formats.frame(pa.Table.from_pylist(offsets, schema=SCHEMA))

    return make


@pytest.fixture
def table(formats: Lake, frame: Callable[[int], Any], namespace: str) -> LakeTable:
    return formats.create(f"{namespace}.t", frame(0))


@pytest.fixture
def count(spark: Any) -> Callable[[LakeTable], int]:
    def rows(table: LakeTable) -> int:
        return int(spark.table(table.name).count())

    return rows


def test_a_missing_table_is_none(formats: Lake, namespace: str) -> None:
    """Neither a missing table nor a missing namespace is an error."""
    assert formats.open(f"{namespace}.nothing") is None


def test_making_a_table_twice_gives_the_one(
    formats: Lake, frame: Callable[[int], Any], table: LakeTable
) -> None:
    """Two writers that both find no table end up with the same one."""
    table.commit(Staged("a"), MARKS, table.look())
    assert formats.create(table.name, frame(0)).look().marks == MARKS


def test_staged_rows_are_seen_with_their_marks_or_not_at_all(
    table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int]
) -> None:
    """Staging shows nothing; the commit shows rows and marks together."""
    staged = table.stage(frame(3), "a")
    assert (staged.rows, staged.bytes > 0) == (3, True)
    assert (count(table), table.look().marks) == (0, Marks())
    table.commit(staged, MARKS, table.look())
    assert (count(table), table.look().marks) == (3, MARKS)


def test_marks_alone_can_be_committed(table: LakeTable) -> None:
    """A batch without rows for the own table still moves its marks."""
    table.commit(Staged("a"), MARKS, table.look())
    assert table.look().marks == MARKS


def test_gaps_come_with_their_marks_or_not_at_all(
    formats: Lake, table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int]
) -> None:
    """A commit that lost its race leaves no gap; one that wins adds it, and later ones keep it."""
    gaps = Gaps().plus("g", {P: [Gap(0, 3)]})
    assert table.gaps() == Gaps()
    seen = table.look()
    staged = table.stage(frame(2), "late")
    other = formats.open(table.name)
    assert other is not None
    other.commit(Staged("early"), Marks({"g": {Q: 1}}), other.look())
    with pytest.raises(CommitRaced):
        table.commit(staged, MARKS, seen, gaps)
    assert (count(table), table.look().marks, table.gaps()) == (0, Marks({"g": {Q: 1}}), Gaps())
    seen = table.look()
    table.commit(staged, seen.marks.advanced("g", {P: Span(None, 3, 5)}), seen, gaps)
    assert (count(table), table.look().marks.of("g", P), table.gaps()) == (2, 5, gaps)
    other.commit(Staged("b"), other.look().marks.advanced("g", {P: Span(5, 5, 6)}), other.look())
    found = formats.open(table.name)
    assert found is not None
    assert found.gaps() == gaps


def test_marks_that_moved_after_they_were_read_refuse_the_commit(
    formats: Lake, table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int]
) -> None:
    """Between looking and committing another writer got in: nothing is added, its marks stay."""
    seen = table.look()
    staged = table.stage(frame(3), "late")
    other = formats.open(table.name)
    assert other is not None
    theirs = Marks().advanced("g", {Q: Span(None, 0, 9)})
    other.commit(other.stage(frame(1), "early"), theirs, other.look())
    with pytest.raises(CommitRaced):
        table.commit(staged, MARKS, seen)
    assert (count(table), table.look().marks) == (1, theirs)
    assert not table.landed("late")


def test_the_fence_holds_on_a_table_that_retries_by_itself(
    formats: Lake, table: LakeTable, frame: Callable[[int], Any], spark: Any
) -> None:
    """A table's own commit retries do not get a stale commit through."""
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('commit.retry.num-retries' = '10')")
    seen = table.look()
    other = formats.open(table.name)
    assert other is not None
    other.commit(Staged("early"), MARKS, other.look())
    with pytest.raises(CommitRaced):
        table.commit(table.stage(frame(1), "late"), Marks({"g": {P: 1}}), seen)
    assert table.look().marks == MARKS


def test_a_foreign_write_between_looking_and_committing_does_no_harm(
    table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int], spark: Any
) -> None:
    """An INSERT by hand moves no marks, so the commit goes on top of it."""
    table.commit(table.stage(frame(2), "a"), MARKS, table.look())
    seen = table.look()
    copy = f"INSERT INTO {table.name} SELECT * FROM {table.name}"  # noqa: S608 - this test's table
    spark.sql(copy)
    table.commit(table.stage(frame(1), "b"), MARKS, seen)
    assert (count(table), table.look().marks) == (5, MARKS)


def test_the_history_tells_which_attempt_landed(table: LakeTable) -> None:
    """After a commit of unknown outcome the table can be asked, also when others came later."""
    table.commit(Staged("a"), MARKS, table.look())
    table.commit(Staged("b"), MARKS, table.look())
    assert [table.landed(attempt) for attempt in "abc"] == [True, True, False]


def test_discarded_files_are_gone(
    table: LakeTable, frame: Callable[[int], Any], warehouse: Path, namespace: str
) -> None:
    """An attempt that is given up leaves no data files; a second discard does no harm."""
    staged = table.stage(frame(3), "a")
    assert list(warehouse.glob(f"{namespace}/**/*.parquet"))
    table.discard(staged)
    table.discard(staged)
    assert not list(warehouse.glob(f"{namespace}/**/*.parquet"))


def test_rows_that_do_not_fit_are_named(table: LakeTable, frame: Callable[[int], Any]) -> None:
    """A column that the table lacks is an error that names it."""
    rows = frame(1)
    if isinstance(rows, pa.Table):
        rows = rows.append_column("surplus", pa.array(["x"]))
    else:
        rows = rows.selectExpr("*", "'x' AS surplus")
    with pytest.raises(TableMismatch, match="surplus string"):
        table.stage(rows, "a")
