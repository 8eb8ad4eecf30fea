"""JSON becomes typed columns exactly, or the record is a dead letter that names field, value and type."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.mutation import mutate
from trimtab.consumer_sdk.lake.decoding.json_columns import name_type, read_objects

UTC_TIME = pa.timestamp("us", "UTC")
ZONELESS = pa.timestamp("us")
PRICE = pa.decimal128(12, 2)
BIG = pa.decimal128(38, 0)
NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
# https://github.com/nst/JSONTestSuite with its license, the text of each file as Latin-1; two are repetitions
SUITE: dict[str, str] = json.loads(Path(__file__).with_name("json_test_suite.json").read_text())
assert SUITE.pop("LICENSE").startswith("MIT License")
SUITE["n_structure_100000_opening_arrays"] = "[" * 100_000
SUITE["n_structure_open_array_object"] = '[{"":' * 50_000 + "\n"


def read_one(value: bytes, schema: Any, rules: dict[str, str] | None = None) -> Any:
    """Return the row of a value, or the field and the reason of a dead letter; between two good ones."""
    rows, refused = read_objects(pa.array([b"{}", value, b"{}"]), schema, rules or {})
    rows.validate(full=True)
    assert rows[0] == rows[2]
    assert rows[0].is_valid
    assert refused.keys() <= {1}
    return refused[1] if refused else rows[1].as_py()


EXACT = [
    (pa.bool_(), "true", True),
    (pa.bool_(), "false", False),
    (pa.int8(), "-128", -128),
    (pa.int16(), "32767", 32767),
    (pa.int32(), "1e2", 100),
    (pa.int32(), "1.0", 1),
    (pa.int32(), "1200e-2", 12),
    (pa.int32(), "-0", 0),
    (pa.int64(), "9223372036854775807", 2**63 - 1),
    (pa.int64(), "-9223372036854775808", -(2**63)),
    (pa.int64(), "1.0000000000000000000000000000", 1),
    (pa.float64(), "0.1", 0.1),
    (pa.float64(), "9007199254740992", 2.0**53),
    (pa.float64(), "36028797018963968", 2.0**55),
    (pa.float64(), "1.7976931348623157e308", 1.7976931348623157e308),
    (pa.float64(), "5e-324", 5e-324),
    (pa.float64(), "1e23", 1e23),
    (pa.float32(), "16777216", 2.0**24),
    (pa.float32(), "0.5", 0.5),
    (pa.float32(), "1.00000017881393432617187499", 1.00000011920928955078125),
    (pa.float32(), "1.00000017881393432617187501", 1.0000002384185791015625),
    (PRICE, "1.5", Decimal("1.50")),
    (PRICE, "1.500000000000000000000000000000", Decimal("1.50")),
    (PRICE, '"-12.34"', Decimal("-12.34")),
    (PRICE, '"1e2"', Decimal("100.00")),
    (PRICE, "0e99999999", Decimal("0.00")),
    (BIG, "9" * 38, Decimal("9" * 38)),
    (BIG, "-" + "9" * 38, Decimal("-" + "9" * 38)),
    (BIG, "1e37", Decimal(10) ** 37),
    (BIG, "123456789012345678901234567890.0", Decimal(123456789012345678901234567890)),
    (pa.string(), '""', ""),
    (pa.string(), '"\\u00e9\\ud83d\\ude00\\n\\/\\u0000"', "é😀\n/\0"),
    (pa.string(), '"é😀"', "é😀"),
    (pa.binary(), '"AAEC"', b"\0\1\2"),
    (pa.date32(), '"0001-01-01"', date(1, 1, 1)),
    (pa.date32(), '"2024-02-29"', date(2024, 2, 29)),
    (pa.date32(), '"9999-12-31"', date(9999, 12, 31)),
    (UTC_TIME, '"2024-05-06T12:00:00Z"', NOON),
    (UTC_TIME, '"2024-05-06 12:00"', NOON),
    (UTC_TIME, '"2024-05-06T17:30:00+05:30"', NOON),
    (UTC_TIME, '"2024-05-06T06:00-0600"', NOON),
    (UTC_TIME, '"2024-05-06T12:00:00.1234560000Z"', NOON.replace(microsecond=123456)),
    (UTC_TIME, '"9999-12-31T23:59:59.999999Z"', datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    (ZONELESS, '"2024-05-06T12:00:00.5"', datetime(2024, 5, 6, 12, 0, 0, 500000)),  # noqa: DTZ001 - it has none
    (pa.list_(pa.int32()), "[1,null]", [1, None]),
    (pa.list_(pa.int32()), " [ ] ", []),
    (pa.map_(pa.string(), pa.int32()), '{"a":1,"b":null,"A":2}', [("a", 1), ("b", None), ("A", 2)]),
    (pa.struct([("x", pa.int32())]), '{"X":1,"y":[{}]}', {"x": 1}),
    (pa.struct([("x", pa.int32())]), "{}", {"x": None}),
]


@pytest.mark.parametrize(("kind", "text", "value"), EXACT)
def test_a_value_that_fits_is_exact(kind: Any, text: str, value: object) -> None:
    """Also in an array, and with null beside it."""
    schema = pa.schema([("c", kind), ("many", pa.list_(kind))])
    row = read_one(f'{{"many":[{text},null],"c":{text}}}'.encode(), schema)
    assert row == {"c": value, "many": [value, None]}


@pytest.mark.parametrize(("kind", "text", "value"), EXACT)
def test_a_value_that_is_cut_does_not_go_on_in_the_next(kind: Any, text: str, value: object) -> None:
    """They lie side by side in one buffer."""
    record = f'{{"c":{text}}}'.encode()
    schema = pa.schema([("c", kind)])
    for at in range(len(record)):
        values = pa.array([record[:at], record[at:], record])
        rows, refused = read_objects(values.slice(0, 3), schema, {})
        assert {0, 1} - refused.keys() <= ({1} if at == 0 else set())
        assert rows[2]["c"].as_py() == value
        assert at == 0 or refused[0][1].startswith(("not valid JSON", "a lone surrogate"))


NOT_OF_TYPE, RANGE, INEXACT = "not of type", "out of range of", "not exact in"
NO_TIME = "not an ISO 8601"
NO_RULE = "a number without a rule of lake.timestamps for"
REFUSED = [
    *((pa.bool_(), text, NOT_OF_TYPE) for text in ('"true"', "1", "0", "[]")),
    *((pa.int32(), text, NOT_OF_TYPE) for text in ('"1"', "true", "{}", '""')),
    *((pa.int32(), text, INEXACT) for text in ("1.5", "1e-1", "0.00000000000000000001")),
    *((pa.int32(), text, RANGE) for text in ("2147483648", "-2147483649", "1e99999999", "9" * 2000)),
    (pa.int8(), "128", RANGE),
    (pa.int64(), "9223372036854775808", RANGE),
    *((pa.float64(), text, RANGE) for text in ("1e400", "-1e400", "1e-400", "9" * 400)),
    *(
        (pa.float64(), text, INEXACT)
        for text in ("9007199254740993", "-9007199254740993.0", "9007199254740992.5")
    ),
    *((pa.float64(), text, NOT_OF_TYPE) for text in ('"NaN"', "NaN", "-Infinity", "Infinity")),
    (pa.float32(), "16777217", INEXACT),
    (pa.float32(), "1e39", RANGE),
    *((PRICE, text, INEXACT) for text in ("1.005", '"-0.004"', "1e-3", "0." + "1" * 30, "1e-99999999")),
    *((PRICE, text, RANGE) for text in ("1e10", "99999999999.99", "1e99999999", '"1e99999999"', "9" * 1_000)),
    *(
        (PRICE, text, NOT_OF_TYPE)
        for text in ('""', '" 1"', '"1 "', '"+1"', '"1,5"', '"NaN"', '"\\"1"', "true")
    ),
    (BIG, "9" * 39, RANGE),
    (BIG, "1e38", RANGE),
    *((pa.string(), text, NOT_OF_TYPE) for text in ("1", "true", "{}", '["a"]')),
    *(
        (pa.binary(), text, "no Base64 for")
        for text in ('"A"', '"AA"', '"AA=A"', '"é"', '"AAEC\\n"', '"AB=="', '"AAF="')
    ),
    *(
        (pa.date32(), json.dumps(text), NO_TIME)
        for text in ("2023-02-29", "0000-01-01", "2024-5-6", "20240506", "2024-05-06T00:00:00Z", "", "today")
    ),
    (pa.date32(), "19000", NO_TIME),
    *(
        (UTC_TIME, json.dumps(text), NO_TIME)
        for text in (
            "12:30",
            "2024-01-01",
            "2024-01-01T24:00:00Z",
            "2024-01-01T23:59:60Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00z",
            "2024-01-01T00:00:00+19:00",
            "2024-01-01T00:00:00+18:01",
            "2024-01-01T00:00:00Z ",
            "2024-01-01T00:00:00Europe/Berlin",
            "-2024-01-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
        )
    ),
    (UTC_TIME, "1704067200000", NO_RULE),
    (UTC_TIME, '"2024-01-01T00:00:00.123456789Z"', INEXACT),
    (ZONELESS, '"2024-01-01T00:00:00Z"', NO_TIME),
    (ZONELESS, "0", NO_RULE),
    (pa.list_(pa.int32()), "1", NOT_OF_TYPE),
    (pa.map_(pa.string(), pa.int32()), "[]", NOT_OF_TYPE),
    (pa.struct([("x", pa.int32())]), "[]", NOT_OF_TYPE),
]


@pytest.mark.parametrize(("kind", "text", "problem"), REFUSED)
def test_any_other_is_refused_by_name(kind: Any, text: str, problem: str) -> None:
    """By field, value and type; the value is shortened."""
    field, reason = read_one(f'{{"id":1,"c":{text}}}'.encode(), pa.schema([("id", pa.int64()), ("c", kind)]))
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    if text.startswith('"1e9'):  # a number in a text is shown without quotes
        shown = text[1:-1]
    assert (field, reason.replace('"', "")) == ("c", f"{problem} {name_type(kind)}: {shown}".replace('"', ""))


ORDER = pa.schema(
    [
        ("id", pa.int64()),
        (
            "order",
            pa.struct([("items", pa.list_(pa.struct([("price", PRICE), ("tags", pa.list_(pa.string()))])))]),
        ),
        ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ]
)
PLACES = {
    '{"order":{"items":[{"price":1},{},{"price":1.005}]}}': "order.items[2].price",
    '{"Order":{"ITEMS":[{"tags":["a",1]}]}}': "order.items[0].tags[1]",
    '{"order":{"items":[null,5]}}': "order.items[1]",
    '{"m":{"a":[],"b":[1,"x"]}}': "m.b[1]",
    '{"m":{"a":[],"a":[]}}': "m.a",
    '{"id":1,"m":{"a":[NaN]}}': "m.a[0]",
    '{"id":1,"ID":1}': "id",
    '{"order":{"items":[],"items":[]}}': "order.items",
    '{"id":1 "m":{}}': None,
    '{"id":1,"zz":NaN}': None,
    '{"id":1}]': None,
}


@pytest.mark.parametrize(("text", "field"), PLACES.items())
def test_a_dead_letter_has_the_path_of_its_field(text: str, field: str | None) -> None:
    """Null if the whole record is at fault; what was read of it before is dropped."""
    assert read_one(text.encode(), ORDER)[0] == field


WHOLE = {
    b"": "not one JSON object",
    b"null": "not one JSON object",
    b"[1]": "not one JSON object",
    b'{"id":1}{"id":2}': "not one JSON object",
    b'{"id":1}\x00': "not one JSON object",
    b"\xef\xbb\xbf{}": "not one JSON object",
    b'{"id":1': "not valid JSON: at byte 8, its end",
    b"{'id':1}": "not valid JSON: at byte 2, 'id':1}",
    b'{"zz":Infinity}': "not valid JSON: at byte 7, Infinity}",
    b'{"zz":"\xff"}': "not UTF-8",
    b'{"zz":"\xc0\x80"}': "not UTF-8",
    b'{"zz":"\xed\xa0\x80"}': "not UTF-8",
    b'{"zz":"\xf4\x90\x80\x80"}': "not UTF-8",
    b'{"\xff":1}': "not UTF-8",
    b'{"zz":"\\ud800"}': "a lone surrogate, which is no character",
    b'{"zz":"\\ud800\\ud800"}': "a lone surrogate, which is no character",
    b'{"zz":"\\udc00"}': "a lone surrogate, which is no character",
    b'{"zz":' + b"[" * 1001 + b"]" * 1001 + b"}": "nested deeper than 1000 levels",
}


@pytest.mark.parametrize(("value", "reason"), WHOLE.items())
def test_a_record_that_is_no_json_object_is_refused(value: bytes, reason: str) -> None:
    """Where no column is at fault."""
    assert read_one(value, ORDER) == (None, reason)


@pytest.mark.parametrize("name", SUITE)
def test_the_grammar_is_that_of_json_test_suite(name: str) -> None:
    """`y_` is accepted, `n_` is not, whatever `i_` is; each file is the value of a key without a column."""
    case = SUITE[name].encode("latin-1")
    schema = pa.schema([("column", pa.int64())])
    found = read_one(b'{"zz":' + case + b',"column":7}', schema)
    if name[0] == "y":
        assert found == {"column": 7}
    if name[0] == "n":
        assert found[0] is None
    if case[:1] == b"{" and name[0] in "yn":
        assert isinstance(read_one(case, schema), dict) == (name[0] == "y")


@pytest.mark.parametrize(
    ("rule", "number", "micros"),
    [
        ("epoch-seconds", "1704067200", 1704067200_000_000),
        ("epoch-seconds", "-1.000001", -1_000_001),
        ("epoch-millis", "1704067200000", 1704067200_000_000),
        ("epoch-millis", "1704067200000.25", 1704067200_000_250),
        ("epoch-micros", "1704067200000000", 1704067200_000_000),
    ],
)
def test_numbers_are_times_by_a_rule(rule: str, number: str, micros: int) -> None:
    """Of all columns, or of one by its path; texts are times by every rule."""
    schema = pa.schema([("a", UTC_TIME), ("o", pa.struct([("b", pa.list_(UTC_TIME))]))])
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    text = f'{{"a":"2024-05-06T12:00:00Z","o":{{"b":[{number}]}}}}'.encode()
    row = {"a": NOON, "o": {"b": [time]}}
    assert read_one(text, schema, {"*": rule}) == row
    assert read_one(text, schema, {"o.b": rule}) == row
    assert read_one(text, schema, {"a": rule}) == ("o.b[0]", f"{NO_RULE} TIMESTAMP: {number}")
    assert read_one(b'{"a":1e18}', schema, {"*": rule}) == ("a", f"{RANGE} TIMESTAMP: 1e18")
    assert read_one(b'{"a":1e-7}', schema, {"*": rule}) == ("a", f"{INEXACT} TIMESTAMP: 1e-7")


def test_numbers_are_dates_as_debeziums() -> None:
    """Days since 1970, if said so."""
    schema = pa.schema([("d", pa.date32())])
    numbers = pa.array([b'{"d":20780}', b'{"d":2147483648}', b'{"d":"2026-11-23"}'])
    rows, refused = read_objects(numbers, schema, {}, dates_are_numbers=True)
    assert rows.to_pylist() == [{"d": date(2026, 11, 23)}, None, {"d": date(2026, 11, 23)}]
    assert refused == {1: ("d", f"{RANGE} DATE: 2147483648")}


def test_numbers_out_of_range_are_null_if_asked_for() -> None:
    """Also within a list; what is no number of the type at all is refused."""
    schema = pa.schema([("a", pa.list_(pa.int32())), ("p", pa.decimal128(4, 2))])
    texts = [b'{"a":[1,3000000000,2],"p":"100"}', b'{"a":[1.5]}', b'{"p":1e99}']
    rows, refused = read_objects(pa.array(texts), schema, {}, nulls_outside={"a", "p"})
    assert rows.to_pylist() == [{"a": [1, None, 2], "p": None}, None, {"a": None, "p": None}]
    assert refused == {1: ("a[0]", f"{INEXACT} INT: 1.5")}


def test_numbers_out_of_range_are_null_in_the_columns_asked_for() -> None:
    """And in the fields within them; in any other the record is refused."""
    inner = pa.struct([("x", pa.int8()), ("y", pa.map_(pa.string(), pa.struct([("z", pa.int8())])))])
    schema = pa.schema([("a", inner), ("b", pa.struct([("c", inner), ("d", pa.int8())]))])
    value = '{"x":128,"y":{"k":{"z":128}}}'
    null = {"x": None, "y": [("k", {"z": None})]}
    texts = [f'{{"a":{value},"b":{{"c":{value}}}}}', '{"b":{"d":128}}', '{"b":{"c":{"x":1}}}']
    rows, refused = read_objects(
        pa.array([text.encode() for text in texts]), schema, {}, nulls_outside={"a", "b.c"}
    )
    assert rows.to_pylist() == [
        {"a": null, "b": {"c": null, "d": None}},
        None,
        {"a": None, "b": {"c": {"x": 1, "y": None}, "d": None}},
    ]
    assert refused == {1: ("b.d", f"{RANGE} TINYINT: 128")}


def test_a_record_of_few_bytes_takes_no_memory_without_end() -> None:
    """Its items, wherever they are, have all columns of a struct, also those that it does not name."""
    item = pa.struct([(f"c{at}", pa.decimal128(38, 0)) for at in range(2000)])
    schema = pa.schema([("a", pa.list_(pa.list_(item))), ("m", pa.map_(pa.string(), pa.list_(item)))])
    most = 512_000_000 // (2000 * 17 + 1)
    half = ",".join(["{}"] * (most // 2))
    text = f'{{"a":[[{half}]],"m":{{"k":[{half}%s]}}}}'
    values = pa.array([(text % more).encode() for more in ("", ",{},{}", "")])
    rows, refused = read_objects(values, schema, {}, most_bytes=2_000_000_000)
    assert [len(rows[at]["m"]) for at in (0, 2)] == [1, 1]
    place = most // 2 + most % 2
    assert refused == {1: (f"m.k[{place}]", "more values than 512 MB of columns hold")}


def test_of_a_batch_that_takes_too_much_memory_the_first_records_are_read() -> None:
    """At least one, and none of another one's values; also if the record behind them is refused."""
    schema = pa.schema([("a", pa.list_(pa.int64())), *((f"c{at}", pa.int64()) for at in range(9))])
    texts = ['{"c1":1}', '{"c2":?}', '{"a":[1,2]}', '{"a":[3,4,5,6,7,8,9]}', '{"c3":?}', "{}"]
    values = pa.array([text.encode() for text in texts])
    found, refused = list[Any](), dict[int, Any]()
    sizes = list[int]()
    while len(found) < len(texts):
        rows, reasons = read_objects(values[len(found) :], schema, {}, most_bytes=3 * (9 * 9 + 5 + 1))
        rows.validate(full=True)
        refused |= {len(found) + at: why for at, why in reasons.items()}
        found += rows.field(0).to_pylist()
        sizes.append(len(rows))
    assert sizes == [2, 2, 2]
    assert found == [None, None, [1, 2], [*range(3, 10)], None, None]
    assert {at: place for at, (place, _) in refused.items()} == {1: "c2", 4: "c3"}


def test_refused_records_keep_their_places() -> None:
    """In a batch of many good and some bad ones, of a slice of a buffer."""
    schema = pa.schema([("a", pa.int64()), ("s", pa.list_(pa.string()))])
    values = [b'{"s":["x","y"],"a":%d}' % at if at % 7 else b'{"s":["z"],"a":?}' for at in range(-1, 500)]
    rows, refused = read_objects(pa.array(values)[1:], schema, {})
    rows.validate(full=True)
    assert sorted(refused) == list(range(0, 500, 7))
    assert [row and row["a"] for row in rows.to_pylist()] == [at if at % 7 else None for at in range(500)]
    assert len(rows.field(1).values) == 2 * (500 - len(refused))
    assert read_objects(pa.array([], pa.binary()), schema, {})[0].type == pa.struct(list(schema))


LEAVES: list[tuple[Any, st.SearchStrategy[Any], Callable[[Any], str]]] = [
    (pa.bool_(), st.booleans(), json.dumps),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1), str),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1), str),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False), repr),
    (PRICE, st.decimals(-(10**9), 10**9, places=2), str),
    (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10), lambda value: json.dumps(str(value))),
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"])), json.dumps),
    (pa.string(), st.text(), lambda value: json.dumps(value, ensure_ascii=False)),
    (pa.date32(), st.dates(), lambda value: json.dumps(value.isoformat())),
    (
        UTC_TIME,
        st.datetimes(
            min_value=datetime(1, 1, 2),  # noqa: DTZ001 - the zone is drawn
            max_value=datetime(9999, 12, 30),  # noqa: DTZ001
            timezones=st.builds(lambda m: timezone(timedelta(minutes=m)), st.integers(-1080, 1080)),
        ),
        lambda value: json.dumps(value.isoformat()),
    ),
    (ZONELESS, st.datetimes(), lambda value: json.dumps(value.isoformat(" "))),
]


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any, str]:
    """A type, a value of it, and its JSON."""
    shape = draw(st.sampled_from(["leaf", "leaf", "null", "list", "struct", "map"])) if depth else "leaf"
    if shape in ("leaf", "null"):
        kind, values, encode = draw(st.sampled_from(LEAVES))
        value = draw(values)
        return (kind, None, "null") if shape == "null" else (kind, value, encode(value))
    kind, value, text = draw(typed_values(depth - 1))
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True))
    if shape == "list":
        return pa.list_(kind), [value] * len(names), f"[{', '.join([text] * len(names))}]"
    body = "{" + ", ".join(f"{json.dumps(name)}: {text}" for name in names) + "}"
    if shape == "map":
        return pa.map_(pa.string(), kind), [(name, value) for name in names], body
    return pa.struct([(name, kind) for name in names]), dict.fromkeys(names, value), body


@given(typed_values())
def test_what_is_encoded_is_decoded(drawn: tuple[Any, Any, str]) -> None:
    """Every value of every type, or the text itself is no Unicode."""
    kind, value, text = drawn
    try:
        data = f'{{"c": {text}}}'.encode()
    except UnicodeEncodeError:
        return
    rows, refused = read_objects(pa.array([data]), pa.schema([("c", kind)]), {})
    rows.validate(full=True)
    assert refused == {}
    assert rows.field(0).to_pylist() == pa.array([value], kind).to_pylist()


SCHEMA = pa.schema([("i", pa.int64()), ("s", pa.string()), ("p", pa.decimal128(9, 2)), ("d", pa.float64())])
SEED = b'{"i": 12, "s": "a\\u00e9\\"b", "p": -1.25, "d": 1.5e1, "q": [{"z": null}, true], "S2": ""}'


@pytest.mark.parametrize("seed", range(5))
def test_a_mutated_record_is_exact_or_refused(seed: int) -> None:
    """As Python reads it, never a third thing."""
    rng = Random(seed)  # noqa: S311 - reproducible
    values = [mutate(SEED, rng, 400) for _ in range(3000)]
    rows, refused = read_objects(pa.array(values), SCHEMA, {})
    rows.validate(full=True)
    kept = 0
    for at, value in enumerate(values):
        if at in refused:
            continue
        kept += 1
        read = json.loads(value.decode(), parse_float=Decimal, parse_int=Decimal)
        by_name = {key.lower(): item for key, item in read.items()}
        for name, found in rows[at].as_py().items():
            expected = by_name.get(name)
            if name == "d" and expected is not None:
                expected = float(expected)
            if name == "p" and expected is not None:
                expected = Decimal(expected)
            assert found == expected, value
    assert 0 < kept < len(values)
