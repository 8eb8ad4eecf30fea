"""Change records for tests: Debezium's envelope, Arrow tables of records, and a replay in plain Python."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.consumer_sdk.lake.changes.change_decoders import JsonChangeDecoder
from trimtab.consumer_sdk.lake.changes.change_formats import (
    recognize_debezium,
    recognize_keyed_rows,
    recognize_mapped_rows,
)
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.changes.change_settings import DEBEZIUM, KEYED, ChangeFormat
from trimtab.consumer_sdk.lake.changes.json_change_schemas import build_value_schema
from trimtab.consumer_sdk.lake.projection.keyed_projection import KeyedProjection
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA, column_name

Row = dict[str, Any]
ROW_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int64())])


class ChangeRecord(NamedTuple):
    """Key and value of a record: bytes, None, or what becomes JSON."""

    key: Any
    value: Any
    partition: int = 0


def change(op: str, before: Row | None = None, after: Row | None = None) -> ChangeRecord:
    """Return a change in Debezium's envelope."""
    row = after or before
    envelope = {"before": before, "after": after, "source": {"lsn": 3}, "op": op, "ts_ms": 1}
    return ChangeRecord(None if row is None else {"id": row["id"]}, envelope)


def draw_changes(chance: random.Random, count: int, keys: int) -> Iterator[ChangeRecord]:
    """Yield changes as Debezium does: snapshot, inserts, updates, deletes, half of them with tombstones."""
    for number in range(count):
        row: Row = {"id": chance.randrange(keys), "name": f"n{number}", "n": number}
        op = chance.choice("rcuuud")
        record = change(op, row) if op == "d" else change(op, None, row)
        yield record
        if op == "d" and chance.random() < 0.5:
            yield ChangeRecord(record.key, None)


def wrap(value: Any) -> dict[str, Any]:
    """Return a value as Connect's JsonConverter writes it with schemas."""
    return {"schema": {"type": "struct", "fields": [], "optional": False}, "payload": value}


def to_bytes(value: Any) -> bytes | None:
    """Return a key or value of a record."""
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, separators=(",", ":")).encode()


def build_records(records: Sequence[ChangeRecord], topic: str = "orders", first: int = 0) -> Any:
    """Return records with the offsets from `first`."""
    columns = {
        "topic": [topic] * len(records),
        "partition": [record.partition for record in records],
        "offset": list(range(first, first + len(records))),
        "timestamp": [None] * len(records),
        "key": [to_bytes(record.key) for record in records],
        "value": [to_bytes(record.value) for record in records],
        "headers": [None] * len(records),
    }
    return pa.table(columns, schema=RECORD_SCHEMA)


def build_projection(
    form: ChangeFormat = DEBEZIUM, rules: KeyRules | None = None, schema: Any = ROW_SCHEMA
) -> KeyedProjection:
    """Return the projection of JSON changes of rows with these columns."""
    rules = rules or KeyRules(("id",))
    keys = pa.schema([field for field in schema if column_name(field.name) in rules.columns])
    decoder = JsonChangeDecoder(build_value_schema(schema, form), keys)
    if isinstance(form, str):
        recognize = {DEBEZIUM: recognize_debezium, KEYED: recognize_keyed_rows}[form]
        return KeyedProjection("lake.orders", decoder, recognize, rules)
    return KeyedProjection("lake.orders", decoder, partial(recognize_mapped_rows, mapping=form), rules)


def apply_changes(rows: Mapping[Any, Row], changes: Any) -> dict[Any, Row]:
    """Return rows by key after a KeyedChanges."""
    touched = {tuple(key.values()) for key in changes.touched_keys.to_pylist()}
    kept = {key: row for key, row in rows.items() if key not in touched}
    added = {tuple(row[c] for c in changes.key_columns): row for row in changes.upserts.to_pylist()}
    assert added.keys() <= touched
    return kept | added


def replay(records: Iterable[ChangeRecord]) -> dict[tuple[int], Row]:
    """Return the rows by id after Debezium's changes, in plain Python."""
    rows: dict[tuple[int], Row] = {}
    for record in records:
        if record.value is None:
            rows.pop((record.key["id"],), None)
        else:
            for row in (record.value["before"], record.value["after"]):
                rows.pop((row["id"],), None) if row else None
            after = record.value["after"]
            rows |= {} if after is None else {(after["id"],): after}
    return rows
