"""What a run's result counts, and which counts fail it."""

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
    tally = replace(CLEAN, **{count: 3})
    assert (CLEAN.figures()[count], tally.figures()[count], tally.good) == (0, 3, True)


@pytest.mark.parametrize("count", ["faults", "records"])
def test_a_run_of_nothing_is_no_success(count: str) -> None:
    """Without a fault or without a record nothing was tried."""
    assert not replace(CLEAN, **{count: 0}).good
