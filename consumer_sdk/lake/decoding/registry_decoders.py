"""Values that were written with a schema registry, to typed columns: decoders avro and protobuf.

The rules:

1. Every record is read with the schema that it was written with. The columns of a batch are those
   of all its schemas, the oldest first: a column that a schema does not have is null in its
   records, also inside structs; numbers that differ in length become the longer one.
2. Schemas that do not fit together so are TableMismatch: no choice between them would keep all
   values.
3. What cannot be read (no wire format, no such schema, broken data) is a dead letter with the
   reason. A registry that does not answer is not the record's fault: RegistryUnavailable.
4. A record without a value has null in every decoded column.

Decoded in pieces, so that the Python values of a large batch are never all there at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from trimtab.consumer_sdk.errors import TableMismatch
from trimtab.consumer_sdk.lake.decoding.schema_registry import Registry
from trimtab.consumer_sdk.lake.decoding.value_reader import Reader, Row, Unreadable
from trimtab.consumer_sdk.lake.decoding.wire_format import (
    Header,
    NotInWireFormat,
    avro_prefix,
    header,
    protobuf_prefix,
)
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.schema.record_columns import RecordBatch, column_name

AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
PIECE: Final = 10_000
MOST_UNKNOWN: Final = 100
"""Ids of one batch that the registry may not know, lowest first; the rest is not asked for.

A topic of another format that begins with a byte 0 would make it answer for each of its records.
"""

Found: TypeAlias = Reader | Unreadable


@dataclass(frozen=True, slots=True)
class Split:
    """The records that could be read, with their columns, and (None: none) those that could not."""

    good: Records
    bad: Records | None


@dataclass(slots=True)
class Registered:
    """Decodes the values of one registry; `kind` is "avro" or "protobuf"."""

    registry: Registry
    kind: str
    _readers: dict[bytes, Reader] = field(default_factory=dict[bytes, Reader])

    def split(self, records: Records) -> Split:
        """Decode a batch. Raises RegistryUnavailable, TableMismatch."""
        prefix = avro_prefix if self.kind == AVRO else protobuf_prefix
        pieces = records.to_batches(max_chunksize=PIECE)
        found = self._find({p for piece in pieces for p in _prefixes(piece, prefix)})
        schema = _columns({p: r for p, r in found.items() if isinstance(r, Reader)})
        decoded = [_Piece(piece, prefix, found, schema).split() for piece in pieces]
        bad = [wrong for _, wrong in decoded if wrong is not None]
        return Split(
            pa.Table.from_batches([good for good, _ in decoded]),
            pa.Table.from_batches(bad) if bad else None,
        )

    def _find(self, prefixes: set[bytes]) -> dict[bytes, Found]:
        found: dict[bytes, Found] = {}
        unknown = 0
        for prefix in sorted(prefixes):
            found[prefix] = self._reader(prefix, ask=unknown < MOST_UNKNOWN)
            unknown += isinstance(found[prefix], Unreadable)
        return found

    def _reader(self, prefix: bytes, *, ask: bool) -> Found:
        known = self._readers.get(prefix)
        if known is not None:
            return known
        wanted = header(prefix)
        try:
            made = self._readers[prefix] = self._made(wanted, ask=ask)
        except Unreadable as error:
            return Unreadable(f"schema id {wanted.id}: {error}")
        return made

    def _made(self, wanted: Header, *, ask: bool) -> Reader:
        if not ask:
            raise Unreadable("too many other ids of the batch are not known")
        from trimtab.consumer_sdk.lake.decoding import avro, protobuf  # noqa: PLC0415 - an extra

        schema = self.registry.schema(wanted.id, None if self.kind == AVRO else "serialized")
        if schema.kind != self.kind.upper():
            raise Unreadable(f"it is {schema.kind}, and lake.decoder is {self.kind}")
        if self.kind == AVRO:
            return avro.reader(schema.text, schema.references)
        return protobuf.reader(schema.text, schema.references, wanted.path)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some records on their way through their readers."""

    records: RecordBatch
    prefix: Callable[[bytes], bytes]
    found: dict[bytes, Found]
    schema: Any

    def split(self) -> tuple[RecordBatch, RecordBatch | None]:
        values = self.records.column("value").to_pylist()
        rows: list[Row | None] = []
        errors: dict[int, str] = {}
        for at, value in enumerate(values):
            try:
                rows.append(None if value is None else self._row(value))
            except Exception as error:  # noqa: BLE001 - whatever broken data does to a decoder
                errors[at] = _reason(error)
                rows.append(None)
        struct = self._struct(rows, errors)
        return self._good(struct, errors), self._bad(errors)

    def _row(self, value: bytes) -> Row:
        prefix = self.prefix(value)
        reader = self.found[prefix]
        if isinstance(reader, Unreadable):
            raise reader
        return reader.read(value[len(prefix) :])

    def _struct(self, rows: list[Row | None], errors: dict[int, str]) -> Any:
        """Return the rows as one column; what does not fit it is taken out and named."""
        kind = pa.struct(list(self.schema))
        try:
            return pa.array(rows, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for at, row in enumerate(rows):
                try:
                    pa.array([row], kind)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    errors[at] = _reason(error)
                    rows[at] = None
        return pa.array(rows, kind)

    def _good(self, struct: Any, errors: dict[int, str]) -> RecordBatch:
        columns = [*self.records.columns, *struct.flatten()]
        decoded = [column.with_name(column_name(column.name)) for column in self.schema]
        whole = pa.RecordBatch.from_arrays(
            columns, schema=pa.schema([*self.records.schema, *decoded])
        )
        if not errors:
            return whole
        return whole.filter(pa.array([at not in errors for at in range(whole.num_rows)]))

    def _bad(self, errors: dict[int, str]) -> RecordBatch | None:
        if not errors:
            return None
        order = sorted(errors)
        told = pa.array([errors[at] for at in order], pa.string())
        return self.records.take(pa.array(order)).append_column("error", told)


def _prefixes(piece: RecordBatch, prefix: Callable[[bytes], bytes]) -> Iterator[bytes]:
    for value in piece.column("value").to_pylist():
        if value is not None:
            try:
                yield prefix(value)
            except NotInWireFormat:
                continue


def _columns(readers: dict[bytes, Reader]) -> Any:
    """Return the columns of all readers together (rule 1). Raises TableMismatch."""
    schemas = [readers[prefix].schema for prefix in sorted(readers)]
    ids = ", ".join(str(header(prefix).id) for prefix in sorted(readers))
    try:
        united = pa.unify_schemas([pa.schema([]), *schemas], promote_options="permissive")
    except (pa.ArrowException, TypeError) as error:
        raise TableMismatch(
            f"the schemas {ids} of the registry do not fit into one table: {error}. Nothing was "
            "written and no offset moved. Give the topic's new records a topic, and so a table, of "
            "their own, or read with lake.decoder=raw"
        ) from error
    names = [column_name(name).lower() for name in united.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableMismatch(
            f"the schemas {ids} of the registry have two columns {twice[0]!r}, and a table cannot: "
            "letters' case does not count in SQL. Nothing was written and no offset moved"
        )
    return united


def _reason(error: Exception) -> str:
    if isinstance(error, NotInWireFormat | Unreadable):
        return str(error)
    told = str(error) or type(error).__name__
    return f"does not fit its schema: {' '.join(told.split())[:300]}"
