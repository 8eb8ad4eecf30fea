"""Joins rows in Arrow: a table's with those of records, or with changes by key."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.change_rows import lacks_row_columns
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.schema.schema_evolution import check_values_kept

_ROW_NUMBER: Final = "__trimtab_row"


def join_rows(table: str, rows: Records | None, behind: Records | KeyedChanges | None) -> Records:
    """Return a table's rows with those behind it; one of both may be None: no table, nothing behind it.

    Raises TableSchemaMismatchError.
    """
    if isinstance(behind, KeyedChanges):
        return behind.upserts if rows is None else apply_changes(table, rows, behind)
    if rows is None or behind is None:
        return behind if rows is None else rows
    return append_rows(rows, behind)


def append_rows(rows: Records, more: Records) -> Records:
    """Return both, by name; a column that one of them lacks is null there.

    Raises TableSchemaMismatchError for columns of types that have no common one.
    """
    names = {name.lower(): name for name in rows.column_names}  # as tables, which ignore case
    renamed = more.rename_columns([names.get(name.lower(), name) for name in more.column_names])
    try:
        joined = pa.concat_tables([rows, renamed], promote_options="permissive")
        check_values_kept((rows.schema, renamed.schema), joined.schema)
    except (pa.ArrowInvalid, TypeError) as error:
        raise TableSchemaMismatchError(f"the records do not fit the table's columns: {error}") from error
    return joined


def apply_changes(table: str, rows: Records, changes: KeyedChanges) -> Records:
    """Return the rows after these changes. Raises TableSchemaMismatchError."""
    if not changes.touched_keys.num_rows:
        return rows
    keys = find_table_keys(table, changes, rows.column_names)
    return append_rows(rows if keys is None else _drop_rows(table, rows, keys), changes.upserts)


def find_table_keys(table: str, changes: KeyedChanges, columns: Sequence[str]) -> Records | None:
    """Return the changed keys by the table's names of columns; None if no row of the table has a key.

    Raises TableSchemaMismatchError.
    """
    names = {name.lower(): name for name in columns}
    missing = sorted(name for name in changes.key_columns if name.lower() not in names)
    if missing and lacks_row_columns(columns):  # the writer adds them with its next flush
        return None
    if missing:
        raise TableSchemaMismatchError(
            f"table {table}: the key column {missing[0]} is missing: correct lake.key, or write the topic to "
            "another table (lake.tables)"
        )
    keys = changes.touched_keys
    return keys.rename_columns([names[name.lower()] for name in keys.column_names])


def _drop_rows(table: str, rows: Records, keys: Records) -> Records:
    mine = rows.select(keys.column_names)
    try:
        keys = keys.cast(mine.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableSchemaMismatchError(
            f"table {table}: its key columns have other types than the changes: {error}"
        ) from error
    numbered = mine.append_column(_ROW_NUMBER, pa.array(np.arange(rows.num_rows)))
    # the keys alone: Arrow joins no maps and no structs
    kept = numbered.join(keys, keys.column_names, join_type="left anti")
    mask = np.zeros(rows.num_rows, bool)
    mask[kept.column(_ROW_NUMBER).to_numpy()] = True
    return rows.filter(pa.array(mask))
