"""Data files written from Arrow (`lake.file.writer: arrow`) read like Spark's."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats import parquet_writer
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

pytestmark = pytest.mark.spark

P = TopicPartition("t", 0)
LINE = pa.struct([("n", pa.int32()), ("d", pa.decimal128(9, 2))])
ROWS = pa.schema(
    [
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.binary())),
        ("lines", pa.list_(LINE)),
        ("one", LINE),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("real", pa.float64()),
        ("day", pa.date32()),
        ("amount", pa.decimal128(20, 0)),
        ("local", pa.timestamp("us")),
    ]
)
LANES = pytest.mark.parametrize(
    "lanes", [("iceberg", "iceberg_arrow"), ("delta", "delta_arrow")], ids=["iceberg", "delta"]
)


def row(number: int) -> dict[str, Any]:
    """Return a row with a value in every column."""
    when = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    line = {"n": number, "d": Decimal("1.50")}
    return {
        "topic": "t",
        "offset": number,
        "timestamp": when,
        "value": b"\x00\xff%d" % number,
        "headers": [("h", b"1"), ("n", None)],
        "lines": [line, None],
        "one": line,
        "flag": True,
        "small": -number,
        "real": 0.5 * number,
        "day": date(2026, 1, 2),
        "amount": Decimal(10**19 + number),
        "local": when.replace(tzinfo=None),
    }


def rows(*numbers: int) -> Any:
    """Return these rows and a row of nulls."""
    return pa.Table.from_pylist([*map(row, numbers), {"offset": 100 + numbers[0]}], schema=ROWS)


@pytest.fixture
def pair(request: pytest.FixtureRequest, lanes: tuple[str, str]) -> tuple[SparkLake, SparkLake]:
    """The lake of one format, written by Spark and from Arrow."""
    by_spark, by_arrow = (request.getfixturevalue(name) for name in lanes)
    return by_spark, by_arrow


@pytest.fixture
def shared_table(pair: tuple[SparkLake, SparkLake], namespace: str, warehouse: Path) -> Callable[[], Any]:
    """Write one table from both lakes in turn; return it, and the files of Spark and of Arrow."""

    def write() -> Any:
        by_spark, by_arrow = pair
        name = f"{namespace}.both"
        frame = by_spark.to_spark_frame(rows(1, 2))
        first = by_spark.create_table(name, frame)
        first.commit(
            first.stage_rows(frame, "by-spark"), CommittedOffsets({"g": {P: 2}}), first.read_offsets()
        )
        theirs = set(warehouse.glob(f"{namespace}/both/**/*.parquet"))
        second = by_arrow.open_table(name)
        assert second is not None
        second.commit(
            second.stage_rows(rows(3, 4), "by-arrow"), CommittedOffsets({"g": {P: 4}}), second.read_offsets()
        )
        ours = set(warehouse.glob(f"{namespace}/both/**/*.parquet")) - theirs
        return name, theirs.pop(), ours.pop()

    return write


@LANES
def test_spark_and_arrow_write_one_table_in_turn(
    pair: tuple[SparkLake, SparkLake], shared_table: Callable[[], Any]
) -> None:
    """Every type is read back as written, by either writer, and each file has one row group."""
    name, _, ours = shared_table()
    found = pair[0].spark.table(name).orderBy("offset").collect()
    assert [r.offset for r in found] == [1, 2, 3, 4, 101, 103]
    by_spark, by_arrow = found[1].asDict(recursive=True), found[2].asDict(recursive=True)
    changed = {"offset", "value", "lines", "one", "small", "real", "amount"}
    assert {k for k in by_spark if by_spark[k] != by_arrow[k]} == changed
    assert by_arrow["value"] == b"\x00\xff3"
    assert by_arrow["lines"] == [{"n": 3, "d": Decimal("1.50")}, None]
    assert by_arrow["headers"] == {"h": b"1", "n": None}
    nulls = found[5].asDict()
    assert {name for name, value in nulls.items() if value is not None} == {"offset"}
    assert pq.read_metadata(ours).num_row_groups == 1


@pytest.mark.parametrize("lanes", [("iceberg", "iceberg_arrow")])
def test_iceberg_files_have_sparks_parquet_types_and_field_ids(shared_table: Callable[[], Any]) -> None:
    """Name, id, physical and logical type of every column equal Spark's, nested columns included."""
    _, theirs, ours = shared_table()
    assert _columns(ours) == _columns(theirs)
    assert _ids(ours) == _ids(theirs)


@pytest.mark.parametrize("lanes", [("iceberg", "iceberg_arrow")])
def test_iceberg_files_have_sparks_metrics(
    pair: tuple[SparkLake, SparkLake], shared_table: Callable[[], Any]
) -> None:
    """Counts, null counts and bounds of each column equal those of a file that Spark wrote."""
    name, _, ours = shared_table()
    files = pair[0].spark.table(f"{name}.files").collect()
    by_spark, by_arrow = sorted(files, key=lambda f: Path(f.file_path).name == ours.name)
    assert by_arrow.record_count == by_spark.record_count == 3
    assert by_arrow.file_size_in_bytes == ours.stat().st_size
    assert by_arrow.null_value_counts == by_spark.null_value_counts
    assert by_arrow.lower_bounds.keys() == by_spark.lower_bounds.keys()
    one, two = (f.readable_metrics.offset for f in (by_spark, by_arrow))
    assert [(m.lower_bound, m.upper_bound) for m in (one, two)] == [(1, 101), (3, 103)]


@pytest.mark.parametrize("lanes", [("delta", "delta_arrow")])
def test_delta_skips_files_by_their_statistics(pair: tuple[SparkLake, SparkLake], namespace: str) -> None:
    """The statistics equal Delta's own, except the ones that file skipping does not use."""
    by_spark, by_arrow = pair
    table = by_spark.create_table(f"{namespace}.t", by_spark.to_spark_frame(rows(1, 2)))
    theirs, ours = (
        json.loads(json.loads(table.stage_rows(lake.to_frame(rows(1, 2)), name).files[0])["add"]["stats"])
        for name, lake in (("a", by_spark), ("b", by_arrow))
    )
    assert ours["numRecords"] == theirs["numRecords"] == 3
    # not `local`, a TIMESTAMP_NTZ: the protocol's bounds are instants
    assert ours["minValues"].keys() == {"topic", "offset", "small", "day", "timestamp"}
    for part in ("minValues", "maxValues", "nullCount"):
        known = {name: value for name, value in theirs[part].items() if name in ours[part]}
        assert ours[part] == known


@LANES
def test_only_numbers_and_times_are_widened(pair: tuple[SparkLake, SparkLake], namespace: str) -> None:
    """Struct fields match by name, nested numbers widen, and a narrowing is an error with both types."""
    spark, lake = pair[0].spark, pair[1]
    wide = "1L AS a, 1D AS r, named_struct('x', 1L, 'y', 'q') AS s, array(1L) AS n"
    table = lake.create_table(f"{namespace}.wide", spark.sql(f"SELECT {wide}"))
    schema = pa.schema(
        [
            ("n", pa.list_(pa.int32())),
            ("s", pa.struct([("y", pa.string()), ("x", pa.int32())])),
            ("A", pa.int32()),
            ("r", pa.float32()),
        ]
    )
    values = {"n": [3], "s": {"y": "v", "x": 2}, "A": 7, "r": 0.5}
    staged = table.stage_rows(pa.Table.from_pylist([values], schema=schema), "a")
    table.commit(staged, CommittedOffsets({"g": {P: 1}}), table.read_offsets())
    (found,) = spark.table(table.name).collect()
    assert (found.a, found.r, found.s.x, found.s.y, found.n) == (7, 0.5, 2, "v", [3])
    with pytest.raises(TableSchemaMismatchError, match=r"n.element is string in the rows and bigint"):
        table.stage_rows(pa.table({"n": [["x"]]}), "b")


@LANES
def test_a_required_column_needs_a_value(pair: tuple[SparkLake, SparkLake], namespace: str) -> None:
    """A null, or rows without the column, are an error that names the column."""
    by_spark, by_arrow = pair
    name = f"{namespace}.t"
    by_spark.create_table(f"{namespace}.other", by_spark.spark.sql("SELECT 1 AS one"))
    using = "iceberg" if "Iceberg" in type(by_spark).__name__ else "delta"
    by_spark.spark.sql(f"CREATE TABLE {name} (offset BIGINT, n INT NOT NULL) USING {using}")
    table = by_arrow.open_table(name)
    assert table is not None
    with pytest.raises(TableSchemaMismatchError, match="n"):
        table.stage_rows(pa.table({"offset": [1], "n": pa.array([None], pa.int32())}), "a")
    with pytest.raises(TableSchemaMismatchError, match="columns n are required"):
        table.stage_rows(pa.table({"offset": [1]}), "b")


@LANES
def test_a_partitioned_table_is_refused(pair: tuple[SparkLake, SparkLake], namespace: str) -> None:
    """The error names the table and the setting to change."""
    by_spark, by_arrow = pair
    name = f"{namespace}.t"
    by_spark.create_table(f"{namespace}.other", by_spark.spark.sql("SELECT 1 AS one"))
    using = "iceberg" if "Iceberg" in type(by_spark).__name__ else "delta"
    columns = "(topic STRING, offset BIGINT)"
    by_spark.spark.sql(f"CREATE TABLE {name} {columns} USING {using} PARTITIONED BY (topic)")
    table = by_arrow.open_table(name)
    assert table is not None
    with pytest.raises(TableSchemaMismatchError, match=r"is partitioned.* set lake\.file\.writer=spark"):
        table.stage_rows(pa.table({"topic": ["t"], "offset": [1]}), "a")


def test_a_delta_table_with_constraints_or_generated_columns_is_refused(
    delta: SparkLake, delta_arrow: SparkLake, namespace: str
) -> None:
    """Only Delta's own writer evaluates constraints and generated columns."""
    spark = delta.spark
    delta.create_table(f"{namespace}.other", spark.sql("SELECT 1 AS one"))
    for name, columns, text in (
        ("made", "n BIGINT, twice BIGINT GENERATED ALWAYS AS (n * 2)", "rules for twice"),
        ("sane", "n BIGINT", "has constraints"),
    ):
        spark.sql(f"CREATE TABLE {namespace}.{name} ({columns}) USING delta")
        if name == "sane":
            spark.sql(f"ALTER TABLE {namespace}.sane ADD CONSTRAINT sane CHECK (n < 30)")
        table = delta_arrow.open_table(f"{namespace}.{name}")
        assert table is not None
        with pytest.raises(TableSchemaMismatchError, match=text):
            table.stage_rows(pa.table({"n": [1]}), "a")


def test_the_tables_codec_is_used(
    iceberg: SparkLake, iceberg_arrow: SparkLake, namespace: str, warehouse: Path
) -> None:
    """Both writers follow `write.parquet.compression-codec`; the default is zstd."""
    table = iceberg_arrow.create_table(f"{namespace}.t", rows(1))
    table.stage_rows(rows(1), "first")
    for number, codec in ((9, "gzip"), (3, "snappy")):
        settings = {"codec": codec, "level": number}
        text = ", ".join(f"'write.parquet.compression-{k}' = '{v}'" for k, v in settings.items())
        iceberg.spark.sql(f"ALTER TABLE {namespace}.t SET TBLPROPERTIES ({text})")
        table.read_offsets()
        table.stage_rows(rows(1), codec)
    found = {
        path.name: pq.read_metadata(path).row_group(0).column(0).compression
        for path in warehouse.glob(f"{namespace}/t/**/*.parquet")
    }
    assert {name.split("-")[-1]: codec for name, codec in found.items()} == {
        "first.parquet": "ZSTD",
        "gzip.parquet": "GZIP",
        "snappy.parquet": "SNAPPY",
    }


def test_a_file_of_remote_storage_is_uploaded_by_the_tables_client(
    iceberg: SparkLake, tmp_path: Path
) -> None:
    """The file is written locally and copied to the storage in the JVM."""
    root = iceberg.spark._jvm
    arrived = tmp_path / "arrived"
    path = root.org.apache.hadoop.fs.Path("s3a://bucket/data.parquet")
    target = parquet_writer.ParquetTarget(
        path, lambda: root.java.io.FileOutputStream(str(arrived)), arrived.unlink, root
    )
    codec = parquet_writer.ParquetCodec("zstd")
    size = parquet_writer.write_parquet("t", rows(1), target, codec, lambda local: Path(local).stat().st_size)
    assert pq.read_table(arrived).num_rows == 2
    assert arrived.stat().st_size == size


def test_a_full_disk_is_an_error_that_leaves_no_partial_file(tmp_path: Path) -> None:
    """The kernel limits files of the process to 4 kB."""
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "folder" / "data.parquet")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("DiskFull"), done.stderr
    assert "the storage is full, make room" in done.stdout
    assert not list((tmp_path / "folder").iterdir())


_FULL = """
import resource, sys
from types import SimpleNamespace
import pyarrow as pa
from trimtab.consumer_sdk.errors import DiskFullError
from trimtab.consumer_sdk.lake.formats import parquet_writer

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
uri = SimpleNamespace(getScheme=lambda: "file", getPath=lambda: sys.argv[1])
target = parquet_writer.ParquetTarget(SimpleNamespace(toUri=lambda: uri), print, print, None)
try:
    codec = parquet_writer.ParquetCodec("none")
    parquet_writer.write_parquet("t", pa.table({"n": range(100_000)}), target, codec, print)
except DiskFullError as error:
    print("DiskFull", error)
"""


def _columns(file: Path) -> list[tuple[str, str, str]]:
    schema = pq.read_schema(file)
    found = pq.ParquetFile(file).schema
    assert schema is not None
    return [
        (column.path, column.physical_type, str(column.logical_type))
        for column in (found.column(n) for n in range(len(found.names)))
    ]


def _ids(file: Path) -> list[Any]:
    return list(map(_told, pq.read_schema(file)))


def _told(field: Any) -> Any:
    number = field.metadata[b"PARQUET:field_id"]
    kind = field.type
    inside = [kind.field(n) for n in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inside = [kind.key_field, kind.item_field]
    return field.name, number, [_told(f) for f in inside]
