"""What Avro and Protobuf have in common: a schema becomes columns and a function that reads.

What no column can be is text in JSON instead: a type that contains itself, a union of several
types, a message without fields.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

ArrowType: TypeAlias = Any
"""A pyarrow data type; Any, because pyarrow ships no types."""

Row: TypeAlias = dict[str, Any]

Convert: TypeAlias = Callable[[Any], Any]

TIMESTAMP: Final = pa.timestamp("us", "UTC")


class Unreadable(Exception):
    """A schema that cannot be had or used; the text is the reason that dead letters give."""


class Column(NamedTuple):
    """A type, and how a decoded value becomes one of it (None: it is one already)."""

    type: ArrowType
    convert: Convert | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads values of one schema; `schema` is the pyarrow schema of the rows."""

    schema: Any
    read: Callable[[bytes], Row]


def as_json(value: Any) -> str:
    """Return a decoded value as text in JSON; bytes as Avro's JSON has them."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


JSON_TEXT: Final = Column(pa.string(), as_json)


def _plain(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
