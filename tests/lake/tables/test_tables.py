"""Content of each table: decoding, dead letters, fan-out, and tables created by the user."""

import logging
import resource
import threading
from collections.abc import Callable
from typing import Any

import pytest

from support.lake.slow_on_delta import JSON_LAKES
from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError, TableSchemaMismatchError, TransformError
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.spark.gateway import py4j_gateway

P0 = TopicPartition("orders", 0)
JSON = {"lake_decoder": "json", "lake_schema": "id BIGINT, name STRING, at TIMESTAMP"}
LONG = 60.0
FORMATS = pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
pytestmark = pytest.mark.spark

Make = Callable[..., Any]
Read = Callable[[str], list[Any]]


def expire(spark: Any, table: str) -> None:
    """Keep the newest snapshot only."""
    spark.sql(
        f"CALL trimtab.system.expire_snapshots(table => '{table}', older_than => now(), retain_last => 1)"
    )


def create_namespace(spark: Any, lake: SparkLake, name: str) -> None:
    """Create a namespace; Delta's tables lie below the warehouse by name."""
    place = f" LOCATION '{lake.namespace_path(name)}'" if isinstance(lake, DeltaLake) else ""
    spark.sql(f"CREATE NAMESPACE {name}{place}")


def ingest(writers: Make, values: list[bytes | None], **config: Any) -> Any:
    """Write these values as records of one partition, in one flush."""
    consumer, writer = writers({P0: values}, **config)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(len(values)))
    writer.close()
    return writer


@JSON_LAKES
def test_json_fields_become_columns(writers: Make, spark: Any, namespace: str) -> None:
    """Decoded columns follow the record columns; a missing field and a tombstone give nulls."""
    ingest(
        writers,
        [
            b'{"id": 7, "name": "x", "more": 1}',
            b"{}",
            None,
            b' {"id":8}\n',
            b'{"x": {"y": [1]}, "name": "}"}',
        ],
        **JSON,
    )
    found = spark.table(f"{namespace}.orders").orderBy("offset").collect()
    assert [(r.offset, r.id, r.name) for r in found] == [
        (0, 7, "x"),
        (1, None, None),
        (2, None, None),
        (3, 8, None),
        (4, None, "}"),
    ]
    assert found[0].value == b'{"id": 7, "name": "x", "more": 1}'


@JSON_LAKES
def test_dead_letters_do_not_stop_their_partition(
    writers: Make, rows: Read, spark: Any, namespace: str
) -> None:
    """Undecodable records are written to the dead-letter table, and the others go on."""
    ingest(writers, [b'{"id": 1}', b"oops", b'{"id": 3}', b"oops too"], **JSON)
    assert [o for _, _, o in rows(f"{namespace}.orders")] == [0, 2]
    letters = spark.table(f"{namespace}.orders_dead_letter").orderBy("offset").collect()
    assert [(r.offset, r.value, r.error) for r in letters] == [
        (1, b"oops", "not one JSON object"),
        (3, b"oops too", "not one JSON object"),
    ]


@JSON_LAKES
def test_the_dead_letter_table_is_created_on_demand(writers: Make, lake: SparkLake, namespace: str) -> None:
    """Without dead letters there is no table."""
    ingest(writers, [b'{"id": 1}'], **JSON)
    assert lake.open_table(f"{namespace}.orders_dead_letter") is None


@JSON_LAKES
def test_a_decoded_column_does_not_hide_a_record_column(writers: Make, spark: Any, namespace: str) -> None:
    """A field with the name of a record column gets a name of its own."""
    ingest(writers, [b'{"offset": 9}'], lake_decoder="json", lake_schema="offset INT")
    (row,) = spark.table(f"{namespace}.orders").collect()
    assert (row.offset, row.value_offset) == (0, 9)


@JSON_LAKES
def test_an_invalid_schema_is_a_setting_error(writers: Make) -> None:
    """Spark cannot parse the DDL, and nothing is written."""
    with pytest.raises(SettingError, match=r"lake\.schema"):
        ingest(writers, [b"{}"], lake_decoder="json", lake_schema="id WHATEVER")


def test_a_transform_fans_out_to_several_tables(
    writers: Make, rows: Read, spark: Any, namespace: str
) -> None:
    """Each table gets its rows; names without a namespace get the topic table's."""

    def transform(frame: Any) -> dict[str, Any]:
        return {
            "orders": frame.where("offset % 2 = 0"),
            "odd": frame.where("offset % 2 = 1"),
            f"{namespace}x.all": frame.select("offset"),
        }

    ingest(writers, [b"v"] * 5, lake_transform=transform)
    assert [o for _, _, o in rows(f"{namespace}.orders")] == [0, 2, 4]
    assert [o for _, _, o in rows(f"{namespace}.odd")] == [1, 3]
    assert spark.table(f"{namespace}x.all").count() == 5


def test_the_topic_table_keeps_offsets_even_without_rows(writers: Make) -> None:
    """A transform that returns only other tables continues at the topic table's offset."""
    ingest(writers, [b"v"] * 3, lake_transform=lambda frame: {"elsewhere": frame})
    consumer, writer = writers({P0: []})
    consumer.assign(writer, P0)
    assert consumer.positions == {P0: 3}


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda _: 7, "returned int"),
        (lambda frame: frame.select("nothing"), "the transform failed"),
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda frame: frame.selectExpr("offset / 0 AS x"), "[Dd]ivision by zero"),
    ],
)
def test_a_failing_transform_moves_no_offset(
    writers: Make, lake: SparkLake, namespace: str, transform: Any, message: str
) -> None:
    """The error has the cause, and the records stay in Kafka."""
    with pytest.raises(TransformError, match=message):
        ingest(writers, [b"v"], lake_transform=transform)
    found = lake.open_table(f"{namespace}.orders")
    assert found is None or found.read_offsets().offsets.next_offset("g", P0) is None


@FORMATS
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("topic STRING, partition INT, offset BIGINT", "no column for timestamp timestamp, key"),
        ("offset INT NOT NULL, who STRING NOT NULL", "who are required"),
        ("value INT", "value"),
    ],
)
def test_a_schema_mismatch_is_an_error(
    writers: Make, spark: Any, lake: SparkLake, namespace: str, columns: str, message: str
) -> None:
    """The error has the column and the remedy; nothing is written and no offset moves."""
    table = f"{namespace}.orders"
    create_namespace(spark, lake, namespace)
    if columns == "value INT":
        columns = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, "
        columns += "value INT, headers MAP<STRING, BINARY>"
    form = "delta" if isinstance(lake, DeltaLake) else "iceberg"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING {form}")
    with pytest.raises(TableSchemaMismatchError, match=message) as caught:
        ingest(writers, [b"v"])
    assert table in str(caught.value)
    found = lake.open_table(table)
    assert found is not None
    assert found.read_offsets().version == ""


@pytest.mark.parametrize("version", [2, 3])
def test_an_iceberg_table_of_the_user_keeps_its_layout(
    writers: Make, rows: Read, spark: Any, namespace: str, version: int
) -> None:
    """Partitioned, sorted, with a column that the rows lack, in either format version."""
    table = f"{namespace}.orders"
    spark.sql(f"CREATE NAMESPACE {namespace}")
    spark.sql(
        f"CREATE TABLE {table} (note STRING, topic STRING, partition INT, offset BIGINT, "
        "timestamp TIMESTAMP, "
        "key BINARY, value BINARY, headers MAP<STRING, BINARY>) USING iceberg "
        f"PARTITIONED BY (bucket(3, offset)) TBLPROPERTIES ('format-version' = '{version}')"
    )
    ingest(writers, [b"v"] * 20)
    assert rows(table) == [("orders", 0, n) for n in range(20)]
    assert spark.sql(f"SELECT * FROM {table}.files").count() == 3  # noqa: S608 - the table of this test
    assert spark.table(table).where("note IS NULL").count() == 20


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_delta_table_of_the_user_keeps_its_layout(
    writers: Make, rows: Read, spark: Any, lake: SparkLake, namespace: str
) -> None:
    """Partitioned, with mapped columns, a generated column, and one that the rows lack."""
    table = f"{namespace}.orders"
    create_namespace(spark, lake, namespace)
    spark.sql(
        f"CREATE TABLE {table} (note STRING, topic STRING, partition INT, offset BIGINT, "
        "timestamp TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(timestamp AS DATE)), "
        "key BINARY, value BINARY, headers MAP<STRING, BINARY>) USING delta "
        "PARTITIONED BY (day, partition) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT sane CHECK (offset < 30)")
    ingest(writers, [b"v"] * 20)
    assert rows(table) == [("orders", 0, n) for n in range(20)]
    assert spark.table(table).where("note IS NULL AND day = '2023-11-14'").count() == 20
    consumer, writer = writers({P0: [b"v"] * 40})
    consumer.assign(writer, P0)
    writer.write(consumer.consume(40))
    with pytest.raises(TableSchemaMismatchError, match="sane"):
        writer.close()
    assert len(rows(table)) == 20


def test_offsets_survive_expiry_and_compaction(writers: Make, spark: Any, namespace: str) -> None:
    """The newest snapshot has the offset of an idle partition, too."""
    idle = TopicPartition("orders", 1)
    log = {P0: [b"v"] * 4, idle: [b"w"] * 2}
    consumer, writer = writers(log)
    consumer.assign(writer, P0, idle)
    writer.write(consumer.consume(3))
    writer.flush()
    writer.close()
    for _ in range(2):
        consumer, writer = writers(log)
        consumer.assign(writer, P0)
        writer.write(consumer.consume(1))
        writer.close()
    expire(spark, f"{namespace}.orders")
    consumer, writer = writers(log)
    consumer.assign(writer, P0, idle)
    assert consumer.positions[P0] == 4


def test_lost_offsets_are_an_error(writers: Make, spark: Any, namespace: str) -> None:
    """A table whose history was cut off behind a compaction needs its offsets as a property, set by hand."""
    table = f"{namespace}.orders"
    ingest(writers, [b"v"] * 4)
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table}")  # noqa: S608 - the table of this test
    expire(spark, table)
    consumer, writer = writers({P0: [b"v"] * 4})
    consumer.assign(writer, P0)
    writer.write(consumer.consume(4))
    with pytest.raises(CommittedOffsetsLostError, match="by hand"):
        writer.close()
    assert spark.table(table).count() == 8
    consumer, writer = writers({P0: []})
    offsets = '{"v":1,"groups":{"g":{"orders":{"0":4}}}}'
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('trimtab.offsets' = '{offsets}')")
    consumer.assign(writer, P0)
    assert consumer.positions == {P0: 4}


@FORMATS
def test_staging_is_retried_while_the_disk_is_full(
    writers: Make, rows: Read, spark: Any, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel limits the JVM's files to 4 kB for a while; no record is lost."""
    java = py4j_gateway(spark).proc.pid
    soft, hard = resource.prlimit(java, resource.RLIMIT_FSIZE)
    consumer, writer = writers({P0: [b"%0400d" % n for n in range(500)]})
    consumer.assign(writer, P0)
    writer.write(consumer.consume(1))  # the table exists: only the staging fails
    writer.flush()
    disk_full = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "full" in record.getMessage():
                disk_full.set()

    listener = Listener()
    logging.getLogger("trimtab.lake").addHandler(listener)
    try:
        resource.prlimit(java, resource.RLIMIT_FSIZE, (4096, hard))
        writer.write(consumer.consume(500))
        assert disk_full.wait(LONG)
    finally:
        resource.prlimit(java, resource.RLIMIT_FSIZE, (soft, hard))
        logging.getLogger("trimtab.lake").removeHandler(listener)
    writer.close()
    assert rows(f"{namespace}.orders") == [("orders", 0, n) for n in range(500)]
    assert any("the storage is full, make room" in line for line in caplog.messages)


def test_each_topic_has_its_table_and_offsets(
    writers: Make, rows: Read, lake: SparkLake, namespace: str
) -> None:
    """Topics of one consumer have tables of their own; lake.tables lets two share one."""
    other, third = TopicPartition("clicks", 0), TopicPartition("views", 0)
    log: dict[Any, list[bytes | None]] = {P0: [b"o"] * 3, other: [b"c"] * 2, third: [b"v"]}
    shared = {"clicks": f"{namespace}.web", "views": f"{namespace}.web"}
    consumer, writer = writers(log, lake_tables=shared)
    consumer.assign(writer, P0, other, third)
    writer.write(consumer.consume(9))
    writer.close()
    assert rows(f"{namespace}.orders") == [("orders", 0, n) for n in range(3)]
    assert rows(f"{namespace}.web") == [("clicks", 0, 0), ("clicks", 0, 1), ("views", 0, 0)]
    web = lake.open_table(f"{namespace}.web")
    assert web is not None
    assert web.read_offsets().offsets.groups["g"] == {other: 2, third: 1}
