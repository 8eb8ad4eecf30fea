"""Values that Connect's JsonConverter wraps are their payload, in appends and upserts."""

import pyarrow as pa

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
