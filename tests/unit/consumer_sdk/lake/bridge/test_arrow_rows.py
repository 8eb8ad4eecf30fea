"""Rows of a table joined with those of records and with changes, in Arrow."""

from typing import Any

import pyarrow as pa
import pytest

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.bridge import arrow_rows
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges

HEADERS = pa.map_(pa.string(), pa.binary())
SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("headers", HEADERS)])


def rows(*pairs: tuple[int | None, str]) -> Any:
    found = [{"id": key, "name": name, "headers": [("h", b"v")]} for key, name in pairs]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def pairs(table: Any) -> list[tuple[int, str]]:
    return [(row["id"], row["name"]) for row in table.to_pylist()]


def test_columns_that_one_side_lacks_are_null() -> None:
    """As after the next flush: a table may have more columns, and new records may bring some."""
    more = pa.table({"ID": pa.array([2], pa.int64()), "new": ["x"]})
    joined = arrow_rows.append_rows(rows((1, "a")), more)
    assert joined.select(["id", "name", "new"]).to_pylist() == [
        {"id": 1, "name": "a", "new": None},
        {"id": 2, "name": None, "new": "x"},
    ]


def test_types_without_a_common_one_are_an_error() -> None:
    """As in a flush; nothing is turned into text."""
    with pytest.raises(TableSchemaMismatchError, match="do not fit"):
        arrow_rows.append_rows(rows((1, "a")), pa.table({"name": pa.array([1.5])}))


def test_a_common_type_that_changes_values_is_an_error() -> None:
    """Arrow would round a decimal to a double."""
    table, more = (pa.table({"p": pa.nulls(1, kind)}) for kind in (pa.float64(), pa.decimal128(20, 2)))
    with pytest.raises(TableSchemaMismatchError, match=r"p is decimal\(20,2\), and double would change"):
        arrow_rows.append_rows(table, more)


def test_changes_replace_and_delete_rows_by_key() -> None:
    """Rows of other keys stay, also those without a key; columns may be nested."""
    before = rows((1, "a"), (None, "no key"), (2, "b"), (3, "c"))
    touched = pa.table({"id": pa.array([2, 3, 4], pa.int64())})  # 3 is deleted, 4 is new
    changes = KeyedChanges(rows((2, "B"), (4, "D")), touched, ("id",))
    after = arrow_rows.apply_changes("lake.orders", before, changes)
    assert pairs(after) == [(1, "a"), (None, "no key"), (2, "B"), (4, "D")]
    assert pairs(arrow_rows.apply_changes("lake.orders", after, changes)) == pairs(after)


def test_no_changed_key_changes_no_row() -> None:
    """A batch of dead letters alone may not even tell the key's columns."""
    none = KeyedChanges(pa.table({"topic": pa.array([], pa.string())}), pa.table({}), ("id",))
    assert pairs(arrow_rows.apply_changes("lake.orders", rows((1, "a")), none)) == [(1, "a")]
