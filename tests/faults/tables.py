"""Reads tables without Spark, by the files of their newest version."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet

from faults.changes import ChangedRow
from faults.check import Row
from faults.duckdb_tables import build_rows, read_changed_rows
from faults.rest_catalog import RestCatalog
from faults.settings import NAMESPACE
from object_store.rig import WAREHOUSE, ObjectStoreRig

R = TypeVar("R")


class Tables(Protocol):
    """Reads tables of one format; a table that does not exist yet is empty."""

    def count(self, name: str) -> int:
        """Return the number of rows, from the metadata alone."""
        ...

    def rows(self, name: str) -> Iterator[Row]:
        """Return all rows."""
        ...

    def changed_rows(self, name: str) -> Iterator[ChangedRow]:
        """Return all rows of a table of upserts."""
        ...

    def changed_rows_by_duckdb(self, name: str) -> Iterator[ChangedRow]:
        """Return all rows of a table of upserts, read by DuckDB."""
        ...

    def read_partition_columns(self, name: str) -> tuple[str, ...] | None:
        """Return the columns by which the table is partitioned, None if there is no table."""
        ...

    def count_compactions(self, name: str) -> int:
        """Return the number of commits in which a compaction replaced files, from the table's history."""
        ...


class Iceberg:
    """Tables of the embedded catalog, an SQLite file in the warehouse folder, or of a REST catalog."""

    def __init__(
        self, warehouse: Path, rest: RestCatalog | None = None, store: ObjectStoreRig | None = None
    ) -> None:
        server = store.server if store else None
        self._catalog = server.database if server else warehouse / "catalog.db"
        self._rest = rest
        self._store = store
        self._options = store.reader_options if store else {}

    def count(self, name: str) -> int:
        table = self._open(name)
        snapshot = None if table is None else table.current_snapshot()
        return 0 if snapshot is None else int(snapshot.summary["total-records"])

    def rows(self, name: str) -> Iterator[Row]:
        return self._read(name, Row._fields, Row)

    def changed_rows(self, name: str) -> Iterator[ChangedRow]:
        return self._read(name, ChangedRow._fields, ChangedRow)

    def changed_rows_by_duckdb(self, name: str) -> Iterator[ChangedRow]:
        location = self._location(name)
        if location is not None:
            yield from read_changed_rows("iceberg", location, self._store)

    def read_partition_columns(self, name: str) -> tuple[str, ...] | None:
        table = self._open(name)
        return None if table is None else tuple(str(field.name) for field in table.spec().fields)

    def count_compactions(self, name: str) -> int:
        table = self._open(name)
        snapshots = () if table is None else table.snapshots()
        return sum(snapshot.summary.operation.value == "replace" for snapshot in snapshots)

    def _read(self, name: str, columns: tuple[str, ...], build_row: Callable[..., R]) -> Iterator[R]:
        table = self._open(name)
        if table is not None:
            present = tuple(name for name in columns if name in table.schema().column_names)
            yield from build_rows(table.scan(selected_fields=present).to_arrow(), columns, build_row)

    def _open(self, name: str) -> Any:
        from pyiceberg.table import StaticTable  # noqa: PLC0415 - slow to load

        location = self._location(name)
        return None if location is None else StaticTable.from_metadata(location, self._options)

    def _location(self, name: str) -> str | None:
        if self._rest is not None:
            return self._rest.location(NAMESPACE, name)
        if not self._catalog.exists():
            return None
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        with closing(sqlite3.connect(f"file:{self._catalog}?mode=ro", uri=True)) as catalog:
            try:
                found = catalog.execute(query, (name,)).fetchone()
            except sqlite3.OperationalError:  # the catalog has no tables of its own yet
                return None
        return None if found is None else str(found[0])


class Delta:
    """Tables as folders of the warehouse, with all commits since the first in their logs."""

    def __init__(self, warehouse: Path, store: ObjectStoreRig | None = None) -> None:
        self._namespace = warehouse / NAMESPACE
        self._store = store
        self._location = f"{WAREHOUSE}/{NAMESPACE}" if store else str(self._namespace)

    def count(self, name: str) -> int:
        return sum(json.loads(add["stats"])["numRecords"] for add in self._files(name).values())

    def rows(self, name: str) -> Iterator[Row]:
        for path in self._files(name):
            file = self._namespace / name / unquote(path)
            yield from build_rows(parquet.read_table(file, columns=list(Row._fields)), Row._fields, Row)

    def changed_rows(self, name: str) -> Iterator[ChangedRow]:
        from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - slow to load

        folder = self._namespace / name
        if self._files(name):
            query = QueryBuilder().register("t", DeltaTable(folder))  # applies deletion vectors
            table = pa.table(query.execute("SELECT * FROM t").read_all())
            yield from build_rows(table, ChangedRow._fields, ChangedRow)

    def changed_rows_by_duckdb(self, name: str) -> Iterator[ChangedRow]:
        if self._files(name):
            yield from read_changed_rows("delta", f"{self._location}/{name}", self._store)

    def read_partition_columns(self, name: str) -> tuple[str, ...] | None:
        found = [action["metaData"] for action in self._read_log(name) if "metaData" in action]
        return tuple(found[-1]["partitionColumns"]) if found else None

    def count_compactions(self, name: str) -> int:
        infos = (action.get("commitInfo", {}) for action in self._read_log(name))
        return sum(info.get("operation") == "OPTIMIZE" for info in infos)

    def _files(self, name: str) -> dict[str, Any]:
        """Return the live files by name, with their log entries."""
        live: dict[str, Any] = {}
        for action in self._read_log(name):
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                live.pop(action["remove"]["path"], None)
        return live

    def _read_log(self, name: str) -> Iterator[dict[str, Any]]:
        for commit in sorted((self._namespace / name / "_delta_log").glob("*.json")):
            yield from map(json.loads, commit.read_text().splitlines())


def reader(
    table_format: str,
    warehouse: Path,
    catalog: RestCatalog | None = None,
    store: ObjectStoreRig | None = None,
) -> Tables:
    """Return the reader of a table format."""
    return Delta(warehouse, store) if table_format == "delta" else Iceberg(warehouse, catalog, store)
