"""Records of `WRITE=upsert`, and the table that they must leave: a replay in plain Python. Pure.

1. The records of a topic in the order of their offsets, of each partition alone, make the table: an
   upsert sets the row of its key, a delete removes it. A key lives in one partition.
2. A key without its row is lost, a second row of a key is duplicated, any other row is wrong.
3. In rounds with TRUNCATEs a record in some hundreds is one, which removes all rows; the topic then has one
   partition. The key has two columns, of which the table is partitioned by one in some rounds.
4. A record's number tells the version of its row's schema, of which each writer has its own: the
   second one has a column more, in the third one a column has another name. The table has all columns.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

import fastavro

from faults.check import MAX_DESCRIPTIONS, Acknowledged, Findings, Handed, overlaps, record

KEYS: Final = 40  # of a partition: few, so that most changes are updates
DELETES: Final = 0.15  # share of the records
TRUNCATIONS: Final = 1 / 300  # share of the records, of rounds that have them
REGIONS: Final = ("north", "sü d/1=")  # of a key; paths of partitions escape the second one
FIRST_NUMBER: Final = 1_000_000_000
"""Numbers from here on belong to transactions, the ones below to `Traffic`."""
VERSION_NUMBERS: Final = 10_000_000
"""Numbers that a writer has for each version of the schema."""

Numbers: TypeAlias = Mapping[tuple[int, int], int]
"""(partition, offset) → sequence number, of the records that the broker holds."""


class ChangedRow(NamedTuple):
    """A row of the table; None where the row's schema lacks the column."""

    id: str
    region: str
    number: int
    text: str | None = None
    size: int | None = None
    body: str | None = None


_KEY_COLUMNS: Final = ("id", "region")
_TYPES: Final = {"number": "long", "text": "string", "size": "long", "body": "string"}
_VERSIONS: Final = (("number", "text"), ("number", "text", "size"), ("number", "body", "size"))


def _build_schema(columns: Iterable[str]) -> dict[str, Any]:
    """Return the schema of Debezium's envelope of rows with these columns behind the key."""
    fields: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in _KEY_COLUMNS]
    fields += [{"name": name, "type": ["null", _TYPES[name]], "default": None} for name in columns]
    row = {"type": "record", "name": "Value", "fields": fields}
    sides = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    return {"type": "record", "name": "Envelope", "fields": [*sides, {"name": "op", "type": "string"}]}


SCHEMAS: Final = tuple(map(_build_schema, _VERSIONS))
"""Avro schemas of the values; their ids in the registry are 1, 2, …"""
_PARSED: Final = tuple(map(fastavro.parse_schema, SCHEMAS))


def change(topic: str, partition: int, number: int) -> tuple[bytes, bytes]:
    """Return key and value of a partition's record: Debezium's envelope in a registry's format."""
    row, version = build_row(topic, partition, number), find_version(number)
    columns = {name: getattr(row, name) for name in (*_KEY_COLUMNS, *_VERSIONS[version])}
    side, op = ("before", "d") if is_delete(row) else ("after", "u")
    return _encode(partition, number, {side: columns, "op": op})


def change_or_truncation(topic: str, partition: int, number: int) -> tuple[bytes, bytes]:
    """Return key and value of a record of a round with TRUNCATEs."""
    if is_truncation(build_row(topic, partition, number)):
        return _encode(partition, number, {"op": "t"})
    return change(topic, partition, number)


def _encode(partition: int, number: int, envelope: dict[str, Any]) -> tuple[bytes, bytes]:
    data, version = BytesIO(), find_version(number)
    fastavro.schemaless_writer(data, _PARSED[version], envelope)
    return f"{partition}/{number}".encode(), b"\0" + (version + 1).to_bytes(4) + data.getvalue()


RECORDS: Final[Mapping[str, Callable[[str, int, int], tuple[bytes, bytes]]]] = {
    "append": record,
    "upsert": change,
    "truncate": change_or_truncation,
}
"""Key and value of a record by what a round's topic has."""


def is_delete(row: ChangedRow) -> bool:
    """Return whether a record deletes its row."""
    return int(_text_of(row)[:4], 16) < DELETES * 0x10000


def is_truncation(row: ChangedRow) -> bool:
    """Return whether a record is a TRUNCATE, in a round that has them."""
    return int(_text_of(row)[4:8], 16) < TRUNCATIONS * 0x10000


def find_version(number: int) -> int:
    """Return the version of the schema of a record's row, from 0."""
    return number % FIRST_NUMBER // VERSION_NUMBERS % len(SCHEMAS)


def replay(topic: str, held: Numbers, *, truncates: bool = False) -> dict[str, ChangedRow]:
    """Return the rows by key after all these records."""
    rows: dict[str, ChangedRow] = {}
    for (partition, _), number in sorted(held.items()):
        row = build_row(topic, partition, number)
        if truncates and is_truncation(row):
            rows.clear()
            continue
        rows.pop(row.id, None)
        if not is_delete(row):
            rows[row.id] = row
    return rows


def check_changes(
    due: Mapping[str, ChangedRow],
    acknowledged: Acknowledged,
    held: Numbers,
    rows: Iterable[ChangedRow],
    handed: Iterable[Handed],
) -> Findings:
    """Compare the table with the replayed rows, which are due, and check the owners."""
    found = list(rows)
    counts = Counter(row.id for row in found)
    vanished = _find_vanished(acknowledged, held)
    lost = [*vanished, *(f"lost: key {key}" for key in sorted(due.keys() - counts.keys()))]
    twice = [f"twice: key {key}, {n} rows" for key, n in sorted(counts.items()) if n > 1]
    wrong = [
        f"wrong: {row}, not {due.get(row.id)}" for row in sorted(found, key=repr) if due.get(row.id) != row
    ]
    owners = overlaps(handed)
    problems = (lost, twice, wrong, owners)
    return Findings(
        len(held), *map(len, problems), tuple(line for lines in problems for line in lines[:MAX_DESCRIPTIONS])
    )


def count_differences(
    found: Findings, rows: Iterable[ChangedRow], others: Iterable[ChangedRow], reader: str
) -> Findings:
    """Count the rows in which another reader of the table differs as wrong."""
    left, right = Counter(rows), Counter(others)
    lines = [f"wrong: not read by {reader}: {row}" for row in (left - right).elements()]
    lines += [f"wrong: read by {reader} alone: {row}" for row in (right - left).elements()]
    descriptions = (*found.descriptions, *lines[:MAX_DESCRIPTIONS])
    return replace(found, wrong=found.wrong + len(lines), descriptions=descriptions)


def _find_vanished(acknowledged: Acknowledged, held: Collection[tuple[int, int]]) -> list[str]:
    due = {(p, offset) for p, offsets in acknowledged.items() for offset in offsets}
    return [f"lost: partition {p} offset {o}" for p, o in sorted(due - {*held})]


def build_row(topic: str, partition: int, number: int) -> ChangedRow:
    """Return the row of a partition's record."""
    text = record(topic, partition, number)[1].decode()
    values = {"number": number, "text": text, "size": len(text), "body": text}
    known = {name: values[name] for name in _VERSIONS[find_version(number)]}
    key = number % KEYS
    return ChangedRow(f"{partition}/{key}", REGIONS[key % len(REGIONS)], **known)


def _text_of(row: ChangedRow) -> str:
    return row.text or row.body or ""
