"""What killed processes leave behind: the log of the transactional producer, and of what was handed out."""

from pathlib import Path

import pytest

from faults.handed_log import format_poll, format_start, read_logs
from faults.transactions import parse_log
from history.events import Outcome, Poll, Start

BEGUN = ["begin", "record 0 7", "acked 0 7 41 2.5", "record 1 8"]


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        ([], Outcome.ABORTED),  # killed before it could commit
        (["commit"], Outcome.INDETERMINATE),
        (["commit", "begin"], Outcome.INDETERMINATE),  # another process goes on
        (["commit", "done"], Outcome.COMMITTED),
        (["abort"], Outcome.ABORTED),
        (["abort", "done"], Outcome.ABORTED),
        (["commit", "abort", "done"], Outcome.ABORTED),  # the broker refused the commit
    ],
)
def test_the_last_step_of_a_transaction_decides_its_outcome(lines: list[str], outcome: Outcome) -> None:
    """A producer logs each step before it takes it."""
    writes = list(parse_log([*BEGUN, *lines]))
    assert [(w.partition, w.number, w.offset, w.time) for w in writes] == [
        ("0", 7, 41, 2.5),
        ("1", 8, None, 0.0),
    ]
    assert {w.outcome for w in writes} == {outcome}


def test_an_acknowledgement_may_lack_the_offset() -> None:
    """librdkafka does not know that of a record that a broker acknowledges as written before."""
    (write,) = parse_log(["record 0 7", "acked 0 7 None 2.5", "commit", "done"])
    assert (write.offset, write.outcome) == (None, Outcome.COMMITTED)


def test_a_transaction_ends_before_the_next() -> None:
    """Outcomes are each transaction's own."""
    lines = [*BEGUN, "commit", "done", "record 0 9", "abort", "done", "record 0 10", "commit", "done"]
    outcomes = [w.outcome for w in parse_log(lines)]
    assert outcomes == [Outcome.COMMITTED, Outcome.COMMITTED, Outcome.ABORTED, Outcome.COMMITTED]


def test_starts_and_polls_are_read_as_written(tmp_path: Path) -> None:
    """One topic's events of each process; half a line at the end is nothing."""
    start = Start("w-1.10", 2, "3", 1.5, None, 7)
    poll = Poll("w-1.10", 2, "3", 2.25, ((7, 100), (9, 101)))
    lines = [format_start("t", start), format_poll("t", poll), format_poll("u", poll), "poll t 3 2 2.5 10:1"]
    (tmp_path / "w-1.10").write_text("".join(lines))
    assert read_logs(tmp_path, "t") == ([start], [poll])
