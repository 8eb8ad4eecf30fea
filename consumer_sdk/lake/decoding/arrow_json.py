"""Decodes JSON values with Arrow into the rows and dead letters of Spark's parser (`spark_decoders`).

1. Arrow parses the values on which both parsers agree. It refuses most others itself: numbers for
   text, numbers to round, single quotes. `json_texts` and `_read_leaves` find those that it would read
   otherwise.
2. Spark parses every other value, with the values beside it: its rows and its reasons are the result.
3. For a schema or a session whose meaning Arrow does not know, `create_arrow_json_decoder` gives the reason.
4. After a batch of which Spark had to parse a large part, it parses the topic's next ones without that
   attempt.
5. Spark parses a batch whose columns would take much more memory than its values, as many columns that
   are mostly null do, if it also writes the files (`lake.file.writer: auto`).
"""

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trimtab.common.units import format_bytes
from trimtab.consumer_sdk.lake.decoding.decimal_numbers import may_have_huge_decimal
from trimtab.consumer_sdk.lake.decoding.decoded_records import DecodedRecords, decode_objects
from trimtab.consumer_sdk.lake.decoding.json_objects import (
    convert_by_halves,
    parse_every_object,
    replace_with_text,
)
from trimtab.consumer_sdk.lake.decoding.json_texts import find_uncertain_texts
from trimtab.consumer_sdk.lake.decoding.spark_decoders import build_frame, decode_values, parse_json_schema
from trimtab.consumer_sdk.lake.file_writers import MAX_ARROW_BATCH_BYTES
from trimtab.consumer_sdk.lake.interfaces import Records
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_COLUMNS, RECORD_SCHEMA
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.untyped_arrow import Array, pc

log = logging.getLogger("trimtab.lake")

_PLAIN_TYPES: Final[dict[DataType, Any]] = {
    BooleanType(): pa.bool_(),
    ByteType(): pa.int8(),
    ShortType(): pa.int16(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    FloatType(): pa.float32(),
    DoubleType(): pa.float64(),
    StringType(): pa.string(),  # not one with a collation
    DateType(): pa.date32(),
    TimestampType(): pa.timestamp("us", "UTC"),
}
# Values, or rows, that Spark parses at a time: the result must fit into spark.driver.maxResultSize, 1 GB by
# default.
_SPARK_PART_BYTES: Final = 64_000_000
_MAX_COLUMN_BYTES: Final = 512_000_000  # rule 5; Arrow has two copies for a moment
# Values that fail together: a batch that Arrow does not read at all is tried at most 2 x 64 times.
_SMALLEST_PART: Final = 16
_MAX_PARTS: Final = 64
# Rule 4: each attempt costs as much as several of Arrow's parses.
_MANY_VALUES: Final = 1000
_LARGE_PART: Final = 1 / 4
_BATCHES_BY_SPARK: Final = 100
# Settings of the session that change what JSON means; `spark.sql.ansi.enabled` is true by default.
_JSON_SETTINGS: Final = ("spark.sql.json.", "spark.sql.legacy.")
_ANSI_SETTING: Final = "spark.sql.ansi.enabled"

_DATE: Final = r"[1-9]\d{3}-\d\d-\d\d"
_TIME: Final = _DATE + r"[ T]\d\d:\d\d:\d\d(\.\d{1,6})?"
_ZONE: Final = r"(Z|[+-](0\d|1[0-7]):[0-5]\d)"  # Java's zones end at 18:00


class _UncertainValueError(ValueError):
    """A value that Arrow and Spark may read in different ways."""


class UnprovenJsonError(ValueError):
    """A schema or a session whose JSON only Spark parses."""


@dataclass(slots=True)
class ArrowJsonDecoder:
    """Decodes the JSON objects of one topic."""

    ddl: str
    schema: Any  # pyarrow's
    spark: SparkSession
    zoneless_is_utc: bool  # a timestamp without a time zone is in the session's
    topic: str = ""
    _kind: Any = field(init=False)  # a struct of the schema
    _row_bytes: int = field(init=False)  # of a row without text, in columns
    _batches_by_spark: int = field(default=0, init=False)  # that are left (rule 4)

    def __post_init__(self) -> None:
        self._kind = pa.struct(list(self.schema))
        self._row_bytes = measure_row(self._kind)

    def for_topic(self, topic: str) -> "ArrowJsonDecoder":
        """Return the decoder of a topic with the same schema."""
        return replace(self, topic=topic)

    def take_batch_for_spark(self, records: Records, *, spark_writes: bool) -> bool:
        """Return whether Spark parses the whole of this batch (rules 4 and 5), and count it."""
        if spark_writes and records.num_rows * self._row_bytes > _MAX_COLUMN_BYTES:
            return True
        if self._batches_by_spark <= 0:  # bridge reads of several threads may have taken one too many
            return False
        self._batches_by_spark -= 1
        return True

    def decode_batch(self, records: Records, *, by_spark: bool = False) -> DecodedRecords:
        """Return the record columns and those of the values, and the dead letters.

        `by_spark`: Spark parses every value.
        """
        return decode_objects(records, self.schema, partial(self._parse_values, by_spark=by_spark))

    def _parse_values(self, values: Array, *, by_spark: bool) -> tuple[Array, dict[int, str]]:
        if by_spark:
            structs, uncertain = pa.nulls(len(values), self._kind), np.arange(len(values))
        else:
            structs, uncertain = self._parse_by_arrow(values)
        if not uncertain.size:
            return structs, {}
        lengths = pc.binary_length(values.take(pa.array(uncertain))).to_numpy(zero_copy_only=False)
        parts = split_by_size(uncertain, lengths + self._row_bytes, _SPARK_PART_BYTES)
        with jvm_errors.translate_errors("parsing JSON in Spark"):
            parsed = [self._parse_by_spark(values, rows) for rows in parts]
        order = np.arange(len(values))
        order[uncertain] = len(values) + np.arange(uncertain.size)
        whole = pa.concat_arrays([structs, *(some for some, _ in parsed)])
        reasons = {row: text for _, errors in parsed for row, text in errors.items()}
        return whole.take(pa.array(order)), reasons

    def _parse_by_arrow(self, values: Array) -> tuple[Array, Any]:
        """Return a struct for each value, and the rows that are left to Spark, null among the structs."""
        structs, uncertain = parse_certain_objects(values, self._kind, zoneless_is_utc=self.zoneless_is_utc)
        if uncertain.size >= max(_MANY_VALUES, len(values) * _LARGE_PART):
            self._batches_by_spark = _BATCHES_BY_SPARK
            message = (
                "topic %s: Spark parses %d of %d JSON values, and all of the next %d batches: lake.schema %s"
            )
            log.info(message, self.topic, uncertain.size, len(values), _BATCHES_BY_SPARK, self.ddl)
        return structs, uncertain

    def _parse_by_spark(self, values: Array, rows: Any) -> tuple[Array, dict[int, str]]:
        """Return a struct for each of these rows, null for a dead letter, and the reasons by row."""
        known = {"offset": pa.array(rows), "value": values.take(pa.array(rows))}
        columns = [known.get(f.name, pa.nulls(len(rows), f.type)) for f in RECORD_SCHEMA]
        records = pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)
        finds_huge = may_have_huge_decimal(records.column("value"))
        decoded = decode_values(build_frame(self.spark, records), self.ddl, finds_huge=finds_huge)
        found = decoded.rows.drop(*(name for name in RECORD_COLUMNS if name != "offset")).toArrow()
        structs = self._build_structs(found, rows)
        if found.num_rows == len(rows):
            return structs, {}
        assert decoded.dead_letters is not None
        letters = decoded.dead_letters.select("offset", "error").toArrow()
        return structs, dict(zip(*(column.to_pylist() for column in letters.columns), strict=True))

    def _build_structs(self, found: Any, rows: Any) -> Array:
        columns = [
            column.combine_chunks().cast(field.type)
            for column, field in zip(found.columns[1:], self.schema, strict=True)
        ]
        structs = pa.StructArray.from_arrays(columns, fields=list(self.schema))
        places = np.full(len(rows), -1)
        places[np.searchsorted(rows, found.column(0).to_numpy())] = np.arange(found.num_rows)
        return structs.take(pa.array(places, mask=places < 0))


def create_arrow_json_decoder(ddl: str, spark: SparkSession, batch_bytes: int) -> ArrowJsonDecoder:
    """Return the decoder of these columns. Raises SettingError for invalid DDL, UnprovenJsonError."""
    if batch_bytes > MAX_ARROW_BATCH_BYTES:
        raise UnprovenJsonError(
            f"batch.bytes: Arrow parses batches of at most {format_bytes(MAX_ARROW_BATCH_BYTES)}"
        )
    settings = spark.conf.getAll
    changed = [name for name in settings if name.startswith(_JSON_SETTINGS)]
    if str(spark.conf.get(_ANSI_SETTING)).lower() != "true":
        changed.append(_ANSI_SETTING)
    if changed:
        name = min(changed)
        raise UnprovenJsonError(f"{name}={spark.conf.get(name)}: only Spark parses JSON so")
    columns = parse_json_schema(ddl)
    schema = pa.schema([(field.name, _to_arrow_type(field.name, field)) for field in columns])
    zone = settings.get("spark.sql.session.timeZone")
    return ArrowJsonDecoder(ddl, schema, spark, zoneless_is_utc=zone == "UTC")


def parse_certain_objects(values: Array, kind: Any, *, zoneless_is_utc: bool) -> tuple[Array, Any]:
    """Return a struct for each value, and the rows of values for Spark, which are null: a numpy array."""
    odd = find_uncertain_texts(values)
    if not odd.any():
        return _parse_even_texts(values, kind, zoneless_is_utc=zoneless_is_utc)
    even = np.flatnonzero(~odd)
    structs, refused = _parse_even_texts(values.take(pa.array(even)), kind, zoneless_is_utc=zoneless_is_utc)
    odd[even[refused]] = True
    places = np.zeros(len(values), np.int64)
    places[even] = np.arange(even.size)
    return structs.take(pa.array(places, mask=odd)), np.flatnonzero(odd)


def split_by_size(rows: Any, sizes: Any, limit: int) -> list[Any]:
    """Split an array of rows where the sizes before a row pass a multiple of `limit`."""
    before = np.cumsum(sizes) - sizes
    return np.split(rows, np.flatnonzero(np.diff(before // limit)) + 1)


def measure_row(kind: Any) -> int:
    """Return the bytes that a row of a struct takes in Arrow's columns if its texts and lists are empty."""
    if kinds.is_struct(kind):
        return sum(measure_row(field.type) for field in kind)
    return 4 if kinds.is_nested(kind) or kinds.is_string(kind) else -(-kind.bit_width // 8)  # 4: an offset


def _parse_even_texts(values: Array, kind: Any, *, zoneless_is_utc: bool) -> tuple[Array, Any]:
    parsed_kind = replace_with_text(kind, _is_time)

    def convert(some: Array) -> Array:
        return _read_leaves(parse_every_object(some, parsed_kind), kind, zoneless_is_utc=zoneless_is_utc)

    smallest = max(_SMALLEST_PART, len(values) // _MAX_PARTS)
    structs, reasons = convert_by_halves(values, convert, kind, smallest)
    return structs, np.fromiter(reasons, np.int64, len(reasons))


def _to_arrow_type(path: str, field: StructField) -> Any:
    if field.metadata:  # such as a comment, which Spark hands on to the table
        raise _build_type_error(
            path, f"{field.dataType.simpleString()} with {', '.join(sorted(field.metadata))}"
        )
    return _to_arrow_kind(path, field.dataType)


def _to_arrow_kind(path: str, kind: DataType) -> Any:
    if isinstance(kind, StructType) and kind.fields and len({*map(str.lower, kind.names)}) == len(kind.names):
        return pa.struct([(f.name, _to_arrow_type(f"{path}.{f.name}", f)) for f in kind])
    if isinstance(kind, ArrayType):
        return pa.list_(_to_arrow_kind(f"{path}.element", kind.elementType))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if kind not in _PLAIN_TYPES:
        raise _build_type_error(path, kind.simpleString())
    return _PLAIN_TYPES[kind]


def _build_type_error(path: str, what: str) -> UnprovenJsonError:
    return UnprovenJsonError(f"lake.schema: column {path} is {what}, which only Spark parses from JSON")


def _is_time(kind: Any) -> bool:
    return bool(kinds.is_date(kind) or kinds.is_timestamp(kind))


def _read_leaves(parsed: Array, kind: Any, *, zoneless_is_utc: bool) -> Array:
    """Return parsed values with times in place of text. Raises _UncertainValueError."""
    read = partial(_read_leaves, zoneless_is_utc=zoneless_is_utc)
    if kinds.is_struct(kind):
        fields = [read(parsed.field(at), field.type) for at, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=parsed.is_null())
    if kinds.is_list(kind):
        items = read(parsed.values, kind.value_type)
        return pa.ListArray.from_arrays(parsed.offsets, items, type=kind, mask=parsed.is_null())
    if _is_time(kind):
        return _read_times(parsed, kind, zoneless_is_utc=zoneless_is_utc)
    if kinds.is_floating(kind):
        _check_floats(parsed)
    elif kinds.is_decimal(kind):
        parsed.validate(full=True)  # the parser adds zeros beyond the precision
    return parsed


def _check_floats(parsed: Array) -> None:
    # Spark reads "-0" as an integer, and has other rules for overflows
    numbers = parsed.drop_null().to_numpy(zero_copy_only=False)
    _require(bool(np.isfinite(numbers).all()) and not np.signbit(numbers[numbers == 0]).any())


def _read_times(texts: Array, kind: Any, *, zoneless_is_utc: bool) -> Array:
    """Return dates or timestamps of the forms that both parsers read alike."""
    if kinds.is_date(kind):
        _require(_all_match(texts, _DATE))
        return texts.cast(kind)
    if not _all_match(texts, _TIME + _ZONE):
        _require(zoneless_is_utc and _all_match(texts, f"{_TIME}{_ZONE}?"))
        texts = pc.replace_substring_regex(texts, r"(\d\d:\d\d:\d\d(?:\.\d+)?)\z", r"\1Z")
    return texts.cast(kind)


def _all_match(texts: Array, pattern: str) -> bool:
    matches = pc.match_substring_regex(texts, rf"\A{pattern}\z")
    return bool(pc.all(matches, min_count=0).as_py())


def _require(holds: object) -> None:
    if not holds:
        raise _UncertainValueError
