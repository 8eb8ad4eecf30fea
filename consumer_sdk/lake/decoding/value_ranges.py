"""Ranges of values, for every decoder: what all engines that read the tables can read.

1. Dates and times lie in the years 1 to 9999: pyiceberg, delta-rs and Python know no others, and one such
   value makes them fail on the whole table. A decimal has at most the digits of its type.
2. A text of a partition column of a Delta table is one that Delta keeps (`partition_spec.UNSTORABLE_TEXTS`),
   and Iceberg's truncate(n, column) of a number is in the number's range: beyond it Iceberg's writer fails,
   or takes another partition than other engines look into.
3. A record with a value outside is a dead letter whose reason names field, value and type. With
   `lake.out.of.range: null` the value is null instead.
4. A time is whole microseconds, as in JSON: nanoseconds beyond them are a dead letter, whatever rule 3 says.
   Cut, they would be another value, and two keys within a microsecond one row.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from trimtab.consumer_sdk.lake.decoding.decoded_records import (
    DecodedRecords,
    Reason,
    join_letters,
    split_by_reason,
)
from trimtab.consumer_sdk.lake.model.partition_spec import UNSTORABLE_REASON, UNSTORABLE_TEXTS
from trimtab.consumer_sdk.lake.model.untyped_arrow import Array, Table, pc
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_COLUMNS

_EPOCH: Final = date(1970, 1, 1)
_DAYS: Final = (date.min - _EPOCH).days, (date.max - _EPOCH).days
_DAY_MICROS: Final = 86_400_000_000
MICROS: Final = _DAYS[0] * _DAY_MICROS, (_DAYS[1] + 1) * _DAY_MICROS - 1
_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
YEARS: Final = "outside the years 1 to 9999"


class OutOfRangeError(ValueError):
    """A value outside the range of its type; `path` is its field."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}")
        self.problem: Final = problem
        self.path: Final = path

    def within(self, name: str) -> "OutOfRangeError":
        """Return the error of the struct's field `name`."""
        return type(self)(self.problem, f"{name}.{self.path}" if self.path else name)


class InexactValueError(OutOfRangeError):
    """A value that its type would round; never null in its place."""


def to_micros(value: int, unit: str) -> int:
    """Return a time since 1970 in microseconds.

    Raises OutOfRangeError beyond 64 bits, InexactValueError for a part of a microsecond.
    """
    micros, rest = divmod(value * _PER_SECOND["us"], _PER_SECOND[unit])
    if not -(2**63) <= micros < 2**63:
        raise OutOfRangeError(_describe_time(value, unit))
    if rest:
        raise InexactValueError(f"{value} {unit} since 1970 are not exact in a timestamp of microseconds")
    return micros


def check_digits(value: Decimal, precision: int, scale: int) -> Decimal:
    """Return a decimal that has at most the digits of its type. Raises OutOfRangeError."""
    if value and value.adjusted() + scale >= precision:
        raise OutOfRangeError(f"{value} has more digits than decimal({precision},{scale})")
    return value


@dataclass(frozen=True, slots=True)
class ValueRanges:
    """What becomes of values outside their ranges."""

    nulls: bool = False  # False: their records are dead letters
    partition_columns: frozenset[str] = frozenset()  # of Delta, in lower case
    truncations: frozenset[tuple[str, int]] = frozenset()  # of Iceberg: columns, in lower case, and widths
    key_fields: frozenset[str] = frozenset()  # never null: the record's key would take their place
    nulls_within: str | None = None  # the field whose values become null, whatever `nulls` is
    nulls_inexact: bool = False  # in that field, which is not written

    def within(self, name: str) -> "ValueRanges":
        """Return the ranges of the values within a field."""
        is_unwritten = name == self.nulls_within
        nulls = (self.nulls or is_unwritten) and name not in self.key_fields
        inexact = (self.nulls_inexact or is_unwritten) and nulls
        return replace(self, nulls=nulls, nulls_within=None, nulls_inexact=inexact)

    def guard(self, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a converter that returns null in place of OutOfRangeError, if values become null."""

        def guarded(value: Any) -> Any:
            try:
                return convert(value)
            except OutOfRangeError as error:
                if isinstance(error, InexactValueError) and not self.nulls_inexact:
                    raise
                return None

        return guarded if self.nulls else convert

    def check_records(self, decoded: DecodedRecords) -> DecodedRecords:
        """Return the records with all decoded values in their ranges."""
        names = [name for name in decoded.rows.column_names if name not in RECORD_COLUMNS]
        rows, reasons = self.check_columns(decoded.rows, names)
        if not reasons:
            return DecodedRecords(rows, decoded.dead_letters)
        split = split_by_reason(rows, rows.select(list(RECORD_COLUMNS)), reasons)
        return DecodedRecords(split.rows, join_letters(decoded.dead_letters, split.dead_letters))

    def check_columns(
        self, rows: Table, names: Collection[str], required: Collection[str] = ()
    ) -> tuple[Table, dict[int, str]]:
        """Return the rows, and the reasons of those that are dead letters.

        A value outside its range in one of the columns `names` is null afterwards; in one of `required`, or
        without `nulls`, it is a reason.
        """
        reasons: dict[int, str] = {}
        for name in names:
            index = rows.column_names.index(name)
            column = rows.column(index)
            if (limit := self._find_limit(name.lower(), column.type)) is None:
                continue
            limited, found = limit(name, column.combine_chunks())
            if found:
                rows = rows.set_column(index, rows.schema.field(index), limited)
            if not self.nulls or name in required:
                reasons = found | reasons
        return rows, reasons

    def _find_limit(
        self, name: str, kind: Any
    ) -> Callable[[str, Array], tuple[Array, dict[int, str]]] | None:
        width = dict(self.truncations).get(name)
        if width is not None and (kinds.is_integer(kind) or kinds.is_decimal(kind)):
            return partial(_limit_truncated, width)
        if name in self.partition_columns and kinds.is_string(kind):
            return _limit_partition_texts
        return _limit if _has_range(kind) else None


STRICT_RANGES: Final = ValueRanges()


def _has_range(kind: Any) -> bool:
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        return True
    return any(_has_range(kind.field(at).type) for at in range(kind.num_fields))


def _limit(path: str, values: Array) -> tuple[Array, dict[int, str]]:
    """Return the values with nulls for those outside their ranges, and their reasons by row."""
    kind = values.type
    if not len(values) or not _has_range(kind):
        return values, {}
    if kinds.is_struct(kind):
        return _limit_fields(path, values)
    if kinds.is_list(kind) or kinds.is_map(kind):
        return _limit_elements(path, values)
    return _limit_times(path, values)


def _limit_times(path: str, values: Array) -> tuple[Array, dict[int, str]]:
    kind = values.type
    numbers = values.view(pa.int32() if kinds.is_date32(kind) else pa.int64())
    if kinds.is_date32(kind):
        low, high = _DAYS
    else:
        unit = "ms" if kinds.is_date64(kind) else kind.unit
        low, high = (end * _PER_SECOND[unit] // _PER_SECOND["us"] for end in MICROS)
    bounds = pc.min_max(numbers)
    if bounds["min"].as_py() is None or (bounds["min"].as_py() >= low and bounds["max"].as_py() <= high):
        return values, {}
    bad = pc.fill_null(pc.or_(pc.less(numbers, low), pc.greater(numbers, high)), False)  # noqa: FBT003 - Arrow's
    reasons: dict[int, str] = {
        int(at): Reason.of_field(path, _describe_time(numbers[int(at)].as_py(), getattr(kind, "unit", "d")))
        for at in np.flatnonzero(bad.to_numpy(zero_copy_only=False))
    }
    return pc.if_else(bad, pa.scalar(None, kind), values), reasons


def _limit_fields(path: str, values: Array) -> tuple[Array, dict[int, str]]:
    reasons: dict[int, str] = {}
    children: list[Array] = []
    for field, child in zip(values.type, values.flatten(), strict=True):
        limited, found = _limit(f"{path}.{field.name}", child)
        children.append(limited)
        reasons = found | reasons
    if not reasons:
        return values, {}
    return pa.StructArray.from_arrays(children, fields=list(values.type), mask=values.is_null()), reasons


def _limit_elements(path: str, values: Array) -> tuple[Array, dict[int, str]]:
    is_map = kinds.is_map(values.type)
    limited, found = _limit(f"{path}.value" if is_map else path, values.items if is_map else values.values)
    offsets = values.offsets.to_numpy()
    owners = {at: int(np.searchsorted(offsets, at, side="right")) - 1 for at in found}
    # elements of no list: outside of a slice, or behind a null
    reasons = {
        row: found[at] for at, row in owners.items() if 0 <= row < len(values) and values[row].is_valid
    }
    if not reasons:
        return values, {}
    parts = (values.keys, limited) if is_map else (limited,)
    rebuild = pa.MapArray.from_arrays if is_map else pa.ListArray.from_arrays
    return rebuild(pa.array(offsets), *parts, type=values.type, mask=values.is_null()), reasons


def _limit_partition_texts(path: str, values: Array) -> tuple[Array, dict[int, str]]:
    unstorable = pc.is_in(values, pa.array(UNSTORABLE_TEXTS))
    bad = pc.or_(unstorable, pc.fill_null(pc.match_substring(values, "\0"), False))  # noqa: FBT003 - Arrow's
    at = np.flatnonzero(bad.to_numpy(zero_copy_only=False)).tolist()
    reasons: dict[int, str] = {
        row: Reason.of_field(path, f"{values[row].as_py()!r} {UNSTORABLE_REASON}") for row in at
    }
    return pc.if_else(bad, pa.scalar(None, values.type), values) if at else values, reasons


def _limit_truncated(width: int, path: str, values: Array) -> tuple[Array, dict[int, str]]:
    kind = values.type
    is_decimal = kinds.is_decimal(kind)
    # Iceberg's least integer has 32 bits
    greatest = 10**kind.precision - 1 if is_decimal else 2 ** (max(kind.bit_width, 32) - 1)
    low = -(greatest // width * width)
    if not is_decimal and low <= -(2 ** (kind.bit_width - 1)):
        return values, {}
    least = pa.scalar(Decimal(f"{low}E-{kind.scale}") if is_decimal else low, kind)
    bad = pc.fill_null(pc.less(values, least), False)  # noqa: FBT003 - Arrow's
    at = np.flatnonzero(bad.to_numpy(zero_copy_only=False)).tolist()
    reasons: dict[int, str] = {
        row: Reason.of_field(path, f"truncate({width}, {values[row].as_py()}) is out of range of {kind}")
        for row in at
    }
    return pc.if_else(bad, pa.scalar(None, kind), values) if at else values, reasons


def _describe_time(value: int, unit: str) -> str:
    if unit == "d":
        return f"{value} days since 1970 are {YEARS} of a date"
    return f"{value} {unit} since 1970 are {YEARS} of a timestamp"
