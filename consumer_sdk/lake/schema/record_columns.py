"""Converts messages to Arrow record batches with the record columns of a table.

Columns: topic string, partition int32, offset int64, timestamp (µs, UTC), key binary, value binary,
headers map<string, binary>. A missing timestamp, key, value or headers is null, and so is a
timestamp outside the years 1 to 9999, which no other engine reads. Of headers with one name the last is kept.

A batch with a record whose headers cannot be decoded has one more column, `error`: the reason, null
for the other records. Such a record keeps its readable headers and becomes a dead letter.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.lake.model.interfaces import ConsumedMessage, Records
from trimtab.consumer_sdk.readable_headers import keep_readable_headers

RecordBatch: TypeAlias = Any  # pyarrow's, which ships no types
_HEADERS_TYPE: Final = pa.map_(pa.string(), pa.binary())
RECORD_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS_TYPE),
    ]
)
_TIMESTAMPS_MS: Final = -62_135_596_800_000, 253_402_300_799_999  # of the years 1 to 9999
_MAX_BINARY_BYTES: Final = 2**31 - 1  # capacity of one binary array: its offsets have 32 bits
RECORD_COLUMNS: Final[tuple[str, ...]] = tuple(RECORD_SCHEMA.names)
ERROR_COLUMN: Final = "error"  # of dead letters: the reason
FIELD_COLUMN: Final = "field"  # of dead letters: the path of the field at fault, null for the whole record
# Columns that engines add to a table's own when they read it, Iceberg's and of Delta's change feed: a table
# that has one of them can be neither read nor compacted.
RESERVED_COLUMNS: Final = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_partition",
        "_spec_id",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
        "_commit_version",
        "_commit_timestamp",
    }
)
_PREFIXED_COLUMNS: Final = RESERVED_COLUMNS | {*RECORD_COLUMNS}
_UNREADABLE_HEADERS: Final = "header names are not UTF-8; those headers are left out"


def column_name(field: str) -> str:
    """Return the column of a decoded field; the name of a record column or a reserved one gets a prefix."""
    return f"value_{field}" if field.lower() in _PREFIXED_COLUMNS else field


def fold_name(name: str) -> str:
    """Return a name as engines compare it that ignore case: character by character."""
    return "".join(map(_fold_character, name))


def _fold_character(character: str) -> str:
    for other in (character.upper(), character.upper().lower()):
        character = other if len(other) == 1 else character
    return character


def find_name_problem(fields: Iterable[Any], rename: Callable[[str], str] = column_name) -> str | None:
    """Return what no table can have among pyarrow fields and the ones within them, None if it can."""
    fields = list(fields)
    names = [fold_name(rename(field.name)) for field in fields]
    if "" in names:
        return "a column without a name"
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return f"two columns {twice[0]!r}"
    structs = chain.from_iterable(_list_structs(field.type) for field in fields)
    return next(filter(None, (find_name_problem(kind, str) for kind in structs)), None)


def _list_structs(kind: Any) -> Iterable[Any]:
    if pa.types.is_struct(kind):
        return [kind]
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return chain.from_iterable(map(_list_structs, inner))


def group_by_partition(messages: Iterable[ConsumedMessage]) -> dict[TopicPartition, list[ConsumedMessage]]:
    """Return records by partition, in their order."""
    runs: dict[tuple[Any, Any], list[ConsumedMessage]] = {}
    for message in messages:
        runs.setdefault((message.topic(), message.partition()), []).append(message)
    return {TopicPartition(*key): run for key, run in runs.items()}


def message_offsets(messages: Sequence[ConsumedMessage]) -> list[int]:
    """Return the offsets of a run."""
    return [message.offset() for message in messages]


def build_record_batch(partition: TopicPartition, messages: Sequence[ConsumedMessage]) -> RecordBatch:
    """Return the record columns of one partition's messages."""
    count = len(messages)
    raw_messages: Sequence[Any] = messages
    # First: it makes the headers of these messages safe to read.
    unreadable = {message.offset() for message in keep_readable_headers(raw_messages)}
    columns = [
        pa.repeat(pa.scalar(partition.topic, pa.string()), count),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
        pa.array(message_offsets(messages), pa.int64()),
        _build_timestamps([message.timestamp() for message in messages]),
        _build_binary([message.key() for message in messages]),
        _build_binary([message.value() for message in messages]),
        _build_headers([message.headers() for message in messages]),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    if not unreadable:
        return batch
    errors = [_UNREADABLE_HEADERS if m.offset() in unreadable else None for m in messages]
    return batch.append_column(ERROR_COLUMN, pa.array(errors, pa.string()))


def join_batches(batches: Iterable[RecordBatch]) -> Records:
    """Return the batches as one table; with an error column if one of them has it."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="default")


def split_unreadable(records: Records) -> tuple[Records, Records | None]:
    """Return the records with the record columns only, and the unreadable ones with their error, if any."""
    if ERROR_COLUMN not in records.column_names:
        return records, None
    errors = records.column(ERROR_COLUMN)
    readable = records.filter(errors.is_null()).drop_columns([ERROR_COLUMN])
    unreadable = records.filter(errors.is_valid())
    return readable, unreadable.append_column(FIELD_COLUMN, pa.nulls(unreadable.num_rows, pa.string()))


def select_from_offsets(records: Records, first_offsets: Mapping[TopicPartition, int]) -> Records:
    """Return the records of these partitions at or after their first offsets."""
    if not first_offsets:
        return records.slice(0, 0)
    columns = (records.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    beyond = 1 << 63  # above every offset: a partition without a first offset has no records
    rows = zip(*columns, strict=True)
    mask = [offset >= first_offsets.get(TopicPartition(t, p), beyond) for t, p, offset in rows]
    return records.filter(pa.array(mask))


def _build_timestamps(stamps: Sequence[tuple[int, int]]) -> Any:
    """Return timestamps given as (kind, ms); kind 0 means none."""
    kind = RECORD_SCHEMA.field("timestamp").type
    low, high = _TIMESTAMPS_MS
    # a producer may write microseconds as milliseconds
    return pa.array([ms * 1000 if known and low <= ms <= high else None for known, ms in stamps], kind)


def _build_binary(values: list[bytes | None]) -> Any:
    # Arrow's conversion doubles its buffer repeatedly; joining takes a third of its time at 1 kB
    known = [value for value in values if value is not None]
    ends = np.zeros(len(known) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, known), np.int64, len(known)), out=ends[1:])
    if len(known) < len(values) or ends[-1] > _MAX_BINARY_BYTES:
        return pa.array(values, pa.binary())
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(known))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _build_headers(headers: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> Any:
    if not any(headers):
        return pa.nulls(len(headers), _HEADERS_TYPE)
    # a Kafka record may repeat a header, a map may not: the last one counts
    return pa.array([None if h is None else list(dict(h).items()) for h in headers], _HEADERS_TYPE)
