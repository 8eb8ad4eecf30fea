"""Builds the rows of a table from recognized changes, with their keys.

1. The key columns are those of the row: `after` of an upsert, `before` of a delete. What is null there
   is taken from the record's key: an object with the key columns, or text for a single key column.
2. A change whose key has a null is a dead letter.
3. An update whose `before` has another key than its `after` deletes that row first.
4. A table row has its record's topic, partition, offset and timestamp, then the row's columns. With
   soft deletes also `__deleted`; the row of a delete is then `before`, as far as the record has it.
5. Values outside their ranges (`value_ranges`) count where they are written: not in the `before` of an
   update, nor beside the key in that of a delete. The decoder refuses what a type cannot hold at all,
   except in a `before` of JSON that is not written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.array_casts import cast_by_halves
from trimtab.consumer_sdk.lake.changes.change_decoders import ChangeDecoder
from trimtab.consumer_sdk.lake.changes.change_formats import RecognizedChanges
from trimtab.consumer_sdk.lake.changes.keyed_changes import ChangeRows
from trimtab.consumer_sdk.lake.decoding.decoded_records import convert_in_parts
from trimtab.consumer_sdk.lake.decoding.value_ranges import ValueRanges
from trimtab.consumer_sdk.lake.model.untyped_arrow import Array, Table, pc
from trimtab.consumer_sdk.lake.schema.record_columns import column_name, find_name_problem

POSITION_COLUMNS: Final = ("topic", "partition", "offset", "timestamp")
DELETED_COLUMN: Final = "__deleted"  # named as by Debezium's ExtractNewRecordState
_STRUCTURED_KEY: Final = r"^\s*\{|^\x00"  # an object, or the registry's wire format
_COMPOUND_KEY_REASON: Final = "it is no object, and the table has several key columns"

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyRules:
    """How the rows of a table are keyed."""

    columns: tuple[str, ...]  # of the row
    soft_deletes: bool = False  # rows of deletes stay, marked by DELETED_COLUMN
    applies_truncations: bool = False  # False: they are dead letters

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the table that are its key.

        With the topic, also of a table with one: another consumer may write another topic to it.
        """
        return ("topic", *self.columns)


def lacks_row_columns(columns: Iterable[str]) -> bool:
    """Return whether a table was made for a batch without a readable change, whose columns nobody knew."""
    return {name.lower() for name in columns} <= {*POSITION_COLUMNS, DELETED_COLUMN}


@dataclass(frozen=True, slots=True)
class _ChangeOrder:
    """Changes in the order of their records, of which one may make two."""

    records: Indices
    sources: Indices  # into after + before
    deletes: npt.NDArray[np.bool_]


def build_change_rows(
    records: Table,
    changes: RecognizedChanges,
    rules: KeyRules,
    decoder: ChangeDecoder,
    ranges: ValueRanges,
    spared: Mapping[int, str],
) -> tuple[ChangeRows, dict[int, str]]:
    """Return the changes, and the reasons of the records that have no key, or values out of range.

    `spared` are faults by record in its `before`, or in both if they are one.

    Raises TableSchemaMismatchError, and what the decoder raises for a registry.
    """
    if rules.soft_deletes:
        changes = replace(changes, deletes=changes.deletes & ~_find_trailing_tombstones(records, changes))
    order = _order_changes(changes, rules.columns)
    structs = pa.concat_arrays([changes.after, changes.before]).take(pa.array(order.sources))
    record_keys = records.column("key").combine_chunks().take(pa.array(order.records))
    rows, errors = _fill_keys(_to_row_table(structs, rules.columns), record_keys, rules.columns, decoder)
    rows, outside = _check_ranges(rows, order, rules, ranges)
    reasons = {int(order.records[at]): text for at, text in (outside | errors).items()}
    at_fault = ~order.deletes | rules.soft_deletes
    if changes.before is not changes.after:
        at_fault &= order.sources >= records.num_rows
    reasons |= {at: spared[at] for at in order.records[at_fault].tolist() if at in spared}
    kept = pa.array(~np.isin(order.records, sorted(reasons)))
    positions = records.select(list(POSITION_COLUMNS)).take(pa.array(order.records))
    table = pa.table({**_columns_of(positions), **_columns_of(rows)})
    # a key column whose type no record of the batch tells
    table = table.drop_columns([f.name for f in table.schema if pa.types.is_null(f.type)])
    table, deletes = table.filter(kept), pa.array(order.deletes).filter(kept)
    if rules.soft_deletes:
        return _mark_deletes(table, deletes), reasons
    return ChangeRows(table, deletes), reasons


def _order_changes(changes: RecognizedChanges, key_columns: Sequence[str]) -> _ChangeOrder:
    count = len(changes.upserts)
    moved = np.flatnonzero(changes.upserts & _find_moved_keys(changes, key_columns))
    deletes = np.flatnonzero(changes.deletes)
    upserts = np.flatnonzero(changes.upserts)
    records = np.concatenate([moved, deletes, upserts])
    sources = np.concatenate([moved + count, deletes + count, upserts])
    order = np.argsort(records, kind="stable")  # of one record, the delete of its old key comes first
    return _ChangeOrder(records[order], sources[order], (sources >= count)[order])


def _check_ranges(
    rows: Table, order: _ChangeOrder, rules: KeyRules, ranges: ValueRanges
) -> tuple[Table, dict[int, str]]:
    """Check the values that are written, and all keys: of a delete, the rest of the row is not."""
    limited, reasons = ranges.check_columns(rows, rows.column_names, rules.columns)
    if rules.soft_deletes or not reasons:
        return limited, reasons
    _, of_keys = ranges.check_columns(rows, rules.columns, rules.columns)
    return limited, {at: text for at, text in reasons.items() if at in of_keys or not order.deletes[at]}


def _find_trailing_tombstones(records: Table, changes: RecognizedChanges) -> npt.NDArray[np.bool_]:
    """Return the tombstones right behind a delete, which would drop the values of the deleted row."""
    trailing = np.zeros(records.num_rows, np.bool_)
    same = np.ones(max(records.num_rows - 1, 0), np.bool_)
    for name in ("topic", "partition", "key"):
        column = records.column(name).combine_chunks()
        same &= pc.fill_null(pc.equal(column[1:], column[:-1]), False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's signature
    empty = records.column("value").is_null().to_numpy()
    trailing[1:] = same & changes.deletes[:-1] & empty[1:] & ~empty[:-1]
    return trailing


def _find_moved_keys(changes: RecognizedChanges, key_columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    moved = np.zeros(len(changes.upserts), np.bool_)
    if changes.before.null_count == len(changes.before):
        return moved
    before, after = (_to_row_table(side, key_columns) for side in (changes.before, changes.after))
    for name in key_columns:
        if pa.types.is_null(before.schema.field(name).type):  # no row has it, and nulls cannot be compared
            continue
        differs = pc.not_equal(before.column(name), after.column(name))
        moved |= pc.fill_null(differs, False).to_numpy()  # noqa: FBT003 - Arrow's signature
    return moved & ~_find_null_keys(before, key_columns)


def _fill_keys(
    rows: Table, record_keys: Array, key_columns: Sequence[str], decoder: ChangeDecoder
) -> tuple[Table, dict[int, str]]:
    """Return rows with the record's key where theirs has nulls, and the reasons of those still without."""
    for name in key_columns:
        _check_key_type(rows.schema.field(name))
    lacking = np.flatnonzero(_find_null_keys(rows, key_columns))
    if not len(lacking):
        return rows, {}
    candidates = record_keys.take(pa.array(lacking))
    present = lacking[candidates.is_valid().to_numpy(zero_copy_only=False)]
    keys, errors = _read_record_keys(candidates.drop_null(), rows, key_columns, decoder)
    for name in key_columns:
        rows = _fill_column(rows, name, keys, present)
    reasons = {int(present[at]): f"record key: {text}" for at, text in errors.items()}
    without = np.flatnonzero(_find_null_keys(rows, key_columns))
    return rows, {
        int(at): reasons.get(int(at), _explain_no_key(rows, key_columns, int(at))) for at in without
    }


def _read_record_keys(
    keys: Array, rows: Table, key_columns: Sequence[str], decoder: ChangeDecoder
) -> tuple[Array, dict[int, str]]:
    """Return structs with the key columns of record keys, and reasons by row."""
    structured = pc.match_substring_regex(keys, _STRUCTURED_KEY)
    kinds = {name: rows.schema.field(name).type for name in key_columns}
    kinds = {name: kind for name, kind in kinds.items() if not pa.types.is_null(kind)}
    if pc.any(structured).as_py() and len(kinds) < len(key_columns):
        decoded = decoder.decode_keys(keys.filter(structured))[0].type  # no value tells the types
        kinds = {column_name(field.name): field.type for field in decoded} | kinds
    whole = pa.struct([(name, kinds.get(name, pa.string())) for name in key_columns])

    def read_part(part: Array) -> tuple[Array, dict[int, str]]:
        if not len(part):
            return pa.nulls(0, whole), {}
        if pc.match_substring_regex(part.slice(0, 1), _STRUCTURED_KEY)[0].as_py():
            return _fit_structs(*decoder.decode_keys(part), whole)
        return _read_text_keys(part, whole, decoder)

    return convert_in_parts(keys, structured, read_part)


def _fit_structs(structs: Array, errors: dict[int, str], whole: Any) -> tuple[Array, dict[int, str]]:
    columns = {column_name(f.name): v for f, v in zip(structs.type, structs.flatten(), strict=True)}
    fitted = []
    for field in whole:
        values = columns.get(field.name, pa.nulls(len(structs), field.type))
        array, more = cast_by_halves(values, partial(pc.cast, target_type=field.type), field.type)
        fitted.append(array)
        errors = {at: f"{field.name}: {text}" for at, text in more.items()} | errors
    return pa.StructArray.from_arrays(fitted, fields=list(whole)), errors


def _read_text_keys(keys: Array, whole: Any, decoder: ChangeDecoder) -> tuple[Array, dict[int, str]]:
    if len(whole) > 1:
        return pa.nulls(len(keys), whole), dict.fromkeys(range(len(keys)), _COMPOUND_KEY_REASON)
    values, errors = decoder.decode_text_keys(keys, whole[0])
    return pa.StructArray.from_arrays([values], fields=list(whole)), errors


def _fill_column(rows: Table, name: str, keys: Array, places: Indices) -> Table:
    values = keys.flatten()[keys.type.get_field_index(name)]
    at = np.full(rows.num_rows, -1)
    at[places] = np.arange(len(places))
    filling = values.take(pa.array(at, mask=at < 0))
    index = rows.column_names.index(name)
    present = rows.column(index).combine_chunks()
    return rows.set_column(index, name, pc.coalesce(present.cast(filling.type), filling))


def _find_null_keys(rows: Table, key_columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    nulls = np.zeros(rows.num_rows, np.bool_)
    for name in key_columns:
        nulls |= rows.column(name).is_null().to_numpy()
    return nulls


def _explain_no_key(rows: Table, key_columns: Sequence[str], at: int) -> str:
    lacking = [name for name in key_columns if not rows.column(name)[at].is_valid]
    return f"no key: {', '.join(lacking)} (lake.key) is null or missing, in the value and in the record key"


def _check_key_type(field: Any) -> None:
    if pa.types.is_nested(field.type) or pa.types.is_floating(field.type):
        raise TableSchemaMismatchError(
            f"lake.key: column {field.name} is {field.type}, which cannot be a key: name columns of "
            "integers, text, times or decimals. Nothing was written and no offset moved"
        )


def _mark_deletes(table: Table, deletes: Array) -> ChangeRows:
    if DELETED_COLUMN in table.column_names:
        raise TableSchemaMismatchError(
            f"the rows have a column {DELETED_COLUMN}, which lake.delete=soft adds: set lake.delete=hard"
        )
    none = pa.nulls(len(deletes), pa.bool_()).fill_null(False)  # noqa: FBT003 - Arrow's signature
    return ChangeRows(table.append_column(DELETED_COLUMN, deletes), none)


def _to_row_table(structs: Array, key_columns: Sequence[str]) -> Table:
    """Return the structs' fields as columns; a missing key column has the type null."""
    if problem := find_name_problem(structs.type):
        raise TableSchemaMismatchError(
            f"the rows of changes have {problem}, which a table cannot: SQL ignores the case "
            "of names. Nothing was written and no offset moved"
        )
    columns = {column_name(f.name): v for f, v in zip(structs.type, structs.flatten(), strict=True)}
    missing = {name: pa.nulls(len(structs)) for name in key_columns if name not in columns}
    return pa.table(columns | missing)


def _columns_of(table: Table) -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns, strict=True))
