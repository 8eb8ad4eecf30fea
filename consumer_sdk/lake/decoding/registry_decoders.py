"""Decodes values of a schema registry into typed columns: decoders avro and protobuf.

Rules:

1. Each record is read with the schema it was written with. A batch has the columns of all its
   schemas, oldest first; a column missing in a schema is null, also inside structs, and numbers of
   different length become the longer one.
2. Other differences of schemas are TableSchemaMismatchError: no column would keep all values.
3. An unreadable value (no wire format, unknown schema, corrupt data) is a dead letter with the
   reason. An unresponsive registry is SchemaRegistryUnavailableError.
4. A record without a value has null in every decoded column.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.types import DataType, DoubleType, LongType

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.decoding import wire_format
from trimtab.consumer_sdk.lake.decoding.decoded_records import (
    MAX_COLUMN_BYTES,
    BatchTooLargeError,
    DecodedRecords,
    Reason,
    check_value_bytes,
    take_dead_letters,
)
from trimtab.consumer_sdk.lake.decoding.schema_registry import SchemaRegistry
from trimtab.consumer_sdk.lake.decoding.value_ranges import STRICT_RANGES, OutOfRangeError, ValueRanges
from trimtab.consumer_sdk.lake.decoding.value_reader import (
    MAX_READ_VALUES,
    DecodedRow,
    UnusableSchemaError,
    ValueReader,
)
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.schema.record_columns import RecordBatch, column_name, find_name_problem
from trimtab.consumer_sdk.lake.schema.schema_evolution import check_values_kept, keeps_values

AVRO_DECODER: Final = "avro"
PROTOBUF_DECODER: Final = "protobuf"
# Bounds of the Python values in memory, with MAX_READ_VALUES.
DECODING_CHUNK_ROWS: Final = 10_000
DECODING_CHUNK_BYTES: Final = 16_000_000
# per batch: values of another format that begin with byte 0 would cause a request for each record
MAX_UNKNOWN_SCHEMAS: Final = 100

_ARROW_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)

ReaderOrError: TypeAlias = ValueReader | UnusableSchemaError


@dataclass(slots=True)
class RegistryDecoder:
    """Decodes the values of one registry; `kind` is "avro" or "protobuf"."""

    registry: SchemaRegistry
    kind: str
    ranges: ValueRanges = STRICT_RANGES
    _readers: dict[bytes, ValueReader] = field(default_factory=dict[bytes, ValueReader])

    def decode_batch(self, records: Records) -> DecodedRecords:
        """Decode a batch.

        Raises SchemaRegistryUnavailableError, TableSchemaMismatchError, BatchTooLargeError.
        """
        check_value_bytes(records)
        prefix = self._read_prefix
        chunks = [part for chunk in records.to_batches(DECODING_CHUNK_ROWS) for part in _cut_chunk(chunk)]
        # all schemas before the first chunk: every chunk has the columns of the whole batch
        readers = self._resolve_all({p for chunk in chunks for p in _iterate_prefixes(chunk, prefix)})
        schema = _unify_columns({p: r for p, r in readers.items() if isinstance(r, ValueReader)})
        limit, done = MAX_COLUMN_BYTES + records.column("value").nbytes, 0
        good, bad = list[RecordBatch](), list[RecordBatch]()
        while chunks:
            chunk = chunks.pop(0)
            rows, letters, count = _DecodingChunk(chunk, prefix, readers, schema).decode()
            good.append(rows)
            bad += [] if letters is None else [letters]
            done += count
            chunks[:0] = [chunk[count:]] if count < chunk.num_rows else []
            if chunks and sum(part.nbytes for part in good) > limit:
                raise BatchTooLargeError(done)
        return DecodedRecords(pa.Table.from_batches(good), pa.Table.from_batches(bad) if bad else None)

    def find_schema(self, value: bytes) -> Any:
        """Return the pyarrow schema of a value of a decoded batch, None if it has none that can be used."""
        try:
            reader = self._readers.get(self._read_prefix(value))
        except wire_format.WireFormatError:
            return None
        return None if reader is None else reader.schema

    def _read_prefix(self, value: bytes) -> bytes:
        is_avro = self.kind == AVRO_DECODER
        return (wire_format.read_avro_prefix if is_avro else wire_format.read_protobuf_prefix)(value)

    def _resolve_all(self, prefixes: set[bytes]) -> dict[bytes, ReaderOrError]:
        readers: dict[bytes, ReaderOrError] = {}
        unknown = 0
        for prefix in sorted(prefixes):
            readers[prefix] = self._resolve(prefix, may_query=unknown < MAX_UNKNOWN_SCHEMAS)
            unknown += isinstance(readers[prefix], UnusableSchemaError)
        return readers

    def _resolve(self, prefix: bytes, *, may_query: bool) -> ReaderOrError:
        if prefix in self._readers:
            return self._readers[prefix]
        header = wire_format.parse_schema_header(prefix)
        try:
            # errors are not kept: a schema may be registered before the next batch
            reader = self._readers[prefix] = self._create_reader(header, may_query=may_query)
        except UnusableSchemaError as error:
            return UnusableSchemaError(f"schema id {header.schema_id}: {error}")
        return reader

    def _create_reader(self, header: wire_format.SchemaHeader, *, may_query: bool) -> ValueReader:
        if not may_query:
            raise UnusableSchemaError("too many other schema ids of the batch are unknown")
        from trimtab.consumer_sdk.lake.decoding import avro, protobuf  # noqa: PLC0415 - an extra

        form = None if self.kind == AVRO_DECODER else "serialized"
        schema = self.registry.fetch_schema(header.schema_id, form)
        if schema.kind != self.kind.upper():
            raise UnusableSchemaError(f"it is {schema.kind}, and lake.decoder is {self.kind}")
        if self.kind == AVRO_DECODER:
            return avro.create_avro_reader(schema.text, schema.references, self.ranges)
        return protobuf.create_protobuf_reader(
            schema.text, schema.references, header.message_path, self.ranges
        )


@dataclass(frozen=True, slots=True)
class _DecodingChunk:
    records: RecordBatch
    read_prefix: Callable[[bytes], bytes]
    readers: dict[bytes, ReaderOrError]
    schema: Any

    def decode(self) -> tuple[RecordBatch, RecordBatch | None, int]:
        """Return rows and dead letters of the first records, as many as memory holds, and their number."""
        rows: list[DecodedRow | None] = []
        errors: dict[int, str] = {}
        values, width = 0, _count_columns(self.schema)
        for value in self.records.column("value").to_pylist():
            row: DecodedRow | None = None
            try:
                row, items = self._read(value)
                values += width + items
            except Exception as error:  # noqa: BLE001 - corrupt data raises any error in the decoders
                errors[len(rows)] = _describe_failure(error)
            rows.append(row)
            if values > MAX_READ_VALUES:
                break
        part = replace(self, records=self.records[: len(rows)])
        struct = part.build_struct(rows, errors)
        return part.build_rows(struct, errors), part.build_dead_letters(errors), len(rows)

    def _read(self, value: bytes | None) -> tuple[DecodedRow | None, int]:
        """Return the row of a value, and the number of values in its items."""
        if value is None:
            return None, 0
        prefix = self.read_prefix(value)
        reader = self.readers[prefix]
        if isinstance(reader, UnusableSchemaError):
            raise reader
        return reader.read(value[len(prefix) :]), reader.items.values

    def build_struct(self, rows: list[DecodedRow | None], errors: dict[int, str]) -> Any:
        """Return the rows as one column; add the errors of those that do not fit."""
        kind = pa.struct(list(self.schema))
        try:
            return pa.array(rows, kind)
        except _ARROW_ERRORS:  # it does not name the row: try them one by one
            for at, row in enumerate(rows):
                if (fault := _find_fault(row, kind)) is not None:
                    errors[at] = fault
                    rows[at] = None
        return pa.array(rows, kind)

    def build_rows(self, struct: Any, errors: dict[int, str]) -> RecordBatch:
        columns = [*self.records.columns, *struct.flatten()]
        decoded = [column.with_name(column_name(column.name)) for column in self.schema]
        whole = pa.RecordBatch.from_arrays(columns, schema=pa.schema([*self.records.schema, *decoded]))
        return whole.filter(pa.array([at not in errors for at in range(whole.num_rows)])) if errors else whole

    def build_dead_letters(self, errors: dict[int, str]) -> RecordBatch | None:
        return take_dead_letters(self.records, errors) if errors else None


def _cut_chunk(chunk: RecordBatch) -> list[RecordBatch]:
    """Return a chunk in parts of about DECODING_CHUNK_BYTES."""
    rows = max(1, chunk.num_rows * DECODING_CHUNK_BYTES // max(chunk.nbytes, DECODING_CHUNK_BYTES))
    return [chunk[at : at + rows] for at in range(0, max(chunk.num_rows, 1), rows)]


def _count_columns(kind: Any) -> int:
    """Return the columns of a schema or type, with nested ones, but for those of items."""
    if isinstance(kind, pa.Schema) or pa.types.is_struct(kind):
        return sum(_count_columns(field.type) for field in kind)
    return 1


def _iterate_prefixes(records: RecordBatch, read_prefix: Callable[[bytes], bytes]) -> Iterator[bytes]:
    for value in records.column("value").to_pylist():
        if value is not None:
            try:
                yield read_prefix(value)
            except wire_format.WireFormatError:
                continue


def _unify_columns(readers: dict[bytes, ValueReader]) -> Any:
    """Return the columns of all readers (rule 1). Raises TableSchemaMismatchError."""
    # ids rise with time: the columns of the oldest schema come first, whatever the batch's order
    schemas = [readers[prefix].schema for prefix in sorted(readers)]
    ids = ", ".join(str(wire_format.parse_schema_header(prefix).schema_id) for prefix in sorted(readers))
    try:
        united = pa.unify_schemas([pa.schema([]), *schemas], promote_options="permissive")
        check_values_kept(schemas, united, _fits_column)
    except (pa.ArrowException, TypeError) as error:
        raise TableSchemaMismatchError(
            f"the schemas {ids} of the registry do not fit into one table: {error}. Nothing was "
            "written and no offset moved. Produce the new records to another topic, which has its own "
            "table, or read with lake.decoder=raw"
        ) from error
    if problem := find_name_problem(united):
        raise TableSchemaMismatchError(
            f"the schemas {ids} of the registry have {problem}, which a table cannot: "
            "SQL ignores the case of names. Nothing was written and no offset moved"
        )
    return united


def _find_fault(value: Any, kind: Any, path: tuple[str, ...] = ()) -> Reason | None:
    """Return why a value does not fit a type, None if it does."""
    try:
        pa.array([value], kind)
    except _ARROW_ERRORS:
        parts: list[tuple[Any, Any, tuple[str, ...]]] = []
        if pa.types.is_struct(kind):
            parts = [(value.get(field.name), field.type, (*path, field.name)) for field in kind]
        elif pa.types.is_list(kind):
            parts = [(item, kind.value_type, path) for item in value]
        elif pa.types.is_map(kind):
            parts = [(item, kind.item_type, (*path, "value")) for _, item in value]
        inner = (fault for part in parts if (fault := _find_fault(*part)) is not None)
        return next(inner, Reason.of_field(".".join(path), f"{value!r:.100} does not fit {kind}"))
    return None


def _fits_column(have: DataType, want: DataType) -> bool:
    # a number that a double rounds is a dead letter of its own
    return keeps_values(have, want) or (isinstance(have, LongType) and isinstance(want, DoubleType))


def _describe_failure(error: Exception) -> str:
    if isinstance(error, OutOfRangeError):
        return Reason.of_field(error.path, error.problem)
    if isinstance(error, wire_format.WireFormatError | UnusableSchemaError):
        return str(error)
    text = str(error) or type(error).__name__
    return f"does not fit its schema: {' '.join(text.split())[:300]}"
