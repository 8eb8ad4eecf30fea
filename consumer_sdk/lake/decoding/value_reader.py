"""What Avro and Protobuf have in common: a schema becomes columns and a function that reads.

What no column can be is text in JSON instead: a type that contains itself, a union of several
types, a message without fields.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

ColumnType: TypeAlias = Any
"""A pyarrow data type; Any, because pyarrow ships no types."""

DecodedRow: TypeAlias = dict[str, Any]

ValueConverter: TypeAlias = Callable[[Any], Any]

TIMESTAMP_TYPE: Final = pa.timestamp("us", "UTC")


class UnusableSchemaError(Exception):
    """A schema that cannot be had or used; the text is the reason that dead letters give."""


class DecodedColumn(NamedTuple):
    """A type, and how a decoded value becomes one of it (None: it is one already)."""

    type: ColumnType
    convert: ValueConverter | None = None


@dataclass(frozen=True, slots=True)
class ValueReader:
    """Reads values of one schema; `schema` is the pyarrow schema of the rows."""

    schema: Any
    read: Callable[[bytes], DecodedRow]


def to_json_text(value: Any) -> str:
    """Return a decoded value as text in JSON; bytes as Avro's JSON has them."""
    return json.dumps(value, default=_encode_json_bytes, ensure_ascii=False)


JSON_TEXT_COLUMN: Final = DecodedColumn(pa.string(), to_json_text)


def _encode_json_bytes(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
