"""Contract of the table formats and of the ways to write their files, each an entry of `formats`."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.model.interfaces import Lake, LakeTable, StagedFiles
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

pytestmark = pytest.mark.spark

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = CommittedOffsets({"g": {P: 3}})


_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("delta", "iceberg_arrow")]


# both formats and both file writers; the other two pairs differ by neither
@pytest.fixture(params=["iceberg", "delta_arrow", *_SLOW])
def formats(request: pytest.FixtureRequest) -> Any:
    """Return the lake of each format and file writer, by the name of its fixture."""
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


def test_creating_a_table_twice_returns_the_existing_one(
    formats: Lake, frame: Callable[[int], Any], table: LakeTable
) -> None:
    """Two writers that create it at once use the same table."""
    table.commit(StagedFiles("a"), OFFSETS, table.read_offsets())
    assert formats.create_table(table.name, frame(0)).read_offsets().offsets == OFFSETS


def test_tables_created_at_once_share_a_new_namespace(
    formats: Lake, frame: Callable[[int], Any], namespace: str
) -> None:
    """The first flushes of several topics run side by side, and in several consumers."""
    names, rows = [f"{namespace}_new.t{number}" for number in range(4)], frame(0)
    with ThreadPoolExecutor(len(names)) as pool:
        made = list(pool.map(lambda name: formats.create_table(name, rows), names))
    assert [table.name for table in made] == names


def test_rows_and_offsets_are_committed_together(
    table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int]
) -> None:
    """Staged rows are not visible; the commit publishes rows and offsets."""
    staged = table.stage_rows(frame(3), "a")
    assert (staged.rows, staged.bytes > 0) == (3, True)
    assert (count(table), table.read_offsets().offsets) == (0, CommittedOffsets())
    table.commit(staged, OFFSETS, table.read_offsets())
    assert (count(table), table.read_offsets().offsets) == (3, OFFSETS)


def test_offsets_can_be_committed_without_rows(table: LakeTable) -> None:
    """A batch without rows for the table still advances its offsets."""
    table.commit(StagedFiles("a"), OFFSETS, table.read_offsets())
    assert table.read_offsets().offsets == OFFSETS


def test_gaps_and_offsets_are_committed_together(
    formats: Lake, table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int]
) -> None:
    """A commit with a conflict adds no gap; a successful one does, and later commits keep it."""
    gaps = TableGaps().with_group_gaps("g", {P: [OffsetGap(0, 3)]})
    assert table.read_gaps() == TableGaps()
    seen = table.read_offsets()
    staged = table.stage_rows(frame(2), "late")
    other = formats.open_table(table.name)
    assert other is not None
    other.commit(StagedFiles("early"), CommittedOffsets({"g": {Q: 1}}), other.read_offsets())
    with pytest.raises(CommitConflictError):
        table.commit(staged, OFFSETS, seen, gaps)
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


def test_offsets_that_changed_since_they_were_read_refuse_the_commit(
    formats: Lake, table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int]
) -> None:
    """After another writer's commit nothing is added, and its offsets stay."""
    seen = table.read_offsets()
    staged = table.stage_rows(frame(3), "late")
    other = formats.open_table(table.name)
    assert other is not None
    theirs = CommittedOffsets().advanced_by("g", {Q: OffsetSpan(None, 0, 9)})
    other.commit(other.stage_rows(frame(1), "early"), theirs, other.read_offsets())
    with pytest.raises(CommitConflictError):
        table.commit(staged, OFFSETS, seen)
    assert (count(table), table.read_offsets().offsets) == (1, theirs)
    assert not table.has_committed("late")


def test_the_fence_holds_on_a_table_with_commit_retries(
    formats: Lake, table: LakeTable, frame: Callable[[int], Any], spark: Any
) -> None:
    """The table's own commit retries do not publish a stale commit."""
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('commit.retry.num-retries' = '10')")
    seen = table.read_offsets()
    other = formats.open_table(table.name)
    assert other is not None
    other.commit(StagedFiles("early"), OFFSETS, other.read_offsets())
    with pytest.raises(CommitConflictError):
        table.commit(table.stage_rows(frame(1), "late"), CommittedOffsets({"g": {P: 1}}), seen)
    assert table.read_offsets().offsets == OFFSETS


def test_a_write_by_hand_is_no_conflict(
    table: LakeTable, frame: Callable[[int], Any], count: Callable[[LakeTable], int], spark: Any
) -> None:
    """An INSERT changes no offsets, so the commit follows it."""
    table.commit(table.stage_rows(frame(2), "a"), OFFSETS, table.read_offsets())
    seen = table.read_offsets()
    copy = f"INSERT INTO {table.name} SELECT * FROM {table.name}"  # noqa: S608 - this test's table
    spark.sql(copy)
    table.commit(table.stage_rows(frame(1), "b"), OFFSETS, seen)
    assert (count(table), table.read_offsets().offsets) == (5, OFFSETS)


def test_the_history_contains_the_committed_attempts(table: LakeTable) -> None:
    """A commit of unknown outcome can be looked up, also after later commits."""
    table.commit(StagedFiles("a"), OFFSETS, table.read_offsets())
    table.commit(StagedFiles("b"), OFFSETS, table.read_offsets())
    assert [table.has_committed(attempt) for attempt in "abc"] == [True, True, False]


def test_discarded_files_are_deleted(
    table: LakeTable, frame: Callable[[int], Any], warehouse: Path, namespace: str
) -> None:
    """An abandoned attempt leaves no data files; deleting them again has no effect."""
    staged = table.stage_rows(frame(3), "a")
    assert list(warehouse.glob(f"{namespace}/**/*.parquet"))
    table.delete_staged_files(staged)
    table.delete_staged_files(staged)
    assert not list(warehouse.glob(f"{namespace}/**/*.parquet"))


def test_a_surplus_column_is_named(table: LakeTable, frame: Callable[[int], Any]) -> None:
    """A column that the table lacks is an error that names it."""
    rows = frame(1)
    if isinstance(rows, pa.Table):
        rows = rows.append_column("surplus", pa.array(["x"]))
    else:
        rows = rows.selectExpr("*", "'x' AS surplus")
    with pytest.raises(TableSchemaMismatchError, match="surplus string"):
        table.stage_rows(rows, "a")
