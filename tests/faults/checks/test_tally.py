"""What a run's result counts, and which counts fail it."""

from collections import Counter
from dataclasses import replace

import pytest

from faults.run import Tally

CLEAN = Tally(faults=1, records=1)


@pytest.mark.parametrize("count", ["lost", "duplicated", "wrong", "double_owners", "anomalies", "stuck"])
def test_each_violation_fails_the_run(count: str) -> None:
    """One is enough, and the result has it under its name."""
    tally = replace(CLEAN, **{count: 1})
    assert (CLEAN.good, tally.good) == (True, False)
    assert tally.figures()[count] == 1


@pytest.mark.parametrize("count", ["withdrawn", "rewritten"])
def test_what_the_topic_itself_holds_is_told_and_fails_no_run(count: str) -> None:
    """A record that the broker withdrew, or that its producer wrote twice, is no fault of the consumers."""
    tally = replace(CLEAN, **{count: 3}, kinds=Counter(brokers=1))
    assert (CLEAN.figures()[count], tally.figures()[count], tally.good) == (0, 3, True)


def test_a_producer_that_lost_no_brokers_writes_nothing_twice() -> None:
    """Only the loss of two of three brokers explains a record that the topic holds again."""
    assert not replace(CLEAN, rewritten=1, kinds=Counter(broker=1)).good


def test_a_run_of_many_compactions_commits_one() -> None:
    """A run of a few may be over before one is done; the result tells how they ended."""
    tally = replace(CLEAN)
    tally.note_compactions(Counter(done=1, failed=1, killed=3), committed=0)
    assert tally.good
    tally.note_compactions(Counter(done=2, failed=1, killed=3), committed=0)
    assert not tally.good
    tally.note_compactions(Counter(done=3, failed=1, killed=3), committed=1)
    assert tally.good
    figures = {name: count for name, count in tally.figures().items() if name.startswith("compactions")}
    assert figures == {
        "compactions": 7,
        "compactions_failed": 1,
        "compactions_killed": 3,
        "compactions_committed": 1,
    }


@pytest.mark.parametrize("count", ["faults", "records"])
def test_a_run_of_nothing_is_no_success(count: str) -> None:
    """Without a fault or without a record nothing was tried."""
    assert not replace(CLEAN, **{count: 0}).good
