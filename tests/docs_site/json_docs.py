"""Writes the table of docs/json-exactly.md from the decoder: `python -m docs_site.json_docs` in tests/."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from trimtab.consumer_sdk.lake.decoding.json_columns import name_type, read_objects

PAGE: Final = Path(__file__).parents[2] / "docs" / "json-exactly.md"
BLOCK: Final = re.compile(r"(<!-- json:begin -->\n).*?(<!-- json:end -->)", re.DOTALL)
NUMBERS: Final = ["1e2", "1.0", "1.5", "3000000000", '"1"']
TIMES: Final = [
    '"2024-05-06T07:08:09.123456+02:00"',
    '"2024-05-06 07:08"',
    '"2024-05-06T07:08:09.123456000"',
    '"2024-05-06T07:08:09.123456789Z"',
    '"2024-05-06"',
    '"12:30"',
    '"0000-01-01T00:00:00Z"',
    "1704067200000",
]
VALUES: Final[list[tuple[Any, list[str]]]] = [
    (pa.bool_(), ["true", '"true"', "1"]),
    (pa.int32(), NUMBERS),
    (pa.int64(), ["9223372036854775807", "9223372036854775808", "-0"]),
    (
        pa.float64(),
        [
            "0.1",
            "-0",
            "1e23",
            "9007199254740992",
            "9007199254740993",
            "1e400",
            "1e-400",
            "NaN",
            "-Infinity",
            '"1.5"',
        ],
    ),
    (pa.float32(), ["0.5", "16777217"]),
    (pa.decimal128(12, 2), ["1.5", "1.500", '"1.50"', "1e3", "1.005", '"-0.004"', "1e10", '"1,5"', '""']),
    (pa.string(), ['"é"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', "5", "true", '{"a":1}', "['x']"]),
    (pa.binary(), ['"AAEC"', '"no"', "1"]),
    (pa.date32(), ['"2024-02-29"', '"2023-02-29"', '"2024-2-9"', '"2024-05-06T00:00:00Z"', "19000"]),
    (pa.timestamp("us", "UTC"), TIMES),
    (pa.timestamp("us"), TIMES[:3]),
    (pa.list_(pa.int32()), ["[1,null]", '[1,"x"]', "1"]),
    (pa.map_(pa.string(), pa.int32()), ['{"a":1,"A":2}', '{"a":1,"a":2}']),
    (
        pa.struct([("x", pa.int32())]),
        ['{"x":1,"other":[2]}', '{"X":1}', "{}", '{"x":1,"X":1}', '{"x":1,"x":1}', "[1]"],
    ),
]


def render_table() -> str:
    """Return the table: type, JSON, and the column or the reason of the dead letter."""
    lines = ["| column `c` | JSON of `c` | row, or dead letter |", "|---|---|---|"]
    for kind, texts in VALUES:
        lines += [f"| `{name_type(kind)}` | `{text}` | {_describe(kind, text)} |" for text in texts]
    return "\n".join(lines)


def fill_page(page: str) -> str:
    """Return the page with its table rendered again."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{render_table()}\n\n{block[2]}", page)


def _describe(kind: Any, text: str) -> str:
    rows, refused = read_objects(pa.array([f'{{"c":{text}}}'.encode()]), pa.schema([("c", kind)]), {})
    if not refused:
        return f"`{_show(rows[0]['c'].as_py())}`"
    field, reason = refused[0]
    return f"dead letter: `{field}: {reason}`" if field else f"dead letter: `{reason}`"


def _show(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if isinstance(value, (str, Decimal, bytes)):
        return str(value)
    is_map = isinstance(value, list) and isinstance(value[0], tuple)
    return json.dumps(dict(value) if is_map else value)


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text()))
