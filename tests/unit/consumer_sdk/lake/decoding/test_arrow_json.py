"""Which JSON values Arrow parses, and which it leaves to Spark: a value for each rule."""

import datetime as dt
import uuid
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from trimtab.consumer_sdk.lake.decoding.arrow_json import (
    ArrowJsonDecoder,
    measure_row,
    parse_certain_objects,
    split_by_size,
)

KIND = pa.struct(
    {
        "n": pa.int32(),
        "d": pa.float64(),
        "name": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "p": pa.decimal128(9, 2),
        "items": pa.list_(pa.struct({"d": pa.float64()})),
    }
)
AT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)


def parse(value: bytes, *, zoneless_is_utc: bool = True) -> dict[str, Any] | None:
    """Return the fields that are not null, None if Spark has to parse the value."""
    structs, uncertain = parse_certain_objects(pa.array([value]), KIND, zoneless_is_utc=zoneless_is_utc)
    if uncertain.size:
        return None
    return {name: field for name, field in structs[0].as_py().items() if field is not None}


@pytest.mark.parametrize(
    "value",
    [
        b' {"n": 1}',
        b'\t{"n": 1}',
        b'{"n": 1} {"n": 2}',
        b"{'n': 1}",
        b'{"n": "1"}',
        b'{"n": 1.5}',
        b'{"n": 3000000000}',
        b'{"name": 1}',
        b'{"name": "\xff"}',
        b'{"else": "\xff"}',
        b'{"else": NaN}',
        b'{"else": Infinity }',
        b'{"d": -0}',
        b'{"d": -0.0}',
        b'{"d": 1e400}',
        b'{"d": 0e-9999}',
        b'{"d": \\u0031}',
        b'{"d": 0.' + b"0" * 700 + b"1e1000}",
        b'{"else": 0.' + b"0" * 700 + b"1e+1000}",
        b'{"p": "12e1234"}',
        b'{"items": [{"d": 1}, {"d": -0}]}',
        b'{"p": 12345678}',
        b'{"p": 1.005}',
        b'{"at": "2024-05-06T07:08:09+18:01"}',
        b'{"at": "2024-05-06T07:08:09.1234567Z"}',
        b'{"at": "2024-05-06"}',
        b'{"at": 1714979289}',
        b'{"day": "2024-02-30"}',
        b'{"day": "0999-01-01"}',
        b'{"day": "2024-05-06\\n"}',
        b'{"else": ' + b"1" * 901 + b"}",
        b'{"else": ' + b"[" * 901 + b"]" * 901 + b"}",
        b'{"name": "' + b"x" * 50_000 + b'"}',
    ],
    ids=lambda value: value[:32],
)
def test_values_on_which_the_parsers_may_differ_are_left_to_spark(value: bytes) -> None:
    """Each is an error, or another row, for one of them."""
    assert parse(value) is None


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (b"{}", {}),
        (b'{"n": -5, "d": 1.5e3, "name": "\\u00e4", "else": [1, "a"]}', {"n": -5, "d": 1500.0, "name": "ä"}),
        (b'{"at": "2024-05-06T08:08:09+01:00"}', {"at": AT}),
        (b'{"at": "2024-05-06 07:08:09"}', {"at": AT}),
        (b'{"day": "2024-02-29"}', {"day": dt.date(2024, 2, 29)}),
        (b'{"items": [{"d": 0}, null]}', {"items": [{"d": 0.0}, None]}),
        (b'{"else": [' + b"[1.5,-0.5]," * 950 + b"0], " + b'"n": 7}', {"n": 7}),
    ],
    ids=lambda value: value[:32] if isinstance(value, bytes) else None,
)
def test_arrow_parses_what_both_read_alike(value: bytes, fields: dict[str, Any]) -> None:
    """Otherwise Spark would parse every value, at three times the processor time."""
    assert parse(value) == fields


def test_a_time_without_a_zone_is_certain_only_in_utc() -> None:
    """Elsewhere it is a local time, which the session's zone may repeat or leave out."""
    assert parse(b'{"at": "2024-05-06T07:08:09"}', zoneless_is_utc=False) is None
    assert parse(b'{"at": "2024-05-06T07:08:09Z"}', zoneless_is_utc=False) == {"at": AT}


def test_identifiers_are_certain() -> None:
    """Hexadecimal text looks like numbers with exponents."""
    chance = Random(1)  # noqa: S311 - a seeded stream
    names = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(20_000)]
    traces = [f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-01" for _ in range(20_000)]
    values = [f'{{"name": "{name}", "n": {number}}}'.encode() for number, name in enumerate(names + traces)]
    structs, uncertain = parse_certain_objects(pa.array(values), KIND, zoneless_is_utc=True)
    assert not uncertain.size
    assert structs.field("name").to_pylist() == names + traces


def test_the_values_beside_an_odd_one_stay_with_arrow() -> None:
    """Spark gets one value in a thousand, in place of every part of the batch that has one."""
    values = [b'{"d": %s, "n": %d}' % (b"-0" if n % 1000 == 7 else b"1.5", n) for n in range(10_000)]
    structs, uncertain = parse_certain_objects(pa.array(values), KIND, zoneless_is_utc=True)
    assert uncertain.tolist() == list(range(7, 10_000, 1000))
    assert structs.is_null().to_numpy(zero_copy_only=False).nonzero()[0].tolist() == uncertain.tolist()
    certain = [n for n in range(10_000) if n % 1000 != 7]
    assert structs.drop_null().field("n").to_pylist() == certain


def test_spark_parses_a_part_at_a_time() -> None:
    """A part ends once its values, or its rows in columns, are large."""
    sizes = np.array([1, 1, 1, 50, 1, 1, 9, 9, 9])
    parts = split_by_size(np.arange(9), sizes, 10)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6], [7], [8]]
    assert measure_row(KIND) == 4 + 8 + 4 + 8 + 4 + 16 + 4


def test_sparse_rows_of_many_columns_are_left_to_spark() -> None:
    """500 numbers a row are null here, and take 4,000 bytes in Arrow's columns."""
    schema = pa.schema([(f"c{number}", pa.float64()) for number in range(500)])
    decoder = ArrowJsonDecoder("", schema, None, zoneless_is_utc=True)  # type: ignore[arg-type]
    few, many = (pa.table({"value": [b"{}"] * count}) for count in (100_000, 130_000))
    assert not decoder.take_batch_for_spark(few, spark_writes=True)
    assert decoder.take_batch_for_spark(many, spark_writes=True)
    assert not decoder.take_batch_for_spark(many, spark_writes=False)  # Arrow has the columns then, too
