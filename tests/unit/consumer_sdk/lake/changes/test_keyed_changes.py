"""Of each key only the last change of a batch counts."""

from typing import Any

import pyarrow as pa

from trimtab.consumer_sdk.lake.changes.keyed_changes import ChangeRows, reduce_changes


def reduce(rows: list[tuple[int, str, int, bool]], *key: str) -> tuple[list[object], list[object]]:
    """Return the upserts' values and the touched keys of (id, region, value, is a delete)."""
    ids, regions, values, deletes = zip(*rows, strict=True)
    table: Any = pa.table({"id": ids, "region": regions, "value": values})
    changes = reduce_changes(ChangeRows(table, pa.array(deletes, pa.bool_())), key)
    keys: list[object] = [tuple(row.values()) for row in changes.touched_keys.to_pylist()]
    return changes.upserts.column("value").to_pylist(), keys


def test_the_last_change_of_a_key_wins() -> None:
    """An upsert behind a delete stands, a delete behind an upsert drops; every key is touched once."""
    rows = [(1, "a", 10, False), (2, "a", 20, False), (1, "a", 11, True), (3, "a", 30, True)]
    rows += [(3, "a", 31, False), (4, "a", 40, True)]
    assert reduce(rows, "id") == ([20, 31], [(2,), (1,), (3,), (4,)])


def test_keys_of_several_columns_and_of_text() -> None:
    """Rows that share a part of the key are different rows."""
    rows = [(1, "a", 1, False), (1, "b", 2, False), (1, "a", 3, False)]
    assert reduce(rows, "id", "region") == ([2, 3], [(1, "b"), (1, "a")])
    assert reduce(rows, "region") == ([2, 3], [("b",), ("a",)])


def test_no_changes_may_lack_the_key_columns() -> None:
    """As a batch of heartbeats alone, whose values have no columns."""
    changes = reduce_changes(ChangeRows(pa.table({"topic": pa.array([], pa.string())}), []), ("id",))
    assert (changes.upserts.num_rows, changes.touched_keys.num_rows) == (0, 0)
    assert changes.schema.names == ["topic"]
