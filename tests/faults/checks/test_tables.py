"""What the harness reads of tables without Spark."""

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from faults.settings import LAYOUTS, NAMESPACE
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


def test_the_partition_columns_of_a_delta_table_are_read(tmp_path: Path) -> None:
    """A table that does not exist has none, which differs from a table without partitions."""
    tables, folder = reader("delta", tmp_path), tmp_path / NAMESPACE
    rows = ROWS.append_column(
        "region", [["north", "south"]]
    )  # Delta takes no table of partition columns alone
    write_deltalake(folder / "plain", rows)
    write_deltalake(folder / "parted", rows, partition_by=["region"])
    found = [tables.read_partition_columns(name) for name in ("other", "plain", "parted")]
    assert found == [None, (), ("region",)]


def test_the_partition_columns_of_an_iceberg_table_are_read(tmp_path: Path) -> None:
    """As in the metadata, whether the table has rows or not."""
    tables = reader("iceberg", tmp_path)
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace(NAMESPACE)
    schema = Schema(NestedField(1, "id", LongType()))
    catalog.create_table(f"{NAMESPACE}.plain", schema)
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="id"))
    catalog.create_table(f"{NAMESPACE}.parted", schema, partition_spec=spec)
    found = [tables.read_partition_columns(name) for name in ("other", "plain", "parted")]
    assert found == [None, (), ("id",)]
    catalog.close()


def test_some_rounds_of_upserts_ask_for_a_partitioned_table() -> None:
    """By a key column, which the settings of the round's first workers name."""
    assert [layout.partition_columns for layout in LAYOUTS["upsert"]] == [(), ("region",), ()]
    assert [layout.partition_columns for layout in LAYOUTS["append"]] == [()]
