"""Decodes JSON values by the columns of `lake.schema`; `json_columns` has the rules of each value.

A value that Connect wraps (JsonConverter: `{"schema": …, "payload": …}`, in either order) is its payload. If
`lake.schema` has one of these columns, the schema must begin with its type; with both, nothing is wrapped.
A text that its schema calls Connect's Decimal is Base64, which may be a number, too (`1234`): a dead letter.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import types
from pyspark.sql.types import DataType, StructType

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.decoding.decoded_records import (
    MAX_COLUMN_BYTES,
    BatchTooLargeError,
    DecodedRecords,
    Reason,
    convert_in_parts,
    decode_objects,
)
from trimtab.consumer_sdk.lake.decoding.json_columns import find_wrapped, read_objects
from trimtab.consumer_sdk.lake.decoding.json_settings import TimestampRules, prefix_rules
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.model.untyped_arrow import Array, pc
from trimtab.consumer_sdk.lake.schema.record_columns import find_name_problem

_PAYLOAD: Final = "payload"
_WRAPPER: Final = frozenset({"schema", _PAYLOAD})
_NULL_PAYLOAD: Final = "its payload is null"
_CONNECT_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_ENCODED_DECIMAL: Final = (
    "Base64 for DECIMAL: set Debezium's decimal.handling.mode=string, or JsonConverter's "
    "decimal.format=NUMERIC"
)
# as a type, not as the name of a column
_BARE_TIMESTAMP: Final = re.compile(r"\btimestamp\s*([,>]|$|not\b|comment\b|default\b)", re.IGNORECASE)
_PLAIN_TYPES: Final[Mapping[DataType, Any]] = {
    types.BooleanType(): pa.bool_(),
    types.ByteType(): pa.int8(),
    types.ShortType(): pa.int16(),
    types.IntegerType(): pa.int32(),
    types.LongType(): pa.int64(),
    types.FloatType(): pa.float32(),
    types.DoubleType(): pa.float64(),
    types.StringType(): pa.string(),  # not one with a collation
    types.BinaryType(): pa.binary(),
    types.DateType(): pa.date32(),
    types.TimestampType(): pa.timestamp("us", "UTC"),
    types.TimestampNTZType(): pa.timestamp("us"),
}


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Decodes JSON objects; `schema` is pyarrow's.

    `dates_are_numbers`: a number in a DATE is the days since 1970, as Debezium's. `nulls_outside`:
    paths of columns in which a value out of range of its type is null, `spared` of those in which any value
    is that the type does not take. Years are limited by `value_ranges`.
    """

    schema: Any
    timestamp_rules: TimestampRules = field(default_factory=dict[str, str])
    dates_are_numbers: bool = False
    nulls_outside: frozenset[str] = frozenset()
    spared: frozenset[str] = frozenset()

    def decode_batch(self, records: Records) -> DecodedRecords:
        """Return the rows and the dead letters. Raises BatchTooLargeError."""
        return decode_objects(records, self.schema, self.read_values)

    def read_values(self, values: Array) -> tuple[Array, dict[int, str]]:
        """Return a struct for each value, null for a dead letter, and the reasons by row.

        Raises BatchTooLargeError.
        """
        own = _WRAPPER & {name.lower() for name in self.schema.names}
        if own == _WRAPPER:
            return _read_objects(self, values)
        wrapped = find_wrapped(values, bool(own))
        if not wrapped.any():
            return _read_objects(self, values)
        if not wrapped.all():
            return convert_in_parts(values, pa.array(wrapped), self.read_values)
        inside = replace(
            self,
            schema=pa.schema([(_PAYLOAD, pa.struct(list(self.schema)))]),
            timestamp_rules=prefix_rules(self.timestamp_rules, _PAYLOAD),
            nulls_outside=frozenset(f"{_PAYLOAD}.{path}" for path in self.nulls_outside),
            spared=frozenset(f"{_PAYLOAD}.{path}" for path in self.spared),
        )
        structs, reasons = _read_objects(inside, values)
        rows = structs.flatten()[0]
        empty = np.flatnonzero(rows.is_null().to_numpy(zero_copy_only=False)).tolist()
        reasons = _find_encoded_decimals(values, self.schema) | dict.fromkeys(empty, _NULL_PAYLOAD) | reasons
        return pc.if_else(_mask(len(rows), reasons), pa.scalar(None, rows.type), rows), reasons


def _mask(count: int, rows: Collection[int]) -> Array:
    mask = np.zeros(count, np.bool_)
    mask[list(rows)] = True
    return pa.array(mask)


def _find_encoded_decimals(values: Array, schema: Any) -> dict[int, str]:
    """Return the reasons, by row, of wrapped values with Base64 in a DECIMAL."""
    reasons: dict[int, str] = {}
    named = pc.match_substring(values, _CONNECT_DECIMAL).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(named).tolist():
        try:
            # a number of any length: only texts count
            value = json.loads(values[row].as_py(), parse_int=float)
        except (ValueError, RecursionError):  # the parser of columns says what is wrong
            continue
        kind = pa.struct(list(schema))
        if (path := _find_encoded_path(value["schema"], kind, value[_PAYLOAD])) is not None:
            reasons[row] = Reason.of_field(".".join(path), _ENCODED_DECIMAL)
    return reasons


def _find_encoded_path(schema: Any, kind: Any, value: Any) -> tuple[str, ...] | None:
    """Return the path of a text in a DECIMAL that Connect's schema says is encoded, None without one."""
    if not isinstance(schema, dict) or value is None:
        return None
    connect = cast("dict[str, Any]", schema)
    if pa.types.is_decimal(kind):
        return () if connect.get("name") == _CONNECT_DECIMAL and isinstance(value, str) else None
    parts: list[tuple[tuple[str, ...], Any, Any, Any]] = []
    if pa.types.is_struct(kind):
        fields = {str(f.get("field")).lower(): f for f in connect.get("fields", ())}
        values = {name.lower(): item for name, item in value.items()}
        parts = [((f.name,), fields.get(f.name.lower()), f.type, values.get(f.name.lower())) for f in kind]
    elif pa.types.is_list(kind):
        parts = [((), connect.get("items"), kind.value_type, item) for item in value]
    elif pa.types.is_map(kind):
        parts = [((key,), connect.get("values"), kind.item_type, item) for key, item in value.items()]
    for name, inner, column, item in parts:
        if (path := _find_encoded_path(inner, column, item)) is not None:
            return (*name, *path)
    return None


def _read_objects(decoder: JsonDecoder, values: Array) -> tuple[Array, dict[int, str]]:
    structs, refused = read_objects(
        values,
        decoder.schema,
        decoder.timestamp_rules,
        dates_are_numbers=decoder.dates_are_numbers,
        nulls_outside=decoder.nulls_outside,
        spared=decoder.spared,
        most_bytes=MAX_COLUMN_BYTES,
    )
    if len(structs) < len(values):
        raise BatchTooLargeError(len(structs))
    return structs, {row: Reason.of_field(*why) for row, why in refused.items()}


def parse_json_schema(ddl: str) -> Any:
    """Return the pyarrow schema of a DDL text. Raises SettingError."""
    try:
        columns = cast("StructType", StructType.fromDDL(ddl))
        bare = cast("StructType", StructType.fromDDL("t TIMESTAMP"))[0].dataType
    except (PySparkException, Py4JJavaError, ValueError) as error:  # not a JVM that has died
        line = str(error).strip().splitlines()[0]
        raise SettingError(
            f'lake.schema: {ddl!r} is not a list of Spark SQL columns like "id BIGINT, name STRING": {line}'
        ) from error
    if bare != types.TimestampType() and _BARE_TIMESTAMP.search(ddl):
        raise SettingError(
            f"lake.schema: {ddl!r}: by spark.sql.timestampType a TIMESTAMP of this session has no time zone: "
            "write TIMESTAMP_LTZ or TIMESTAMP_NTZ, or omit that setting"
        )
    schema = pa.schema([(column.name, _to_arrow_type(column.name, column.dataType)) for column in columns])
    if problem := find_name_problem(schema):
        raise SettingError(f"lake.schema: {ddl!r} has {problem}; rename one")
    return schema


def _to_arrow_type(path: str, kind: DataType) -> Any:
    if isinstance(kind, StructType) and kind.fields:
        return pa.struct([(f.name, _to_arrow_type(f"{path}.{f.name}", f.dataType)) for f in kind])
    if isinstance(kind, types.ArrayType):
        return pa.list_(_to_arrow_type(f"{path}.element", kind.elementType))
    if isinstance(kind, types.MapType) and kind.keyType == types.StringType():
        return pa.map_(pa.string(), _to_arrow_type(f"{path}.value", kind.valueType))
    if isinstance(kind, types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if kind not in _PLAIN_TYPES:
        raise SettingError(
            f"lake.schema: column {path} is {kind.simpleString()}, which JSON is not read into: write "
            "STRING, BINARY, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ, a type of numbers, STRUCT, ARRAY, "
            "or MAP with keys of type STRING"
        )
    return _PLAIN_TYPES[kind]
