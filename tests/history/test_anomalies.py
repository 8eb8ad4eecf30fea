"""Each class of anomaly is found in a history that has exactly this one, and not in its good neighbour."""

from dataclasses import replace

import pytest

from history.anomalies import Anomaly, Kind, count_kinds, find_anomalies, longest_lag
from history.events import History, Outcome, Poll, Row, Start, Write

P = "orders-0"


def write(offset: int, outcome: Outcome = Outcome.COMMITTED, number: int | None = None) -> Write:
    return Write(P, offset if number is None else number, offset, outcome, float(offset))


def start(consumer: str, time: float, committed: int | None, offset: int | None = None) -> Start:
    return Start(consumer, 1, P, time, committed, offset)


def poll(consumer: str, time: float, *offsets: int, epoch: int = 1) -> Poll:
    return Poll(consumer, epoch, P, time, tuple((offset, offset) for offset in offsets))


def rows(*offsets: int) -> tuple[Row, ...]:
    return tuple(Row("lake.orders", P, offset, offset) for offset in offsets)


GOOD = History(
    writes=tuple(write(offset) for offset in range(6)),
    starts=(start("a", 0.0, None), start("b", 3.0, 2)),
    polls=(poll("a", 1.0, 0, 1), poll("a", 2.0, 2, 3), poll("b", 4.0, 2, 3, 4), poll("b", 5.0, 5)),
    rows=rows(*range(6)),
    tables=("lake.orders",),
)
"""Consumer a reads 0 to 3 and commits 2; b takes over there, and reads 2 and 3 again, which is legal."""


def test_a_good_history_has_no_anomaly() -> None:
    """At-least-once polls, and every record in the table once."""
    assert find_anomalies(GOOD) == []
    assert count_kinds([]) == dict.fromkeys((kind.value for kind in Kind), 0)


def with_aborted(*, read_committed: bool, handed_out: bool) -> History:
    offsets = (5, 6) if handed_out else (5,)
    writes = (*GOOD.writes, write(6, Outcome.ABORTED))
    polls = (*GOOD.polls[:3], poll("b", 5.0, *offsets))
    return replace(GOOD, writes=writes, polls=polls, read_committed=read_committed)


def without(offset: int, **changes: object) -> History:
    """Return the good history without the polls of a record."""
    kept = tuple(
        poll._replace(records=tuple(r for r in poll.records if r[0] != offset)) for poll in GOOD.polls
    )
    return replace(GOOD, polls=kept, **changes)


REWRITTEN = frozenset({(P, 6, 5)})
"""The topic holds record 5 once more at offset 6."""

BAD = {
    "a table has a record twice that the topic itself holds twice": (
        replace(GOOD, rows=(*GOOD.rows, *(2 * (Row("lake.orders", P, 6, 5),))), rewritten=REWRITTEN),
        Anomaly(Kind.DUPLICATE, "lake.orders", P, 6),
    ),
    "a table has one copy more than the topic": (
        replace(
            GOOD, rows=(*GOOD.rows, *(Row("lake.orders", P, at, 5) for at in (6, 7))), rewritten=REWRITTEN
        ),
        Anomaly(Kind.DUPLICATE, "lake.orders", P, 7),
    ),
    "a table has another record where the topic holds one again": (
        replace(GOOD, rows=(*GOOD.rows, Row("lake.orders", P, 6, 3)), rewritten=REWRITTEN),
        Anomaly(Kind.DUPLICATE, "lake.orders", P, 6),
    ),
    "consumers never had a record, but later ones": (without(4), Anomaly(Kind.LOST_WRITE, "consumers", P, 4)),
    "a table lacks a record below its last one": (
        replace(GOOD, rows=rows(0, 1, 2, 4, 5)),
        Anomaly(Kind.LOST_WRITE, "lake.orders", P, 3),
    ),
    "an offset was committed beyond what was read": (
        replace(
            GOOD,
            writes=(*GOOD.writes[:4], *(write(n) for n in (4, 5))),
            starts=(*GOOD.starts[:1], start("b", 3.0, 5)),
            polls=(*GOOD.polls[:2], GOOD.polls[3]),
        ),
        Anomaly(Kind.LOST_WRITE, "consumers", P, 4),
    ),
    "consumers never had the last record": (without(5), Anomaly(Kind.UNSEEN, "consumers", P, 5)),
    "a table ends early": (replace(GOOD, rows=rows(*range(5))), Anomaly(Kind.UNSEEN, "lake.orders", P, 5)),
    "a table has a record twice": (
        replace(GOOD, rows=rows(0, 1, 2, 3, 3, 4, 5)),
        Anomaly(Kind.DUPLICATE, "lake.orders", P, 3),
    ),
    "a producer wrote a record twice": (
        replace(GOOD, polls=(*GOOD.polls, Poll("b", 1, P, 6.0, ((6, 5),)))),
        Anomaly(Kind.DUPLICATE, "consumers", P, 6),
    ),
    "two consumers got different records at one offset": (
        replace(
            GOOD,
            writes=(*GOOD.writes, write(9, Outcome.INDETERMINATE)._replace(offset=None)),
            polls=(*GOOD.polls, Poll("c", 1, P, 6.0, ((3, 9),))),
        ),
        Anomaly(Kind.INCONSISTENT_OFFSETS, "consumers", P, 3),
    ),
    "a table has another record at an offset": (
        replace(GOOD, rows=(*rows(*range(6)), Row("lake.orders", P, 3, 77))),
        Anomaly(Kind.INCONSISTENT_OFFSETS, "lake.orders", P, 3),
    ),
    "a consumer passes over a record that another one has": (
        replace(GOOD, polls=(*GOOD.polls[:2], poll("b", 4.0, 2, 4), *GOOD.polls[3:])),
        Anomaly(Kind.POLL_SKIP, "b", P, 3),
    ),
    "a new owner begins behind the committed offset": (
        replace(
            GOOD,
            starts=(GOOD.starts[0], start("b", 3.0, 2, 3)),
            polls=(*GOOD.polls[:2], poll("b", 4.0, 3, 4, 5)),
        ),
        Anomaly(Kind.POLL_SKIP, "b", P, 2),
    ),
    "a consumer gets a record again without going back": (
        replace(GOOD, polls=(*GOOD.polls, poll("b", 6.0, 5))),
        Anomaly(Kind.NONMONOTONIC_POLL, "b", P, 5),
    ),
    "records of an answer descend": (
        replace(GOOD, polls=(*GOOD.polls[:3], poll("b", 5.0, 5, 4))),
        Anomaly(Kind.NONMONOTONIC_POLL, "b", P, 4),
    ),
    "a new owner begins before the committed offset": (
        replace(GOOD, polls=(*GOOD.polls[:2], poll("b", 4.0, 1, 2, 3, 4), GOOD.polls[3])),
        Anomaly(Kind.NONMONOTONIC_POLL, "b", P, 1),
    ),
    "the committed offset went back before a handover": (
        replace(
            GOOD,
            starts=(*GOOD.starts, start("c", 6.0, 1)),
            polls=(*GOOD.polls, poll("c", 7.0, 1, 2, 3, 4, 5)),
        ),
        Anomaly(Kind.NONMONOTONIC_POLL, "c", P, 1),
    ),
    "consumers were handed an aborted record": (
        with_aborted(read_committed=True, handed_out=True),
        Anomaly(Kind.ABORTED_READ, "consumers", P, 6),
    ),
    "a table has an aborted record": (
        replace(with_aborted(read_committed=True, handed_out=False), rows=rows(*range(7))),
        Anomaly(Kind.ABORTED_READ, "lake.orders", P, 6),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_history_has_exactly_its_anomaly(case: str) -> None:
    """One damage is reported once, under its class, reader and place."""
    history, anomaly = BAD[case]
    assert find_anomalies(history) == [anomaly]


def test_every_class_has_a_bad_history() -> None:
    """No class goes unproved."""
    assert {anomaly.kind for _, anomaly in BAD.values()} == set(Kind)


NEIGHBOURS = {
    "an owner goes back to the committed offset after a refused batch": replace(
        GOOD, starts=(*GOOD.starts, start("b", 6.0, 4)), polls=(*GOOD.polls, poll("b", 7.0, 4, 5))
    ),
    "an owner asks again for the record after its last one": replace(
        GOOD, starts=(*GOOD.starts, start("b", 4.5, 2, 5))
    ),
    "a frozen consumer logs a start after its successor's": replace(
        GOOD, starts=(*GOOD.starts, start("c", 6.0, 0))
    ),
    "retention deletes a record before anyone reads it": without(
        4, rows=rows(0, 1, 2, 3, 5), gaps={P: range(4, 5)}
    ),
    "retention deletes a record that only an earlier owner read": replace(
        GOOD,
        polls=(*GOOD.polls[:2], poll("b", 4.0, 4, 5)._replace(log_begin=4)),
        rows=rows(0, 1, 4, 5),
        gaps={P: range(2, 4)},
    ),
    "an aborted record is handed out to nobody": with_aborted(read_committed=True, handed_out=False),
    "readers of uncommitted records get an aborted one": with_aborted(read_committed=False, handed_out=True),
    "readers of uncommitted records need not get it": with_aborted(read_committed=False, handed_out=False),
    "an unanswered write happened": replace(
        GOOD, writes=(*GOOD.writes[:5], Write(P, 5, None, Outcome.INDETERMINATE))
    ),
    "an unanswered write did not happen": replace(
        GOOD, writes=(*GOOD.writes, Write(P, 6, None, Outcome.INDETERMINATE))
    ),
    "the topic itself holds a record twice": replace(
        GOOD,
        polls=(*GOOD.polls, Poll("b", 1, P, 6.0, ((6, 5),))),
        rows=(*GOOD.rows, Row("lake.orders", P, 6, 5)),
        rewritten=REWRITTEN,
    ),
    "the run ended before the last record was due": without(5, settled=False),
    "the log has holes": replace(
        GOOD,
        writes=tuple(write(2 * offset) for offset in range(6)),
        starts=(start("a", 0.0, None), start("b", 3.0, 3)),
        polls=(poll("a", 1.0, 0, 2, 4), poll("b", 4.0, 4, 6, 8, 10)),
        rows=rows(0, 2, 4, 6, 8, 10),
    ),
}


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_its_good_neighbour_has_none(case: str) -> None:
    """What looks like an anomaly and is legal is not reported."""
    assert find_anomalies(NEIGHBOURS[case]) == []


def test_the_lag_counts_to_the_first_poll() -> None:
    """The longest wait of a record: number 5 was acknowledged at 5.0 and polled at 9.5."""
    late = replace(GOOD, polls=(*GOOD.polls[:3], poll("b", 9.5, 5), poll("b", 20.0, 5, epoch=2)))
    assert longest_lag(late) == 4.5
