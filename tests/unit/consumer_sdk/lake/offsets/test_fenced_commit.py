"""The fenced commit against a table that misbehaves on purpose."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake.offsets.fenced_commit import CommitFenced, CommitSucceeded, commit_fenced
from trimtab.consumer_sdk.lake.offsets.offset_gaps import MissingOffsets, OffsetGap, TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan
from trimtab.consumer_sdk.lake.ports import StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.retry import FlushAbandonedError, RetryBackoff

P, Q = TopicPartition("a", 0), TopicPartition("a", 1)
SPANS = {P: OffsetSpan(10, 10, 20)}


@dataclass
class Table:
    """A table in memory.

    `script` says what each commit does: "ok", "race", "lost answer", "away", or "late": the last
    commit that was away lands now, and this one loses the race against it.
    """

    script: list[str]
    marks: CommittedOffsets = field(default_factory=lambda: CommittedOffsets({"g": {P: 10}}))
    attempts: list[str] = field(default_factory=list)
    after: Any = None
    pending: tuple[str, CommittedOffsets] | None = None
    lacks: TableGaps = field(default_factory=TableGaps)
    name: str = "lake.a"

    def read_offsets(self) -> VersionedOffsets:
        return VersionedOffsets(self.marks, self.marks.encode())

    def has_committed(self, attempt: str) -> bool:
        return attempt in self.attempts

    def stage_rows(self, frame: Any, attempt: str) -> StagedFiles:
        raise AssertionError("the fence stages nothing", frame, attempt)

    def delete_staged_files(self, staged: StagedFiles) -> None:
        raise AssertionError("the fence deletes nothing", staged)

    def read_gaps(self) -> TableGaps:
        return self.lacks

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        assert expected.version == self.marks.encode()
        step = self.script.pop(0)
        if step in ("ok", "lost answer"):
            self.marks = offsets
            self.lacks = gaps or self.lacks
            self.attempts.append(staged.attempt)
        if step == "away":
            self.pending = (staged.attempt, offsets)
        if step == "late":
            assert self.pending is not None
            attempt, self.marks = self.pending
            self.attempts.append(attempt)
        if self.after is not None:
            self.after()
        if step in ("race", "late"):
            raise CommitConflictError("raced")
        if step in ("lost answer", "away"):
            raise LakeUnavailableError("no answer")


class Hasty(RetryBackoff):
    """Waits for nothing."""

    def wait_after_race(self, attempt: int) -> None:  # noqa: ARG002 - the interface
        self.raise_if_cancelled()

    def wait_after_outage(self, attempt: int) -> float:  # noqa: ARG002 - the interface
        self.raise_if_cancelled()
        return 0.0


@pytest.fixture
def pace() -> RetryBackoff:
    return Hasty(random.Random(1), threading.Event())  # noqa: S311 - jitter


def test_a_lost_race_on_other_partitions_is_run_again_with_their_marks(pace: RetryBackoff) -> None:
    """The other writer's marks are carried forward, and no row is lost."""
    table = Table(["race", "ok"])

    def other() -> None:
        table.marks = table.marks.advanced_by("g", {Q: OffsetSpan(None, 0, 7)})
        table.after = None

    table.after = other
    assert commit_fenced(table, StagedFiles("x"), "g", SPANS, pace) == CommitSucceeded(lost_races=1)
    assert table.marks == CommittedOffsets({"g": {P: 20, Q: 7}})


def test_a_lost_race_on_the_same_partition_is_refused(pace: RetryBackoff) -> None:
    """Whoever finds another mark adds nothing."""
    table = Table(["race"])

    def other() -> None:
        table.marks = CommittedOffsets({"g": {P: 15}})

    table.after = other
    answer = commit_fenced(table, StagedFiles("x"), "g", SPANS, pace)
    assert isinstance(answer, CommitFenced)
    assert answer.conflicts[0].actual == 15
    assert not answer.unanswered
    assert table.attempts == []


def test_a_commit_whose_answer_was_lost_is_not_made_twice(pace: RetryBackoff) -> None:
    """After an unknown outcome the table's history decides."""
    table = Table(["away", "lost answer"])
    assert commit_fenced(table, StagedFiles("x"), "g", SPANS, pace) == CommitSucceeded()
    assert table.attempts == ["x"]


def test_an_unanswered_try_whose_history_was_cut_keeps_its_files(pace: RetryBackoff) -> None:
    """It is in, and only an expired snapshot said so: whoever deletes its files deletes rows."""
    table = Table(["lost answer"])

    def expire() -> None:
        table.attempts.clear()
        table.after = None

    table.after = expire
    answer = commit_fenced(table, StagedFiles("x"), "g", SPANS, pace)
    assert isinstance(answer, CommitFenced)
    assert answer.unanswered
    assert table.marks == CommittedOffsets({"g": {P: 20}})


def test_away_lands_late_raced(pace: RetryBackoff) -> None:
    """A try that lands while the next one loses the race against it is no clash: it is in."""
    table = Table(["away", "late"])
    assert commit_fenced(table, StagedFiles("x"), "g", SPANS, pace) == CommitSucceeded(lost_races=1)
    assert table.attempts == ["x"]
    assert table.marks == CommittedOffsets({"g": {P: 20}})


def test_a_call_off_after_away_and_raced_is_unsure(pace: RetryBackoff) -> None:
    """A lost race says nothing about the try before it: the files must stay."""
    table = Table(["away", "late"])

    def call_off_at_the_race() -> None:
        if not table.script:
            pace.cancelled.set()

    table.after = call_off_at_the_race
    with pytest.raises(FlushAbandonedError) as caught:
        commit_fenced(table, StagedFiles("x"), "g", SPANS, pace)
    assert caught.value.outcome_unknown


def test_a_gap_goes_with_the_records_behind_it_and_once(pace: RetryBackoff) -> None:
    """A table that has gaps keeps them; a race in between, or a lost answer, doubles none."""
    table = Table(["race", "lost answer"], lacks=TableGaps().with_group_gaps("h", {P: [OffsetGap(0, 3)]}))
    spans = {P: OffsetSpan(10, 14, 20, (OffsetGap(10, 14),)), Q: OffsetSpan(None, 0, 2)}
    assert commit_fenced(table, StagedFiles("x"), "g", spans, pace) == CommitSucceeded(lost_races=1)
    assert table.lacks.groups == {
        "g": {P: MissingOffsets((OffsetGap(10, 14),))},
        "h": {P: MissingOffsets((OffsetGap(0, 3),))},
    }


def test_calling_off_tells_whether_the_outcome_is_known(pace: RetryBackoff) -> None:
    """Files may be deleted after a call-off only if no commit can have gone through."""
    table = Table(["lost answer"], after=pace.cancelled.set)
    with pytest.raises(FlushAbandonedError) as caught:
        commit_fenced(table, StagedFiles("x"), "g", SPANS, pace)
    assert caught.value.outcome_unknown
    with pytest.raises(FlushAbandonedError) as caught:
        commit_fenced(Table([]), StagedFiles("y"), "g", SPANS, pace)
    assert not caught.value.outcome_unknown
