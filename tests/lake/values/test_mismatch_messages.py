"""Columns whose type changed: the error says which one, from what to what, and what to do."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

P0 = TopicPartition("orders", 0)
EVERY_WRITER = pytest.mark.parametrize(
    "lake", ["iceberg", "iceberg_arrow", "delta", "delta_arrow"], indirect=True
)
ENGINE_WORDS = ("trimtab_staging", "org.apache", "INCOMPATIBLE", "decimal128", "int32", "int64")
pytestmark = pytest.mark.spark


@pytest.fixture
def write(writers: Callable[..., Any]) -> Callable[..., None]:
    """Write one more record, whose schema may be another."""
    log: list[bytes | None] = []

    def flush(row: dict[str, Any], schema: str, **more: Any) -> None:
        log.append(json.dumps(row).encode())
        config = {"lake_decoder": "json", "lake_schema": schema, "lake_flush_timeout": "120 s"}
        consumer, writer = writers({P0: log}, **config, **more)
        consumer.assign(writer, P0)
        writer.write(consumer.consume(1))
        writer.close()

    return flush


@EVERY_WRITER
@pytest.mark.parametrize("evolution", ["add", "fail"])
@pytest.mark.parametrize("upsert", [{}, {"lake_write": "upsert", "lake_key": "id", "lake_changes": "keyed"}])
def test_a_decimal_whose_scale_changed(
    write: Callable[..., None], evolution: str, upsert: dict[str, str]
) -> None:
    """No decimal is rounded: the column, both types and the remedies are named."""
    write({"id": 1, "p": 1.25}, "id INT, p DECIMAL(9,2)", **upsert)
    with pytest.raises(TableSchemaMismatchError) as caught:
        write({"id": 2, "p": 1.255}, "id INT, p DECIMAL(9,3)", lake_schema_evolution=evolution, **upsert)
    text = str(caught.value)
    assert "p is decimal(9,3) in the rows and decimal(9,2) in the table" in text
    assert "lake.transform" in text
    assert not [word for word in ENGINE_WORDS if word in text]


@pytest.mark.parametrize("lake", ["delta", "delta_arrow"], indirect=True)
@pytest.mark.parametrize("upsert", [{}, {"lake_write": "upsert", "lake_key": "id", "lake_changes": "keyed"}])
def test_a_number_that_widens_needs_a_property_of_delta(
    write: Callable[..., None], spark: Any, namespace: str, upsert: dict[str, str]
) -> None:
    """The advice helps: with it the same record is written, and the key is found."""
    write({"id": 1, "n": 1}, "id INT, n INT", **upsert)
    later = {"lake_schema_evolution": "add", **upsert}
    with pytest.raises(TableSchemaMismatchError) as caught:
        write({"id": 1, "n": 2}, "id BIGINT, n INT", **later)
    text = str(caught.value)
    assert "id is bigint in the rows and int in the table" in text
    assert not [word for word in ENGINE_WORDS if word in text]
    (statement,) = [part for part in text.split(": ") if part.startswith("ALTER TABLE")]
    spark.sql(statement.partition(",")[0])
    write({"id": 1, "n": 2}, "id BIGINT, n INT", **later)
    rows = sorted((row.id, row.n) for row in spark.table(f"{namespace}.orders").collect())
    assert rows == [(1, 2)] if upsert else [(1, 1), (1, 2)]


UTC_TIME, LOCAL_TIME = pa.timestamp("us", "UTC"), pa.timestamp("us")
CHANGED = [
    (pa.int64(), 2**53 + 1, pa.float64()),
    (pa.int32(), 2**24 + 1, pa.float32()),
    (UTC_TIME, 1, pa.int64()),
    (UTC_TIME, 1, pa.string()),
    (UTC_TIME, 1, LOCAL_TIME),
    (LOCAL_TIME, 1, UTC_TIME),
    (pa.date32(), 1, UTC_TIME),
    (pa.binary(), b"\xff", pa.string()),
    (pa.list_(pa.int64()), [2**53 + 1], pa.list_(pa.float64())),
]
KEPT = [
    (pa.int32(), 2**31 - 1, pa.float64()),
    (pa.int16(), 2**15 - 1, pa.float32()),
    (pa.int64(), 2**63 - 1, pa.decimal128(21, 2)),
    (pa.decimal128(4, 2), Decimal("12.50"), pa.decimal128(6, 3)),
    (pa.date32(), -719_162, LOCAL_TIME),
]


@EVERY_WRITER
def test_no_value_changes_with_its_type(lake: SparkLake, namespace: str) -> None:
    """Whichever writer: Spark's own rule rounds a BIGINT to DOUBLE, and cuts a time to seconds."""
    for at, (kind, value, column) in enumerate(CHANGED + KEPT):
        table = lake.create_table(f"{namespace}.t{at}", lake.to_frame(pa.table({"c": pa.nulls(0, column)})))
        rows = pa.array([value], kind)
        if at < len(CHANGED):
            with pytest.raises(TableSchemaMismatchError, match=r"c\S* is .* in the rows"):
                table.stage_rows(lake.to_frame(pa.table({"c": rows})), "a")
            continue
        staged = table.stage_rows(lake.to_frame(pa.table({"c": rows})), "a")
        table.commit(staged, CommittedOffsets({"g": {P0: 1}}), table.read_offsets())
        assert lake.spark.table(table.name).toArrow()["c"].to_pylist() == rows.cast(column).to_pylist()


@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
def test_no_policy_of_the_session_rounds(lake: SparkLake, namespace: str) -> None:
    """Spark's own default, ANSI, rounds a decimal to the table's scale."""
    table = lake.create_table(f"{namespace}.t", lake.spark.sql("SELECT CAST(1 AS DECIMAL(9, 2)) AS p"))
    assert lake.spark.conf.get("spark.sql.storeAssignmentPolicy") == "ANSI"
    with pytest.raises(TableSchemaMismatchError, match=r"p is decimal\(9,3\) in the rows"):
        table.stage_rows(lake.spark.sql("SELECT CAST(1.255 AS DECIMAL(9, 3)) AS p"), "a")
