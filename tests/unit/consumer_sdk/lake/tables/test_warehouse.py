"""Where the tables are and which there are, without Spark."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.tables.warehouse import describe_warehouse, list_local_tables


def create_catalog(folder: Path, *tables: str) -> None:
    folder.mkdir()
    with closing(sqlite3.connect(folder / "catalog.db")) as catalog, catalog:
        catalog.execute("CREATE TABLE iceberg_tables (catalog_name, table_namespace, table_name)")
        for table in tables:
            catalog.execute("INSERT INTO iceberg_tables VALUES ('trimtab', ?, ?)", table.split("."))


def test_a_folder_is_named_with_what_it_has(tmp_path: Path) -> None:
    """A mistyped folder is new, which its writer logs before Spark starts."""
    folder = tmp_path / "lake"
    iceberg, delta = SessionConfig(str(folder)), SessionConfig(str(folder), format="delta")
    assert describe_warehouse(iceberg) == f"{folder} (a new folder)"
    assert list_local_tables(iceberg) == []
    create_catalog(folder, "shop.orders", "shop.clicks")
    assert list_local_tables(iceberg) == ["shop.clicks", "shop.orders"]
    assert describe_warehouse(iceberg) == f"{folder} (2 tables)"
    assert describe_warehouse(delta) == f"{folder} (no tables yet)"
    (folder / "shop" / "orders" / "_delta_log").mkdir(parents=True)
    assert list_local_tables(delta) == ["shop.orders"]
    assert describe_warehouse(delta) == f"{folder} (1 table)"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (SessionConfig("s3://bucket/lake"), "s3://bucket/lake"),
        (SessionConfig("s3a://key:a/b@bucket/lake?token=x"), "s3a://bucket/lake"),
        (SessionConfig("abfss://box@me.dfs.core.windows.net/x"), "abfss://box@me.dfs.core.windows.net/x"),
        (SessionConfig("s3://b", catalog={"type": "rest"}), "catalog trimtab (s3://b)"),
        (SessionConfig(None, catalog={"type": "rest"}), "catalog trimtab"),
    ],
)
def test_another_place_is_named_without_credentials(config: SessionConfig, text: str) -> None:
    """What a URI holds beside the place may be a secret."""
    assert describe_warehouse(config) == text
    assert list_local_tables(config) is None
