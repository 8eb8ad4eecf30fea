"""Values at the ends of their ranges, read by engines that did not write them: pyiceberg and delta-rs."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.lake.read_by_others import read_rows
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import TransformError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import Frame
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.session.factory import create_maintenance

pytestmark = pytest.mark.spark

P = TopicPartition("t", 0)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
ROWS = pa.table(
    {
        "id": pa.array([0, 1, 2], pa.int64()),
        "at": pa.array([FIRST, LAST, None], pa.timestamp("us", "UTC")),
        "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None], pa.date32()),
    }
)
EVERY_WRITER = pytest.mark.parametrize(
    "lake", ["iceberg", "iceberg_arrow", "delta", "delta_arrow"], indirect=True
)


def list_time_types(warehouse: Path, table: str) -> set[str]:
    """Return the physical types of the column `at` in all files of a table."""
    files = warehouse.joinpath(*table.split(".")).glob("**/[!.]*.parquet")
    schemas = [pq.ParquetFile(file).schema for file in files if "_delta_log" not in file.parts]
    return {schema.column(schema.names.index("at")).physical_type for schema in schemas}


@pytest.fixture
def write(lake: SparkLake, namespace: str) -> Callable[..., Any]:
    """Commit rows to a table of this test, each call in a file of its own."""
    offset = iter(range(1, 100))

    def commit(rows: Frame, lake: SparkLake = lake) -> Any:
        table = lake.create_table(f"{namespace}.t", rows)
        seen = table.read_offsets()
        at = next(offset)
        table.commit(table.stage_rows(rows, f"a{at}"), CommittedOffsets({"g": {P: at}}), seen)
        return table

    return commit


@EVERY_WRITER
def test_every_engine_reads_the_first_and_the_last_time(
    lake: SparkLake, write: Callable[..., Any], warehouse: Path
) -> None:
    """Also after a compaction."""
    for id_ in range(ROWS.num_rows):
        table = write(lake.to_frame(ROWS.slice(id_, 1)))
    assert read_rows(table, warehouse) == ROWS.to_pylist()
    create_maintenance(lake).rewrite_small_files(table.name, 10**6)
    assert read_rows(table, warehouse) == ROWS.to_pylist()
    assert list_time_types(warehouse, table.name) == {"INT64"}


@EVERY_WRITER
def test_upserts_are_read_by_every_engine(
    lake: SparkLake, write: Callable[..., Any], warehouse: Path
) -> None:
    """The row that replaces another has the last time, too."""
    del lake
    for rows in (ROWS.slice(0, 2), ROWS):
        table = write(KeyedChanges(rows, rows.select(["id"]), ("id",)))
    assert read_rows(table, warehouse) == ROWS.to_pylist()
    assert list_time_types(warehouse, table.name) == {"INT64"}


@EVERY_WRITER
@pytest.mark.parametrize("write_mode", ["append", "upsert"])
def test_names_that_readers_keep_for_themselves_get_a_prefix(
    lake: SparkLake, writers: Callable[..., Any], namespace: str, warehouse: Path, write_mode: str
) -> None:
    """A table with a column `_pos` of its own could be neither compacted nor read."""
    names = [
        "_file",
        "_pos",
        "_Deleted",
        "_partition",
        "_spec_id",
        "_row_id",
        "_change_type",
        "_commit_version",
    ]
    columns = "id BIGINT, " + ", ".join(f"{name} INT" for name in names)
    where = TopicPartition("reserved", 0)
    values = [json.dumps({"id": n} | dict.fromkeys(names, n)).encode() for n in range(3)]
    changes = {"lake_write": write_mode, "lake_key": "_pos", "lake_changes": "keyed"}
    consumer, writer = writers(
        {where: values},
        lake_decoder="json",
        lake_schema=columns,
        lake_file_writer="auto",
        **(changes if write_mode == "upsert" else {}),
    )
    consumer.assign(writer, where)
    for _ in values:
        writer.write(consumer.consume(1))
        writer.flush()
    name = f"{namespace}.reserved"
    create_maintenance(lake).rewrite_small_files(name, 10**6)
    table = lake.open_table(name)
    assert lake.spark.table(name).where("id = 1").count() == 1
    rows = read_rows(table, warehouse)
    assert [[row[f"value_{name}"] for name in names] for row in rows] == [[n] * len(names) for n in range(3)]


def test_a_transform_may_not_return_such_a_name(writers: Callable[..., Any]) -> None:
    """It is told which column, before the table is made."""
    where = TopicPartition("reserved", 0)
    consumer, writer = writers(
        {where: [b"x"]}, lake_transform=lambda df: df.withColumnRenamed("value", "_POS")
    )
    consumer.assign(writer, where)
    writer.write(consumer.consume(1))
    with pytest.raises(TransformError, match="a column _POS, a name that Iceberg and Delta keep"):
        writer.flush()


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_session_of_the_users_own_writes_times_like_ours(
    delta: DeltaLake, write: Callable[..., Any], warehouse: Path
) -> None:
    """Whatever its settings."""
    session = delta.spark.newSession()
    session.conf.set("spark.sql.defaultCatalog", "spark_catalog")
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    session.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    lake = DeltaLake(session, f"file:{warehouse}", file_writer="spark")
    table = write(lake.to_frame(ROWS), lake)
    assert read_rows(table, warehouse) == ROWS.to_pylist()
