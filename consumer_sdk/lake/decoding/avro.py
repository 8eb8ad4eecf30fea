"""Reads Avro values into rows with fastavro.

1. A union with null is an optional column of the other type. A union of int and long is long, of
   float and double is double. Any other union, and a recursive record, is JSON text.
2. Times of day keep their number. A decimal of more than 38 digits is text.
"""

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from io import BytesIO
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.repository.base import AbstractSchemaRepository, SchemaRepositoryError
from fastavro.schema import load_schema

from trimtab.consumer_sdk.lake.decoding.value_ranges import (
    STRICT_RANGES,
    OutOfRangeError,
    ValueRanges,
    check_digits,
    to_micros,
)
from trimtab.consumer_sdk.lake.decoding.value_reader import (
    JSON_TEXT_COLUMN,
    TIMESTAMP_TYPE,
    ColumnCounter,
    DecodedColumn,
    DecodedRow,
    UnusableSchemaError,
    ValueConverter,
    ValueReader,
    explain_unusable_schema,
    keep_value,
)

AvroSchema: TypeAlias = Any  # parsed: a name, a list (union) or a mapping

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
_MICROS_CONVERTERS: Final[Mapping[str, ValueConverter | None]] = {
    "millis": partial(to_micros, unit="ms"),
    "micros": None,
    "nanos": partial(to_micros, unit="ns"),
}
_TIME_TYPES: Final = {"timestamp": TIMESTAMP_TYPE, "local-timestamp": TIMESTAMP_TYPE}  # in UTC
_LOGICAL_TYPES: Final = {("int", "date"): DecodedColumn(pa.date32())} | {
    ("long", f"{name}-{unit}"): DecodedColumn(kind, convert)
    for name, kind in _TIME_TYPES.items()
    for unit, convert in _MICROS_CONVERTERS.items()
}
_WIDENED_UNIONS: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
_MAX_DECIMAL_DIGITS: Final = 38  # of Spark and Iceberg
_LOGICAL_TYPE_KEY: Final = "trimtab.logicalType"
_PRECISION_KEY: Final = "trimtab.precision"
_MAX_READ_DIGITS: Final = 1000  # of a decimal; more are beyond every range, rounded or not


def create_avro_reader(
    text: str, references: Mapping[str, str], ranges: ValueRanges = STRICT_RANGES
) -> ValueReader:
    """Return the reader of a schema and its referenced types. Raises UnusableSchemaError."""
    with explain_unusable_schema():
        texts = {**references, _ROOT_NAME: text}
        schemas = {name: _strip_logical_types(json.loads(body)) for name, body in texts.items()}
        schema = load_schema(_ROOT_NAME, repo=_ReferenceRepository(schemas))
        if not isinstance(schema, dict) or schema["type"] != "record":
            raise UnusableSchemaError("its schema is not a record, so it has no columns")
        record = _AvroColumnBuilder(ranges).build_record(schema, frozenset())
        columns = pa.schema(list(record.type))

    def read(data: bytes) -> DecodedRow:
        stream = BytesIO(data)
        row = cast("DecodedRow", schemaless_reader(stream, schema, None))
        # a rest means that another schema wrote the value, even if this one could read it
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
        return row if record.convert is None else record.convert(row)

    return ValueReader(columns, read)


class _ReferenceRepository(AbstractSchemaRepository):
    def __init__(self, schemas: Mapping[str, AvroSchema]) -> None:
        self._schemas = schemas

    def load(self, name: str) -> AvroSchema:
        if name not in self._schemas:
            raise SchemaRepositoryError(f"it refers to {name}, which is not among its references")
        return self._schemas[name]


class _AvroColumnBuilder(ColumnCounter):
    def __init__(self, ranges: ValueRanges) -> None:
        super().__init__()
        self._ranges = ranges
        self._named: dict[str, AvroSchema] = {}  # a type is defined at its first use only

    def build_record(self, schema: AvroSchema, enclosing: frozenset[str]) -> DecodedColumn:
        self._named[schema["name"]] = schema
        inside = enclosing | {schema["name"]}
        fields = {field["name"]: self._build_field(field, inside) for field in schema["fields"]}
        if not fields:  # Parquet has no empty struct
            return JSON_TEXT_COLUMN
        converts = [(name, c.convert) for name, c in fields.items() if c.convert is not None]
        kind = pa.struct([(name, column.type) for name, column in fields.items()])
        return DecodedColumn(kind, _record_converter(converts) if converts else None)

    def _build_field(self, field: AvroSchema, enclosing: frozenset[str]) -> DecodedColumn:
        outer, self._ranges = self._ranges, self._ranges.within(field["name"])
        column = self._build(field["type"], enclosing)
        self._ranges = outer
        return column

    def _build(self, schema: AvroSchema, enclosing: frozenset[str]) -> DecodedColumn:
        self.count_column()
        if isinstance(schema, list):
            return self._build_union(schema, enclosing)
        if isinstance(schema, str):
            return self._build_named(schema, enclosing)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._build(kind, enclosing)
        return self._build_deep(kind, schema, enclosing) or self._build_simple(kind, schema, enclosing)

    def _build_deep(self, kind: str, schema: AvroSchema, enclosing: frozenset[str]) -> DecodedColumn | None:
        if kind == "record":
            return self.build_record(schema, enclosing)
        if kind == "array":
            item = self._build(schema["items"], enclosing)
            if self._may_be_empty(schema["items"]):  # five bytes would decode to 2^31 items
                raise UnusableSchemaError("it has an array of values that take no bytes")
            return _array_column(item)
        if kind == "map":
            return _map_column(self._build(schema["values"], enclosing))
        return None

    def _may_be_empty(self, schema: AvroSchema) -> bool:
        """Return whether a value may take no bytes; a record that encloses itself takes some."""
        if not isinstance(schema, dict):  # a union has the number of its branch
            named = self._named.get(schema) if isinstance(schema, str) else None
            return schema == "null" if named is None else self._may_be_empty(named)
        definition = cast("dict[str, Any]", schema)
        kind = definition["type"]
        if kind == "record":
            return all(self._may_be_empty(field["type"]) for field in definition["fields"])
        return definition["size"] == 0 if kind == "fixed" else self._may_be_empty(kind)

    def _build_simple(self, kind: str, schema: AvroSchema, enclosing: frozenset[str]) -> DecodedColumn:
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
        is_decimal = schema.get("logicalType") == "decimal"
        logical = (
            _decimal_column(schema)
            if is_decimal
            else _LOGICAL_TYPES.get((kind, schema.get(_LOGICAL_TYPE_KEY, "")))
        )
        if logical is None:
            return self._build_named(kind, enclosing)
        return logical._replace(convert=logical.convert and self._ranges.guard(logical.convert))

    def _build_named(self, name: str, enclosing: frozenset[str]) -> DecodedColumn:
        if name in _PRIMITIVE_TYPES:
            return DecodedColumn(_PRIMITIVE_TYPES[name])
        return JSON_TEXT_COLUMN if name in enclosing else self._build(self._named[name], enclosing)

    def _build_union(self, branches: Sequence[AvroSchema], enclosing: frozenset[str]) -> DecodedColumn:
        some = [branch for branch in branches if branch != "null"]
        if len(some) == 1:
            return self._build(some[0], enclosing)
        names = frozenset(branch for branch in some if isinstance(branch, str))
        wider = _WIDENED_UNIONS.get(names) if len(names) == len(some) else None
        for branch in some:
            self._build(branch, enclosing)  # later fields may name the types that it defines
        return JSON_TEXT_COLUMN if wider is None else DecodedColumn(_PRIMITIVE_TYPES[wider])


def _strip_logical_types(schema: AvroSchema) -> AvroSchema:
    # Arrow takes the plain numbers as they are: datetime objects would cost a conversion each way.
    # A decimal is bytes without its logical type, so that one stays.
    if isinstance(schema, list):
        return [_strip_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {k: _strip_logical_types(v) if k in ("type", "items", "values") else v for k, v in schema.items()}
    if "fields" in plain:
        plain["fields"] = [_strip_logical_types(field) for field in plain["fields"]]
    logical = plain.get("logicalType")
    if logical == "decimal":
        # fastavro rounds to the precision: it gets one that holds every value, which is checked afterwards
        plain[_PRECISION_KEY] = int(plain["precision"])
        plain["precision"] = _max_digits(plain["size"]) if "size" in plain else _MAX_READ_DIGITS
    elif logical is not None:
        plain[_LOGICAL_TYPE_KEY] = plain.pop("logicalType")
    return plain


def _max_digits(size: int) -> int:
    """Return the digits that every `fixed` of this size holds, as fastavro demands them."""
    return math.floor(math.log10(2) * (8 * size - 1))


def _decimal_column(schema: AvroSchema) -> DecodedColumn:
    digits, scale = schema[_PRECISION_KEY], int(schema.get("scale", 0))
    if scale > digits:  # no engine has such a type
        raise UnusableSchemaError(f"its scale {scale} is above the precision {digits} of a decimal")
    check = partial(check_digits, precision=digits, scale=scale)
    if digits > _MAX_DECIMAL_DIGITS:
        return DecodedColumn(pa.string(), partial(_to_decimal_text, check))
    return DecodedColumn(pa.decimal128(digits, scale), check)


def _to_decimal_text(check: ValueConverter, value: Decimal) -> str:
    return str(check(value))


def _array_column(item: DecodedColumn) -> DecodedColumn:
    convert = item.convert
    if convert is None:
        return DecodedColumn(pa.list_(item.type))

    def items(values: list[Any]) -> list[Any]:
        return [None if value is None else convert(value) for value in values]

    return DecodedColumn(pa.list_(item.type), items)


def _map_column(value: DecodedColumn) -> DecodedColumn:
    convert = value.convert or keep_value

    def pairs(values: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(k, None if v is None else convert(v)) for k, v in values.items()]

    return DecodedColumn(pa.map_(pa.string(), value.type), pairs)


def _record_converter(converts: Sequence[tuple[str, ValueConverter]]) -> ValueConverter:
    def convert(row: DecodedRow) -> DecodedRow:
        for name, change in converts:
            value = row[name]
            if value is not None:
                try:
                    row[name] = change(value)
                except OutOfRangeError as error:
                    raise error.within(name) from None
        return row

    return convert
