"""JSON objects become typed columns; a value that does not fit is named, and spoils no other."""

from datetime import date

import pyarrow as pa
import pytest

from trimtab.consumer_sdk.lake.decoding.json_objects import MAX_REASON_LENGTH, parse_json_objects

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string())])
GOOD = {
    b'{"a":1}': {"a": 1, "s": None},
    b"{}": {"a": None, "s": None},
    b' { "a": 3 } \r\n': {"a": 3, "s": None},
    b'{\n "a": 1,\n "s": "x} y {"\n}': {"a": 1, "s": "x} y {"},
    b'{"s":"{\\"q\\":{}}","z":[{"q":{}},{"r":1}],"a":9}': {"a": 9, "s": '{"q":{}}'},
    b'{"s":"a\\nb\\u00e9","z":{"z":' + b"[" * 900 + b"]" * 900 + b"}}": {"a": None, "s": "a\nbé"},
}
BAD = {
    b"": "not one JSON object",
    b"null": "not one JSON object",
    b"null {}": "not one JSON object",
    b"[1]": "not one JSON object",
    b'{"a":1} null {}': "not one JSON object",
    b'{"a":1}\nnull\n{}': "not one JSON object",
    b'{"a":2}{"a":3}': "not one JSON object",
    b'{"a":2} {"a":3}': "not one JSON object",
    b'{"y":[]}{"z":[]}': "not one JSON object",
    b'{"a":1}\x00': "not one JSON object",
    b'{"a":1': "not one JSON object",
    b'{"a":}': "JSON parse error: Invalid value.",
    b'{"s":"\xff"}': "not UTF-8",
    b'{"z":"\xff"}': "not UTF-8",
    b'{"a":"x"}': "JSON parse error: Column(/a) changed from number to string",
    b'{"a":1.5}': "Failed to convert JSON to int64, couldn't parse:1.5",
    b'{"a":' + b"[" * 100_000 + b"} x {}": "not one JSON object",
}


@pytest.mark.parametrize(("value", "row"), GOOD.items())
def test_an_object_is_a_row(value: bytes, row: dict[str, object]) -> None:
    """Fields outside the schema are ignored, and the text in them is only text."""
    rows, reasons = parse_json_objects(pa.array([b"{}", value, b"{}"])[1:], SCHEMA)
    assert (rows[0].as_py(), reasons) == (row, {})


@pytest.mark.parametrize(("value", "reason"), BAD.items())
def test_a_value_that_does_not_fit_has_a_reason(value: bytes, reason: str) -> None:
    """Alone as between others; a leading `null`, which crashes Arrow's parser, never reaches it."""
    assert parse_json_objects(pa.array([value]), SCHEMA)[1] == {0: reason}
    rows, reasons = parse_json_objects(pa.array([b'{"a":7}', value, b'{"a":8}']), SCHEMA)
    assert reasons == {1: reason}
    assert rows.to_pylist() == [{"a": 7, "s": None}, None, {"a": 8, "s": None}]


def test_bad_values_keep_their_places() -> None:
    """In a batch of many good and some bad values."""
    values = [b'{"a":%d}' % at if at % 7 else b"?" for at in range(500)]
    rows, reasons = parse_json_objects(pa.array(values), SCHEMA)
    assert sorted(reasons) == list(range(0, 500, 7))
    assert [row and row["a"] for row in rows.to_pylist()] == [at if at % 7 else None for at in range(500)]


def test_dates_are_text_or_numbers() -> None:
    """Debezium's are days since 1970, also in structs and lists."""
    schema = pa.schema([("d", pa.date32()), ("s", pa.struct([("d", pa.list_(pa.date32()))]))])
    day = date(2026, 11, 23)
    row = {"d": day, "s": {"d": [day, None]}}
    text, number = b'{"d":"2026-11-23","s":{"d":["2026-11-23",null]}}', b'{"d":20780,"s":{"d":[20780,null]}}'
    rows, reasons = parse_json_objects(pa.array([text, number, b'{"d":"?"}', b"{}"]), schema)
    assert rows.to_pylist() == [row, None, None, {"d": None, "s": None}]
    assert sorted(reasons) == [1, 2]
    assert parse_json_objects(pa.array([number]), schema, dates_are_numbers=True)[0].to_pylist() == [row]


def test_two_objects_are_found_in_a_slice() -> None:
    """An array may begin in the middle of its buffer."""
    values = pa.array([b"{}", b'{"y":[]  }{"z":[]  }'])[1:]
    assert parse_json_objects(values, SCHEMA)[1] == {0: "not one JSON object"}


def test_a_reason_is_cut() -> None:
    """It may quote the value."""
    reason = parse_json_objects(pa.array([b'{"a":1.%s}' % (b"5" * 900)]), SCHEMA)[1][0]
    assert reason.startswith("Failed to convert JSON to int64")
    assert len(reason) == MAX_REASON_LENGTH == 300


def test_no_values_are_no_rows() -> None:
    """The type is the same."""
    rows, reasons = parse_json_objects(pa.array([], pa.binary()), SCHEMA)
    assert (rows.type, len(rows), reasons) == (pa.struct(list(SCHEMA)), 0, {})
