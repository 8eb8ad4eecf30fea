"""Tables that change: columns added by the writer or by hand, and partitioning."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from support.lake.slow_on_delta import JSON_LAKES
from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable
from trimtab.consumer_sdk.lake.tables.dead_letters import DeadLetterSelection, summarize_dead_letters

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
pytestmark = pytest.mark.spark

Make = Callable[..., Any]


def json(schema: str, **more: Any) -> dict[str, Any]:
    """Return settings for JSON values with these columns."""
    slow = "120 s"  # a shared machine may be slow
    return {"lake_decoder": "json", "lake_schema": schema, "lake_flush_timeout": slow} | more


def ingest(writers: Make, values: list[bytes | None], skip: int = 0, **config: Any) -> Any:
    """Write these values in one flush; the first `skip` of them are already in the table."""
    consumer, writer = writers({P0: values}, **config)
    consumer.assign(writer, P0)
    assert consumer.positions[P0] == skip
    writer.write(consumer.consume(len(values)))
    writer.close()
    return writer


@JSON_LAKES
def test_new_columns_are_added_with_null_in_older_rows(
    writers: Make, spark: Any, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Fields of structs, too; numbers are widened, and the log lists the changes."""
    caplog.set_level(logging.INFO, "trimtab.lake")
    ingest(writers, [b'{"n": 1, "s": {"x": 1}}'], **json("n INT, s STRUCT<x: INT>"))
    later = json("n BIGINT, s STRUCT<x: INT, y: STRING>, extra STRING", lake_schema_evolution="add")
    second = b'{"n": 5000000000, "s": {"x": 2, "y": "z"}, "extra": "e"}'
    ingest(writers, [b"", second], skip=1, **later)
    found = spark.table(f"{namespace}.orders").orderBy("offset").collect()
    assert [(r.n, r.s.x, r.s.y, r.extra) for r in found] == [(1, 1, None, None), (5_000_000_000, 2, "z", "e")]
    assert any("s.y string; extra string" in line for line in caplog.messages)


@pytest.mark.parametrize("lake", ["iceberg", "delta_arrow"], indirect=True)
def test_new_columns_of_any_name_and_type_are_added(
    writers: Make, spark: Any, namespace: str, request: pytest.FixtureRequest
) -> None:
    """Names within structs are quoted; what TIMESTAMP means in the session changes nothing."""
    ingest(writers, [b'{"n": 1}'], **json("n INT"))
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    request.addfinalizer(lambda: spark.conf.unset("spark.sql.timestampType"))
    more = "`t-t` TIMESTAMP_LTZ, m MAP<STRING, ARRAY<STRUCT<`a-b.c`: INT, `x:y`: TIMESTAMP_LTZ>>>"
    value = b'{"t-t": "2024-01-01T00:00:00Z", "m": {"k": [{"A-B.c": 1, "x:y": "2024-01-01T00:00:00Z"}]}}'
    ingest(writers, [b"", value], skip=1, **json(f"n INT, {more}", lake_schema_evolution="add"))
    table = spark.table(f"{namespace}.orders").orderBy("offset")
    assert [field.dataType.simpleString() for field in table.schema[-2:]] == [
        "timestamp",
        "map<string,array<struct<a-b.c:int,x:y:timestamp>>>",
    ]
    last = table.selectExpr("unix_micros(`t-t`)", "m.k[0].`a-b.c`", "unix_micros(m.k[0].`x:y`)").collect()[-1]
    assert tuple(last) == (1_704_067_200_000_000, 1, 1_704_067_200_000_000)


@JSON_LAKES
def test_a_new_column_is_an_error_without_schema_evolution(writers: Make, spark: Any, namespace: str) -> None:
    """Nothing is written, the table keeps its columns, and the error has both remedies."""
    ingest(writers, [b'{"n": 1}'], **json("n INT"))
    with pytest.raises(
        TableSchemaMismatchError, match=r"no column for extra string.*lake\.schema\.evolution"
    ):
        ingest(writers, [b"", b'{"extra": "e"}'], skip=1, **json("n INT, extra STRING"))
    table = spark.table(f"{namespace}.orders")
    assert "extra" not in table.columns
    assert table.count() == 1


@JSON_LAKES
@pytest.mark.parametrize(("first", "second"), [("n STRING", "n STRUCT<x: INT>"), ("n INT", "n DOUBLE")])
def test_a_type_that_cannot_evolve_is_an_error(
    writers: Make, spark: Any, namespace: str, first: str, second: str
) -> None:
    """Values are never truncated: the error names the column, and nothing is written."""
    ingest(writers, [b"{}"], **json(first))
    with pytest.raises(TableSchemaMismatchError, match=r"`n`|: n is double|: n is struct"):
        ingest(writers, [b"", b"{}"], skip=1, **json(second, lake_schema_evolution="add"))
    assert spark.table(f"{namespace}.orders").count() == 1


@pytest.mark.parametrize("lake", ["iceberg", "iceberg_arrow"], indirect=True)
def test_older_dead_letter_tables_get_later_columns(
    writers: Make, lake: SparkLake, spark: Any, namespace: str
) -> None:
    """Dead-letter tables evolve without a setting, and are counted before."""
    schema = json("n INT")
    ingest(writers, [b"bad"], **schema)
    letters = f"{namespace}.orders_dead_letter"
    spark.sql(f"ALTER TABLE {letters} DROP COLUMN headers")
    spark.sql(f"ALTER TABLE {letters} DROP COLUMN field")
    (summary,) = summarize_dead_letters(lake, letters, DeadLetterSelection())
    assert (summary.field, summary.error) == (None, "not one JSON object")
    ingest(writers, [b"", b'{"n": "x"}'], skip=1, **schema)
    found = spark.table(letters).orderBy("offset").collect()
    assert [(row.headers, row.field) for row in found] == [(None, None), (None, "n")]


@pytest.mark.parametrize("lake", ["iceberg", "iceberg_arrow"], indirect=True)
@pytest.mark.parametrize("evolve", ["add", "fail"])
def test_a_table_changed_between_flushes_is_handled(
    writers: Make, spark: Any, namespace: str, evolve: str
) -> None:
    """An added column is null; a dropped one is added again, or is the error that names it."""
    table = f"{namespace}.orders"
    consumer, writer = writers({P0: [b'{"n": 1}'] * 3}, **json("n INT", lake_schema_evolution=evolve))
    consumer.assign(writer, P0)
    writer.write(consumer.consume(1))
    writer.flush()
    spark.sql(f"ALTER TABLE {table} ADD COLUMN note STRING")
    writer.write(consumer.consume(1))
    writer.flush()
    assert spark.table(table).where("note IS NULL").count() == 2
    spark.sql(f"ALTER TABLE {table} DROP COLUMN n")
    writer.write(consumer.consume(1))
    if evolve == "fail":
        with pytest.raises(TableSchemaMismatchError, match="no column for n int"):
            writer.flush()
        return
    writer.flush()
    assert [r.n for r in spark.table(table).orderBy("offset").collect()] == [None, None, 1]


def test_a_null_in_a_column_made_required_is_an_error(
    writers: Make, lake: IcebergLake, spark: Any, namespace: str
) -> None:
    """Rows with a value are written; a row without one stops the writer, with add and with fail."""
    table = f"{namespace}.orders"
    consumer, writer = writers(
        {P0: [b'{"n": 1}', b'{"n": 2}', b"{}"]}, **json("n INT", lake_schema_evolution="add")
    )
    consumer.assign(writer, P0)
    writer.write(consumer.consume(1))
    writer.flush()
    opened = lake.open_table(table)
    assert opened is not None
    opened.java_table.updateSchema().allowIncompatibleChanges().requireColumn("n").commit()
    writer.write(consumer.consume(1))
    writer.flush()
    writer.write(consumer.consume(1))
    with pytest.raises(TableSchemaMismatchError, match="lacks a required value"):
        writer.flush()
    assert spark.table(table).count() == 2


def test_writers_that_race_for_a_column_both_write_their_rows(
    writers: Make, lake: IcebergLake, spark: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One adds it; the other loses the race, finds it and continues."""
    table = f"{namespace}.orders"
    log = {P0: [b'{"n": 1}'] * 2, P1: [b'{"n": 2}'] * 2}
    later = json("n INT, extra STRING", lake_schema_evolution="add")
    consumer, writer = writers(log, **json("n INT"))
    consumer.assign(writer, P0, P1)
    writer.write([*consumer.consume(1)])
    writer.close()
    pair = [writers(log, **later), writers(log, **later)]
    for (consumer, writer), partition in zip(pair, (P0, P1), strict=True):
        consumer.assign(writer, partition)
    update, raced = lake._staging_writer.apply_changes, []

    def slow(found: Any, needed: Any) -> None:
        if not raced:
            raced.append(found)
            other: LakeTable | None = lake.open_table(table)
            assert other is not None
            update(other.java_table, needed)  # type: ignore[attr-defined]
        update(found, needed)

    monkeypatch.setattr(lake._staging_writer, "apply_changes", slow)
    for consumer, writer in pair:
        writer.write(consumer.consume(5))
        writer.close()
    assert len(raced) == 1
    assert spark.table(table).columns.count("extra") == 1
    assert spark.table(table).count() == 4


def test_tables_are_partitioned_by_the_setting(writers: Make, spark: Any, namespace: str) -> None:
    """The topic table by the rule, a fan-out table only if the setting names it."""

    def transform(frame: Any) -> dict[str, Any]:
        return {"orders": frame, "side": frame, "other": frame}

    rule = {f"{namespace}.orders": "day(timestamp), bucket(2, n)", f"{namespace}.side": "n"}
    config = json("n INT", lake_partition=rule, lake_transform=transform)
    ingest(writers, [b'{"n": %d}' % n for n in range(4)], **config)
    fields = {
        name: {r.partition for r in spark.table(f"{namespace}.{name}.files").collect()}
        if name != "other"
        else None
        for name in ("orders", "side", "other")
    }
    assert {tuple(row.asDict()) for row in fields["orders"]} == {("timestamp_day", "n_bucket")}
    assert {row.n for row in fields["side"]} == set(range(4))
    assert "partition" not in spark.table(f"{namespace}.other.files").columns


@pytest.mark.parametrize(("rule", "text"), [("country", "no column country"), ("day(n)", r"day\(n\)")])
def test_an_impossible_partitioning_is_a_setting_error(
    writers: Make, lake: IcebergLake, namespace: str, rule: str, text: str
) -> None:
    """The error names table and field, and no table is created."""
    with pytest.raises(SettingError, match=text):
        ingest(writers, [b'{"n": "x"}'], **json("n STRING", lake_partition=rule))
    assert lake.open_table(f"{namespace}.orders") is None


@JSON_LAKES
def test_a_record_larger_than_a_batch_is_written(writers: Make, spark: Any, namespace: str) -> None:
    """It is a batch of its own, and its neighbours are written, too."""
    sizes = [10, 3_000_000, 10, 2_000_000]
    values: list[bytes | None] = [b'{"n": "%s"}' % (b"x" * (size - 9)) for size in sizes]
    limits = {"batch_bytes": "100 kB", "batch_max_age": "60 s"}
    consumer, writer = writers({P0: values}, **json("n STRING", **limits))
    consumer.assign(writer, P0)
    for _ in values:
        writer.write(consumer.consume(1))
    writer.close()
    found = spark.table(f"{namespace}.orders").orderBy("offset").selectExpr("length(value)", "9 + length(n)")
    assert [tuple(row) for row in found.collect()] == [(size, size) for size in sizes]
