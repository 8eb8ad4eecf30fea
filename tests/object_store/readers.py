"""Reads tables of the object store by pyiceberg and delta-rs, without Spark and without the proxy."""

import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable

from object_store.rig import WAREHOUSE, ObjectStoreRig
from object_store.servers import ACCESS_KEY, HOST, REGION, SECRET_KEY, Postgres, find_postgres_program

Place = tuple[int, int]
"""Partition and offset."""


def read_table(rig: ObjectStoreRig, table_format: str, name: str) -> list[Place]:
    """Return the rows of a table of either format, sorted; Iceberg's is in the REST catalog."""
    if table_format == "delta":
        return read_delta(rig, name)
    return read_iceberg(rig, rest_location(rig, name.rpartition(".")[2]))


def read_iceberg(rig: ObjectStoreRig, location: str | None) -> list[Place]:
    """Return the rows of the table whose newest metadata is at a location, sorted."""
    if location is None:
        return []
    table = StaticTable.from_metadata(location, rig.reader_options)
    return sorted(_places(table.scan(selected_fields=("partition", "offset")).to_arrow()))


def read_delta(rig: ObjectStoreRig, name: str) -> list[Place]:
    """Return the rows of a table, sorted; none of a table that does not exist yet."""
    return sorted(_places(_query_delta(rig, name, "partition", "offset")))


def read_keyed_rows(rig: ObjectStoreRig, table_format: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table of changes, of either format; deletion vectors are applied."""
    if table_format == "delta":
        return list(_query_delta(rig, name, "id", "name", "n").to_pylist())
    location = rest_location(rig, name.rpartition(".")[2])
    if location is None:
        return []
    table = StaticTable.from_metadata(location, rig.reader_options)
    return list(table.scan(selected_fields=("id", "name", "n")).to_arrow().to_pylist())


def read_rest_rows(rig: ObjectStoreRig, name: str, *columns: str) -> list[dict[str, Any]]:
    """Return columns of an Iceberg table that the REST catalog's own interface names, by pyiceberg."""
    assert rig.server is not None
    catalog = RestCatalog("rest", uri=rig.server.address, **rig.reader_options)
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return []
    return list(table.scan(selected_fields=columns).to_arrow().to_pylist())


def sort_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a table's rows by their key `id`."""
    return sorted(rows, key=lambda row: row["id"])


def _query_delta(rig: ObjectStoreRig, name: str, *columns: str) -> pa.Table:
    """Return columns of a table's rows, deletion vectors applied; no rows without the table."""
    table = _open_delta(rig, name)
    if table is None:
        return pa.table({column: pa.array([], pa.int64()) for column in columns})
    names = ", ".join(f'"{column}"' for column in columns)
    query = QueryBuilder().register("t", table)
    return pa.table(query.execute(f"SELECT {names} FROM t").read_all())  # noqa: S608 - a test's names


def _open_delta(rig: ObjectStoreRig, name: str) -> DeltaTable | None:
    options = {
        "AWS_ENDPOINT_URL": rig.gateway.address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    try:
        return DeltaTable(f"{WAREHOUSE}/{name.replace('.', '/')}", storage_options=options)
    except TableNotFoundError:
        return None


def rest_location(rig: ObjectStoreRig, name: str) -> str | None:
    """Return where the REST catalog says that the newest metadata of a table is."""
    assert rig.server is not None
    query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
    with closing(sqlite3.connect(f"file:{rig.server.database}?mode=ro", uri=True)) as catalog:
        found = catalog.execute(query, (name,)).fetchone()
    return None if found is None else str(found[0])


def jdbc_location(postgres: Postgres, name: str) -> str | None:
    """Return where Iceberg's JDBC catalog says that the newest metadata of a table is."""
    query = f"SELECT metadata_location FROM iceberg_tables WHERE table_name = '{name}'"  # noqa: S608 - a test's name
    psql = [find_postgres_program("psql"), "-qAt", "-h", HOST, "-p", str(postgres.port), "-U", "lake", "lake"]
    found = subprocess.run([*psql, "-c", query], check=False, capture_output=True, text=True)
    return found.stdout.strip() or None


def _places(rows: Any) -> Iterator[Place]:
    return zip(rows.column("partition").to_pylist(), rows.column("offset").to_pylist(), strict=True)
