"""Rows of `trimtab tables read` as values of JSON, and queries over them."""

import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimtab.cli import main as command
from trimtab.cli.tables import read
from trimtab.cli.tables.read import iterate_rows, query_rows
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import MissingExtraError

YEAR_12000_US = 316_516_204_800 * 1_000_000
"""A time that Python does not have."""


def test_every_type_is_a_value_of_json() -> None:
    """Bytes that are not UTF-8 are escaped; times, dates and decimals are text."""
    columns = {
        "at": pa.array([YEAR_12000_US], pa.timestamp("us", "UTC")),
        "raw": [b"a\xff"],
        "headers": pa.array([[("h", b"v")]], pa.map_(pa.string(), pa.binary())),
        "items": [[{"day": date(2026, 3, 1), "price": Decimal("1.50")}]],
        "none": pa.nulls(1),
        "flag": [True],
    }
    (row,) = iterate_rows(pa.table(columns))
    assert row.pop("at").startswith("12000-01-01 00:00:00")
    assert row == {
        "raw": r"a\xff",
        "headers": {"h": "v"},
        "items": [{"day": "2026-03-01", "price": "1.50"}],
        "none": None,
        "flag": True,
    }


def test_a_query_sees_the_table_by_its_name() -> None:
    """Without the namespace. An error of DuckDB is one of the option."""
    rows = pa.table({"id": [1, 2, 3]})
    assert query_rows(rows, "lake.orders", "SELECT sum(id) AS s FROM orders").to_pylist() == [{"s": 6}]
    with pytest.raises(SettingError, match=r"--sql: .*x"):
        query_rows(rows, "lake.orders", "SELECT x FROM orders")


def test_a_query_without_duckdb_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"duckdb is not installed.*trimtab\[read\]"):
        query_rows(pa.table({"id": [1]}), "lake.orders", "SELECT 1")


def test_a_missing_duckdb_is_told_before_the_table_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reading may start Spark, which takes many seconds."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the table is read first")

    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr(read.lake_reader, "read", fail)
    (tmp_path / "ingest.yaml").write_text("group.id: lake\n")
    words = ["tables", "read", "lake.orders", "--config", str(tmp_path / "ingest.yaml"), "--sql", "SELECT 1"]
    assert command.main(words) == 1
    assert "duckdb is not installed and this needs it: pip install 'trimtab[read]'" in capsys.readouterr().err
