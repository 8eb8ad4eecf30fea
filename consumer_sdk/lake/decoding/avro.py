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
    JSON_TEXT_COLUMN,
    TIMESTAMP_TYPE,
    DecodedColumn,
    DecodedRow,
    UnusableSchemaError,
    ValueConverter,
    ValueReader,
)


def _nanos_to_micros(nanos: int) -> int:
    return nanos // 1000


def _millis_to_micros(millis: int) -> int:
    """Microseconds, as tables have them; what these cannot say makes its record a dead letter."""
    return millis * 1000


AvroSchema: TypeAlias = Any
"""A parsed Avro schema: a name, a list (union), or a mapping."""

_ROOT_NAME: Final = "$root"
_PRIMITIVE_TYPES: Final = {
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
_LOGICAL_TYPES: Final = {
    ("int", "date"): DecodedColumn(pa.date32()),
    ("long", "timestamp-millis"): DecodedColumn(TIMESTAMP_TYPE, _millis_to_micros),
    ("long", "timestamp-micros"): DecodedColumn(TIMESTAMP_TYPE),
    ("long", "timestamp-nanos"): DecodedColumn(TIMESTAMP_TYPE, _nanos_to_micros),
    ("long", "local-timestamp-millis"): DecodedColumn(pa.timestamp("us"), _millis_to_micros),
    ("long", "local-timestamp-micros"): DecodedColumn(pa.timestamp("us")),
    ("long", "local-timestamp-nanos"): DecodedColumn(pa.timestamp("us"), _nanos_to_micros),
}
_WIDENED_UNIONS: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
_MAX_DECIMAL_DIGITS: Final = 38
_LOGICAL_TYPE_KEY: Final = "trimtab.logicalType"


def create_avro_reader(text: str, references: Mapping[str, str]) -> ValueReader:
    """Return what reads values of a schema; `references` is the text of each type it refers to.

    Raises UnusableSchemaError.
    """
    try:
        named = {name: _strip_logical_types(json.loads(body)) for name, body in references.items()}
        schema = load_schema(
            _ROOT_NAME,
            repo=_ReferenceRepository({**named, _ROOT_NAME: _strip_logical_types(json.loads(text))}),
        )
    except (SchemaParseException, SchemaRepositoryError, ValueError, KeyError) as error:
        raise UnusableSchemaError(f"the schema cannot be parsed: {error}") from error
    if not isinstance(schema, dict) or schema["type"] != "record":
        raise UnusableSchemaError("its schema is not a record, so it has no columns")
    columns = _AvroColumnBuilder()
    record = columns.build_record(schema, frozenset())

    def read(data: bytes) -> DecodedRow:
        stream = BytesIO(data)
        row = cast("DecodedRow", schemaless_reader(stream, schema, None))
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
        return row if record.convert is None else record.convert(row)

    return ValueReader(pa.schema(list(record.type)), read)


class _ReferenceRepository(AbstractSchemaRepository):
    """The schemas that are referred to, by name."""

    def __init__(self, schemas: Mapping[str, AvroSchema]) -> None:
        self._schemas = schemas

    def load(self, name: str) -> AvroSchema:
        """Return a schema. Raises SchemaRepositoryError."""
        found = self._schemas.get(name)
        if found is None:
            raise SchemaRepositoryError(f"it refers to {name}, which is not among its references")
        return found


class _AvroColumnBuilder:
    """Walks a schema; named types are remembered where they are defined."""

    def __init__(self) -> None:
        self._named: dict[str, AvroSchema] = {}

    def build_record(self, schema: AvroSchema, enclosing: frozenset[str]) -> DecodedColumn:
        """Return a record's column; `enclosing`: the names of the records that it is in."""
        self._named[schema["name"]] = schema
        inside = enclosing | {schema["name"]}
        fields = {field["name"]: self.build_column(field["type"], inside) for field in schema["fields"]}
        if not fields:
            return JSON_TEXT_COLUMN
        converts = [(name, c.convert) for name, c in fields.items() if c.convert is not None]
        kind = pa.struct([(name, column.type) for name, column in fields.items()])
        return DecodedColumn(kind, _record_converter(converts) if converts else None)

    def build_column(self, schema: AvroSchema, enclosing: frozenset[str]) -> DecodedColumn:
        """Return the column of a schema."""
        if isinstance(schema, list):
            return self._build_union(schema, enclosing)
        if isinstance(schema, str):
            return self._build_named(schema, enclosing)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.build_column(kind, enclosing)
        return self._build_complex(kind, schema, enclosing) or self._build_simple(kind, schema, enclosing)

    def _build_complex(
        self, kind: str, schema: AvroSchema, enclosing: frozenset[str]
    ) -> DecodedColumn | None:
        if kind == "record":
            return self.build_record(schema, enclosing)
        if kind == "array":
            return _array_column(self.build_column(schema["items"], enclosing))
        if kind == "map":
            return _map_column(self.build_column(schema["values"], enclosing))
        return None

    def _build_simple(self, kind: str, schema: AvroSchema, enclosing: frozenset[str]) -> DecodedColumn:
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
        if schema.get("logicalType") == "decimal":
            return _decimal_column(schema)
        return _LOGICAL_TYPES.get((kind, schema.get(_LOGICAL_TYPE_KEY, ""))) or self._build_named(
            kind, enclosing
        )

    def _build_named(self, name: str, enclosing: frozenset[str]) -> DecodedColumn:
        if name in _PRIMITIVE_TYPES:
            return DecodedColumn(_PRIMITIVE_TYPES[name])
        return JSON_TEXT_COLUMN if name in enclosing else self.build_column(self._named[name], enclosing)

    def _build_union(self, branches: Sequence[AvroSchema], enclosing: frozenset[str]) -> DecodedColumn:
        some = [branch for branch in branches if branch != "null"]
        if len(some) == 1:
            return self.build_column(some[0], enclosing)
        names = frozenset(branch for branch in some if isinstance(branch, str))
        wider = _WIDENED_UNIONS.get(names) if len(names) == len(some) else None
        for branch in some:
            self.build_column(branch, enclosing)  # remembers the names it defines
        return JSON_TEXT_COLUMN if wider is None else DecodedColumn(_PRIMITIVE_TYPES[wider])


def _strip_logical_types(schema: AvroSchema) -> AvroSchema:
    """Return a schema that reads plain numbers; decimals stay, ours keeps what was taken off."""
    if isinstance(schema, list):
        return [_strip_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {k: _strip_logical_types(v) if k in ("type", "items", "values") else v for k, v in schema.items()}
    if "fields" in plain:
        plain["fields"] = [_strip_logical_types(field) for field in plain["fields"]]
    logical = plain.get("logicalType")
    if logical is not None and logical != "decimal":
        plain[_LOGICAL_TYPE_KEY] = plain.pop("logicalType")
    return plain


def _decimal_column(schema: AvroSchema) -> DecodedColumn:
    digits = int(schema["precision"])
    if digits > _MAX_DECIMAL_DIGITS:
        return DecodedColumn(pa.string(), str)
    return DecodedColumn(pa.decimal128(digits, int(schema.get("scale", 0))))


def _array_column(item: DecodedColumn) -> DecodedColumn:
    convert = item.convert
    if convert is None:
        return DecodedColumn(pa.list_(item.type))

    def items(found: list[Any]) -> list[Any]:
        return [None if value is None else convert(value) for value in found]

    return DecodedColumn(pa.list_(item.type), items)


def _map_column(value: DecodedColumn) -> DecodedColumn:
    convert = value.convert or _keep_value

    def pairs(found: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(k, None if v is None else convert(v)) for k, v in found.items()]

    return DecodedColumn(pa.map_(pa.string(), value.type), pairs)


def _keep_value(value: Any) -> Any:
    return value


def _record_converter(converts: Sequence[tuple[str, ValueConverter]]) -> ValueConverter:
    def convert(row: DecodedRow) -> DecodedRow:
        for name, change in converts:
            value = row[name]
            if value is not None:
                row[name] = change(value)
        return row

    return convert
