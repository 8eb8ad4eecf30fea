"""Values that Connect's JsonConverter wraps are their payload, in appends and upserts."""

import pyarrow as pa
import pytest

from trimtab.consumer_sdk.lake.changes.change_decoders import JsonChangeDecoder
from trimtab.consumer_sdk.lake.decoding import decoded_records
from trimtab.consumer_sdk.lake.decoding.decoded_records import BatchTooLargeError
from trimtab.consumer_sdk.lake.decoding.json_decoder import JsonDecoder

ROW = pa.schema([("id", pa.int8()), ("at", pa.timestamp("us", "UTC"))])


def test_a_wrapped_value_is_its_payload() -> None:
    """Beside plain ones, with the rules of its columns; the path of a dead letter has `payload`."""
    decoder = JsonDecoder(ROW, {"at": "epoch-seconds"}, nulls_outside=frozenset({"id"}))
    schema = b'{"schema": {"type": "struct", "fields": [{"type": "int8", "field": "id"}]}, '
    values = [
        b'{"id":1}',
        schema + b'"payload": {"id":2,"at":5}}',
        schema + b'"payload": null}',
        schema + b'"payload":{"id":128}}',
        schema + b'"payload":{"id":1.5}}',
        schema + b'"payload":{"id":1}',
    ]
    rows, reasons = decoder.read_values(pa.array(values))
    time = pa.scalar(5_000_000, ROW.field("at").type).as_py()
    assert rows[:2].to_pylist() == [{"id": 1, "at": None}, {"id": 2, "at": time}]
    assert rows[3].as_py() == {"id": None, "at": None}
    assert reasons.keys() == {2, 4, 5}
    assert reasons[2] == "its payload is null"
    assert reasons[4] == "payload.id: not exact in TINYINT: 1.5"


@pytest.mark.parametrize(
    "value",
    [
        b'{"payload":{"id":1},"schema":{"type":"struct"}}',
        b'{"schema":{"fields":[],"type":"struct"},"payload":{"id":1}}',
        b'{"schema":null,"payload":{"id":1}}',
        b' { "payload" : {"id":1} , "schema" : {} } ',
        b'{"payload":{"id":1},"schema":null}',
    ],
)
def test_every_spelling_of_the_wrapper_is_unwrapped(value: bytes) -> None:
    """Its fields have any order, as objects of JSON do; a schemaless value has a schema that is null."""
    rows, reasons = JsonDecoder(ROW).read_values(pa.array([value, b'{"id":2}']))
    assert [row["id"] for row in rows.to_pylist()] == [1, 2]
    assert not reasons


def test_changes_and_their_keys_are_unwrapped_in_every_spelling() -> None:
    """As values of appends."""
    wrapped = b'{"payload":{"id":11,"n":5},"schema":{}}'
    key = pa.schema([("id", pa.int64())])
    decoder = JsonChangeDecoder(pa.schema([*key, ("n", pa.int64())]), key)
    rows = decoder.decode_values(pa.table({"value": pa.array([wrapped])})).rows
    assert rows.select(["id", "n"]).to_pylist() == [{"id": 11, "n": 5}]
    assert decoder.decode_keys(pa.array([wrapped]))[0].to_pylist() == [{"id": 11}]


@pytest.mark.parametrize(
    "value",
    [
        b'{"payload":{"id":9,"schema":{}},"id":5,"x":{}}',
        b'{"schema":{"x":{},"payload":1},"id":5}',
        b'{"payload":{"id":9},"schema":{},"id":5}',
        b'{"id":5,"schema":{},"payload":{"id":9}}',
    ],
)
def test_a_row_beside_a_payload_is_not_wrapped(value: bytes) -> None:
    """Only these two fields of the object itself are the wrapper."""
    rows, reasons = JsonDecoder(ROW).read_values(pa.array([value]))
    assert rows[0].as_py() == {"id": 5, "at": None}
    assert not reasons


@pytest.mark.parametrize("schema", ["null", '{"version":1}', "1"])
def test_a_column_of_the_wrapper_s_name_is_a_column(schema: str) -> None:
    """Beside the column `payload` only a schema that begins with its type is Connect's."""
    columns = pa.schema([("payload", pa.struct([("id", pa.int8())]))])
    plain = f'{{"payload":{{"id":1}},"schema":{schema}}}'.encode()
    wrapped = b'{"schema":{"type":"struct"},"payload":{"payload":{"id":2}}}'
    rows, _ = JsonDecoder(columns).read_values(pa.array([plain, wrapped]))
    assert rows.to_pylist() == [{"payload": {"id": 1}}, {"payload": {"id": 2}}]


def test_a_row_may_have_a_column_schema() -> None:
    """It is wrapped only if a payload follows, which is no column beside it."""
    kind = pa.struct([("type", pa.string())])
    plain = b'{"schema":{"type":"a"},"id":1,"payload":"b"}'
    row = {"schema": {"type": "a"}, "id": 1}
    one = JsonDecoder(pa.schema([("schema", kind), ("id", pa.int8())]))
    assert one.read_values(pa.array([plain]))[0].to_pylist() == [row]
    both = JsonDecoder(pa.schema([("schema", kind), ("id", pa.int8()), ("Payload", pa.string())]))
    values = pa.array([plain, b'{"schema":{"type":"a"},"payload":"b"}'])
    assert both.read_values(values)[0].to_pylist() == [
        row | {"Payload": "b"},
        {"schema": {"type": "a"}, "id": None, "Payload": "b"},
    ]


@pytest.mark.parametrize("tombstones", [10, 7])
def test_the_columns_of_tombstones_are_counted(monkeypatch: pytest.MonkeyPatch, tombstones: int) -> None:
    """A tombstone takes a null in every column; appends and upserts tell how many records fit."""
    wide = pa.schema([(f"c{at}", pa.int64()) for at in range(1000)])
    values = [None] * tombstones + [b"{}"] * (10 - tombstones)
    records = pa.table({"value": pa.array(values, pa.binary())})
    monkeypatch.setattr(decoded_records, "MAX_COLUMN_BYTES", 50_000)
    for decode in (JsonDecoder(wide).decode_batch, JsonChangeDecoder(wide, wide).decode_values):
        with pytest.raises(BatchTooLargeError) as error:
            decode(records)
        assert error.value.records == 6
        assert decode(records[:6]).rows.num_rows == 6
