"""Values and keys of a schema registry, whose decoder is tested in `tests/lake/values/test_registry.py`."""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from support.lake.change_records import ROW_SCHEMA, ChangeRecord, build_records
from trimtab.consumer_sdk.lake.changes.change_decoders import (
    JsonChangeDecoder,
    RegistryChangeDecoder,
    parse_text_keys,
)
from trimtab.consumer_sdk.lake.changes.change_formats import recognize_keyed_rows
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.decoding.decoded_records import DecodedRecords, Reason, split_by_reason
from trimtab.consumer_sdk.lake.decoding.json_decoder import JsonDecoder
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.projection.keyed_projection import KeyedProjection


@dataclass
class NumberDecoder:
    """A registry's decoder of decimal numbers behind a prefix, which become a column."""

    prefix: bytes = b""
    name: str = "id"
    batches: list[Any] = field(default_factory=list)

    def decode_batch(self, records: Any) -> DecodedRecords:
        self.batches.append(records)
        if not records.column("value").null_count < records.num_rows:
            return DecodedRecords(records, None)
        values = [value.removeprefix(self.prefix) for value in records.column("value").to_pylist()]
        good = [value.isdigit() for value in values]
        reasons = {at: f"{value!r} is no number" for at, value in enumerate(values) if not good[at]}
        numbers = pa.array([int(value) if value.isdigit() else None for value in values], pa.int64())
        rows = records.append_column(self.name, numbers)
        return split_by_reason(rows, records, reasons) if reasons else DecodedRecords(rows, None)


@pytest.fixture
def numbers() -> NumberDecoder:
    return NumberDecoder()


@pytest.fixture
def decoder(numbers: NumberDecoder) -> RegistryChangeDecoder:
    return RegistryChangeDecoder(cast("RegistryDecoder", numbers))


def test_values_are_the_registrys(decoder: RegistryChangeDecoder, numbers: NumberDecoder) -> None:
    """The whole batch at once."""
    records = pa.table({"value": pa.array([b"1", b"x"], pa.binary())})
    decoded = decoder.decode_values(records)
    assert numbers.batches == [records]
    assert decoded.rows.column("id").to_pylist() == [1]
    assert decoded.dead_letters is not None


def test_keys_are_structs_at_their_places(decoder: RegistryChangeDecoder) -> None:
    """An unreadable key is null, with its reason; the others keep their places."""
    keys, reasons = decoder.decode_keys(pa.array([b"7", b"8"], pa.binary()))
    assert (keys.to_pylist(), reasons) == ([{"id": 7}, {"id": 8}], {})
    keys, reasons = decoder.decode_keys(pa.array([b"x", b"7", b"y", b"8"], pa.binary()))
    assert keys.to_pylist() == [None, {"id": 7}, None, {"id": 8}]
    assert reasons == {0: "b'x' is no number", 2: "b'y' is no number"}


def test_a_key_may_have_a_field_named_row() -> None:
    """Debezium's key of a table with such a column, in each tombstone."""
    decoder = RegistryChangeDecoder(cast("RegistryDecoder", NumberDecoder(name="row")))
    keys, reasons = decoder.decode_keys(pa.array([b"7", b"x"], pa.binary()))
    assert keys.to_pylist() == [{"row": 7}, None]
    assert reasons == {1: "b'x' is no number"}


def test_the_type_of_a_key_comes_from_the_keys_if_no_value_tells_it() -> None:
    """As in a batch of tombstones alone."""
    projection = KeyedProjection(
        "lake.orders",
        RegistryChangeDecoder(cast("RegistryDecoder", NumberDecoder(b"\0"))),
        recognize_keyed_rows,
        KeyRules(("id",)),
    )
    records = build_records([ChangeRecord(b"\x007", None), ChangeRecord(b"\x008", None)])
    changes, letters = projection.read_changes(records)
    assert letters is None
    assert changes.touched_keys.column("id").type == pa.int64()
    assert changes.touched_keys.column("id").to_pylist() == [7, 8]


def test_dates_are_debeziums_unless_said_otherwise() -> None:
    """Days since 1970."""
    assert JsonChangeDecoder(ROW_SCHEMA, ROW_SCHEMA).dates_are_numbers


def test_dead_letters_have_their_reasons_in_the_order_of_the_records() -> None:
    """As many rows are left as have none."""
    records = pa.table({"value": np.arange(5)})
    split = split_by_reason(records, records, {3: "three", 1: Reason.of_field("a[2].b", "one")})
    assert split.rows.column("value").to_pylist() == [0, 2, 4]
    assert split.dead_letters.to_pylist() == [
        {"value": 1, "error": "a[2].b: one", "field": "a[2].b"},
        {"value": 3, "error": "three", "field": None},
    ]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), b"42", 42),
        (pa.int64(), b'"42"', 42),
        (pa.int64(), b"1e2", 100),
        (pa.int64(), b"0x10", 'id: not of type BIGINT: "0x10"'),
        (pa.int64(), b"007", 'id: not of type BIGINT: "007"'),
        (pa.int64(), b'1,"id":2', 'id: not of type BIGINT: "1,\\"id\\":2"'),
        (pa.int64(), b"\xff", "id: a lone surrogate, which is no character"),
        (pa.decimal128(9, 2), b"1.50", Decimal("1.50")),
        (pa.decimal128(9, 2), b"1.005", "id: not exact in DECIMAL(9,2): 1.005"),
        (pa.date32(), b"2024-05-06", date(2024, 5, 6)),
        (pa.timestamp("us"), b"2024-05-06", 'id: not an ISO 8601 TIMESTAMP_NTZ: "2024-05-06"'),
        (pa.int64(), b'"42', 'id: not of type BIGINT: "\\"42"'),
        (pa.bool_(), b"true", True),
        (pa.bool_(), b'"false"', False),
        (pa.bool_(), b"True", 'id: not of type BOOLEAN: "True"'),
        (pa.binary(), b"AAEC", b"\0\1\2"),
        (pa.binary(), b'"AAEC"', b"\0\1\2"),
        (pa.binary(), b"1234", b"\xd7\x6d\xf8"),
        (pa.binary(), b"no", 'id: no Base64 for BINARY: "no"'),
        (pa.string(), b'"a b"', "a b"),
        (pa.string(), rb'"a\"b\u00e9"', 'a"b\u00e9'),
        (pa.string(), b'"a","b"', '"a","b"'),
        (pa.string(), rb'"\ud800"', r'"\ud800"'),
        (pa.string(), b'"', '"'),
        (pa.string(), b"true", "true"),
        (pa.string(), b"", ""),
        (pa.string(), b'"\xff"', "not UTF-8"),
        (pa.string(), b"42", "42"),
    ],
)
def test_a_plain_text_is_a_key_by_the_rules_of_json(kind: Any, text: bytes, value: Any) -> None:
    """No key is guessed: 0x10 is not 16, and a date is no time."""
    decoder = JsonDecoder(pa.schema([("id", kind)]))
    keys, errors = parse_text_keys(pa.array([b"1", text], pa.binary())[1:], decoder)
    assert (errors.get(0) or keys[0].as_py()) == value


def test_bytes_of_a_registry_are_the_key_itself(decoder: RegistryChangeDecoder) -> None:
    """Text is read as with JSON."""
    keys = pa.array([b'"\xff', b"42"], pa.binary())
    assert decoder.decode_text_keys(keys, pa.field("id", pa.binary())) == (keys, {})
    values, _ = decoder.decode_text_keys(keys[1:], pa.field("id", pa.int32()))
    assert values == pa.array([42], pa.int32())


@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        (pa.timestamp("us", "UTC"), 1704067200000, b"1704067200000"),
        (pa.timestamp("us", "UTC"), 1704067200000, b'{"timestamp":1704067200000}'),
        (pa.date32(), 20000, b"20000"),
        (pa.binary(), "AAEC", b"AAEC"),
        (pa.string(), 'a"b', rb'"a\"b"'),
        (pa.string(), "a", b"a"),
        (pa.bool_(), True, b"true"),
    ],
)
def test_a_tombstone_finds_the_row_by_its_key(kind: Any, value: Any, key: bytes) -> None:
    """Whose column has another name in the table; numbers are times and days as in the value."""
    schema = pa.schema([("timestamp", kind), ("n", pa.int64())])
    decoder = JsonChangeDecoder(
        schema, pa.schema([schema.field(0)]), timestamp_rules={"timestamp": "epoch-millis"}
    )
    projection = KeyedProjection("lake.orders", decoder, recognize_keyed_rows, KeyRules(("value_timestamp",)))
    row = ChangeRecord(None, {"timestamp": value, "n": 1})
    changes, letters = projection.read_changes(build_records([row, ChangeRecord(key, None)]))
    assert letters is None
    assert (changes.upserts.num_rows, changes.touched_keys.num_rows) == (0, 1)
