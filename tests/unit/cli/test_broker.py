"""The embedded broker's start on a machine that is too slow, without Java."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli.broker import broker_config, embedded_broker, start_progress
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.broker.start_progress import (
    BROKER_STALL_S,
    BROKER_START_TIMEOUT_S,
    StartEffort,
    StartProgress,
)
from trimtab.cli.errors import EmbeddedBrokerError

IDLE = "print('x' * 10_000, flush=True); import time; time.sleep(600)"
BUSY = "while True: pass"


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], EmbeddedBrokerError]:
    """Start a Python program in place of the broker; returns the error."""

    def start(program: str) -> EmbeddedBrokerError:
        commands = [[sys.executable, "-c", program]]
        monkeypatch.setattr(embedded_broker, "require_java", lambda: Path("java"))
        monkeypatch.setattr(embedded_broker, "fetch_jars", lambda *_, **__: ())
        monkeypatch.setattr(broker_config, "build_commands", lambda *_: commands)
        with pytest.raises(EmbeddedBrokerError) as caught:
            EmbeddedBroker().start()
        return caught.value

    return start


def test_a_start_lasts_while_it_progresses() -> None:
    """Each line of its log and each second of its processor time count, up to the longest start."""
    progress, now = StartProgress(0.0), 0.0
    efforts = [StartEffort(pid=1), StartEffort(1, 0, 80), StartEffort(1, 1, 80), StartEffort(2, 0, 80)]
    for effort in efforts:
        now += BROKER_STALL_S
        assert progress.explain_failure(now, effort) == ""
    assert progress.explain_failure(now + BROKER_STALL_S + 1, efforts[-1]) == "it made no progress for 60 s"
    late = progress.explain_failure(BROKER_START_TIMEOUT_S + 1, StartEffort(2, 9, 99))
    assert late == "it is not ready after 600 s"


def test_a_start_that_stalls_says_what_to_do(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text ends with the log, of which no line is longer than a screen."""
    monkeypatch.setattr(start_progress, "BROKER_STALL_S", 0.8)
    error = start(IDLE)
    first, *log = str(error).splitlines()
    assert "the broker did not start: it made no progress for 1 s; is the machine busy" in first
    assert first.endswith("run the command again; the end of its log:")
    assert log == ["x" * 200 + " …"]


def test_a_busy_start_goes_on(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that computes is starting: it is given the longest time."""
    monkeypatch.setattr(start_progress, "_TICKS_PER_S", 1)
    monkeypatch.setattr(start_progress, "BROKER_STALL_S", 1.0)
    monkeypatch.setattr(start_progress, "BROKER_START_TIMEOUT_S", 3.0)
    assert "it is not ready after 3 s" in str(start(BUSY))
