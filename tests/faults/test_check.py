"""The checker finds what it is there for; on made-up rounds, each wrong in one way."""

from collections.abc import Iterable

import pytest

from faults.check import Findings, Handed, Row, check, overlaps, record

TOPIC = "t"
ENDS = {0: 30, 1: 20}
ACKNOWLEDGED = {p: {offset: offset for offset in range(end)} for p, end in ENDS.items()}


def rows() -> list[Row]:
    return [Row(p, n, *record(TOPIC, p, n)) for p, end in ENDS.items() for n in range(end)]


def verdict(found: Iterable[Row], handed: Iterable[Handed] = ()) -> Findings:
    return check(TOPIC, ACKNOWLEDGED, ENDS, found, handed)


def test_a_whole_table_is_good() -> None:
    """Every record once, as it was written: nothing is found, whatever the order of the rows."""
    assert verdict(reversed(rows())) == Findings(records=50)


def test_what_writers_without_a_fence_do_is_found() -> None:
    """An old owner that wakes up and commits what the new one has committed doubles those rows."""
    stale = [row for row in rows() if row.partition == 1 and 5 <= row.offset < 12]
    found = verdict(rows() + stale)
    assert (found.lost, found.duplicated, found.wrong) == (0, 7, 0)
    assert found.told[0] == "twice: partition 1 offset 5"
    assert not found.good


def test_what_marks_that_run_ahead_do_is_found() -> None:
    """Offsets committed without their rows leave a hole: each record in it is lost."""
    found = verdict(row for row in rows() if row.partition == 1 or not 10 <= row.offset < 20)
    assert (found.lost, found.duplicated, found.wrong) == (10, 0, 0)
    assert found.told[0] == "lost: partition 0 offset 10"


def test_the_last_records_count_too() -> None:
    """A table that stops short of the broker's end has lost the rest; an empty one has lost all."""
    assert verdict(row for row in rows() if row.offset != 19).lost == 2
    assert verdict([]).lost == 50


def test_an_acknowledged_record_is_missed_even_where_the_broker_forgot_it() -> None:
    """What the producer was told counts, not only what the broker holds in the end."""
    found = check(TOPIC, ACKNOWLEDGED, {0: 30, 1: 15}, [], [])
    assert found.lost == 50


@pytest.mark.parametrize(
    "bad",
    [
        Row(0, 7, b"0/7", b"something else"),
        Row(0, 7, *record(TOPIC, 0, 8)),  # a neighbour's content at this offset
        Row(0, 7, *record(TOPIC, 1, 7)),  # another partition's
        Row(0, 7, *record("u", 0, 7)),  # another topic's
        Row(0, 30, *record(TOPIC, 0, 30)),  # beyond the broker's end
        Row(9, 0, *record(TOPIC, 9, 0)),  # a partition that nobody has
    ],
)
def test_wrong_content_is_found(bad: Row) -> None:
    """Key and value must be those of the record that was acknowledged at this very offset."""
    held = [row for row in rows() if (row.partition, row.offset) != (bad.partition, bad.offset)]
    found = verdict([*held, bad])
    assert found.wrong == 1
    assert not found.good


def test_a_record_whose_acknowledgement_was_lost_is_known_by_its_key() -> None:
    """What the broker holds must be in the table, acknowledged or not, and as it was written."""
    acknowledged = {0: {n: n for n in range(30)}, 1: {n: n for n in range(19)}}
    assert check(TOPIC, acknowledged, ENDS, rows(), []).good
    changed = [*rows()[:-1], Row(1, 19, b"1/19", b"no")]
    assert check(TOPIC, acknowledged, ENDS, changed, []).wrong == 1


def test_owners_one_after_the_other_are_fine() -> None:
    """A partition may come back to a process, and several partitions are apart."""
    handed = [
        *(Handed("a", 1, 0, t) for t in (1.0, 2.0)),
        *(Handed("b", 1, 0, t) for t in (2.1, 3.0)),
        *(Handed("a", 2, 0, t) for t in (3.5, 9.0)),
        *(Handed("b", 1, 1, t) for t in (1.0, 9.0)),
    ]
    assert overlaps(handed) == []


def test_a_frozen_owner_that_reads_on_is_found() -> None:
    """One that wakes up and hands out a single record after the new owner's first is an overlap."""
    handed = [
        *(Handed("a", 1, 0, t) for t in (1.0, 2.0, 8.1)),
        *(Handed("b", 1, 0, t) for t in (7.0, 8.0, 9.0)),
    ]
    assert overlaps(handed) == ["two owners: partition 0: a 1.000-8.100, b 7.000-9.000"]
    assert not verdict(rows(), handed).good


def test_every_pair_of_owners_is_looked_at() -> None:
    """A long tenure overlaps with each of the short ones inside it, not only with the first."""
    long = [Handed("a", 1, 0, t) for t in (0.0, 10.0)]
    short = [Handed("b", n, 0, float(n)) for n in (1, 2, 3)]
    assert len(overlaps([*long, *short])) == 3
