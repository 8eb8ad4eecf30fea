"""`lake.file.writer: auto` on real tables: Arrow's files, and Spark's where a table needs them."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.formats.parquet_writer import local_path
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.file_writers import AUTO_FILE_WRITER
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.spark.gateway import java_packages

pytestmark = pytest.mark.spark

P = TopicPartition("t", 0)
ROWS = pa.table({"topic": ["u", "t"], "n": [2, 1]})
PLAIN = "(topic STRING, n BIGINT) USING {}"
PARTITIONED = PLAIN + " PARTITIONED BY (topic)"
NUMBERS_AS_TEXT = "(topic STRING, n STRING) USING {}"


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, warehouse: Path) -> SparkLake:
    """The lake of a format as the default settings open it."""
    lake = request.getfixturevalue(request.param)
    if isinstance(lake, IcebergLake):
        return IcebergLake(lake.spark, lake.catalog_name, file_writer=AUTO_FILE_WRITER)
    return DeltaLake(lake.spark, f"file:{warehouse}", file_writer=AUTO_FILE_WRITER)


def open_new_table(lake: SparkLake, name: str, columns: str) -> Any:
    """Create a table in SQL, as users do who have their own, and return it."""
    if lake.open_table(name) is None:
        lake.create_table(f"{name}_namespace", ROWS)  # which makes the namespace
        lake.spark.sql(f"CREATE TABLE {name} {columns.format(format_of(lake))}")
    table = lake.open_table(name)
    assert table is not None
    return table


def format_of(lake: SparkLake) -> str:
    """Return the name of a lake's format in SQL."""
    return "iceberg" if isinstance(lake, IcebergLake) else "delta"


def write_rows(table: Any, frame: Any) -> str:
    """Write rows as the sink does; return the paths of the data files as one text."""
    staged = table.stage_rows(frame, "an-attempt")
    assert staged.rows == 2
    table.commit(staged, CommittedOffsets({"g": {P: 2}}), table.read_offsets())
    return " ".join(map(str, staged.files))


@pytest.mark.parametrize(
    ("columns", "is_arrow"), [(PLAIN, True), (PARTITIONED, False), (NUMBERS_AS_TEXT, False)]
)
def test_a_table_decides_who_writes_its_files(
    lake: SparkLake, namespace: str, columns: str, *, is_arrow: bool
) -> None:
    """Spark writes tables with partitions, and types that only Spark assigns; the rows are the same."""
    table = open_new_table(lake, f"{namespace}.t", columns)
    files = write_rows(table, lake.to_frame(ROWS))
    # only Arrow's writer names a file after the attempt
    assert ("an-attempt.parquet" in files) == is_arrow
    rows = lake.spark.table(table.name).orderBy("topic").collect()
    assert [(row.topic, str(row.n)) for row in rows] == [("t", "1"), ("u", "2")]


def declare_sort_order(table: Any, iceberg: Any) -> None:
    """As ALTER TABLE … WRITE ORDERED BY n, for which Spark needs Iceberg's extensions."""
    table.java_table.replaceSortOrder().asc(
        iceberg.expressions.Expressions.ref("n"), iceberg.NullOrder.NULLS_FIRST
    ).commit()


def declare_bloom_filter(table: Any, _: Any) -> None:
    """As ALTER TABLE … SET TBLPROPERTIES."""
    name = "write.parquet.bloom-filter-enabled.column.n"
    table.java_table.updateProperties().set(name, "true").commit()


def declare_file_size(table: Any, _: Any) -> None:
    """As ALTER TABLE … SET TBLPROPERTIES."""
    table.java_table.updateProperties().set("write.target-file-size-bytes", "1000000").commit()


@pytest.mark.parametrize("declare", [declare_sort_order, declare_bloom_filter, declare_file_size])
def test_spark_writes_the_declared_layout(
    iceberg: IcebergLake, namespace: str, declare: Callable[[Any, Any], None]
) -> None:
    """A sort order, Bloom filters and sizes, which Arrow's writer would leave out."""
    auto = IcebergLake(iceberg.spark, iceberg.catalog_name, file_writer=AUTO_FILE_WRITER)
    table = open_new_table(auto, f"{namespace}.t", PLAIN)
    declare(table, java_packages(iceberg.spark).org.apache.iceberg)
    table.read_offsets()
    assert "an-attempt.parquet" not in write_rows(table, ROWS)


@pytest.mark.parametrize(
    "columns",
    [
        "(topic VARCHAR(3), n BIGINT) USING delta",
        PLAIN.format("delta") + " TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '1')",
    ],
)
def test_spark_follows_the_rules_of_a_delta_table(
    delta: DeltaLake, warehouse: Path, namespace: str, columns: str
) -> None:
    """The length of a VARCHAR and the choice of statistics, which Arrow's writer does not know."""
    lake = DeltaLake(delta.spark, f"file:{warehouse}", file_writer=AUTO_FILE_WRITER)
    table = open_new_table(lake, f"{namespace}.t", columns)
    assert "an-attempt.parquet" not in write_rows(table, ROWS)
    if "VARCHAR" in columns:
        with pytest.raises(TrimtabError, match=r"(?i)exceeds"):
            table.stage_rows(pa.table({"topic": ["four"], "n": [1]}), "a")


def test_a_location_without_a_scheme_is_not_local(iceberg: IcebergLake, tmp_path: Path) -> None:
    """It is in Hadoop's default file system, through whose client the file is written."""
    root = java_packages(iceberg.spark)
    assert local_path(root.org.apache.hadoop.fs.Path("/warehouse/t/data/a.parquet")) is None
    assert local_path(root.org.apache.hadoop.fs.Path("file:/warehouse/a.parquet")) == "/warehouse/a.parquet"
    auto = IcebergLake(iceberg.spark, iceberg.catalog_name, file_writer=AUTO_FILE_WRITER)
    table = auto.create_scratch_table(str(tmp_path / "t"), ROWS)
    write_rows(table, ROWS)
    assert len([*tmp_path.rglob("an-attempt.parquet")]) == 1
    assert iceberg.spark.read.format("iceberg").load(str(tmp_path / "t")).count() == 2


def test_the_log_tells_once_who_writes(
    lake: SparkLake, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And why: the table is the user's own, whose layout costs CPU time."""
    table = open_new_table(lake, f"{namespace}.t", PARTITIONED)
    with caplog.at_level(logging.INFO, logger="trimtab.lake"):
        for attempt in "ab":
            table.stage_rows(ROWS, attempt)
    told = [message for message in caplog.messages if "Spark writes" in message]
    assert len(told) == 1
    assert "is partitioned" in told[0]


def test_rows_that_fit_neither_writer_are_refused(lake: SparkLake, namespace: str) -> None:
    """With Spark's reason: text is no number."""
    table = open_new_table(lake, f"{namespace}.t", PLAIN)
    with pytest.raises(TableSchemaMismatchError, match=r"(?i)n.*string"):
        table.stage_rows(pa.table({"topic": ["t"], "n": ["one"]}), "a")
    assert table.read_totals()["rows"] == 0
