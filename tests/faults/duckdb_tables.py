"""Reads tables of upserts by DuckDB, whose reader of Iceberg shares no code with Spark's or pyiceberg's.

Its reader of Delta is made of delta-kernel, as parts of delta-rs are. `make faults WRITE=upsert` installs
DuckDB with its extensions into `build/duckdb`: only some of its versions have them in the registry.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from importlib import import_module
from itertools import repeat
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from faults.changes import ChangedRow
from object_store.rig import ObjectStoreRig
from object_store.servers import ACCESS_KEY, REGION, SECRET_KEY

R = TypeVar("R")
FOLDER: Final = Path(__file__).parents[2] / "build" / "duckdb"
_NEEDED: Final = {"iceberg": ("avro", "iceberg"), "delta": ("delta",)}
_SECRET: Final = (
    f"CREATE SECRET (TYPE s3, KEY_ID '{ACCESS_KEY}', SECRET '{SECRET_KEY}', REGION '{REGION}', "
    "URL_STYLE 'path', USE_SSL false, ENDPOINT '{endpoint}')"
)


def read_changed_rows(
    table_format: str, location: str, store: ObjectStoreRig | None = None
) -> Iterator[ChangedRow]:
    """Return the rows of an Iceberg table by its metadata file, or of a Delta table by its folder.

    Those of an object store come by DuckDB's own client of S3, which does not pass the proxy.
    """
    duckdb = _import_duckdb()
    with closing(duckdb.connect()) as connection:
        _load_extensions(connection, _NEEDED[table_format])
        if store is not None:
            _load_extensions(connection, ("httpfs",))
            endpoint = store.gateway.address.removeprefix("http://")
            connection.execute(_SECRET.format(endpoint=endpoint))
        table = connection.table_function(f"{table_format}_scan", [location]).to_arrow_table()
    return build_rows(table, ChangedRow._fields, ChangedRow)


def _load_extensions(connection: Any, names: Iterable[str]) -> None:
    for name in names:
        (file,) = FOLDER.glob(f"duckdb_extension_{name}/**/*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")


def _import_duckdb() -> Any:
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))  # before another version of it
    return import_module("duckdb")


def build_rows(table: pa.Table, columns: tuple[str, ...], build_row: Callable[..., R]) -> Iterator[R]:
    """Return the rows of a table, with None for columns that it lacks."""
    present: list[Any] = [
        table.column(name).to_pylist() if name in table.column_names else repeat(None) for name in columns
    ]
    return map(build_row, *present)
