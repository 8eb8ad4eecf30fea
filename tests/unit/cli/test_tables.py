"""Text output of `trimtab tables`."""

import pytest

from trimtab.cli.tables.run import _print_inventory  # pyright: ignore[reportPrivateUsage] # no Spark
from trimtab.consumer_sdk.lake.tables.inventory import TableInventory

LONG_NAME = "warehouse_of_the_north.orders_of_returning_customers_by_country"


def test_names_are_whole_and_offsets_take_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """80 columns cut neither names nor headings; eight partitions make one range."""
    monkeypatch.setenv("COLUMNS", "80")
    offsets = {number: 1204 + number for number in range(7)} | {7: 9881}
    groups = {"lake": {"orders": offsets}, "audit": {"orders": {0: 5, 2: 5, 3: 5}}}
    unwritten = TableInventory(f"{LONG_NAME}_2", 0, 0, 0, 0, {})
    _print_inventory([TableInventory(LONG_NAME, 12_345, 8, 64_000_000, 3, groups), unwritten])
    lines = capsys.readouterr().out.splitlines()
    assert all(
        heading in lines[1]
        for heading in ("table", "rows", "files", "size", "snapshots", "group", "next offsets")
    )
    rows = [line for line in lines if "orders " in line]
    assert len(rows) == 2
    assert LONG_NAME in rows[0]
    assert "12,345" in rows[0]
    assert "orders 0-7: 1,204 … 9,881" in rows[0]
    assert "orders 0,2-3: 5 " in rows[1]
    assert any(f"{LONG_NAME}_2" in line and "not written by Trimtab" in line for line in lines)
