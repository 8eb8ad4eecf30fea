"""The checker of changes finds each kind of damage in constructed rounds."""

from io import BytesIO
from typing import Any

import fastavro

from faults.changes import (
    FIRST_NUMBER,
    SCHEMAS,
    VERSION_NUMBERS,
    ChangedRow,
    change,
    check_changes,
    count_differences,
    is_delete,
    replay,
)
from faults.check import Findings

TOPIC = "t"
HELD = {(p, offset): offset for p in (0, 1) for offset in range(200)}
ACKNOWLEDGED = {p: {offset: offset for offset in range(200)} for p in (0, 1)}
ROWS = replay(TOPIC, HELD)


def check(rows: list[ChangedRow]) -> Findings:
    return check_changes(TOPIC, ACKNOWLEDGED, HELD, rows, ())


def test_the_replayed_table_has_no_findings() -> None:
    """Some keys have no row: their last record is a delete."""
    assert check([*ROWS.values()]) == Findings(records=400)
    assert 40 < len(ROWS) < 80


def test_a_row_of_an_earlier_batch_is_found() -> None:
    """An update whose old row stayed, and a delete that was not carried out."""
    row = next(iter(ROWS.values()))
    old = row._replace(number=row.number - 40)
    found = check([*ROWS.values(), old])
    assert (found.lost, found.duplicated, found.wrong) == (0, 1, 1)
    gone = ChangedRow("0/99", 99, "deleted")
    assert check([*ROWS.values(), gone]).wrong == 1


def test_a_lost_row_and_a_lost_update_are_found() -> None:
    """The key is missing, or has the row that it had before."""
    first, *others = ROWS.values()
    assert check(others).lost == 1
    assert check([first._replace(number=-1), *others]).wrong == 1


def test_an_acknowledged_record_that_the_broker_lost_is_found() -> None:
    """The replay alone would not miss it."""
    held = {where: number for where, number in HELD.items() if where != (1, 7)}
    assert check_changes(TOPIC, ACKNOWLEDGED, held, replay(TOPIC, held).values(), ()).lost == 1


def test_rows_that_only_one_reader_returns_are_found() -> None:
    """Also a row that it returns twice."""
    rows, good = [*ROWS.values()], Findings(records=400)
    assert count_differences(good, rows, reversed(rows), "DuckDB") == good
    found = count_differences(good, rows, [*rows[1:], rows[1]], "DuckDB")
    assert found.wrong == 2
    assert found.descriptions == (
        f"wrong: not read by DuckDB: {rows[0]}",
        f"wrong: read by DuckDB alone: {rows[1]}",
    )


def decode(number: int) -> Any:
    """Return the envelope of a record by the schema that its value names."""
    value = change(TOPIC, 3, number)[1]
    schema = fastavro.parse_schema(SCHEMAS[int.from_bytes(value[1:5]) - 1])
    return fastavro.schemaless_reader(BytesIO(value[5:]), schema, None)


def test_changes_are_the_envelopes_of_debezium() -> None:
    """The record's key has its number; both kinds of change name the row's key."""
    bodies = [decode(number) for number in range(100)]
    assert {body["op"] for body in bodies} == {"u", "d"}
    assert all((body["after"] or body["before"])["id"] == f"3/{n % 40}" for n, body in enumerate(bodies))
    assert change(TOPIC, 3, 7)[0] == b"3/7"
    assert any(is_delete(ChangedRow(**body["before"])) for body in bodies if body["op"] == "d")


def test_the_number_tells_the_schema_of_the_row() -> None:
    """A column is added, then one is renamed; transactions have versions of their own."""
    firsts = [VERSION_NUMBERS * version for version in range(4)]
    rows = [decode(number)["after"] or decode(number)["before"] for number in firsts]
    assert [sorted(row) for row in rows] == [
        ["id", "number", "text"],
        ["id", "number", "size", "text"],
        ["body", "id", "number", "size"],
        ["id", "number", "text"],
    ]
    assert decode(FIRST_NUMBER + VERSION_NUMBERS + 1)["op"] in "ud"
    number = next(n for n in range(firsts[2], firsts[3]) if decode(n)["op"] == "u")
    (row,) = replay(TOPIC, {(3, 0): number}).values()
    assert (row.text, row.size, row.body) == (None, len(row.body or ""), decode(number)["after"]["body"])
