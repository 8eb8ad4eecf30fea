"""Recognizes the change that each record makes: Debezium's envelope, keyed rows, a mapping of columns.

Rules:

1. `upserts` and `deletes` say what a record does; one with a reason is a dead letter; any other record
   changes nothing.
2. Every upsert is looked up by its key, `c` and `r`, too: a record read again must not double a row.
3. A record without a value (a tombstone) deletes the row of its key. Behind a delete it finds none.
4. Debezium: `r`, `c` and `u` upsert, `d` deletes, `t` truncates (`truncations` has the rules). Messages
   (`m`), heartbeats, transaction boundaries and schema changes, which Debezium sends to topics of their
   own, change nothing.
5. A row with Debezium's placeholder of a value that the database did not log is a dead letter: the
   placeholder would replace the value. Also of rows that ExtractNewRecordState unwrapped.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.array_casts import cast_by_halves
from trimtab.consumer_sdk.lake.changes.change_settings import ChangeMapping
from trimtab.consumer_sdk.lake.decoding.decoded_records import Reason
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_COLUMNS, column_name
from trimtab.consumer_sdk.lake.untyped_arrow import Array, Table, pc

Mask: TypeAlias = npt.NDArray[np.bool_]

DEBEZIUM_UPSERTS: Final = ("r", "c", "u")
DEBEZIUM_DELETES: Final = ("d",)
_UNAVAILABLE: Final = b"__debezium_unavailable_value"
_DEBEZIUM_MESSAGE: Final = "m"
_TRUNCATE: Final = "t"
_NO_ENVELOPE_REASON: Final = (
    "no op, so no Debezium envelope: set lake.changes=keyed if the values are the rows themselves"
)
_TRANSACTION_FIELDS: Final = frozenset({"status", "id", "event_count", "data_collections", "ts_ms"})


@dataclass(frozen=True, slots=True)
class RecognizedChanges:
    """The change of each record, in the records' order."""

    upserts: Mask
    deletes: Mask
    after: Array  # structs with the columns of the row
    before: Array  # structs of the same type: the row as it was, null or with the key alone if unknown
    reasons: dict[int, str]  # of dead letters
    truncations: Sequence[int] = ()  # records that remove all rows, ascending


ChangeRecognizer: TypeAlias = Callable[[Table], RecognizedChanges]


def recognize_keyed_rows(rows: Table) -> RecognizedChanges:
    """Recognize values that are rows; a record without a value is a delete."""
    deletes = _to_mask(rows.column("value").is_null())
    after = _decoded_columns(rows)
    before = pa.nulls(len(after), after.type)
    return _reject_placeholders(RecognizedChanges(~deletes, deletes, after, before, {}), "")


def recognize_mapped_rows(rows: Table, mapping: ChangeMapping) -> RecognizedChanges:
    """Recognize values with a column of the operation."""
    ops = _text_column(rows, mapping.op)
    upserts = _is_in(ops, mapping.upsert)
    deletes = _is_in(ops, mapping.delete) | _to_mask(rows.column("value").is_null())
    unknown = np.flatnonzero(~upserts & ~deletes)
    reasons = {
        int(at): f"{mapping.op} {ops[at].as_py()!r} (lake.changes) is neither an upsert nor a delete"
        for at in unknown
    }
    if mapping.row is None:
        row = _decoded_columns(rows, {column_name(mapping.op)})
        return RecognizedChanges(upserts, deletes, row, row, reasons)
    row = _struct_column(rows, mapping.row)
    # with the record's key, nulls would replace the row that stands
    lacking = upserts & _to_mask(row.is_null())
    without = f"without {mapping.row} (lake.changes)"
    reasons |= {int(at): f"{ops[at].as_py()} {without}" for at in np.flatnonzero(lacking)}
    return RecognizedChanges(upserts & ~lacking, deletes, row, row, reasons)


def recognize_debezium(rows: Table) -> RecognizedChanges:
    """Recognize Debezium's envelope: columns op, before and after. Raises TableSchemaMismatchError."""
    ops = _text_column(rows, "op")
    after, before = _struct_column(rows, "after"), _struct_column(rows, "before")
    if pa.types.is_null(before.type) or not len(before.type):
        before = pa.nulls(len(after), after.type)
    if before.type != after.type:
        raise TableSchemaMismatchError(
            f"the changes have rows of two types, before: {before.type}, after: {after.type}. Nothing was "
            "written and no offset moved"
        )
    upserts = _is_in(ops, DEBEZIUM_UPSERTS)
    empty = _to_mask(rows.column("value").is_null())
    lacking = upserts & _to_mask(after.is_null())
    reasons = {int(at): f"op {ops[at].as_py()} without after" for at in np.flatnonzero(lacking)}
    deletes = _is_in(ops, DEBEZIUM_DELETES) | empty
    truncations = _is_in(ops, (_TRUNCATE,))
    for at in np.flatnonzero(~upserts & ~deletes & ~truncations):
        reason = _explain_other(ops[at].as_py(), rows, int(at))
        if reason is not None:
            reasons[int(at)] = reason
    truncated = np.flatnonzero(truncations).tolist()
    changes = RecognizedChanges(upserts & ~lacking, deletes, after, before, reasons, truncated)
    return _reject_placeholders(changes, "after.")


def is_control_record(fields: Collection[str]) -> bool:
    """Return whether these fields are a heartbeat, a transaction boundary or a schema change of Debezium."""
    names = set(fields)
    if names == {"ts_ms"}:
        return True
    if {"status", "id"} <= names <= _TRANSACTION_FIELDS:
        return True
    return {"source", "databaseName"} <= names and bool({"ddl", "tableChanges"} & names)


def _reject_placeholders(changes: RecognizedChanges, prefix: str) -> RecognizedChanges:
    """Return the changes without upserts of a row with a placeholder, which have reasons."""
    reasons: dict[int, str] = {}
    for field, values in zip(changes.after.type, changes.after.flatten(), strict=True):
        problem = f"{_UNAVAILABLE.decode()} for {field.type}, which the database did not log: give the table "
        reason = Reason.of_field(prefix + field.name, problem + "REPLICA IDENTITY FULL")
        found = _find_placeholders(values) & changes.upserts
        reasons |= dict.fromkeys(np.flatnonzero(found).tolist(), reason)
    if not reasons:
        return changes
    upserts = changes.upserts.copy()
    upserts[list(reasons)] = False
    return replace(changes, upserts=upserts, reasons=changes.reasons | reasons)


def _find_placeholders(values: Array) -> Mask:
    """Return the values that are a placeholder, or an array or a map with one."""
    kind = values.type
    if pa.types.is_map(kind):
        values = pa.ListArray.from_arrays(values.offsets, values.keys)
    if pa.types.is_list(values.type):
        owners = pc.list_parent_indices(values).to_numpy(zero_copy_only=False)
        found = np.zeros(len(values), np.bool_)
        found[owners[_find_placeholders(pc.list_flatten(values))]] = True
        return found
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return np.zeros(len(values), np.bool_)
    return _to_mask(pc.is_in(values, pa.array([_UNAVAILABLE]).cast(kind)))


def _explain_other(op: str | None, rows: Table, at: int) -> str | None:
    """Return why a record is a dead letter, None if it changes nothing."""
    if op == _DEBEZIUM_MESSAGE:
        return None
    if op is not None:
        return f"op {op!r} is unknown"
    return None if is_control_record(_list_fields(rows, at)) else _NO_ENVELOPE_REASON


def _list_fields(rows: Table, at: int) -> Collection[str]:
    value = rows.column("value")[at].as_py()
    if value.lstrip().startswith(b"{"):  # a registry's format starts with byte 0
        try:
            body: Mapping[str, Any] = json.loads(value)
        except (ValueError, RecursionError):  # Arrow skips what it has no column for, however deep or long
            return ()
        return body["payload"] if isinstance(body.get("payload"), dict) else body
    decoded = [name for name in rows.column_names if name not in RECORD_COLUMNS]
    return [name for name in decoded if rows.column(name)[at].is_valid]


def _decoded_columns(rows: Table, without: Collection[str] = ()) -> Array:
    decoded = rows.drop_columns([*RECORD_COLUMNS, *without])
    if not decoded.num_columns:  # no value of the batch had a column
        return pa.nulls(rows.num_rows, pa.struct([]))
    return decoded.to_struct_array().combine_chunks()


def _struct_column(rows: Table, name: str) -> Array:
    column = _find_column(rows, name)
    if column is None or not pa.types.is_struct(column.type):
        return pa.nulls(rows.num_rows, pa.struct([]))
    return column.combine_chunks()


def _text_column(rows: Table, name: str) -> Array:
    column = _find_column(rows, name)
    if column is None:
        return pa.nulls(rows.num_rows, pa.string())
    if pa.types.is_nested(column.type):  # a registry's schema may have any type
        return pa.nulls(rows.num_rows, pa.string())
    text, _ = cast_by_halves(column.combine_chunks(), partial(pc.cast, target_type=pa.string()), pa.string())
    return text


def _find_column(rows: Table, name: str) -> Any:
    column = column_name(name)
    return rows.column(column) if column in rows.column_names else None


def _is_in(texts: Array, choices: Collection[str]) -> Mask:
    return _to_mask(pc.is_in(texts, pa.array(sorted(choices), pa.string())))


def _to_mask(values: Any) -> Mask:
    mask: Mask = values.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
