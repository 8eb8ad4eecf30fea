"""The checker finds each kind of damage in constructed rounds."""

from collections.abc import Iterable

import pytest

from faults.check import (
    Findings,
    Handed,
    Row,
    abort_withdrawn,
    acknowledge,
    check,
    check_layout,
    find_rewritten,
    overlaps,
    place_writes,
    record,
)
from history.events import Outcome, Write

TOPIC = "t"
ENDS = {0: 30, 1: 20}
HELD = {(p, offset): offset for p, end in ENDS.items() for offset in range(end)}
ACKNOWLEDGED = {p: {offset: offset for offset in range(end)} for p, end in ENDS.items()}


def rows() -> list[Row]:
    return [Row(p, n, *record(TOPIC, p, n)) for p, end in ENDS.items() for n in range(end)]


def check_rows(found: Iterable[Row], handed: Iterable[Handed] = ()) -> Findings:
    return check(TOPIC, ACKNOWLEDGED, HELD, found, handed)


def test_complete_table_has_no_findings() -> None:
    """Every record is there once, unchanged, in any order of rows."""
    assert check_rows(reversed(rows())) == Findings(records=50)


def test_unfenced_commit_is_found() -> None:
    """An old owner that commits the new owner's records again duplicates them."""
    stale = [row for row in rows() if row.partition == 1 and 5 <= row.offset < 12]
    found = check_rows(rows() + stale)
    assert (found.lost, found.duplicated, found.wrong) == (0, 7, 0)
    assert found.descriptions[0] == "twice: partition 1 offset 5"
    assert not found.good


def test_offsets_without_rows_are_found() -> None:
    """Offsets committed without their rows lose these records."""
    found = check_rows(row for row in rows() if row.partition == 1 or not 10 <= row.offset < 20)
    assert (found.lost, found.duplicated, found.wrong) == (10, 0, 0)
    assert found.descriptions[0] == "lost: partition 0 offset 10"


def test_missing_tail_is_found() -> None:
    """A table that ends before the broker's end offset has lost the rest."""
    assert check_rows(row for row in rows() if row.offset != 19).lost == 2
    assert check_rows([]).lost == 50


def test_acknowledged_records_must_be_in_the_table() -> None:
    """Acknowledgements count, not only what the broker holds."""
    found = check(TOPIC, ACKNOWLEDGED, {(0, 0): 0}, [], [])
    assert found.lost == 50


def test_withdrawn_records_must_not_be_in_the_table() -> None:
    """The broker told of a commit, but gives the record to no client: a row of it is read from an abort."""
    writes = [Write("0", 30, 30), Write("0", 31, 31)]
    kept, gone = abort_withdrawn(writes, {(0, 31)})
    assert (kept, gone.outcome) == (writes[0], Outcome.ABORTED)
    assert acknowledge([kept, gone]) == {0: {30: 30}}
    assert check_rows([*rows(), Row(0, 31, *record(TOPIC, 0, 31))]).wrong == 1


def test_a_record_that_the_topic_holds_again_is_found_by_its_number() -> None:
    """In its own partition only; the first copy is the record."""
    held = {(0, 3): 7, (0, 9): 7, (0, 10): 7, (1, 9): 7, (0, 4): 8}
    assert find_rewritten(held) == {("0", 9, 7), ("0", 10, 7)}


def test_every_copy_that_the_topic_holds_must_be_in_the_table() -> None:
    """A producer's duplicate is a record as any other; another record in its place is wrong."""
    held = {**HELD, (0, 30): 29}
    copy = Row(0, 30, *record(TOPIC, 0, 29))
    assert check(TOPIC, ACKNOWLEDGED, held, [*rows(), copy], []).good
    assert check(TOPIC, ACKNOWLEDGED, held, rows(), []).lost == 1
    assert check(TOPIC, ACKNOWLEDGED, held, [*rows(), copy, copy], []).duplicated == 1
    other = Row(0, 30, *record(TOPIC, 0, 3))
    assert check(TOPIC, ACKNOWLEDGED, held, [*rows(), other], []).wrong == 1


def test_an_acknowledgement_without_an_offset_is_found_in_the_topic_by_its_number() -> None:
    """The first copy is the record; without any it is lost, several of them, too."""
    writes = [Write("0", 7, None), Write("1", 7, 4), Write("0", 8, None, Outcome.INDETERMINATE)]
    held = {(0, 3): 7, (0, 9): 7, (1, 4): 7}
    assert acknowledge(place_writes(writes, held)) == {0: {3: 7}, 1: {4: 7}}
    absent = acknowledge(place_writes([Write("0", 98, None), Write("0", 99, None)], HELD))
    assert check(TOPIC, absent, HELD, rows(), []).lost == 2


@pytest.mark.parametrize(
    "bad",
    [
        Row(0, 7, b"0/7", b"something else"),
        Row(0, 7, *record(TOPIC, 0, 8)),  # a neighbour's content at this offset
        Row(0, 7, *record(TOPIC, 1, 7)),  # another partition's
        Row(0, 7, *record("u", 0, 7)),  # another topic's
        Row(0, 30, *record(TOPIC, 0, 30)),  # the broker does not hold it
        Row(9, 0, *record(TOPIC, 9, 0)),  # a partition that does not exist
    ],
)
def test_wrong_content_is_found(bad: Row) -> None:
    """Key and value must be those of the record acknowledged at this offset."""
    held = [row for row in rows() if (row.partition, row.offset) != (bad.partition, bad.offset)]
    found = check_rows([*held, bad])
    assert found.wrong == 1
    assert not found.good


def test_unacknowledged_record_is_known_by_its_key() -> None:
    """Records on the broker must be in the table unchanged, acknowledged or not."""
    acknowledged = {0: {n: n for n in range(30)}, 1: {n: n for n in range(19)}}
    assert check(TOPIC, acknowledged, HELD, rows(), []).good
    changed = [*rows()[:-1], Row(1, 19, b"1/19", b"no")]
    assert check(TOPIC, acknowledged, HELD, changed, []).wrong == 1


def test_consecutive_owners_are_valid() -> None:
    """A partition may return to a process, and partitions are independent."""
    handed = [
        *(Handed("a", 1, 0, t) for t in (1.0, 2.0)),
        *(Handed("b", 1, 0, t) for t in (2.1, 3.0)),
        *(Handed("a", 2, 0, t) for t in (3.5, 9.0)),
        *(Handed("b", 1, 1, t) for t in (1.0, 9.0)),
    ]
    assert overlaps(handed) == []


def test_resumed_owner_is_found() -> None:
    """A single record handed out after the new owner's first is an overlap."""
    handed = [
        *(Handed("a", 1, 0, t) for t in (1.0, 2.0, 8.1)),
        *(Handed("b", 1, 0, t) for t in (7.0, 8.0, 9.0)),
    ]
    assert overlaps(handed) == ["two owners: partition 0: a 1.000-8.100, b 7.000-9.000"]
    assert not check_rows(rows(), handed).good


def test_every_pair_of_owners_is_compared() -> None:
    """A long tenure overlaps with each short one inside it."""
    long = [Handed("a", 1, 0, t) for t in (0.0, 10.0)]
    short = [Handed("b", n, 0, float(n)) for n in (1, 2, 3)]
    assert len(overlaps([*long, *short])) == 3


def test_a_table_of_another_layout_is_found() -> None:
    """In both directions; without a table there is nothing to compare."""
    good = Findings(records=50)
    for columns in ((), ("region",)):
        assert check_layout(good, columns, columns) == check_layout(good, columns, None) == good
    found = check_layout(good, ("region",), ())
    assert (found.wrong, found.good) == (1, False)
    assert found.descriptions == ("wrong: the table is partitioned by (), not by ('region',)",)
    assert check_layout(good, (), ("region",)).wrong == 1
