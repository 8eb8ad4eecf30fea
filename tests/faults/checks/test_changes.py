"""The checker of changes finds each kind of damage in constructed rounds."""

from io import BytesIO
from typing import Any

import fastavro

from faults.changes import (
    FIRST_NUMBER,
    SCHEMAS,
    VERSION_NUMBERS,
    ChangedRow,
    build_row,
    change,
    change_or_truncation,
    check_changes,
    count_differences,
    is_delete,
    is_truncation,
    replay,
)
from faults.check import Findings

TOPIC = "t"
HELD = {(p, offset): offset for p in (0, 1) for offset in range(200)}
ACKNOWLEDGED = {p: {offset: offset for offset in range(200)} for p in (0, 1)}
ROWS = replay(TOPIC, HELD)


def check(rows: list[ChangedRow]) -> Findings:
    return check_changes(ROWS, ACKNOWLEDGED, HELD, rows, ())


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
    gone = ChangedRow("0/99", "north", 99, "deleted")
    assert check([*ROWS.values(), gone]).wrong == 1


def test_a_lost_row_and_a_lost_update_are_found() -> None:
    """The key is missing, or has the row that it had before."""
    first, *others = ROWS.values()
    assert check(others).lost == 1
    assert check([first._replace(number=-1), *others]).wrong == 1


def test_an_acknowledged_record_that_the_broker_lost_is_found() -> None:
    """The replay alone would not miss it."""
    held = {where: number for where, number in HELD.items() if where != (1, 7)}
    due = replay(TOPIC, held)
    assert check_changes(due, ACKNOWLEDGED, held, due.values(), ()).lost == 1


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
        ["id", "number", "region", "text"],
        ["id", "number", "region", "size", "text"],
        ["body", "id", "number", "region", "size"],
        ["id", "number", "region", "text"],
    ]
    assert decode(FIRST_NUMBER + VERSION_NUMBERS + 1)["op"] in "ud"
    number = next(n for n in range(firsts[2], firsts[3]) if decode(n)["op"] == "u")
    (row,) = replay(TOPIC, {(3, 0): number}).values()
    assert (row.text, row.size, row.body) == (None, len(row.body or ""), decode(number)["after"]["body"])


def test_a_truncation_removes_all_rows_before_it() -> None:
    """It is an envelope without a row, in rounds that have it."""
    numbers = range(3000)
    truncations = [n for n in numbers if is_truncation(build_row(TOPIC, 0, n))]
    assert 3 < len(truncations) < 30
    held = {(0, n): n for n in numbers}
    rows = replay(TOPIC, held, truncates=True).values()
    assert min(row.number for row in rows) > truncations[-1]
    assert replay(TOPIC, {(0, n): n for n in range(truncations[0] + 1)}, truncates=True) == {}
    assert change_or_truncation(TOPIC, 0, 0) == change(TOPIC, 0, 0)
    value = change_or_truncation(TOPIC, 0, truncations[0])[1]
    envelope = fastavro.schemaless_reader(BytesIO(value[5:]), SCHEMAS[0], None)
    assert envelope == {"before": None, "after": None, "op": "t"}
