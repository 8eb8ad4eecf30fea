"""Joins rows in Arrow: a table's with those of records, or with changes by key."""

from typing import Final

import numpy as np
import pyarrow as pa

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.interfaces import Records

_ROW_NUMBER: Final = "__trimtab_row"


def append_rows(rows: Records, more: Records) -> Records:
    """Return both, by name; a column that one of them lacks is null there.

    Raises TableSchemaMismatchError for columns of types that have no common one.
    """
    names = {name.lower(): name for name in rows.column_names}  # as tables, which ignore case
    renamed = more.rename_columns([names.get(name.lower(), name) for name in more.column_names])
    try:
        return pa.concat_tables([rows, renamed], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableSchemaMismatchError(f"the records do not fit the table's columns: {error}") from error


def apply_changes(rows: Records, changes: KeyedChanges) -> Records:
    """Return the rows after these changes."""
    if not changes.touched_keys.num_rows:
        return rows
    keys = list(changes.key_columns)
    mine = rows.select(keys)
    numbered = mine.append_column(_ROW_NUMBER, pa.array(np.arange(rows.num_rows)))
    # the keys alone: Arrow joins no maps and no structs
    kept = numbered.join(changes.touched_keys.cast(mine.schema), keys, join_type="left anti")
    mask = np.zeros(rows.num_rows, bool)
    mask[kept.column(_ROW_NUMBER).to_numpy()] = True
    return append_rows(rows.filter(pa.array(mask)), changes.upserts)
