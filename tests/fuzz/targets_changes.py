"""Changes of `lake.write: upsert`: Debezium's envelopes, keyed rows, mappings; JSON and a registry's Avro.

An input is a JSON list of a key and a value, each JSON too, or bytes that are both. A good change stands
before and behind it in the batch: whatever the input is, these are applied, and it is a change, a dead
letter with a reason, or neither.
"""

import json
from functools import cache, partial
from typing import Any, Final

import pyarrow as pa

from support.lake.avro_registry import AvroRegistry
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.change_decoders import (
    ChangeDecoder,
    JsonChangeDecoder,
    RegistryChangeDecoder,
)
from trimtab.consumer_sdk.lake.changes.change_formats import (
    ChangeRecognizer,
    recognize_debezium,
    recognize_keyed_rows,
    recognize_mapped_rows,
)
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.changes.change_settings import DEBEZIUM, KEYED, ChangeFormat, ChangeMapping
from trimtab.consumer_sdk.lake.changes.json_change_schemas import build_value_schema
from trimtab.consumer_sdk.lake.projection.keyed_projection import KeyedProjection
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

MAPPING: Final = ChangeMapping("type", frozenset({"insert", "update"}), frozenset({"delete"}), "data")
FLAT_MAPPING: Final = ChangeMapping("type", frozenset({"insert"}), frozenset({"delete"}))
ROW_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("total", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.struct([("n", pa.float64()), ("b", pa.bool_())]))),
    ]
)
KEY: Final = {"id": 1, "region": "eu"}
ROW: Final = KEY | {
    "total": "9.90",
    "at": "2026-01-01T00:00:00Z",
    "day": 20000,
    "tags": [{"n": 1.5, "b": True}],
}
DATED_ROW: Final = ROW | {"day": "2026-01-01"}  # numbers are days in Debezium's envelopes only
GUARD: Final = {"id": 4711, "region": "guard"}  # of the good changes


def _envelope(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": 1}, "ts_ms": 1}


def _wrap(value: Any) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": []}, "payload": value}


_ENVELOPES: Final = (
    (KEY, _envelope("c", None, ROW)),
    (KEY, _envelope("u", KEY | {"id": 2}, ROW)),
    (KEY, _envelope("d", ROW)),
    (KEY, _envelope("t")),
    (KEY, None),
    (None, {"ts_ms": 1}),
    (_wrap(KEY), _wrap(_envelope("r", None, ROW))),
)
_AVRO_ROW: Final = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "region", "type": ["null", "string"]}],
}
_AVRO: Final = AvroRegistry(
    {
        1: {
            "type": "record",
            "name": "Envelope",
            "fields": [
                {"name": "before", "type": ["null", _AVRO_ROW]},
                {"name": "after", "type": ["null", "Value"]},
                {"name": "op", "type": "string"},
            ],
        },
        2: {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]},
        3: {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]},
        4: "string",
    }
)
_AVRO_GUARD: Final = _AVRO.encode(1, {"before": None, "after": GUARD, "op": "c"})
SEEDS: Final = {
    "debezium_json": [json.dumps(pair).encode() for pair in _ENVELOPES],
    "soft_deleted_json": [json.dumps(pair).encode() for pair in _ENVELOPES],
    "truncated_json": [json.dumps(pair).encode() for pair in _ENVELOPES],
    "keyed_json": [
        json.dumps(pair).encode() for pair in ((KEY, DATED_ROW), (_wrap(KEY), DATED_ROW), (KEY, None))
    ],
    "mapped_json": [
        json.dumps([KEY, {"type": op, "data": DATED_ROW}]).encode()
        for op in ("insert", "update", "delete", "x")
    ],
    "flat_mapped_json": [
        json.dumps([KEY, {"type": op, **DATED_ROW}]).encode() for op in ("insert", "delete")
    ],
    "avro_envelopes": [
        _AVRO.encode(1, {"before": KEY, "after": KEY | {"id": 2}, "op": "u"}),
        _AVRO.encode(1, {"before": KEY, "after": None, "op": "d"}),
        _AVRO.encode(2, KEY),
        _AVRO.encode(3, {"ts_ms": 1}),
    ],
}


def debezium_json(data: bytes) -> None:
    """Envelopes in JSON, with and without Connect's wrapping."""
    _read_json(data, DEBEZIUM, recognize_debezium, KeyRules(("id", "region")))


def soft_deleted_json(data: bytes) -> None:
    """Envelopes of a table whose deleted rows stay; a single key column, so that text is a key."""
    _read_json(data, DEBEZIUM, recognize_debezium, KeyRules(("id",), soft_deletes=True))


def truncated_json(data: bytes) -> None:
    """Envelopes of a table that applies TRUNCATE."""
    _read_json(data, DEBEZIUM, recognize_debezium, KeyRules(("day",), applies_truncations=True))


def keyed_json(data: bytes) -> None:
    """Values that are rows."""
    _read_json(data, KEYED, recognize_keyed_rows, KeyRules(("total",)))


def mapped_json(data: bytes) -> None:
    """Values with a column of the operation, and one of the row."""
    _read_json(data, MAPPING, partial(recognize_mapped_rows, mapping=MAPPING), KeyRules(("id", "at")))


def flat_mapped_json(data: bytes) -> None:
    """Values with a column of the operation beside those of the row."""
    recognize = partial(recognize_mapped_rows, mapping=FLAT_MAPPING)
    _read_json(data, FLAT_MAPPING, recognize, KeyRules(("region",)))


def avro_envelopes(data: bytes) -> None:
    """Values and keys of a registry; schemas that do not fit into one table are refused by name."""
    for key, value in ((None, data), (data, None), (data, _AVRO_GUARD), (data, data)):
        try:
            _read(_avro_decoder(), recognize_debezium, KeyRules(("id",)), (key, value), _AVRO_GUARD)
        except TableSchemaMismatchError as error:
            assert "othing was written and no offset moved" in str(error)  # noqa: PT017 - its text is promised


def _read_json(data: bytes, form: ChangeFormat, recognize: ChangeRecognizer, rules: KeyRules) -> None:
    row = (ROW if form == DEBEZIUM else DATED_ROW) | GUARD
    values = {DEBEZIUM: _envelope("c", None, row), KEYED: row, MAPPING: {"type": "insert", "data": row}}
    good = json.dumps(values.get(form, {"type": "insert", **row})).encode()
    _read(_json_decoder(form, rules.columns), recognize, rules, _split(data), good)


def _read(
    decoder: ChangeDecoder,
    recognize: ChangeRecognizer,
    rules: KeyRules,
    pair: tuple[bytes | None, bytes | None],
    good: bytes,
) -> None:
    keys, values = zip((None, good), pair, (None, good), strict=True)
    rows = [
        {"topic": "t", "partition": 0, "offset": at, "key": key, "value": value}
        for at, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    projection = KeyedProjection("lake.t", decoder, recognize, rules)
    changes, letters = projection.read_changes(pa.Table.from_pylist(rows, RECORD_SCHEMA))
    applied = changes.upserts.column("offset").to_pylist()
    assert 2 in applied  # the last change of its key
    rejected = [] if letters is None else letters.to_pylist()
    assert [letter["offset"] for letter in rejected] in ([], [1])
    assert all(letter["error"] for letter in rejected)
    assert not ({1} & set(applied) and rejected)


def _split(data: bytes) -> tuple[bytes | None, bytes | None]:
    try:
        pair = json.loads(data)
        key, value = pair
    except (ValueError, TypeError, RecursionError):
        return data, data
    try:
        return _to_json(key), _to_json(value)
    except (ValueError, RecursionError):
        return data, data


def _to_json(value: Any) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


@cache
def _json_decoder(form: ChangeFormat, key: tuple[str, ...]) -> JsonChangeDecoder:
    keys = pa.schema([ROW_SCHEMA.field(name) for name in key])
    return JsonChangeDecoder(build_value_schema(ROW_SCHEMA, form), keys, dates_are_numbers=form == DEBEZIUM)


@cache
def _avro_decoder() -> RegistryChangeDecoder:
    return _AVRO.build_decoder()
