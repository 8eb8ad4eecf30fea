"""Table maintenance: the rules that hold for every format."""

import logging
import random
from contextlib import nullcontext

import pytest

from trimtab.cli.main import main
from trimtab.cli.tables import maintenance
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake.commits import maintenance as table_maintenance
from trimtab.consumer_sdk.lake.commits.maintenance import (
    MAX_FILES_PER_ROUND,
    MAX_LOST_RACES,
    RACES_BEFORE_HOLD,
    CompactionResult,
    ExpiryPolicy,
    ExpiryResult,
    FileTotals,
    RewriteRound,
    compact_table,
)
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff

HOUR, DAY = 3600.0, 86_400.0


class FakeMaintenance:
    """Returns these rewrite rounds, after losing `races` races."""

    def __init__(self, *rounds: RewriteRound, races: int = 0) -> None:
        self.rounds = list(rounds)
        self.races = races
        self.lost = 0
        self.preserved = 0
        self.holds: list[float | None] = []

    def set_hold(self, _: object, seconds: float | None) -> None:
        self.holds.append(seconds)

    def plan_compaction(self, *_: object) -> FileTotals:
        return FileTotals()

    def rewrite_small_files(self, *_: object) -> RewriteRound:
        if self.lost < self.races:
            self.lost += 1
            raise CommitConflictError("another writer was faster")
        return self.rounds.pop(0)

    def preserve_offsets(self, *_: object) -> None:
        self.preserved += 1

    def expire_versions(self, *_: object) -> None:
        raise NotImplementedError


@pytest.fixture
def backoff(monkeypatch: pytest.MonkeyPatch) -> RetryBackoff:
    monkeypatch.setattr(RetryBackoff, "wait_after_race", lambda *_: None)
    return RetryBackoff(random.Random(7))  # noqa: S311 - jitter


def run(fake: FakeMaintenance, backoff: RetryBackoff) -> CompactionResult:
    return compact_table(fake, "lake.orders", None, backoff)  # type: ignore[arg-type]


def test_a_lost_race_is_retried_and_reported(backoff: RetryBackoff, caplog: pytest.LogCaptureFixture) -> None:
    """The log and the result report it, and the offsets are preserved in the end."""
    caplog.set_level(logging.INFO, "trimtab.lake")
    fake = FakeMaintenance(RewriteRound(FileTotals(7, 70), 1), races=2)
    assert run(fake, backoff) == CompactionResult("lake.orders", 7, 1, 70, lost_races=2)
    assert "a writer was faster, retrying (2 of 10)" in caplog.text
    assert fake.preserved == 1


def test_a_compaction_that_loses_races_holds_writers_up(backoff: RetryBackoff) -> None:
    """Each time for longer than the longest try so far, and in the end no more."""
    fake = FakeMaintenance(RewriteRound(FileTotals(7, 70), 1), races=4)
    times = iter([0.0, 3.0, 10.0, 15.0, 20.0, 24.0, 30.0, 34.0, 40.0])
    compact_table(fake, "lake.orders", None, backoff, lambda: next(times))  # type: ignore[arg-type]
    assert fake.holds == [15.0, 25.0, 45.0, None]


def test_a_compaction_that_wins_holds_nobody_up(backoff: RetryBackoff) -> None:
    """A single lost race is chance."""
    fake = FakeMaintenance(RewriteRound(FileTotals(7, 70), 1), races=RACES_BEFORE_HOLD - 1)
    run(fake, backoff)
    assert fake.holds == []


def test_a_compaction_that_fails_releases_the_writers(
    backoff: RetryBackoff, caplog: pytest.LogCaptureFixture
) -> None:
    """If even that fails, its own error is raised, and the writers wait for a limited time."""
    fake = FakeMaintenance(races=MAX_LOST_RACES)
    with pytest.raises(CommitConflictError, match="writers were faster"):
        run(fake, backoff)
    assert fake.holds[-1] is None
    fake = FakeMaintenance(RewriteRound(FileTotals(7, 70), 1), races=RACES_BEFORE_HOLD)

    def refuse(_: object, seconds: float | None) -> None:
        if seconds is None:
            raise LakeUnavailableError("the storage does not answer")

    fake.set_hold = refuse  # type: ignore[method-assign]
    assert run(fake, backoff).new_files == 1
    assert "wait for some time once more: the storage does not answer" in caplog.text


def test_lost_races_have_a_limit(backoff: RetryBackoff) -> None:
    """The error after the last one has a remedy."""
    fake = FakeMaintenance(RewriteRound(FileTotals(7, 70), 1), races=MAX_LOST_RACES)
    with pytest.raises(
        CommitConflictError, match=f"writers were faster {MAX_LOST_RACES} times; the table is intact"
    ):
        run(fake, backoff)


def test_a_large_table_is_compacted_in_rounds(backoff: RetryBackoff) -> None:
    """A full round is followed by another; a round that leaves as many files is the last."""
    full = FileTotals(MAX_FILES_PER_ROUND, 1000)
    fake = FakeMaintenance(RewriteRound(full, 5), RewriteRound(full, MAX_FILES_PER_ROUND))
    assert run(fake, backoff).old_files == 2 * MAX_FILES_PER_ROUND


def test_nothing_to_rewrite_creates_no_version(backoff: RetryBackoff) -> None:
    """A table without small files is left alone."""
    fake = FakeMaintenance(RewriteRound(FileTotals(), 0))
    assert run(fake, backoff) == CompactionResult("lake.orders")
    assert fake.preserved == 0


@pytest.mark.parametrize(
    ("ages", "text"),
    [
        (ExpiryPolicy(HOUR - 1, 3 * DAY), "--older-than must be 1 h or more"),
        (ExpiryPolicy(7 * DAY, DAY - 1), "--orphans-older-than must be 1 d or more"),
    ],
)
def test_ages_that_endanger_writers_are_refused(ages: ExpiryPolicy, text: str) -> None:
    """The error has the minimum age and its reason."""
    with pytest.raises(SettingError, match=text):
        ages.check_ages()
    ExpiryPolicy(HOUR, DAY).check_ages()


@pytest.mark.parametrize("command", ["compact", "expire"])
def test_a_table_that_fails_does_not_stop_the_others(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its error and the others' results are printed, and the exit code is 1."""

    def work(_: object, name: str, *__: object) -> CompactionResult | ExpiryResult:
        if name == "lake.bad":
            raise LakeUnavailableError("the storage does not answer")
        return CompactionResult(name, 7, 1) if command == "compact" else ExpiryResult(name, 7, 1, 1)

    monkeypatch.setattr(maintenance, "load_lake_settings", lambda *_: {})
    monkeypatch.setattr(maintenance, "open_lake_session", nullcontext)
    monkeypatch.setattr(maintenance, "create_maintenance", lambda _: None)
    monkeypatch.setattr(maintenance, "_select_written", lambda *_: ["lake.bad", "lake.good"])
    monkeypatch.setattr(table_maintenance, f"{command}_table", work)
    assert main(["tables", command]) == 1
    output = capsys.readouterr()
    assert "lake.bad: the storage does not answer" in output.err
    assert ("lake.good" in output.out, "lake.bad" in output.out) == (True, False)
