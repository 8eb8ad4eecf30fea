"""Tables that a user changes by hand while a writer writes them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lake.slow_on_delta import slow_on_delta
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake

P0 = TopicPartition("orders", 0)
FORMATS = pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
SLOW_ON_DELTA = slow_on_delta("iceberg", "delta")
SLOW = {"lake_flush_timeout": "120 s"}  # a shared machine may be slow
pytestmark = pytest.mark.spark

Make = Callable[..., Any]
Read = Callable[[str], list[Any]]


@pytest.fixture
def drop(lake: SparkLake, warehouse: Path) -> Callable[[str], None]:
    """Drop a table; a Delta table is its folder."""

    def drop(table: str) -> None:
        if isinstance(lake, DeltaLake):
            shutil.rmtree(warehouse.joinpath(*table.split(".")))
        else:
            lake.spark.sql(f"DROP TABLE {table} PURGE")

    return drop


@SLOW_ON_DELTA
def test_deleted_rows_are_not_written_again(writers: Make, rows: Read, spark: Any, namespace: str) -> None:
    """Offsets do not follow the rows: deleted rows stay deleted, new records are written."""
    table = f"{namespace}.orders"
    consumer, writer = writers({P0: [b"v"] * 8}, **SLOW)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(5))
    writer.flush()
    spark.sql(f"DELETE FROM {table} WHERE offset < 3")  # noqa: S608 - this test's table
    writer.write(consumer.consume(1))
    writer.close()
    consumer, writer = writers({P0: [b"v"] * 8}, **SLOW)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(8))
    writer.close()
    assert [offset for *_, offset in rows(table)] == [3, 4, 5, 6, 7]


def test_a_renamed_column_is_an_error_that_names_it(writers: Make, spark: Any, namespace: str) -> None:
    """The rows have no column of the new name: nothing is written and no offset moves."""
    table = f"{namespace}.orders"
    consumer, writer = writers({P0: [b"v"] * 4}, **SLOW)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(2))
    writer.flush()
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN value TO payload")
    writer.write(consumer.consume(2))
    with pytest.raises(TableSchemaMismatchError, match="no column for value binary"):
        writer.close()
    assert spark.table(table).count() == 2


@SLOW_ON_DELTA
@pytest.mark.parametrize("step", ["begun", "staged"])
def test_a_table_dropped_under_its_writer_is_not_created_again(
    writers: Make, drop: Callable[[str], None], lake: SparkLake, namespace: str, step: str
) -> None:
    """A new one would lack the rows of the dropped one: the error names it."""
    table = f"{namespace}.orders"
    passed: list[str] = []

    def second(now: str) -> None:
        passed.append(now)
        if now == step and passed.count(step) == 2:
            drop(table)

    consumer, writer = writers({P0: [b"v"] * 6}, crash=second, **SLOW)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(3))
    writer.flush()
    writer.write(consumer.consume(3))
    with pytest.raises(TableSchemaMismatchError, match=f"{table}: the table was dropped"):
        writer.flush()
    assert lake.open_table(table) is None
