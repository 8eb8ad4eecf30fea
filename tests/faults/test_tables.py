"""What the harness reads of tables without Spark."""

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from faults.settings import NAMESPACE
from faults.tables import reader

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def test_the_compactions_of_a_delta_table_are_counted(tmp_path: Path) -> None:
    """Appends are none; a table that does not exist has none."""
    tables, folder = reader("delta", tmp_path), tmp_path / NAMESPACE / "t"
    for _ in range(3):
        write_deltalake(folder, ROWS, mode="append")
    assert (tables.count_compactions("t"), tables.count_compactions("other")) == (0, 0)
    DeltaTable(folder).optimize.compact()
    assert (tables.count_compactions("t"), tables.count("t")) == (1, 6)


def test_the_compactions_of_an_iceberg_table_are_counted(tmp_path: Path) -> None:
    """Its history calls them replace; a table that does not exist has none."""
    tables = reader("iceberg", tmp_path)
    assert tables.count_compactions("t") == 0
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace(NAMESPACE)
    table = catalog.create_table(f"{NAMESPACE}.t", ROWS.schema)
    table.append(ROWS)
    table.append(ROWS)
    assert tables.count_compactions("t") == 0
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    metadata["snapshots"][-1]["summary"]["operation"] = "replace"  # pyiceberg cannot compact
    file.write_text(json.dumps(metadata))
    assert tables.count_compactions("t") == 1
    catalog.close()
