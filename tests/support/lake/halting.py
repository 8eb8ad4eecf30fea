"""Records, settings and tables of the tests of halted tables."""

import json
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from trimtab.consumer_sdk.lake.changes.change_rows import POSITION_COLUMNS
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

TIMES: Final = "id BIGINT, ts TIMESTAMP"
COUNT: Final = 6


def changes(write: str, **upserts: Any) -> dict[str, Any]:
    return (
        {"lake_write": "upsert", "lake_key": "id", "lake_changes": "keyed", **upserts}
        if write == "upsert"
        else {}
    )


def values(fields: str) -> list[bytes]:
    """Return records with these of the fields id, ts, ts_day and n."""
    every = {"ts": "2026-01-01T00:00:00Z", "ts_day": "x", "n": 1}
    return [json.dumps({"id": at, **{f: every[f] for f in fields.split()}}).encode() for at in range(COUNT)]


def ids(lake: SparkLake, table: str) -> list[int]:
    return sorted(row.id for row in lake.spark.table(table).select("id").collect())


@contextmanager
def unreachable(warehouse: Path, table: str) -> Generator[None]:
    """Let no file be made in a table that is partitioned by n, which is 1."""
    (folder,) = Path(warehouse, *table.split(".")).rglob("n=1")
    away = folder.rename(folder.with_name("away"))
    folder.touch()
    yield
    folder.unlink()
    away.rename(folder)


def make_by_hand(lake: SparkLake, table: str, write: str, *columns: Any) -> None:
    """Create a table as another engine does."""
    names = POSITION_COLUMNS if write == "upsert" else RECORD_SCHEMA.names
    schema = pa.schema([*(RECORD_SCHEMA.field(name) for name in names), ("id", pa.int64()), *columns])
    lake.create_table(table, schema.empty_table())
    if write == "upsert":
        is_delta = isinstance(lake, DeltaLake)
        vectors = "'delta.enableDeletionVectors' = 'true'" if is_delta else "'format-version' = '3'"
        lake.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({vectors})")


def drop_table(lake: SparkLake, warehouse: Path, table: str) -> Callable[[], None]:
    """Drop a table as another program does; return what restores it. A Delta table is its folder."""
    folder = Path(warehouse, *table.split("."))
    away = folder.with_name(f"{folder.name}_away")
    if isinstance(lake, DeltaLake):
        folder.rename(away)
        return lambda: shutil.move(away, folder)
    metadata = lake.spark.table(f"{table}.metadata_log_entries").collect()[-1].file
    lake.spark.sql(f"DROP TABLE {table}")
    catalog = lake.catalog_name  # type: ignore[attr-defined]
    register = f"CALL {catalog}.system.register_table('{table}', '{metadata}')"
    return lambda: lake.spark.sql(register)
