"""What the sidecar's log says of its turns."""

import logging
from collections.abc import Callable

import pytest

from trimtab.sidecar.report import AGAIN, LogLines, Report
from trimtab.sidecar.verdict import Action, Numbers, Verdict


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[..., int]:
    """Report a turn; return how many lines an operator has seen so far."""
    lines = LogLines()

    def turn(time: float, reason: str, needed: float = 0.0) -> int:
        verdict = Verdict(Action.HOLD, (reason,), Numbers(needed=needed))
        with caplog.at_level(logging.DEBUG, "trimtab.sidecar"):
            lines(Report(time, verdict, {}, 1, reachable=True, decided_in=0, turned_in=0))
        return sum(record.levelno >= logging.INFO for record in caplog.records)

    return turn


def test_a_verdict_that_stands_is_said_once_a_minute(said: Callable[..., int]) -> None:
    """Its figures may change; a new reason is said at once, and a known one that comes back."""
    assert said(0.0, "2 is right") == 1
    assert said(10.0, "2 is right", needed=5.0) == 1
    assert said(20.0, "3 is right") == 2
    assert said(30.0, "2 is right") == 3
    assert said(29.9 + AGAIN, "2 is right") == 3
    assert said(30.0 + AGAIN, "2 is right") == 4
