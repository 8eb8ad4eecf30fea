"""Decimals of Connect's JsonConverter: Base64 is never read as a number."""

import json
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest

from trimtab.consumer_sdk.lake.decoding.json_decoder import JsonDecoder

NAME = "org.apache.kafka.connect.data.Decimal"
DECIMAL = {"type": "bytes", "name": NAME, "version": 1, "parameters": {"scale": "2"}}
PRICE = pa.decimal128(12, 2)


def wrap(column: Any, value: Any) -> bytes:
    """Return a value as JsonConverter wraps it."""
    schema = {"type": "struct", "fields": [{"field": "Price", **column}]}
    return json.dumps({"schema": schema, "payload": {"Price": value}}).encode()


def read(kind: Any, *values: bytes) -> tuple[list[Any], dict[int, str]]:
    rows, reasons = JsonDecoder(pa.schema([("price", kind)])).read_values(pa.array(values, pa.binary()))
    return rows.to_pylist(), reasons


@pytest.mark.parametrize(
    ("connect", "kind", "wrapped", "path"),
    [
        (DECIMAL, PRICE, lambda text: text, "price"),
        ({"type": "array", "items": DECIMAL}, pa.list_(PRICE), lambda text: [None, text], "price"),
        (
            {"type": "struct", "fields": [{"field": "n", **DECIMAL}]},
            pa.struct([("n", PRICE)]),
            lambda text: {"n": text},
            "price.n",
        ),
        (
            {"type": "map", "values": DECIMAL},
            pa.map_(pa.string(), PRICE),
            lambda text: {"k": text},
            "price.k",
        ),
    ],
    ids=["column", "array", "struct", "map"],
)
def test_base64_that_is_a_number_too_is_a_dead_letter(
    connect: Any, kind: Any, wrapped: Any, path: str
) -> None:
    """At any depth; numbers (decimal.format=NUMERIC) and nulls are values."""
    text = "1234"
    assert b64encode(bytes.fromhex("d76df8")).decode() == text
    plain = {"type": "string"}
    good = [wrap(connect, wrapped(12.5)), wrap(connect, None), wrap(plain, wrapped(text))]
    rows, reasons = read(kind, good[0], wrap(connect, wrapped(text)), *good[1:])
    assert {row: reason.partition(" for DECIMAL")[0] for row, reason in reasons.items()} == {
        1: f"{path}: Base64"
    }
    assert [row is None for row in rows] == [False, True, False, False]
    assert "decimal.handling.mode=string" in reasons[1]


def test_base64_in_other_columns_is_what_they_declare() -> None:
    """Bytes are decoded, and text is text."""
    assert read(pa.binary(), wrap(DECIMAL, "1234")) == ([{"price": bytes.fromhex("d76df8")}], {})
    assert read(pa.string(), wrap(DECIMAL, "1234")) == ([{"price": "1234"}], {})
