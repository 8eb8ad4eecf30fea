"""What every table format promises to the sink; another format is one more of `formats`.

So is another way to write its files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan
from trimtab.consumer_sdk.lake.ports import Lake, LakeTable, StagedFiles
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

pytestmark = pytest.mark.spark

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
MARKS = CommittedOffsets({"g": {P: 3}})


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
        return formats.to_frame(pa.Table.from_pylist(offsets, schema=RECORD_SCHEMA))

    return make


@pytest.fixture
def table(formats: Lake, frame: Callable[[int], Any], namespace: str) -> LakeTable:
    return formats.create_table(f"{namespace}.t", frame(0))


@pytest.fixture
def count(spark: Any) -> Callable[[LakeTable], int]:
    def rows(table: LakeTable) -> int:
        return int(spark.table(table.name).count())

    return rows


def test_a_missing_table_is_none(formats: Lake, namespace: str) -> None:
    """Neither a missing table nor a missing namespace is an error."""
    assert formats.open_table(f"{namespace}.nothing") is None


def test_making_a_table_twice_gives_the_one(
    formats: Lake, frame: Callable[[int], Any], table: LakeTable
) -> None:
    """Two writers that both find no table end up with the same one."""
    table.commit(StagedFiles("a"), MARKS, table.read_offsets())
    assert formats.create_table(table.name, frame(0)).read_offsets().offsets == MARKS


def test_staged_rows_are_seen_with_their_marks_or_not_at_all(
    table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int]
) -> None:
    """Staging shows nothing; the commit shows rows and marks together."""
    staged = table.stage_rows(frame(3), "a")
    assert (staged.rows, staged.bytes > 0) == (3, True)
    assert (count(table), table.read_offsets().offsets) == (0, CommittedOffsets())
    table.commit(staged, MARKS, table.read_offsets())
    assert (count(table), table.read_offsets().offsets) == (3, MARKS)


def test_marks_alone_can_be_committed(table: LakeTable) -> None:
    """A batch without rows for the own table still moves its marks."""
    table.commit(StagedFiles("a"), MARKS, table.read_offsets())
    assert table.read_offsets().offsets == MARKS


def test_gaps_come_with_their_marks_or_not_at_all(
    formats: Lake, table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int]
) -> None:
    """A commit that lost its race leaves no gap; one that wins adds it, and later ones keep it."""
    gaps = TableGaps().with_group_gaps("g", {P: [OffsetGap(0, 3)]})
    assert table.read_gaps() == TableGaps()
    seen = table.read_offsets()
    staged = table.stage_rows(frame(2), "late")
    other = formats.open_table(table.name)
    assert other is not None
    other.commit(StagedFiles("early"), CommittedOffsets({"g": {Q: 1}}), other.read_offsets())
    with pytest.raises(CommitConflictError):
        table.commit(staged, MARKS, seen, gaps)
    assert (count(table), table.read_offsets().offsets, table.read_gaps()) == (
        0,
        CommittedOffsets({"g": {Q: 1}}),
        TableGaps(),
    )
    seen = table.read_offsets()
    table.commit(staged, seen.offsets.advanced_by("g", {P: OffsetSpan(None, 3, 5)}), seen, gaps)
    assert (count(table), table.read_offsets().offsets.next_offset("g", P), table.read_gaps()) == (2, 5, gaps)
    other.commit(
        StagedFiles("b"),
        other.read_offsets().offsets.advanced_by("g", {P: OffsetSpan(5, 5, 6)}),
        other.read_offsets(),
    )
    found = formats.open_table(table.name)
    assert found is not None
    assert found.read_gaps() == gaps


def test_marks_that_moved_after_they_were_read_refuse_the_commit(
    formats: Lake, table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int]
) -> None:
    """Between looking and committing another writer got in: nothing is added, its marks stay."""
    seen = table.read_offsets()
    staged = table.stage_rows(frame(3), "late")
    other = formats.open_table(table.name)
    assert other is not None
    theirs = CommittedOffsets().advanced_by("g", {Q: OffsetSpan(None, 0, 9)})
    other.commit(other.stage_rows(frame(1), "early"), theirs, other.read_offsets())
    with pytest.raises(CommitConflictError):
        table.commit(staged, MARKS, seen)
    assert (count(table), table.read_offsets().offsets) == (1, theirs)
    assert not table.has_committed("late")


def test_the_fence_holds_on_a_table_that_retries_by_itself(
    formats: Lake, table: LakeTable, frame: Callable[[int], Any], spark: Any
) -> None:
    """A table's own commit retries do not get a stale commit through."""
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('commit.retry.num-retries' = '10')")
    seen = table.read_offsets()
    other = formats.open_table(table.name)
    assert other is not None
    other.commit(StagedFiles("early"), MARKS, other.read_offsets())
    with pytest.raises(CommitConflictError):
        table.commit(table.stage_rows(frame(1), "late"), CommittedOffsets({"g": {P: 1}}), seen)
    assert table.read_offsets().offsets == MARKS


def test_a_foreign_write_between_looking_and_committing_does_no_harm(
    table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int], spark: Any
) -> None:
    """An INSERT by hand moves no marks, so the commit goes on top of it."""
    table.commit(table.stage_rows(frame(2), "a"), MARKS, table.read_offsets())
    seen = table.read_offsets()
    copy = f"INSERT INTO {table.name} SELECT * FROM {table.name}"  # noqa: S608 - this test's table
    spark.sql(copy)
    table.commit(table.stage_rows(frame(1), "b"), MARKS, seen)
    assert (count(table), table.read_offsets().offsets) == (5, MARKS)


def test_the_history_tells_which_attempt_landed(table: LakeTable) -> None:
    """After a commit of unknown outcome the table can be asked, also when others came later."""
    table.commit(StagedFiles("a"), MARKS, table.read_offsets())
    table.commit(StagedFiles("b"), MARKS, table.read_offsets())
    assert [table.has_committed(attempt) for attempt in "abc"] == [True, True, False]


def test_discarded_files_are_gone(
    table: LakeTable, frame: Callable[[int], Any], warehouse: Path, namespace: str
) -> None:
    """An attempt that is given up leaves no data files; a second discard does no harm."""
    staged = table.stage_rows(frame(3), "a")
    assert list(warehouse.glob(f"{namespace}/**/*.parquet"))
    table.delete_staged_files(staged)
    table.delete_staged_files(staged)
    assert not list(warehouse.glob(f"{namespace}/**/*.parquet"))


def test_rows_that_do_not_fit_are_named(table: LakeTable, frame: Callable[[int], Any]) -> None:
    """A column that the table lacks is an error that names it."""
    rows = frame(1)
    if isinstance(rows, pa.Table):
        rows = rows.append_column("surplus", pa.array(["x"]))
    else:
        rows = rows.selectExpr("*", "'x' AS surplus")
    with pytest.raises(TableSchemaMismatchError, match="surplus string"):
        table.stage_rows(rows, "a")
