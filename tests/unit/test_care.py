"""Care of tables: the rules that hold for every format."""

import logging
import random
from contextlib import nullcontext

import pytest

from trimtab.cli.main import main
from trimtab.cli.tables import maintenance
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommitRaced, LakeUnavailable
from trimtab.consumer_sdk.lake import maintenance as care
from trimtab.consumer_sdk.lake.maintenance import (
    FILES_AT_ONCE,
    TRIES,
    Ages,
    Compacted,
    Expired,
    Files,
    Rewritten,
    compact,
)
from trimtab.consumer_sdk.lake.retry import Pace

HOUR, DAY = 3600.0, 86_400.0


class FakeKeeper:
    """Rewrites what it is told to, and loses so many races before each step."""

    def __init__(self, *rounds: Rewritten, races: int = 0) -> None:
        self.rounds = list(rounds)
        self.races = races
        self.lost = 0
        self.marked = 0

    def small(self, *_: object) -> Files:
        return Files()

    def compact(self, *_: object) -> Rewritten:
        if self.lost < self.races:
            self.lost += 1
            raise CommitRaced("somebody was faster")
        return self.rounds.pop(0)

    def keep_marks(self, *_: object) -> None:
        self.marked += 1

    def expire(self, *_: object) -> None:
        raise NotImplementedError


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    monkeypatch.setattr(Pace, "race", lambda *_: None)
    return Pace(random.Random(7))  # noqa: S311 - jitter


def run(keeper: FakeKeeper, pace: Pace) -> Compacted:
    return compact(keeper, "lake.orders", None, pace)  # type: ignore[arg-type]


def test_a_lost_race_is_tried_again_and_told(pace: Pace, caplog: pytest.LogCaptureFixture) -> None:
    """The log and the result say so, and the marks are seen to in the end."""
    caplog.set_level(logging.INFO, "trimtab.lake")
    keeper = FakeKeeper(Rewritten(Files(7, 70), 1), races=2)
    assert run(keeper, pace) == Compacted("lake.orders", 7, 1, 70, raced=2)
    assert "a writer was faster, trying again (2 of 10)" in caplog.text
    assert keeper.marked == 1


def test_races_are_not_run_for_ever(pace: Pace) -> None:
    """After so many the error says what to do."""
    keeper = FakeKeeper(Rewritten(Files(7, 70), 1), races=TRIES)
    with pytest.raises(CommitRaced, match=f"writers were faster {TRIES} times; nothing is harmed"):
        run(keeper, pace)


def test_a_large_table_goes_round_by_round(pace: Pace) -> None:
    """A full round is followed by another one; one that leaves as many files is the last."""
    full = Files(FILES_AT_ONCE, 1000)
    keeper = FakeKeeper(Rewritten(full, 5), Rewritten(full, FILES_AT_ONCE))
    assert run(keeper, pace).old_files == 2 * FILES_AT_ONCE


def test_nothing_to_rewrite_makes_no_version(pace: Pace) -> None:
    """A table without small files is left alone."""
    keeper = FakeKeeper(Rewritten(Files(), 0))
    assert run(keeper, pace) == Compacted("lake.orders")
    assert keeper.marked == 0


@pytest.mark.parametrize(
    ("ages", "told"),
    [
        (Ages(HOUR - 1, 3 * DAY), "--older-than must be 1 h or more"),
        (Ages(7 * DAY, DAY - 1), "--orphans-older-than must be 1 d or more"),
    ],
)
def test_what_writers_need_cannot_be_let_go(ages: Ages, told: str) -> None:
    """The error says what needs it."""
    with pytest.raises(SettingError, match=told):
        ages.check()
    Ages(HOUR, DAY).check()


@pytest.mark.parametrize("command", ["compact", "expire"])
def test_a_table_that_fails_does_not_stop_the_others(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its error is told, what was done to the others is printed, and the command ends with 1."""

    def work(_: object, name: str, *__: object) -> Compacted | Expired:
        if name == "lake.bad":
            raise LakeUnavailable("the storage does not answer")
        return Compacted(name, 7, 1) if command == "compact" else Expired(name, 7, 1, 1)

    monkeypatch.setattr(maintenance, "settings", lambda *_: {})
    monkeypatch.setattr(maintenance, "opened", nullcontext)
    monkeypatch.setattr(maintenance, "_keeper", lambda _: None)
    monkeypatch.setattr(maintenance, "_meant", lambda *_: ["lake.bad", "lake.good"])
    monkeypatch.setattr(care, command, work)
    assert main(["tables", command]) == 1
    told = capsys.readouterr()
    assert "lake.bad: the storage does not answer" in told.err
    assert ("lake.good" in told.out, "lake.bad" in told.out) == (True, False)
