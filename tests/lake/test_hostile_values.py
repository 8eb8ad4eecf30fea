"""Values that try to end the sink: each is a row or a dead letter, and those beside them are rows."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fuzz.mutation import mutate
from trimtab.assignor.model import TopicPartition

P0 = TopicPartition("orders", 0)
COLUMNS = (
    "id BIGINT, n INT, d DOUBLE, f FLOAT, name STRING, at TIMESTAMP, day DATE, p DECIMAL(9, 2), b BINARY, "
    "t BOOLEAN, m MAP<STRING, INT>, a ARRAY<STRUCT<x: INT>>, s STRUCT<y: TIMESTAMP>"
)
JSON = {"lake_decoder": "json", "lake_schema": COLUMNS, "lake_flush_timeout": "200 s"}
DIGITS = b"9" * 2000
HOSTILE = [
    b'{"id": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"name": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    b'{"x": ' + b"[" * 100_000,
    *(b'{"%s": %s}' % (name, DIGITS) for name in (b"id", b"d", b"p", b"name", b"at", b"day", b"x")),
    *(b'{"%s": 1e%s}' % (name, b"9" * 9) for name in (b"id", b"n", b"d", b"f", b"p", b"at", b"x")),
    *(
        b'{"%s": %s}' % (name, x)
        for name in (b"d", b"n", b"p")
        for x in (b"NaN", b"-Infinity", b'"Infinity"')
    ),
    *(
        b'{"%s": "%s"}' % (name, time)
        for name in (b"at", b"day")
        for time in (
            b"+294248-01-01T00:00:00Z",
            b"-290309-12-21T00:00:00Z",
            b"999999999-01-01",
            b"+9999999999-01-01",
            b"2024-02-30",
            b"0000-00-00",
            b"1970-01-01T00:00:00+99:99",
            b"epoch",
            DIGITS,
        )
    ),
    b'{"s": {"y": "+294248-01-01T00:00:00Z"}}',
    b'{"at": 9223372036854775807}',
    b'{"at": 1e300}',
    b'{"day": 2147483648}',
    b'{"p": 1e2147483647}',
    b'{"p": 1e-2147483648}',
    b'{"b": "not base64!"}',
    b'{"m": {"k": 1, "k": 2}}',
    b'{"id": 1, "id": 2, "ID": 3}',
    b'{"name": "\\ud800"}',
    b'{"\\u0000": "\x00"}',
    b"\xef\xbb\xbf{}",
    '{"id": 1}'.encode("utf-16"),
    '{"id": 1}'.encode("utf-32"),
    b'{"' + b"k" * 60_000 + b'": 1}',
    b'{"name": "' + b"v" * 21_000_000 + b'"}',
]


GOOD = (
    b'{"id": 7, "n": 1, "d": 1.5, "name": "x", "at": "2024-05-06T07:08:09Z", "day": "2024-05-06", '
    b'"p": 12.34, "b": "AAEC", "t": true, "m": {"k": 1}, "a": [{"x": 1}], "s": {"y": null}}'
)


@pytest.mark.spark
def test_no_json_value_ends_the_sink(writers: Callable[..., Any], spark: Any, namespace: str) -> None:
    """Depth, digits, times out of range, other encodings, long names, mutations: none fails Spark's job."""
    rng = Random(15)  # noqa: S311 - reproducible
    mutated = [mutate(GOOD, rng, 4000) for _ in range(600)]
    values: list[bytes | None] = [GOOD, *HOSTILE, *mutated, GOOD]
    consumer, writer = writers({P0: values}, **JSON)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(len(values)))
    writer.close()
    rows, letters = (
        [row.offset for row in spark.table(f"{namespace}.orders{end}").select("offset").collect()]
        for end in ("", "_dead_letter")
    )
    assert sorted(rows + letters) == list(range(len(values)))
    assert {0, len(values) - 1} <= set(rows)
    assert letters
