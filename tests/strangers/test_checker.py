"""The checker over the strangers' lines, and the figures, on small stories."""

from pathlib import Path

import pytest

from strangers.checker import Verdict, check_group
from strangers.events import Event, EventReader, Run, parse_line
from strangers.figures import balance_curve, count_moves, list_ownerships, measure_latencies, measure_pauses

A, B, AGAIN = Run("a", 1), Run("b", 1), Run("a", 2)


def tell(story: str) -> list[Event]:
    """Return the events of a story: `a`, `b` or `a2`, then a line."""
    runs = {"a": A, "b": B, "a2": AGAIN}
    events = []
    for line in story.strip().splitlines():
        name, _, rest = line.strip().partition(" ")
        event = parse_line(rest, runs[name])
        assert event is not None, line
        events.append(event)
    return events


def verdict(story: str, records: int = 10) -> tuple[int, int, int]:
    """Return the lost, doubled and repeated records of one partition."""
    found = check_group(tell(story), {"t-0": range(records)})
    return found.lost, found.doubled, found.repeated


HANDED_OVER = """
    a 1.0 assigned t-0 t-1
    a 2.0 read t-0 0 4
    a 3.0 committed t-0 5
    a 3.1 revoked t-0
    b 3.5 assigned t-0
    b 4.0 read t-0 5 9
"""


def test_a_handover_in_order_is_clean() -> None:
    """Records read by one member up to its commit, and by the next from there, are read once each."""
    assert verdict(HANDED_OVER) == (0, 0, 0)


def test_an_unread_record_is_lost() -> None:
    """Written and never read: lost, whoever committed beyond it."""
    found = check_group(tell(HANDED_OVER), {"t-0": range(12), "t-1": range(1)})
    assert (found.read, found.lost) == (10, 3)
    assert found.faults == ("lost: t-0 10..11 (2)", "lost: t-1 0..0 (1)")


@pytest.mark.parametrize("end", ["killed", "lost t-0"])
def test_a_crash_repeats_what_was_not_committed(end: str) -> None:
    """Beyond the last commit of a killed member, or of one that lost the partition, records may repeat."""
    story = f"""
        a 1.0 assigned t-0
        a 2.0 read t-0 0 4
        a 3.0 committed t-0 3
        a 3.1 {end}
        b 3.5 assigned t-0
        b 4.0 read t-0 3 9
    """
    assert verdict(story) == (0, 0, 2)


def test_a_crash_excuses_nothing_below_the_commit() -> None:
    """A member that starts below a committed offset reads it twice by the group's fault."""
    story = """
        a 1.0 assigned t-0
        a 2.0 read t-0 0 4
        a 3.0 committed t-0 5
        a 3.1 killed
        a2 4.0 assigned t-0
        a2 5.0 read t-0 3 9
    """
    assert verdict(story) == (0, 2, 0)


def test_a_member_that_was_asked_repeats_nothing() -> None:
    """A handover without a crash has no excuse, also if nothing was committed."""
    story = """
        a 1.0 assigned t-0
        a 2.0 read t-0 0 4
        a 3.1 revoked t-0
        b 3.5 assigned t-0
        b 4.0 read t-0 0 9
    """
    assert verdict(story) == (0, 5, 0)


def test_two_owners_double() -> None:
    """Two members that own one partition at a time read it twice."""
    story = """
        a 1.0 assigned t-0
        b 1.5 assigned t-0
        a 2.0 read t-0 0 9
        b 2.0 read t-0 0 9
        a 9.0 killed
    """
    found = check_group(tell(story), {"t-0": range(10)})
    assert found == Verdict(10, 0, 10, 0, found.faults)
    assert found.faults == (f"doubled at 2.000: t-0 0..9 (10) by {B} after {A}, committed 0",)


def test_lines_of_a_client_library_are_skipped(tmp_path: Path) -> None:
    """Logs between the lines, and a line that a kill cut off, are no events; files are merged by time."""
    (tmp_path / "a.1").write_text("WARN no such thing\n5.0 read t-1-0 3 4\n6.0 comm")
    (tmp_path / "b.12").write_text("4.0 assigned\n7.0 closed\n")
    events = EventReader(tmp_path).read_events()
    assert [e.run for e in events] == [Run("b", 12), A, Run("b", 12)]
    assert events[1] == Event(5.0, A, "read", ("t-1-0",), 3, 4)


def test_moves_and_pauses_are_those_of_a_window() -> None:
    """A move changes the member; a pause lasts from an owner's last record to the next one's first."""
    story = """
        a 1.0 assigned t-0
        a 2.0 read t-0 0 4
        a 3.0 revoked t-0
        a 3.5 assigned t-0
        a 4.0 read t-0 5 6
        a 4.2 killed
        b 6.0 assigned t-0
        b 6.5 read t-0 7 9
    """
    events = tell(story)
    owned = list_ownerships(events)
    assert [(o.run, o.begin, o.end) for o in owned[:2]] == [(A, 1.0, 3.0), (A, 3.5, 4.2)]
    assert count_moves(owned, (0, 9)) == 1
    assert count_moves(owned, (0, 6)) == 0
    assert measure_pauses(events, owned, (0, 9)) == [2.0, 2.5]
    assert measure_pauses(events, owned, (0, 5)) == [2.0]


def test_balance_is_the_fullest_members_load() -> None:
    """Largest load ÷ mean of all members, with the moment's rates; the mean includes unowned partitions."""
    story = """
        a 1.0 assigned t-0 t-1
        a 2.0 revoked t-1
        b 2.5 assigned t-1
    """
    owned = list_ownerships(tell(story))
    curve = balance_curve(owned, 2, lambda at: {"t-0": 3.0, "t-1": 1.0 if at < 2.9 else 3.0}, (1.0, 3.0))
    assert curve == [(1.0, 2.0), (1.5, 2.0), (2.0, 1.5), (2.5, 1.5), (3.0, 1.0)]


def test_latency_is_that_of_the_first_reading() -> None:
    """Each read record counts once, from its production."""
    written = {"t-0": dict.fromkeys(range(20), 1.0)}
    latencies = measure_latencies(tell("a 2.0 read t-0 0 1\na 3.0 read t-0 1 2"), written)
    assert latencies == [1.0, 1.0, 2.0]
