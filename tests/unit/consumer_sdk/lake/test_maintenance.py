"""Care of tables: the rules that hold for every format."""

import logging
import random
from contextlib import nullcontext

import pytest

from trimtab.cli.main import main
from trimtab.cli.tables import maintenance
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake import maintenance as care
from trimtab.consumer_sdk.lake.maintenance import (
    MAX_FILES_PER_ROUND,
    MAX_LOST_RACES,
    CompactionResult,
    ExpiryPolicy,
    ExpiryResult,
    FileTotals,
    RewriteRound,
    compact_table,
)
from trimtab.consumer_sdk.lake.retry import RetryBackoff

HOUR, DAY = 3600.0, 86_400.0


class FakeMaintenance:
    """Rewrites what it is told to, and loses so many races before each step."""

    def __init__(self, *rounds: RewriteRound, races: int = 0) -> None:
        self.rounds = list(rounds)
        self.races = races
        self.lost = 0
        self.marked = 0

    def plan_compaction(self, *_: object) -> FileTotals:
        return FileTotals()

    def rewrite_small_files(self, *_: object) -> RewriteRound:
        if self.lost < self.races:
            self.lost += 1
            raise CommitConflictError("somebody was faster")
        return self.rounds.pop(0)

    def preserve_offsets(self, *_: object) -> None:
        self.marked += 1

    def expire_versions(self, *_: object) -> None:
        raise NotImplementedError


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> RetryBackoff:
    monkeypatch.setattr(RetryBackoff, "wait_after_race", lambda *_: None)
    return RetryBackoff(random.Random(7))  # noqa: S311 - jitter


def run(keeper: FakeMaintenance, pace: RetryBackoff) -> CompactionResult:
    return compact_table(keeper, "lake.orders", None, pace)  # type: ignore[arg-type]


def test_a_lost_race_is_tried_again_and_told(pace: RetryBackoff, caplog: pytest.LogCaptureFixture) -> None:
    """The log and the result say so, and the marks are seen to in the end."""
    caplog.set_level(logging.INFO, "trimtab.lake")
    keeper = FakeMaintenance(RewriteRound(FileTotals(7, 70), 1), races=2)
    assert run(keeper, pace) == CompactionResult("lake.orders", 7, 1, 70, lost_races=2)
    assert "a writer was faster, retrying (2 of 10)" in caplog.text
    assert keeper.marked == 1


def test_races_are_not_run_for_ever(pace: RetryBackoff) -> None:
    """After so many the error says what to do."""
    keeper = FakeMaintenance(RewriteRound(FileTotals(7, 70), 1), races=MAX_LOST_RACES)
    with pytest.raises(
        CommitConflictError, match=f"writers were faster {MAX_LOST_RACES} times; the table is intact"
    ):
        run(keeper, pace)


def test_a_large_table_goes_round_by_round(pace: RetryBackoff) -> None:
    """A full round is followed by another one; one that leaves as many files is the last."""
    full = FileTotals(MAX_FILES_PER_ROUND, 1000)
    keeper = FakeMaintenance(RewriteRound(full, 5), RewriteRound(full, MAX_FILES_PER_ROUND))
    assert run(keeper, pace).old_files == 2 * MAX_FILES_PER_ROUND


def test_nothing_to_rewrite_makes_no_version(pace: RetryBackoff) -> None:
    """A table without small files is left alone."""
    keeper = FakeMaintenance(RewriteRound(FileTotals(), 0))
    assert run(keeper, pace) == CompactionResult("lake.orders")
    assert keeper.marked == 0


@pytest.mark.parametrize(
    ("ages", "told"),
    [
        (ExpiryPolicy(HOUR - 1, 3 * DAY), "--older-than must be 1 h or more"),
        (ExpiryPolicy(7 * DAY, DAY - 1), "--orphans-older-than must be 1 d or more"),
    ],
)
def test_what_writers_need_cannot_be_let_go(ages: ExpiryPolicy, told: str) -> None:
    """The error says what needs it."""
    with pytest.raises(SettingError, match=told):
        ages.check_ages()
    ExpiryPolicy(HOUR, DAY).check_ages()


@pytest.mark.parametrize("command", ["compact", "expire"])
def test_a_table_that_fails_does_not_stop_the_others(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its error is told, what was done to the others is printed, and the command ends with 1."""

    def work(_: object, name: str, *__: object) -> CompactionResult | ExpiryResult:
        if name == "lake.bad":
            raise LakeUnavailableError("the storage does not answer")
        return CompactionResult(name, 7, 1) if command == "compact" else ExpiryResult(name, 7, 1, 1)

    monkeypatch.setattr(maintenance, "load_lake_settings", lambda *_: {})
    monkeypatch.setattr(maintenance, "open_lake_session", nullcontext)
    monkeypatch.setattr(maintenance, "create_maintenance", lambda _: None)
    monkeypatch.setattr(maintenance, "_select_written", lambda *_: ["lake.bad", "lake.good"])
    monkeypatch.setattr(care, f"{command}_table", work)
    assert main(["tables", command]) == 1
    told = capsys.readouterr()
    assert "lake.bad: the storage does not answer" in told.err
    assert ("lake.good" in told.out, "lake.bad" in told.out) == (True, False)
