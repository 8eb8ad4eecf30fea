"""Fenced commits against a table with scripted failures."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake.commits.compaction_hold import HOLD_PROPERTY, format_hold, parse_hold
from trimtab.consumer_sdk.lake.commits.fenced_commit import (
    MAX_STAGED_AGE_S,
    CommitFenced,
    CommitSucceeded,
    FilesOutdated,
    commit_fenced,
)
from trimtab.consumer_sdk.lake.commits.maintenance import MIN_ORPHAN_AGE_S
from trimtab.consumer_sdk.lake.commits.retry import FlushAbandonedError, RetryBackoff
from trimtab.consumer_sdk.lake.model.interfaces import StagedChanges, StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.offsets.offset_gaps import MissingOffsets, OffsetGap, TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan

P, Q = TopicPartition("a", 0), TopicPartition("a", 1)
SPANS = {P: OffsetSpan(10, 10, 20)}


def NOW() -> float:  # noqa: N802 - a constant time
    return 0.0


@dataclass
class Table:
    """A table in memory; `script` has the outcome of each commit.

    "ok", "race", "lost answer" (committed), "away" (no answer yet), or "late": the commit that was
    away lands now, and this one loses the race against it; "landed race": committed, and a retry
    inside the catalog's client loses the race against itself.
    """

    script: list[str]
    offsets: CommittedOffsets = field(default_factory=lambda: CommittedOffsets({"g": {P: 10}}))
    attempts: list[str] = field(default_factory=list)
    after: Any = None
    pending: tuple[str, CommittedOffsets] | None = None
    gaps_recorded: TableGaps = field(default_factory=TableGaps)
    holds: list[str | None] = field(default_factory=list["str | None"])
    deleted: list[str] = field(default_factory=list[str])
    name: str = "lake.a"

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:  # noqa: ARG002 - never stale
        return VersionedOffsets(self.offsets, self.offsets.encode())

    def has_committed(self, attempt: str) -> bool:
        return attempt in self.attempts

    def stage_rows(self, frame: Any, attempt: str) -> StagedFiles:
        raise AssertionError("the fence stages nothing", frame, attempt)

    def delete_staged_files(self, staged: StagedFiles) -> None:
        self.deleted.append(staged.attempt)

    def read_gaps(self) -> TableGaps:
        return self.gaps_recorded

    def read_property(self, name: str) -> str | None:
        assert name == HOLD_PROPERTY
        return self.holds.pop(0)

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        assert expected.version == self.offsets.encode()
        step = self.script.pop(0)
        if step in ("ok", "lost answer", "landed race"):
            self.offsets = offsets
            self.gaps_recorded = gaps or self.gaps_recorded
            self.attempts.append(staged.attempt)
        if step == "away":
            self.pending = (staged.attempt, offsets)
        if step == "late":
            assert self.pending is not None
            attempt, self.offsets = self.pending
            self.attempts.append(attempt)
        if self.after is not None:
            self.after()
        if step in ("race", "late", "landed race"):
            raise CommitConflictError("raced")
        if step in ("lost answer", "away"):
            raise LakeUnavailableError("no answer")


class ImmediateBackoff(RetryBackoff):
    """Does not wait."""

    def wait_after_race(self, attempt: int) -> None:  # noqa: ARG002 - the interface
        self.raise_if_cancelled()

    def wait_after_outage(self, attempt: int) -> None:  # noqa: ARG002 - the interface
        self.raise_if_cancelled()


@pytest.fixture
def backoff() -> RetryBackoff:
    return ImmediateBackoff(random.Random(1), threading.Event())  # noqa: S311 - jitter


def test_lost_race_on_other_partitions_is_retried(backoff: RetryBackoff) -> None:
    """A retry after a lost race carries the other writer's offsets forward."""
    table = Table(["race", "ok"])

    def other() -> None:
        table.offsets = table.offsets.advanced_by("g", {Q: OffsetSpan(None, 0, 7)})
        table.after = None

    table.after = other
    assert commit_fenced(table, StagedFiles("x"), "g", SPANS, backoff, NOW) == CommitSucceeded(lost_races=1)
    assert table.offsets == CommittedOffsets({"g": {P: 20, Q: 7}})


def test_each_race_and_each_outage_waits_longer() -> None:
    """The waits are counted separately, from one."""
    waits: list[tuple[str, int]] = []

    class Counting(ImmediateBackoff):
        def wait_after_race(self, attempt: int) -> None:
            waits.append(("race", attempt))

        def wait_after_outage(self, attempt: int) -> None:
            waits.append(("outage", attempt))

    table = Table(["race", "away", "race", "away", "ok"])
    commit_fenced(table, StagedFiles("x"), "g", SPANS, Counting(random.Random(1)), NOW)  # noqa: S311 - jitter
    assert waits == [("race", 1), ("outage", 1), ("race", 2), ("outage", 2)]


def test_lost_race_on_the_same_partition_is_refused(backoff: RetryBackoff) -> None:
    """An unexpected offset refuses the commit."""
    table = Table(["race"])

    def other() -> None:
        table.offsets = CommittedOffsets({"g": {P: 15}})

    table.after = other
    outcome = commit_fenced(table, StagedFiles("x"), "g", SPANS, backoff, NOW)
    assert isinstance(outcome, CommitFenced)
    assert outcome.conflicts[0].actual == 15
    assert table.deleted == []  # the client may have repeated a request that was made
    assert table.attempts == []


def test_unanswered_commit_is_not_repeated(backoff: RetryBackoff) -> None:
    """After an unanswered try the table's history decides."""
    table = Table(["away", "lost answer"])
    assert commit_fenced(table, StagedFiles("x"), "g", SPANS, backoff, NOW) == CommitSucceeded()
    assert table.attempts == ["x"]


def test_unanswered_try_with_expired_history_keeps_its_files(backoff: RetryBackoff) -> None:
    """A committed try whose snapshot has expired is refused: the table references its files."""
    table = Table(["lost answer"])

    def expire() -> None:
        table.attempts.clear()
        table.after = None

    table.after = expire
    outcome = commit_fenced(table, StagedFiles("x"), "g", SPANS, backoff, NOW)
    assert isinstance(outcome, CommitFenced)
    assert table.deleted == []
    assert table.offsets == CommittedOffsets({"g": {P: 20}})


def test_late_commit_counts_as_committed(backoff: RetryBackoff) -> None:
    """An unanswered try that lands during the next one counts as committed."""
    table = Table(["away", "late"])
    assert commit_fenced(table, StagedFiles("x"), "g", SPANS, backoff, NOW) == CommitSucceeded(lost_races=1)
    assert table.attempts == ["x"]
    assert table.offsets == CommittedOffsets({"g": {P: 20}})


def test_cancel_after_unanswered_try_and_race_is_unknown(backoff: RetryBackoff) -> None:
    """After an unanswered try the outcome stays unknown, even after a lost race."""
    table = Table(["away", "late"])

    def cancel_at_the_race() -> None:
        if not table.script:
            backoff.cancelled.set()

    table.after = cancel_at_the_race
    with pytest.raises(FlushAbandonedError):
        commit_fenced(table, StagedFiles("x"), "g", SPANS, backoff, NOW)
    assert table.deleted == []


def test_cancel_after_a_race_against_itself_is_unknown(backoff: RetryBackoff) -> None:
    """A client that repeats a request may answer "raced" although the commit landed: the files stay."""
    table = Table(["landed race"], after=backoff.cancelled.set)
    with pytest.raises(FlushAbandonedError):
        commit_fenced(table, StagedFiles("x"), "g", SPANS, backoff, NOW)
    assert (table.attempts, table.deleted) == (["x"], [])


def test_a_race_against_itself_counts_as_committed(backoff: RetryBackoff) -> None:
    """The history has the attempt."""
    table = Table(["landed race"])
    assert commit_fenced(table, StagedFiles("x"), "g", SPANS, backoff, NOW) == CommitSucceeded(lost_races=1)


@pytest.mark.parametrize("answer", ["race", "away"])
def test_outdated_files_are_not_committed(backoff: RetryBackoff, answer: str) -> None:
    """After hours of retries, removal of orphan files may have deleted them."""
    staged = StagedFiles("x", ("file",), begun_at=100.0)
    times = iter([100.0 + MAX_STAGED_AGE_S, 101.0 + MAX_STAGED_AGE_S])
    table = Table([answer, "ok"])
    outcome = commit_fenced(table, staged, "g", SPANS, backoff, lambda: next(times))
    assert outcome == FilesOutdated()
    assert (table.script, table.deleted) == (["ok"], [])


def test_staged_files_outdate_long_before_they_may_be_deleted() -> None:
    """A commit call that begins in time has three quarters of the age to land."""
    assert MAX_STAGED_AGE_S * 4 <= MIN_ORPHAN_AGE_S


def test_gaps_are_added_once(backoff: RetryBackoff) -> None:
    """Gaps are added once, despite a lost race and a lost answer, and older ones stay."""
    table = Table(
        ["race", "lost answer"], gaps_recorded=TableGaps().with_group_gaps("h", {P: [OffsetGap(0, 3)]})
    )
    spans = {P: OffsetSpan(10, 14, 20, (OffsetGap(10, 14),)), Q: OffsetSpan(None, 0, 2)}
    assert commit_fenced(table, StagedFiles("x"), "g", spans, backoff, NOW) == CommitSucceeded(lost_races=1)
    assert table.gaps_recorded.groups == {
        "g": {P: MissingOffsets((OffsetGap(10, 14),))},
        "h": {P: MissingOffsets((OffsetGap(0, 3),))},
    }


def test_files_of_a_cancelled_commit_are_deleted_unless_it_was_tried(backoff: RetryBackoff) -> None:
    """An unanswered try may have landed, or land yet."""
    table = Table(["lost answer"], after=backoff.cancelled.set)
    for attempt in ("tried", "not tried"):
        with pytest.raises(FlushAbandonedError):
            commit_fenced(table, StagedFiles(attempt), "g", SPANS, backoff, NOW)
    assert table.deleted == ["not tried"]


@pytest.mark.parametrize(("script", "deleted"), [([], ["x"]), (["away"] * 2, [])], ids=["read", "commit"])
def test_an_outage_that_outlasts_the_patience_is_raised(script: list[str], deleted: list[str]) -> None:
    """The batch is written again later. Its files stay if a try may land yet."""
    waits: list[int] = []

    class CountingBackoff(ImmediateBackoff):
        def wait_after_outage(self, attempt: int) -> None:
            waits.append(attempt)
            super().wait_after_outage(attempt)

    rng = random.Random(1)  # noqa: S311 - jitter
    backoff = CountingBackoff(rng, patience_s=10.0, now=lambda: 10.0 * len(waits))
    table = Table([*script])

    def fail(**_: Any) -> VersionedOffsets:
        raise LakeUnavailableError("no answer")

    if not table.script:
        table.read_offsets = fail  # type: ignore[method-assign]
    with pytest.raises(LakeUnavailableError, match="no answer"):
        commit_fenced(table, StagedFiles("x"), "g", SPANS, backoff, NOW)
    assert (table.deleted, table.script) == (deleted, [])


def test_an_answered_try_renews_the_patience() -> None:
    """Of the tables that the batch is written to next."""
    backoff = ImmediateBackoff(random.Random(1), patience_s=10.0)  # noqa: S311 - jitter
    commit_fenced(Table(["away", "ok"]), StagedFiles("x"), "g", SPANS, backoff, NOW)
    assert backoff.failing_since is None


def test_changes_wait_while_a_compaction_holds_them_up(backoff: RetryBackoff) -> None:
    """They are committed once it has removed the property, and a lost race does not hold them up again."""
    table = Table(["race", "ok"], holds=["30.0", "30.0", None])
    outcome = commit_fenced(table, StagedChanges("x"), "g", SPANS, backoff, NOW)
    assert (outcome, table.holds) == (CommitSucceeded(lost_races=1), [])


def test_changes_that_lost_a_race_against_a_hold_wait_for_it(backoff: RetryBackoff) -> None:
    """Else they remove it at once, and a compaction among flushes without a pause loses every race."""
    table = Table(["race", "ok"], holds=[None, "30.0", None])
    outcome = commit_fenced(table, StagedChanges("x"), "g", SPANS, backoff, NOW)
    assert (outcome, table.holds) == (CommitSucceeded(lost_races=1), [])


def test_a_hold_is_looked_at_ever_less_often_and_the_table_with_it() -> None:
    """Other partitions' offsets that came meanwhile are carried forward; nothing waits after the hold."""
    table = Table(["ok"], holds=["30.0", "30.0", None])
    waits: list[int] = []

    class Counting(ImmediateBackoff):
        def wait_after_race(self, attempt: int) -> None:
            waits.append(attempt)
            table.offsets = table.offsets.advanced_by("g", {Q: OffsetSpan(None, 0, 7 * attempt)})

    commit_fenced(table, StagedChanges("x"), "g", SPANS, Counting(random.Random(1)), NOW)  # noqa: S311 - jitter
    assert waits == [1, 2]
    assert table.offsets == CommittedOffsets({"g": {P: 20, Q: 14}})


def test_a_hold_ends_by_the_writers_own_clock(backoff: RetryBackoff) -> None:
    """The compaction may have crashed."""
    table = Table(["ok"], holds=["30.0"] * 9)
    times = iter(range(0, 1000, 10))
    assert commit_fenced(table, StagedChanges("x"), "g", SPANS, backoff, lambda: float(next(times)))
    assert len(table.holds) == 9 - 3  # at 10 and 20 s it holds, at 30 s it is over


def test_a_batch_that_somebody_waits_for_is_not_held_up(backoff: RetryBackoff) -> None:
    """A handover takes no longer because of a compaction."""
    backoff.urgent.set()
    table = Table(["ok"], holds=["30.0"])
    assert commit_fenced(table, StagedChanges("x"), "g", SPANS, backoff, NOW) == CommitSucceeded()


def test_appended_rows_are_never_held_up(backoff: RetryBackoff) -> None:
    """They do not conflict with a compaction."""
    assert commit_fenced(Table(["ok"]), StagedFiles("x"), "g", SPANS, backoff, NOW) == CommitSucceeded()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, 0), ("12.5", 12.5), ("soon", 0), ("inf", 300), (format_hold(9e9), 300), (format_hold(7), 7)],
)
def test_a_hold_is_bounded(text: str | None, seconds: float) -> None:
    """Whatever a table's properties say."""
    assert parse_hold(text) == seconds
