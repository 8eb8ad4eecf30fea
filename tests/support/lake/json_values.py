"""JSON values of each kind for each column, whose rows must not depend on the parser."""

import json
import struct
from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np

from fuzz.mutation import mutate
from support.lake.hostile_json import GOOD, HOSTILE

COLUMNS = (
    "id BIGINT, n INT, h SMALLINT, y TINYINT, d DOUBLE, f FLOAT, name STRING, at TIMESTAMP, "
    "day DATE, p DECIMAL(9, 2), big DECIMAL(38, 0), t BOOLEAN, offset STRING NOT NULL, "
    "a ARRAY<STRUCT<x: INT, d: ARRAY<DOUBLE>>>, "
    "s STRUCT<y: TIMESTAMP, z: STRUCT<p: DECIMAL(4, 1), day: DATE>>"
)
NAMES = ["id", "n", "h", "y", "d", "f", "name", "at", "day", "p", "big", "t", "offset", "a", "s", "x"]
TIMES = [
    "2024-05-06T07:08:09Z",
    "2024-05-06 07:08:09.123456+05:30",
    "2024-05-06T07:08:09.1-17:59",
    "2024-05-06T07:08:09+18:00",
    "2024-05-06T07:08:09+18:01",
    "2024-05-06T07:08:09-00:00",
    "2024-05-06T07:08:09",
    "2024-05-06T07:08:09.1234567",
    "2024-05-06T07:08:09.123456789Z",
    "2024-05-06T07:08:09z",
    "2024-05-06T07:08:09 Z",
    "2024-05-06T07:08:09+0530",
    "2024-05-06T07:08:09Europe/Berlin",
    "2024-05-06T07:08",
    "2024-05-06T07",
    "2024-05-06T24:00:00Z",
    "2024-05-06T23:59:60Z",
    "2024-5-6",
    "2024-05-06",
    " 2024-05-06 ",
    "2024-05-06\n",
    "2024-05",
    "20240506",
    "2024-02-30",
    "2023-02-29T00:00:00Z",
    "1582-10-10",
    "0001-01-01T00:00:00Z",
    "0000-01-01",
    "9999-12-31T23:59:59.999999Z",
    "10000-01-01",
    "٢٠٢٤-05-06",
    "now",
    "",
]
NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "1",
    "-1",
    "127",
    "128",
    "200",
    "255",
    "256",
    "-128",
    "-129",
    "32768",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "1.0",
    "1.5",
    "1e2",
    "1E+2",
    "1e-2",
    "1e-3",
    "10e-3",
    "1.005",
    "1.015",
    "1.500",
    "12345678",
    "1234567.89",
    "12345678.9",
    "9" * 38,
    "9" * 39,
    "9" * 899,
    "9" * 901,
    "9" * 1001,
    "0." + "9" * 1001,
    "1e38",
    "1e39",
    "1e308",
    "1e309",
    "1e-400",
    "4.9e-324",
    "2.4703282292062327e-324",
    "2.4703282292062328e-324",
    "9007199254740993",
    "16777217",
    "3.4028235e38",
    "3.4028236e38",
    "1.00000017881393432617187499",
    "1.4e-45",
    "0.1",
    "1e23",
    "8.5e22",
    "01",
    "+1",
    ".5",
    "5.",
    "1_0",
    "0x1",
    "NaN",
    "Infinity",
    "-Infinity",
    "Inf",
    "-Inf",
    "INF",
    "+Infinity",
    "1e9999",
    "1e-9999",
    "0e999",
    "0e-999",
    "0e-9999",
    "0e+00000",
    "1e00001",
    "1e-0000000001",
    "1e99999999",
    "0e99999999",
    "1e-99999999",
    "1 ",
    "true",
    "null",
    "tru",
]
TEXTS = [
    '"1"',
    '"1.5"',
    '"+1.5"',
    '".5"',
    '"5."',
    '"1,000"',
    '" 1"',
    '"1e1"',
    '"٣"',
    '"NaN"',
    '"Infinity"',
    '"true"',
    '"INF"',
    '"-1.005"',
    '"00000000000000000001"',
    '"0e-9999"',
    '"1e-00001"',
    '"0\\u0065-9999"',
    '"0e\\u002d9999"',
    '"1e99999999"',
    '"1.5e-0099999999"',
    '"x"',
    '"\\u0000"',
    '"\\ud83d\\ude00"',
    '"\\ud83d"',
    '"\\udc00"',
    '"\\/\\"\\b"',
    '"\\x"',
    '"a\tb"',
    '"\x7f\u2028\uffff"',
    "'single'",
    '"',
    "{}",
    "[]",
    "[1]",
    "[[]]",
    "[null]",
    '{"x":1}',
    '{"p":1.25}',
    '{"y":"2024-05-06T00:00:00Z","z":{"p":999.9,"day":"2024-01-02"}}',
    '{"z":null}',
    '{"z":{"p":1,"p":2}}',
    '{"z":{"day":"2024-13-01"}}',
    '[{"x":1,"d":[1.5,null,-0.0]},null,{}]',
    '[{"d":[-0]}]',
    '[{"x":2147483648}]',
    '[{"d":[NaN]}]',
    "{'x':1}",
    "{x:1}",
    "/* no */ 1",
    "[1,]",
    '{"x":1,}',
    '"see: Inf, NaN}"',
    "[" * 890 + "]" * 890,
    "[" * 999 + "]" * 999,
    "[" * 1001 + "]" * 1001,
    '{"a":' * 998 + "1" + "}" * 998,
    '"' + "7" * 1200 + '"',
    '"' + "v" * 49_000 + '"',
    '"' + "v" * 60_000 + '"',
]
WHOLE = [
    b"",
    b" ",
    b"null",
    b"1",
    b'"x"',
    b"[]",
    b"[{}]",
    b"{}",
    b" {}",
    b"{} ",
    b"\n{}",
    b"\t{}",
    b"{}\n",
    b"{}\r\n",
    b'\n{"id":1}',
    b'{"id":1}{"id":2}',
    b'{"id":1} {"id":2}',
    b'{"id":1},',
    b'{"id":1}\x00',
    b'{"id":1',
    b'{"id":1}]',
    b'{"id":1}],[',
    b"{'id':1}",
    b'{"id":1,"id":2}',
    b'{"id":1,"id":"x"}',
    b'{"id":"x","id":1}',
    b'{"id":1,"ID":2}',
    b'{"i\\u0064":3}',
    b'{"q":1,"q":2}',
    b'{"x":"\\ud800","id":1}',
    b'{"name":"\xff"}',
    b'{"x":"\xc0\x80"}',
    b'{"x":"\xed\xa0\x80"}',
    b'{"x":"\xf4\x90\x80\x80"}',
    '{"name":"\U0010ffff"}'.encode(),
    b'{\n  "id": 1,\n  "s": {\n    "z": {\n      "p": 2\n    }\n  }\n}',
    b'{"name":"} {","s":{"z":{}} }',
    b'{"s":{"z":{} }}{"id":1}',
    b'{"__trimtab_corrupt":"x","id":1}',
    b'{"id":1,"x":{"y":[1,{"z":null}]}}',
    b'{"' + b"k" * 49_990 + b'":1}',
    b'{"' + b"k" * 50_001 + b'":1}',
    b"\xef\xbb\xbf{}",
    None,
]


def list_values() -> list[bytes | None]:
    """Every number, time and text in every column, whole values, and mutations of a good value."""
    rng = Random(26)  # noqa: S311 - reproducible
    texts = [*NUMBERS, *map(json.dumps, TIMES), *TEXTS]
    mixed = [f'{{"{name}":{text}}}'.encode() for name, text in product(NAMES, texts)]
    nested = [
        f'{{"s":{{"z":{{"{name}":{text}}},"y":{text}}}}}'.encode() for name in ("p", "day") for text in texts
    ]
    return [
        *WHOLE,
        *HOSTILE,
        *mixed,
        *nested,
        *list_mutated(rng, 600),
        *list_random_floats(rng),
        *list_certain(3),
    ]


def list_mutated(rng: Random, count: int) -> list[bytes]:
    """Mutations of two values: of JSON, and of bytes."""
    return [mutate(good, rng, 400) for good in (GOOD, *list_certain(1)) for _ in range(count)]


def list_certain(count: int) -> list[bytes]:
    """Values as producers write them: Arrow parses them all."""
    return [
        b'{"id":%d,"n":-5,"d":0.25,"f":1.5,"name":"Informed: Inf \\u00e9","at":"2024-05-06T07:08:09.12Z",'
        b'"day":"2024-05-06","p":12.34,"big":1e3,"t":true,"offset":"o",'
        b'"a":[{"x":1,"d":[1.0,null]},null],"s":{"y":"2024-05-06T07:08:09","z":{"p":"7.5","day":null}},"q":[{}]}'
        % number
        for number in range(count)
    ]


def list_random_floats(rng: Random) -> Iterator[bytes]:
    """Numbers of all sizes, and some beside the middle of two."""
    for _ in range(400):
        number = struct.unpack("<d", rng.randbytes(8))[0]
        single = struct.unpack("<f", rng.randbytes(4))[0]
        digits = "".join(rng.choices("0123456789", k=rng.randint(1, 40)))
        items = f'[{{"d":[0.{digits},{digits[0]}.{digits}e{rng.randint(-330, 310)}]}}]'
        yield f'{{"d":{number!r},"f":{single!r},"a":{items}}}'.encode()
        middle = (float(np.float32(single)) + float(np.nextafter(np.float32(single), np.float32(0)))) / 2
        yield f'{{"f":{middle!r},"d":{digits.lstrip("0") or "0"}}}'.encode()
