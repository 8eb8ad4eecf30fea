"""Iceberg tables whose writers' clocks are 20 minutes apart, and the manifests that appends leave."""

from time import time
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.commits.compaction_hold import HOLD_PROPERTY
from trimtab.consumer_sdk.lake.formats.iceberg.commit_dates import commit_dated
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable, StagedFiles
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.session.factory import create_maintenance
from trimtab.consumer_sdk.lake.spark.gateway import java_packages

P = TopicPartition("t", 0)
AHEAD_MS = 20 * 60_000
pytestmark = pytest.mark.spark


@pytest.fixture
def table(iceberg_arrow: SparkLake, namespace: str) -> Any:
    """An empty table of the record columns."""
    return iceberg_arrow.create_table(f"{namespace}.t", pa.Table.from_pylist([], RECORD_SCHEMA))


def commit_ahead(table: Any, spark: Any) -> int:
    """Commit as a machine whose clock is ahead; return the date."""
    date_ms = int(time() * 1000) + AHEAD_MS
    commit_dated(table.java_table, table.java_table.newAppend(), java_packages(spark), date_ms)
    return date_ms


def commit_row(table: LakeTable, end: int) -> None:
    rows = pa.Table.from_pylist([{"topic": "t", "partition": 0, "offset": end - 1}], RECORD_SCHEMA)
    staged = table.stage_rows(rows, f"to-{end}")
    table.commit(staged, CommittedOffsets({"g": {P: end}}), table.read_offsets())


def commit_change(table: LakeTable, name: str, end: int) -> None:
    rows = pa.table({"id": [1], "name": [name]})
    staged = table.stage_rows(KeyedChanges(rows, rows.select(["id"]), ("id",)), f"to-{end}")
    table.commit(staged, CommittedOffsets({"g": {P: end}}), table.read_offsets())


def test_a_writer_whose_clock_is_behind_commits(table: Any, spark: Any) -> None:
    """Rows and offsets are there; no snapshot is older than the one before it."""
    commit_row(table, 1)
    date_ms = commit_ahead(table, spark)
    commit_row(table, 2)
    commit_row(table, 3)
    assert table.read_offsets().offsets == CommittedOffsets({"g": {P: 3}})
    assert sorted(row.offset for row in spark.table(table.name).collect()) == [0, 1, 2]
    dates = [int(snapshot.timestampMillis()) for snapshot in table.walk_ancestors()]
    assert dates[:3] == [date_ms] * 3


def test_a_writer_whose_clock_is_behind_is_fenced(table: Any, spark: Any, iceberg_arrow: SparkLake) -> None:
    """The commit is refused if another one has moved the offsets."""
    commit_ahead(table, spark)
    seen = table.read_offsets()
    other = iceberg_arrow.open_table(table.name)
    assert other is not None
    commit_row(other, 7)
    with pytest.raises(CommitConflictError):
        table.commit(StagedFiles("late"), CommittedOffsets({"g": {P: 5}}), seen)
    assert table.read_offsets().offsets == CommittedOffsets({"g": {P: 7}})


def test_a_hold_that_was_left_behind_does_not_stop_a_writer_whose_clock_is_behind(
    iceberg_arrow: SparkLake, namespace: str, spark: Any
) -> None:
    """Its changes land without removing the hold, which is removed once the clocks agree."""
    empty = pa.Table.from_pylist([], pa.schema([("id", pa.int64()), ("name", pa.string())]))
    keyed: Any = iceberg_arrow.create_table(
        f"{namespace}.k", KeyedChanges(empty, empty.select(["id"]), ("id",))
    )
    commit_change(keyed, "a", 1)
    create_maintenance(iceberg_arrow).set_hold(keyed.name, 0.1)
    keyed.read_offsets()
    commit_ahead(keyed, spark)
    commit_change(keyed, "b", 2)
    assert keyed.read_offsets().offsets == CommittedOffsets({"g": {P: 2}})
    assert [tuple(row) for row in spark.table(keyed.name).collect()] == [(1, "b")]
    assert keyed.read_property(HOLD_PROPERTY) is not None


def test_gaps_wait_until_the_clocks_agree(table: Any, spark: Any) -> None:
    """They are a property of the table, and belong to the commit of their batch."""
    commit_ahead(table, spark)
    staged, seen = StagedFiles("gap"), table.read_offsets()
    with pytest.raises(LakeUnavailableError, match="synchronize the clocks"):
        table.commit(staged, CommittedOffsets({"g": {P: 5}}), seen, table.read_gaps())
    assert table.read_offsets().offsets == CommittedOffsets()


def test_a_change_that_iceberg_refuses_for_its_date_is_named(table: Any, spark: Any) -> None:
    """It is no error of the records: it is tried again, until the clocks agree."""
    commit_ahead(table, spark)
    wider = pa.Table.from_pylist([], RECORD_SCHEMA.append(pa.field("more", pa.int64())))
    with pytest.raises(LakeUnavailableError, match="synchronize the clocks"):
        table.evolve_schema(wider)


def test_appends_merge_manifests(table: Any) -> None:
    """As often as the table's property says, so that readers have few of them to open."""
    table.java_table.updateProperties().set("commit.manifest.min-count-to-merge", "3").commit()
    counts = []
    for end in range(1, 7):
        commit_row(table, end)
        table.read_offsets()
        current = table.java_table.currentSnapshot()
        counts.append(int(current.allManifests(table.java_table.io()).size()))
    assert counts == [1, 2, 1, 2, 1, 2]
