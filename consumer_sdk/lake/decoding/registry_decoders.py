"""Decodes values of a schema registry into typed columns: decoders avro and protobuf.

Rules:

1. Each record is read with the schema it was written with. A batch has the columns of all its
   schemas, oldest first; a column missing in a schema is null, also inside structs, and numbers of
   different length become the longer one.
2. Schemas that cannot be merged so are TableSchemaMismatchError: no choice would keep all values.
3. An unreadable value (no wire format, unknown schema, corrupt data) is a dead letter with the
   reason. An unresponsive registry is SchemaRegistryUnavailableError.
4. A record without a value has null in every decoded column.

Batches are decoded in pieces, which bounds the number of Python values in memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.decoding.schema_registry import SchemaRegistry
from trimtab.consumer_sdk.lake.decoding.value_reader import DecodedRow, UnusableSchemaError, ValueReader
from trimtab.consumer_sdk.lake.decoding.wire_format import (
    SchemaHeader,
    WireFormatError,
    parse_schema_header,
    read_avro_prefix,
    read_protobuf_prefix,
)
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.schema.record_columns import RecordBatch, column_name

AVRO_DECODER: Final = "avro"
PROTOBUF_DECODER: Final = "protobuf"
DECODING_CHUNK_ROWS: Final = 10_000
MAX_UNKNOWN_SCHEMAS: Final = 100
"""Ids of one batch that the registry may not know, lowest first; the rest is not asked for.

A topic of another format that begins with a byte 0 would make it answer for each of its records.
"""

ReaderOrError: TypeAlias = ValueReader | UnusableSchemaError


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """The records that could be read, with their columns, and (None: none) those that could not."""

    rows: Records
    dead_letters: Records | None


@dataclass(slots=True)
class RegistryDecoder:
    """Decodes the values of one registry; `kind` is "avro" or "protobuf"."""

    registry: SchemaRegistry
    kind: str
    _readers: dict[bytes, ValueReader] = field(default_factory=dict[bytes, ValueReader])

    def decode_batch(self, records: Records) -> DecodedRecords:
        """Decode a batch. Raises SchemaRegistryUnavailableError, TableSchemaMismatchError."""
        prefix = read_avro_prefix if self.kind == AVRO_DECODER else read_protobuf_prefix
        pieces = records.to_batches(max_chunksize=DECODING_CHUNK_ROWS)
        found = self._resolve_readers({p for piece in pieces for p in _iterate_prefixes(piece, prefix)})
        schema = _unify_columns({p: r for p, r in found.items() if isinstance(r, ValueReader)})
        decoded = [_DecodingChunk(piece, prefix, found, schema).decode_records() for piece in pieces]
        bad = [wrong for _, wrong in decoded if wrong is not None]
        return DecodedRecords(
            pa.Table.from_batches([good for good, _ in decoded]), pa.Table.from_batches(bad) if bad else None
        )

    def _resolve_readers(self, prefixes: set[bytes]) -> dict[bytes, ReaderOrError]:
        found: dict[bytes, ReaderOrError] = {}
        unknown = 0
        for prefix in sorted(prefixes):
            found[prefix] = self._resolve_reader(prefix, query_registry=unknown < MAX_UNKNOWN_SCHEMAS)
            unknown += isinstance(found[prefix], UnusableSchemaError)
        return found

    def _resolve_reader(self, prefix: bytes, *, query_registry: bool) -> ReaderOrError:
        known = self._readers.get(prefix)
        if known is not None:
            return known
        wanted = parse_schema_header(prefix)
        try:
            made = self._readers[prefix] = self._create_reader(wanted, query_registry=query_registry)
        except UnusableSchemaError as error:
            return UnusableSchemaError(f"schema id {wanted.schema_id}: {error}")
        return made

    def _create_reader(self, schema_header: SchemaHeader, *, query_registry: bool) -> ValueReader:
        if not query_registry:
            raise UnusableSchemaError("too many other ids of the batch are not known")
        from trimtab.consumer_sdk.lake.decoding import avro, protobuf  # noqa: PLC0415 - an extra

        schema = self.registry.fetch_schema(
            schema_header.schema_id, None if self.kind == AVRO_DECODER else "serialized"
        )
        if schema.kind != self.kind.upper():
            raise UnusableSchemaError(f"it is {schema.kind}, and lake.decoder is {self.kind}")
        if self.kind == AVRO_DECODER:
            return avro.create_avro_reader(schema.text, schema.references)
        return protobuf.create_protobuf_reader(schema.text, schema.references, schema_header.message_path)


@dataclass(frozen=True, slots=True)
class _DecodingChunk:
    """Some records on their way through their readers."""

    records: RecordBatch
    read_prefix: Callable[[bytes], bytes]
    readers: dict[bytes, ReaderOrError]
    schema: Any

    def decode_records(self) -> tuple[RecordBatch, RecordBatch | None]:
        values = self.records.column("value").to_pylist()
        rows: list[DecodedRow | None] = []
        errors: dict[int, str] = {}
        for at, value in enumerate(values):
            try:
                rows.append(None if value is None else self._read_row(value))
            except Exception as error:  # noqa: BLE001 - whatever broken data does to a decoder
                errors[at] = _describe_failure(error)
                rows.append(None)
        struct = self._build_struct(rows, errors)
        return self._build_rows(struct, errors), self._build_dead_letters(errors)

    def _read_row(self, value: bytes) -> DecodedRow:
        prefix = self.read_prefix(value)
        reader = self.readers[prefix]
        if isinstance(reader, UnusableSchemaError):
            raise reader
        return reader.read(value[len(prefix) :])

    def _build_struct(self, rows: list[DecodedRow | None], errors: dict[int, str]) -> Any:
        """Return the rows as one column; what does not fit it is taken out and named."""
        kind = pa.struct(list(self.schema))
        try:
            return pa.array(rows, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for at, row in enumerate(rows):
                try:
                    pa.array([row], kind)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    errors[at] = _describe_failure(error)
                    rows[at] = None
        return pa.array(rows, kind)

    def _build_rows(self, struct: Any, errors: dict[int, str]) -> RecordBatch:
        columns = [*self.records.columns, *struct.flatten()]
        decoded = [column.with_name(column_name(column.name)) for column in self.schema]
        whole = pa.RecordBatch.from_arrays(columns, schema=pa.schema([*self.records.schema, *decoded]))
        if not errors:
            return whole
        return whole.filter(pa.array([at not in errors for at in range(whole.num_rows)]))

    def _build_dead_letters(self, errors: dict[int, str]) -> RecordBatch | None:
        if not errors:
            return None
        order = sorted(errors)
        told = pa.array([errors[at] for at in order], pa.string())
        return self.records.take(pa.array(order)).append_column("error", told)


def _iterate_prefixes(records: RecordBatch, read_prefix: Callable[[bytes], bytes]) -> Iterator[bytes]:
    for value in records.column("value").to_pylist():
        if value is not None:
            try:
                yield read_prefix(value)
            except WireFormatError:
                continue


def _unify_columns(readers: dict[bytes, ValueReader]) -> Any:
    """Return the columns of all readers together (rule 1). Raises TableSchemaMismatchError."""
    schemas = [readers[prefix].schema for prefix in sorted(readers)]
    ids = ", ".join(str(parse_schema_header(prefix).schema_id) for prefix in sorted(readers))
    try:
        united = pa.unify_schemas([pa.schema([]), *schemas], promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise TableSchemaMismatchError(
            f"the schemas {ids} of the registry do not fit into one table: {error}. Nothing was "
            "written and no offset moved. Give the topic's new records a topic, and so a table, of "
            "their own, or read with lake.decoder=raw"
        ) from error
    names = [column_name(name).lower() for name in united.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableSchemaMismatchError(
            f"the schemas {ids} of the registry have two columns {twice[0]!r}, and a table cannot: "
            "letters' case does not count in SQL. Nothing was written and no offset moved"
        )
    return united


def _describe_failure(error: Exception) -> str:
    if isinstance(error, WireFormatError | UnusableSchemaError):
        return str(error)
    told = str(error) or type(error).__name__
    return f"does not fit its schema: {' '.join(told.split())[:300]}"
