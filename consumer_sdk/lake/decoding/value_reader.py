"""Common part of Avro and Protobuf: a schema becomes columns and a read function.

A type without a column type is JSON text: a recursive type, a union of several types, a message
without fields.
"""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from trimtab.consumer_sdk.lake.decoding.value_ranges import OutOfRangeError

ColumnType: TypeAlias = Any  # a pyarrow data type: pyarrow ships no types
DecodedRow: TypeAlias = dict[str, Any]
ValueConverter: TypeAlias = Callable[[Any], Any]

TIMESTAMP_TYPE: Final = pa.timestamp("us", "UTC")
MAX_COLUMNS: Final = 10_000  # with nested ones
MAX_READ_VALUES: Final = 5_000_000  # at a time, by one thread: 50 bytes each
_TOO_MANY_ITEMS: Final = f"its items have more than {MAX_READ_VALUES} values"


class UnusableSchemaError(Exception):
    """A schema is missing or unusable; the text is the reason in dead letters."""


@contextmanager
def explain_unusable_schema() -> Generator[None]:
    """Turn every error of the block into UnusableSchemaError."""
    try:
        yield
    except UnusableSchemaError:
        raise
    except Exception as error:  # a malformed schema raises any error in the parsers
        reason = str(error) or type(error).__name__
        raise UnusableSchemaError(f"the schema cannot be used: {reason[:300]}") from error


class ColumnCounter:
    """Counts the columns of one schema: types that use a type twice at each level expand to billions."""

    def __init__(self) -> None:
        self.columns = 0

    def count_column(self) -> None:
        """Count one more column. Raises UnusableSchemaError beyond MAX_COLUMNS."""
        self.columns += 1
        if self.columns > MAX_COLUMNS:
            raise UnusableSchemaError(f"its schema has more than {MAX_COLUMNS} columns")


class ItemCounter(threading.local):
    """Counts the values of items whose defaults take no bytes; each thread has its own count."""

    values = 0

    def count(self, values: int) -> None:
        """Count values of the record that is read. Raises ValueError beyond MAX_READ_VALUES."""
        self.values += values
        if self.values > MAX_READ_VALUES:
            raise ValueError(_TOO_MANY_ITEMS)


class DecodedColumn(NamedTuple):
    """A column type, and the converter of decoded values to it."""

    type: ColumnType
    convert: ValueConverter | None = None  # None saves a call per value


@dataclass(frozen=True, slots=True)
class ValueReader:
    """Reads values of one schema; `schema` is the pyarrow schema of the rows."""

    schema: Any
    read: Callable[[bytes], DecodedRow]
    items: ItemCounter = field(default_factory=ItemCounter)  # of the last record


def keep_value(value: Any) -> Any:
    """Return the value itself."""
    return value


def to_json_text(value: Any) -> str:
    """Return a decoded value as JSON text. Raises OutOfRangeError for NaN and infinite numbers."""
    try:
        return json.dumps(value, default=_encode_bytes, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise OutOfRangeError(f"{value!r:.100} is no number of JSON") from error


JSON_TEXT_COLUMN: Final = DecodedColumn(pa.string(), to_json_text)


def _encode_bytes(value: Any) -> str:
    # latin-1, as Avro's own JSON encoding: each byte is the code point of its number
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
