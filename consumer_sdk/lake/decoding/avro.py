"""Avro values to rows, with fastavro.

The rules: a union with null is an optional column of the other type; long and int, or double and
float in one union are the longer one; any other union, and a record that contains itself, is text
in JSON. Times of day keep their number; a decimal of more than 38 digits is text. Logical types but
decimals are taken off the schema that reads, since Arrow takes the plain numbers as they are.
"""

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.repository.base import AbstractSchemaRepository, SchemaRepositoryError
from fastavro.schema import SchemaParseException, load_schema

from trimtab.consumer_sdk.lake.decoding.value_reader import (
    JSON_TEXT,
    TIMESTAMP,
    Column,
    Convert,
    Reader,
    Row,
    Unreadable,
)


def _micros(nanos: int) -> int:
    return nanos // 1000


def _from_millis(millis: int) -> int:
    """Microseconds, as tables have them; what these cannot say makes its record a dead letter."""
    return millis * 1000


Schema: TypeAlias = Any
"""A parsed Avro schema: a name, a list (union), or a mapping."""

_ROOT: Final = "$root"
_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "null": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final = {
    ("int", "date"): Column(pa.date32()),
    ("long", "timestamp-millis"): Column(TIMESTAMP, _from_millis),
    ("long", "timestamp-micros"): Column(TIMESTAMP),
    ("long", "timestamp-nanos"): Column(TIMESTAMP, _micros),
    ("long", "local-timestamp-millis"): Column(pa.timestamp("us"), _from_millis),
    ("long", "local-timestamp-micros"): Column(pa.timestamp("us")),
    ("long", "local-timestamp-nanos"): Column(pa.timestamp("us"), _micros),
}
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
_MOST_DIGITS: Final = 38
_OURS: Final = "trimtab.logicalType"


def reader(text: str, references: Mapping[str, str]) -> Reader:
    """Return what reads values of a schema; `references` is the text of each type it refers to.

    Raises Unreadable.
    """
    try:
        named = {name: _without_logical(json.loads(body)) for name, body in references.items()}
        schema = load_schema(
            _ROOT, repo=_Repository({**named, _ROOT: _without_logical(json.loads(text))})
        )
    except (SchemaParseException, SchemaRepositoryError, ValueError, KeyError) as error:
        raise Unreadable(f"the schema cannot be parsed: {error}") from error
    if not isinstance(schema, dict) or schema["type"] != "record":
        raise Unreadable("its schema is not a record, so it has no columns")
    columns = _Columns()
    record = columns.record(schema, frozenset())

    def read(data: bytes) -> Row:
        stream = BytesIO(data)
        row = cast("Row", schemaless_reader(stream, schema, None))
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
        return row if record.convert is None else record.convert(row)

    return Reader(pa.schema(list(record.type)), read)


class _Repository(AbstractSchemaRepository):
    """The schemas that are referred to, by name."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = schemas

    def load(self, name: str) -> Schema:
        """Return a schema. Raises SchemaRepositoryError."""
        found = self._schemas.get(name)
        if found is None:
            raise SchemaRepositoryError(f"it refers to {name}, which is not among its references")
        return found


class _Columns:
    """Walks a schema; named types are remembered where they are defined."""

    def __init__(self) -> None:
        self._named: dict[str, Schema] = {}

    def record(self, schema: Schema, around: frozenset[str]) -> Column:
        """Return a record's column; `around`: the names of the records that it is in."""
        self._named[schema["name"]] = schema
        inside = around | {schema["name"]}
        fields = {field["name"]: self.column(field["type"], inside) for field in schema["fields"]}
        if not fields:
            return JSON_TEXT
        converts = [(name, c.convert) for name, c in fields.items() if c.convert is not None]
        kind = pa.struct([(name, column.type) for name, column in fields.items()])
        return Column(kind, _each_field(converts) if converts else None)

    def column(self, schema: Schema, around: frozenset[str]) -> Column:
        """Return the column of a schema."""
        if isinstance(schema, list):
            return self._union(schema, around)
        if isinstance(schema, str):
            return self._name(schema, around)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.column(kind, around)
        return self._complex(kind, schema, around) or self._simple(kind, schema, around)

    def _complex(self, kind: str, schema: Schema, around: frozenset[str]) -> Column | None:
        if kind == "record":
            return self.record(schema, around)
        if kind == "array":
            return _array(self.column(schema["items"], around))
        if kind == "map":
            return _map(self.column(schema["values"], around))
        return None

    def _simple(self, kind: str, schema: Schema, around: frozenset[str]) -> Column:
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
        if schema.get("logicalType") == "decimal":
            return _decimal(schema)
        return _LOGICAL.get((kind, schema.get(_OURS, ""))) or self._name(kind, around)

    def _name(self, name: str, around: frozenset[str]) -> Column:
        if name in _PLAIN:
            return Column(_PLAIN[name])
        return JSON_TEXT if name in around else self.column(self._named[name], around)

    def _union(self, branches: Sequence[Schema], around: frozenset[str]) -> Column:
        some = [branch for branch in branches if branch != "null"]
        if len(some) == 1:
            return self.column(some[0], around)
        names = frozenset(branch for branch in some if isinstance(branch, str))
        wider = _WIDER.get(names) if len(names) == len(some) else None
        for branch in some:
            self.column(branch, around)  # remembers the names it defines
        return JSON_TEXT if wider is None else Column(_PLAIN[wider])


def _without_logical(schema: Schema) -> Schema:
    """Return a schema that reads plain numbers; decimals stay, ours keeps what was taken off."""
    if isinstance(schema, list):
        return [_without_logical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        k: _without_logical(v) if k in ("type", "items", "values") else v for k, v in schema.items()
    }
    if "fields" in plain:
        plain["fields"] = [_without_logical(field) for field in plain["fields"]]
    logical = plain.get("logicalType")
    if logical is not None and logical != "decimal":
        plain[_OURS] = plain.pop("logicalType")
    return plain


def _decimal(schema: Schema) -> Column:
    digits = int(schema["precision"])
    if digits > _MOST_DIGITS:
        return Column(pa.string(), str)
    return Column(pa.decimal128(digits, int(schema.get("scale", 0))))


def _array(item: Column) -> Column:
    convert = item.convert
    if convert is None:
        return Column(pa.list_(item.type))

    def items(found: list[Any]) -> list[Any]:
        return [None if value is None else convert(value) for value in found]

    return Column(pa.list_(item.type), items)


def _map(value: Column) -> Column:
    convert = value.convert or _same

    def pairs(found: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(k, None if v is None else convert(v)) for k, v in found.items()]

    return Column(pa.map_(pa.string(), value.type), pairs)


def _same(value: Any) -> Any:
    return value


def _each_field(converts: Sequence[tuple[str, Convert]]) -> Convert:
    def convert(row: Row) -> Row:
        for name, change in converts:
            value = row[name]
            if value is not None:
                row[name] = change(value)
        return row

    return convert
