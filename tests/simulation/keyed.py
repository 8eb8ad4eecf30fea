"""Changes by key in histories with `lake.write: upsert`: the change of each record, and their replay.

A record's number tells its change: an update, one that moves its row from another key, a delete, or a
tombstone. A key lives in one partition. The decoder is a stand-in; all behind it is the product's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.changes.change_formats import recognize_debezium
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.decoding.decoded_records import DecodedRecords
from trimtab.consumer_sdk.lake.projection.keyed_projection import KeyedProjection

KEYS: Final = 5
"""Keys of a partition: few, so that most changes meet a row."""

_ROW: Final = pa.struct([("id", pa.string()), ("number", pa.int64())])


class Change(NamedTuple):
    """Keys: `removed` loses its row, then `kept` gets the record's; None for none."""

    removed: str | None
    kept: str | None
    tombstone: bool = False


def read_change(partition: int, number: int) -> Change:
    """Return the change of a record."""
    key, other = (f"{partition}/{(number + shift) % KEYS}" for shift in (0, 1))
    if number % 6 == 0:
        return Change(key, None, tombstone=number % 4 == 0)
    return Change(other if number % 7 == 0 else None, key)


def replay_changes(partition: int, records: Iterable[tuple[int, bytes]]) -> dict[str, int]:
    """Return the offset of each key's row after records, given by offset and value."""
    rows: dict[str, int] = {}
    for offset, value in records:
        change = read_change(partition, int(value))
        if change.removed is not None:
            rows.pop(change.removed, None)
        if change.kept is not None:
            rows[change.kept] = offset
    return rows


def list_rows(changes: KeyedChanges) -> list[tuple[TopicPartition, int, bytes, str]]:
    """Return partition, offset, value and key of the rows that changes leave."""
    return [
        (TopicPartition(row["topic"], row["partition"]), row["offset"], b"%d" % row["number"], row["id"])
        for row in changes.upserts.to_pylist()
    ]


def build_projection(table: str) -> KeyedProjection:
    """Return the projection of the topic's table."""
    return KeyedProjection(table, _ChangeDecoder(), recognize_debezium, KeyRules(("id",)))


@dataclass(frozen=True, slots=True)
class _ChangeDecoder:
    def decode_values(self, records: Any) -> DecodedRecords:
        """Return records with the columns of Debezium's envelope; a tombstone has a key and no value."""
        numbers = [int(value) for value in records.column("value").to_pylist()]
        partitions = records.column("partition").to_pylist()
        changes = [read_change(*of) for of in zip(partitions, numbers, strict=True)]
        values = [None if c.tombstone else b"change" for c in changes]
        keys = [(c.kept or c.removed or "").encode() for c in changes]
        rows = records.set_column(
            records.column_names.index("value"), "value", [pa.array(values, pa.binary())]
        )
        rows = rows.set_column(rows.column_names.index("key"), "key", [pa.array(keys, pa.binary())])
        ops = [None if c.tombstone else "u" if c.kept else "d" for c in changes]
        before = [{"id": c.removed} if c.removed and not c.tombstone else None for c in changes]
        after = [
            {"id": c.kept, "number": number} if c.kept else None
            for c, number in zip(changes, numbers, strict=True)
        ]
        envelope = {"op": pa.array(ops, pa.string()), "before": pa.array(before, _ROW)}
        for name, column in {**envelope, "after": pa.array(after, _ROW)}.items():
            rows = rows.append_column(name, column)
        return DecodedRecords(rows, None)

    def find_schema(self, data: bytes) -> None:
        """Return None: changes have no schema of a registry."""
        del data

    def decode_keys(self, keys: Any) -> tuple[Any, dict[int, str]]:
        """Keys are plain text."""
        raise AssertionError(keys)

    def decode_text_keys(self, keys: Any, column: Any) -> tuple[Any, dict[int, str]]:
        """They are the text."""
        return keys.cast(column.type), {}
