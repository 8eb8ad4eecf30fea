"""Reads tables as engines do that did not write them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable


def read_rows(table: Any, warehouse: Path, key: str = "id") -> list[dict[str, Any]]:
    """Return a table's rows by a column, read by pyiceberg or delta-rs."""
    if hasattr(table, "java_table"):
        location = table.java_table.operations().current().metadataFileLocation()
        found = StaticTable.from_metadata(str(location)).scan().to_arrow().sort_by(key)
    else:
        query = QueryBuilder().register("t", DeltaTable(warehouse.joinpath(*table.name.split("."))))
        found = pa.table(query.execute(f"SELECT * FROM t ORDER BY {key}").read_all())  # noqa: S608 - a test's name
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows
