"""Net changes of a batch: of each key only the last change counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from trimtab.consumer_sdk.lake.model.untyped_arrow import Table, pc

_POSITION: Final = "__position"


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Changes in the order of their offsets within each partition."""

    rows: Table  # the columns of the lake table; those of a delete may be null, its key may not
    deletes: Any  # Boolean array: whether a row is a delete


@dataclass(frozen=True, slots=True)
class KeyedChanges:
    """Changes to commit together: drop the rows of `touched_keys`, then add `upserts`.

    Applied again they leave the table as it is.
    """

    upserts: Table  # one row for each key that has one after the batch; may have no rows
    touched_keys: Table  # the key columns of every changed key, each once, no nulls; without rows it may
    # lack columns
    key_columns: tuple[str, ...]

    @property
    def schema(self) -> Any:
        """Columns of the table."""
        return self.upserts.schema


def reduce_changes(changes: ChangeRows, key_columns: Sequence[str]) -> KeyedChanges:
    """Return the net changes: the last one of each key, by its place in `changes`.

    Keys with a null must have been taken out before.
    """
    # a batch of no changes may not tell the columns
    keys = changes.rows.select([name for name in key_columns if name in changes.rows.column_names])
    if not keys.num_rows:
        return KeyedChanges(changes.rows, keys, tuple(key_columns))
    positions = pa.array(np.arange(keys.num_rows))
    grouped = keys.append_column(_POSITION, positions).group_by(list(key_columns), use_threads=False)
    last = grouped.aggregate([(_POSITION, "max")]).column(f"{_POSITION}_max").sort()
    upserts = last.filter(pc.invert(changes.deletes.take(last)))
    return KeyedChanges(changes.rows.take(upserts), keys.take(last), tuple(key_columns))
