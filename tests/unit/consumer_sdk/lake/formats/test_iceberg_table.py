"""Properties of new Iceberg tables, and names at which none can be created."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from trimtab.consumer_sdk.errors import LakeUnavailableError, TableWriteError
from trimtab.consumer_sdk.lake.formats.iceberg import table as iceberg_table
from trimtab.consumer_sdk.lake.formats.iceberg.table import ICEBERG_TABLE_DEFAULTS, IcebergLake

ROWS = pa.table({"id": [1]})


def test_a_compression_level_has_its_codec() -> None:
    """A REST catalog need not add Iceberg's default codec; gzip, the writers' own, refuses level 1."""
    assert "write.parquet.compression-level" in ICEBERG_TABLE_DEFAULTS
    assert ICEBERG_TABLE_DEFAULTS["write.parquet.compression-codec"] == "zstd"


class OccupiedCatalog:
    """A catalog that creates no table of a name, and loads none until `is_table`."""

    is_table = False

    def loadTable(self, _: Any) -> Any:  # noqa: N802 - Iceberg's name
        if not self.is_table:
            raise java_error("NoSuchTableException")
        return SimpleNamespace()

    def createTable(self, *_: Any, **__: Any) -> None:  # noqa: N802
        raise java_error("AlreadyExistsException")


def java_error(name: str) -> Exception:
    kind = SimpleNamespace(getName=lambda: f"org.apache.iceberg.exceptions.{name}")
    error: Any = PySparkException("")
    error._origin = SimpleNamespace(getClass=lambda: kind, getMessage=lambda: "", getCause=lambda: None)
    return error


def test_a_name_that_a_view_has_halts_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never the race of another writer, whose table can be loaded: that one is no refusal."""
    monkeypatch.setattr(iceberg_table, "java", MagicMock())
    monkeypatch.setattr(iceberg_table, "java_session", MagicMock())
    monkeypatch.setattr(iceberg_table, "StagingWriter", MagicMock())
    lake = IcebergLake(MagicMock(), "lake", file_writer="arrow")
    catalog: Any = OccupiedCatalog()
    monkeypatch.setattr(lake, "_catalog", catalog)
    monkeypatch.setattr(lake, "_create_table", catalog.createTable)
    for _ in range(iceberg_table.MAX_CREATION_REFUSALS - 1):
        with pytest.raises(LakeUnavailableError):
            lake.create_table("lake.orders", ROWS)
    for _ in range(2):
        with pytest.raises(TableWriteError, match=r"another format has this name: set lake\.tables"):
            lake.create_table("lake.orders", ROWS)
    catalog.is_table = True
    assert lake.create_table("lake.orders", ROWS).name == "lake.orders"
    catalog.is_table = False
    with pytest.raises(LakeUnavailableError):
        lake.create_table("lake.orders", ROWS)
