"""Data files that cannot have a key: bounds of their key columns, which table formats keep.

Bounds are compared as numbers or as bytes, in the order of Parquet's statistics. A file without
bounds, or with a column of another type, may have every key.
"""

from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as kinds

from trimtab.consumer_sdk.lake.model.interfaces import Records

Bound: TypeAlias = int | bytes
Bounds: TypeAlias = Mapping[str, tuple[Bound, Bound]]  # lowest and highest value, by column of the keys

_FOUR_BYTES: Final = 4
_EIGHT_BYTES: Final = 8


class KeyRanges:
    """Values of keys by column, each sorted."""

    def __init__(self, keys: Records) -> None:
        self._keys = keys

    def may_be_in(self, bounds: Bounds) -> bool:
        """Return whether a file with these bounds may have one of the keys."""
        return all(self._overlap(column, *pair) for column, pair in bounds.items())

    def _overlap(self, column: str, lower: Bound, upper: Bound) -> bool:
        values = self._sorted.get(column)
        if values is None:
            return True
        first = bisect_left(values, lower)
        return first < len(values) and values[first] <= upper

    @cached_property
    def _sorted(self) -> dict[str, list[Any]]:
        names = self._keys.column_names
        columns = {name: _convert_values(self._keys.column(name)) for name in names}
        return {name: sorted({*c.to_pylist()}) for name, c in columns.items() if c is not None}


def decode_bound(kind: Any, value: bytes | None) -> Bound | None:
    """Return a bound of a column of this type in Iceberg's serialization, None if it cannot be compared."""
    if value is None or kinds.is_string(kind) or kinds.is_binary(kind):
        return value
    if kinds.is_signed_integer(kind):  # of a file that is older than a widening, fewer bytes
        return int.from_bytes(value, "little", signed=True)
    width = _FOUR_BYTES if kinds.is_date32(kind) else _EIGHT_BYTES
    if _is_number(kind) and len(value) == width:  # a date may have become a timestamp
        return int.from_bytes(value, "little", signed=True)
    return None


def _convert_values(column: Any) -> Any:
    """Return a column's values as numbers or bytes, None for another type."""
    if kinds.is_string(column.type) or kinds.is_binary(column.type):
        return column.cast(pa.binary())
    if not _is_number(column.type):
        return None
    return column.cast(pa.int32() if kinds.is_date32(column.type) else pa.int64())


def _is_number(kind: Any) -> bool:
    # Iceberg's times have microseconds
    is_time = kinds.is_timestamp(kind) or kinds.is_time64(kind)
    return bool(kinds.is_signed_integer(kind) or kinds.is_date32(kind) or (is_time and kind.unit == "us"))
