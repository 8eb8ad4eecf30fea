"""Changes in decoded values, also of batches whose values have only some of a format's columns."""

from typing import Any

import pyarrow as pa
import pytest

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.change_formats import (
    RecognizedChanges,
    is_control_record,
    recognize_debezium,
    recognize_keyed_rows,
    recognize_mapped_rows,
)
from trimtab.consumer_sdk.lake.changes.change_settings import ChangeMapping
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

REGISTRY_VALUE = b"\0\0\0\0\1"
ROW = pa.struct([("id", pa.int64())])
NO_ROW = pa.struct([])
MAPPING = ChangeMapping("type", frozenset({"I"}), frozenset({"D"}), row="data")


def build_rows(values: list[bytes | None], **decoded: Any) -> Any:
    """Return records with decoded columns."""
    count = len(values)
    columns = {
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [None] * count,
        "key": [None] * count,
        "value": values,
        "headers": [None] * count,
    }
    rows = pa.table(columns, schema=RECORD_SCHEMA)
    for name, column in decoded.items():
        rows = rows.append_column(name, column)
    return rows


def kinds(changes: RecognizedChanges) -> tuple[list[bool], list[bool]]:
    return changes.upserts.tolist(), changes.deletes.tolist()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ts_ms"}, True),
        ({"ts_ms", "op"}, False),
        ({"status", "id"}, True),
        ({"status", "id", "event_count", "data_collections", "ts_ms"}, True),
        ({"status", "id", "more"}, False),
        ({"status"}, False),
        ({"source", "databaseName", "ddl"}, True),
        ({"source", "databaseName", "tableChanges"}, True),
        ({"source", "databaseName"}, False),
        ({"source", "ddl"}, False),
        ({"databaseName", "tableChanges"}, False),
        ({"id", "name"}, False),
        (set(), False),
    ],
)
def test_debeziums_records_without_a_change_are_known_by_their_fields(
    fields: set[str], expected: object
) -> None:
    """Heartbeats, transaction boundaries, schema changes; a row of a table is none of them."""
    assert is_control_record(fields) is expected


@pytest.mark.parametrize("before", [pa.nulls(1), pa.nulls(1, NO_ROW)], ids=["null", "no columns"])
def test_an_unknown_row_before_has_the_columns_of_the_one_after(before: Any) -> None:
    """So that both are rows of one table."""
    after = pa.array([{"id": 1}], ROW)
    changes = recognize_debezium(build_rows([REGISTRY_VALUE], op=pa.array(["u"]), before=before, after=after))
    assert kinds(changes) == ([True], [False])
    assert changes.before.type == ROW
    assert changes.before.to_pylist() == [None]


def test_a_batch_of_a_registry_may_lack_the_envelope() -> None:
    """A heartbeat changes nothing; a row is a dead letter, also beside fields that are null."""
    heartbeat = recognize_debezium(build_rows([REGISTRY_VALUE], ts_ms=pa.array([1])))
    assert (kinds(heartbeat), heartbeat.reasons) == (([False], [False]), {})
    assert (len(heartbeat.after), heartbeat.after.type) == (1, NO_ROW)
    assert (len(heartbeat.before), heartbeat.before.type) == (1, NO_ROW)
    rows = build_rows([REGISTRY_VALUE] * 2, ts_ms=pa.array([1, 2]), id=pa.array([None, 7]))
    changes = recognize_debezium(rows)
    assert list(changes.reasons) == [1]
    assert "no op, so no Debezium envelope" in changes.reasons[1]


def test_a_column_that_is_no_struct_is_no_row() -> None:
    """As `after` of values that are no envelopes."""
    rows = build_rows([REGISTRY_VALUE], op=pa.array(["c"]), after=pa.array(["text"]))
    changes = recognize_debezium(rows)
    assert (kinds(changes), changes.reasons) == (([False], [False]), {0: "op c without after"})


def test_tombstones_alone_have_no_columns() -> None:
    """A batch of them deletes by the records' keys, whatever the format."""
    rows = build_rows([None, None])
    for changes in (
        recognize_keyed_rows(rows),
        recognize_debezium(rows),
        recognize_mapped_rows(rows, MAPPING),
    ):
        assert (kinds(changes), changes.reasons) == (([False] * 2, [True] * 2), {})
        assert (len(changes.after), changes.after.type) == (2, NO_ROW)
        assert (len(changes.before), changes.before.type) == (2, NO_ROW)


def test_truncations_are_numbered_in_their_order() -> None:
    """They are neither upserts nor deletes."""
    rows = build_rows([REGISTRY_VALUE] * 3, op=pa.array(["t", "d", "t"]), after=pa.nulls(3, ROW))
    changes = recognize_debezium(rows)
    assert changes.truncations == [0, 2]
    assert kinds(changes) == ([False] * 3, [False, True, False])


def test_operations_of_a_mapping_are_exact() -> None:
    """One that it does not name is a dead letter; a delete has its row."""
    rows = build_rows(
        [REGISTRY_VALUE] * 3,
        type=pa.array(["I", "D", "i"]),
        data=pa.array([{"id": 1}, {"id": 2}, {"id": 3}], ROW),
    )
    changes = recognize_mapped_rows(rows, MAPPING)
    assert kinds(changes) == ([True, False, False], [False, True, False])
    assert changes.before.to_pylist() == changes.after.to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert changes.reasons == {2: "type 'i' (lake.changes) is neither an upsert nor a delete"}


@pytest.mark.parametrize(
    ("op", "upserts"),
    [(pa.array([{"a": 1}, {"a": 2}]), [False, False]), (pa.array([b"\xff", b"I"]), [False, True])],
)
def test_an_operation_that_is_no_text_is_none(op: Any, upserts: list[bool]) -> None:
    """A registry's schema may have any type there; its neighbours count."""
    rows = build_rows([REGISTRY_VALUE] * 2, type=op, data=pa.array([{"id": 1}] * 2, ROW))
    changes = recognize_mapped_rows(rows, MAPPING)
    assert kinds(changes) == (upserts, [False, False])
    reason = "type None (lake.changes) is neither an upsert nor a delete"
    assert changes.reasons == {at: reason for at, is_upsert in enumerate(upserts) if not is_upsert}


def test_rows_of_two_types_are_named() -> None:
    """The table has one type."""
    wide = pa.array([{"id": 1, "name": "a"}])
    rows = build_rows([REGISTRY_VALUE], op=pa.array(["u"]), before=wide, after=pa.array([{"id": 1}], ROW))
    with pytest.raises(TableSchemaMismatchError, match=r"before: struct<id.*after: struct<id: int64>"):
        recognize_debezium(rows)
