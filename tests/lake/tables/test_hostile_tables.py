"""Tables whose offsets a foreign tool damaged, replaced or expired: a named error, never rows twice."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable, StagedFiles
from trimtab.consumer_sdk.lake.offsets.offset_gaps import GAPS_PROPERTY
from trimtab.consumer_sdk.lake.offsets.table_offsets import OFFSETS_PROPERTY, CommittedOffsets
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.spark.gateway import java_packages

P = TopicPartition("t", 0)
FORMATS = pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
pytestmark = pytest.mark.spark


@pytest.fixture
def table(lake: SparkLake, namespace: str) -> LakeTable:
    """An empty table of the record columns."""
    return lake.create_table(f"{namespace}.t", lake.to_frame(pa.Table.from_pylist([], RECORD_SCHEMA)))


@pytest.fixture
def replace_history(spark: Any, table: LakeTable) -> Callable[[], None]:
    """Do what a foreign compaction and expiry do: one new snapshot without offsets, no older one."""

    def replace() -> None:
        name = f"'{table.name}'"
        spark.sql(f"INSERT INTO {table.name} (topic) VALUES ('foreign')")  # noqa: S608 - this test's table
        spark.sql(
            f"CALL trimtab.system.expire_snapshots(table => {name}, older_than => now(), retain_last => 1)"
        )

    return replace


def commit_end(table: LakeTable, end: int) -> None:
    """Commit the offset of a batch without rows."""
    table.commit(StagedFiles(f"to-{end}"), CommittedOffsets({"g": {P: end}}), table.read_offsets())


def test_a_commit_is_refused_when_its_offsets_expired_behind_a_foreign_snapshot(
    lake: SparkLake, table: LakeTable, replace_history: Callable[[], None]
) -> None:
    """Between look and commit another writer may have committed, too: nobody can tell any more."""
    commit_end(table, 3)
    seen = table.read_offsets()
    other = lake.open_table(table.name)
    assert other is not None
    commit_end(other, 7)
    replace_history()
    with pytest.raises(CommitConflictError):
        table.commit(StagedFiles("late"), CommittedOffsets({"g": {P: 5}}), seen)
    with pytest.raises(CommittedOffsetsLostError, match="have expired"):
        table.read_offsets()


@pytest.mark.parametrize("given", [None, '{"v":1,"groups":{"g":{"t":{"0":3}}}}'], ids=["new", "set by hand"])
def test_a_first_commit_is_refused_when_an_other_first_one_expired(
    lake: SparkLake, table: LakeTable, spark: Any, replace_history: Callable[[], None], given: str | None
) -> None:
    """No snapshot had offsets at the look, none has now, and one had in between."""
    if given is not None:
        spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{OFFSETS_PROPERTY}' = '{given}')")
    seen = table.read_offsets()
    other = lake.open_table(table.name)
    assert other is not None
    commit_end(other, 7)
    replace_history()
    with pytest.raises(CommitConflictError):
        table.commit(StagedFiles("late"), CommittedOffsets({"g": {P: 5}}), seen)


def test_a_foreign_snapshot_alone_refuses_nothing(
    table: LakeTable, spark: Any, replace_history: Callable[[], None]
) -> None:
    """Whatever precedes the look may expire; offsets set by hand hold behind a cut history."""
    commit_end(table, 3)
    spark.sql(f"INSERT INTO {table.name} (topic) VALUES ('foreign')")  # noqa: S608 - this test's table
    commit_end(table, 4)
    replace_history()
    text = CommittedOffsets({"g": {P: 4}}).encode()
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{OFFSETS_PROPERTY}' = '{text}')")
    seen = table.read_offsets()
    spark.sql(f"INSERT INTO {table.name} (topic) VALUES ('foreign')")  # noqa: S608 - this test's table
    table.commit(StagedFiles("next"), CommittedOffsets({"g": {P: 5}}), seen)
    assert table.read_offsets().offsets == CommittedOffsets({"g": {P: 5}})


def test_offsets_set_by_hand_are_used_once(
    table: LakeTable, spark: Any, replace_history: Callable[[], None]
) -> None:
    """Once snapshots hold newer offsets, their expiry must not bring back those that were set by hand."""
    text = CommittedOffsets({"g": {P: 3}}).encode()
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{OFFSETS_PROPERTY}' = '{text}')")
    commit_end(table, 7)
    assert table.read_offsets().offsets == CommittedOffsets({"g": {P: 7}})
    replace_history()
    with pytest.raises(CommittedOffsetsLostError, match="have expired"):
        table.read_offsets()


@pytest.mark.parametrize("text", ["", "{}", "7", '{"v":1,"groups":{"g":{"t":{"0":Infinity}}}}', "[" * 90_000])
def test_damaged_offsets_are_never_no_offsets(table: LakeTable, text: str) -> None:
    """A property that cannot be read stops the sink with the table and the property, whatever it holds."""
    java: Any = table
    java.java_table.updateProperties().set(OFFSETS_PROPERTY, text).commit()
    with pytest.raises(CommittedOffsetsLostError, match=f"{table.name}.*{OFFSETS_PROPERTY}"):
        table.read_offsets()
    java.java_table.newAppend().set(OFFSETS_PROPERTY, text).commit()
    java.java_table.updateProperties().remove(OFFSETS_PROPERTY).commit()
    with pytest.raises(CommittedOffsetsLostError, match=f"{table.name}.*{OFFSETS_PROPERTY}"):
        table.read_offsets()


@FORMATS
def test_damaged_gaps_are_an_error(lake: SparkLake, table: LakeTable, spark: Any) -> None:
    """Gaps that cannot be read are not taken for none."""
    del lake
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('{GAPS_PROPERTY}' = '[[1]]')")
    table.read_offsets()
    with pytest.raises(CommittedOffsetsLostError, match=f"{table.name}.*{GAPS_PROPERTY}"):
        table.read_gaps()


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
@pytest.mark.parametrize("app_id", ["trimtab/g/t/x", "trimtab/g/t/-1", "trimtab/g/0", "trimtab/g/t/0/0"])
def test_damaged_transactions_are_never_no_offsets(lake: SparkLake, table: LakeTable, app_id: str) -> None:
    """A `txn` action with Trimtab's prefix is an offset, or an error."""
    assert isinstance(lake, DeltaLake)
    commit_txn(table, app_id, 3)
    with pytest.raises(CommittedOffsetsLostError, match=f"{table.name}.*{app_id}"):
        table.read_offsets()


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_negative_transaction_is_never_no_offset(lake: SparkLake, table: LakeTable) -> None:
    """Versions of `txn` actions are offsets: from 0 on."""
    assert isinstance(lake, DeltaLake)
    commit_txn(table, "other/app,(x)/0", -7)
    assert table.read_offsets().offsets == CommittedOffsets()
    commit_txn(table, "trimtab/g/t/0", -7)
    with pytest.raises(CommittedOffsetsLostError, match="trimtab/g/t/0"):
        table.read_offsets()


def commit_txn(table: Any, app_id: str, version: int) -> None:
    """Commit one `txn` action, as any writer of the table may."""
    transaction = table._start_transaction(None)
    actions = table._build_actions(StagedFiles("x"), {app_id: version})
    scala = java_packages(table._spark).org.apache.spark.api.python.PythonUtils
    transaction.commit(scala.toSeq(actions), table._build_operation("foreign"))
