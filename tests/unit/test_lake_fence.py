"""The fenced commit against a table that misbehaves on purpose."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitRaced, LakeUnavailable
from trimtab.consumer_sdk.lake.offsets.fenced_commit import Added, Fenced, commit_fenced
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gap, Gaps, Missing
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks, Span
from trimtab.consumer_sdk.lake.ports import Sight, Staged
from trimtab.consumer_sdk.lake.retry import Abandoned, Pace

P, Q = TopicPartition("a", 0), TopicPartition("a", 1)
SPANS = {P: Span(10, 10, 20)}


@dataclass
class Table:
    """A table in memory.

    `script` says what each commit does: "ok", "race", "lost answer", "away", or "late": the last
    commit that was away lands now, and this one loses the race against it.
    """

    script: list[str]
    marks: Marks = field(default_factory=lambda: Marks({"g": {P: 10}}))
    attempts: list[str] = field(default_factory=list)
    after: Any = None
    pending: tuple[str, Marks] | None = None
    lacks: Gaps = field(default_factory=Gaps)
    name: str = "lake.a"

    def look(self) -> Sight:
        return Sight(self.marks, self.marks.encode())

    def landed(self, attempt: str) -> bool:
        return attempt in self.attempts

    def stage(self, frame: Any, attempt: str) -> Staged:
        raise AssertionError("the fence stages nothing", frame, attempt)

    def discard(self, staged: Staged) -> None:
        raise AssertionError("the fence deletes nothing", staged)

    def gaps(self) -> Gaps:
        return self.lacks

    def commit(self, staged: Staged, marks: Marks, seen: Sight, gaps: Gaps | None = None) -> None:
        assert seen.version == self.marks.encode()
        step = self.script.pop(0)
        if step in ("ok", "lost answer"):
            self.marks = marks
            self.lacks = gaps or self.lacks
            self.attempts.append(staged.attempt)
        if step == "away":
            self.pending = (staged.attempt, marks)
        if step == "late":
            assert self.pending is not None
            attempt, self.marks = self.pending
            self.attempts.append(attempt)
        if self.after is not None:
            self.after()
        if step in ("race", "late"):
            raise CommitRaced("raced")
        if step in ("lost answer", "away"):
            raise LakeUnavailable("no answer")


class Hasty(Pace):
    """Waits for nothing."""

    def race(self, attempt: int) -> None:  # noqa: ARG002 - the interface
        self.check()

    def away(self, attempt: int) -> float:  # noqa: ARG002 - the interface
        self.check()
        return 0.0


@pytest.fixture
def pace() -> Pace:
    return Hasty(random.Random(1), threading.Event())  # noqa: S311 - jitter


def test_a_lost_race_on_other_partitions_is_run_again_with_their_marks(pace: Pace) -> None:
    """The other writer's marks are carried forward, and no row is lost."""
    table = Table(["race", "ok"])

    def other() -> None:
        table.marks = table.marks.advanced("g", {Q: Span(None, 0, 7)})
        table.after = None

    table.after = other
    assert commit_fenced(table, Staged("x"), "g", SPANS, pace) == Added(raced=1)
    assert table.marks == Marks({"g": {P: 20, Q: 7}})


def test_a_lost_race_on_the_same_partition_is_refused(pace: Pace) -> None:
    """Whoever finds another mark adds nothing."""
    table = Table(["race"])

    def other() -> None:
        table.marks = Marks({"g": {P: 15}})

    table.after = other
    answer = commit_fenced(table, Staged("x"), "g", SPANS, pace)
    assert isinstance(answer, Fenced)
    assert answer.clashes[0].found == 15
    assert not answer.unanswered
    assert table.attempts == []


def test_a_commit_whose_answer_was_lost_is_not_made_twice(pace: Pace) -> None:
    """After an unknown outcome the table's history decides."""
    table = Table(["away", "lost answer"])
    assert commit_fenced(table, Staged("x"), "g", SPANS, pace) == Added()
    assert table.attempts == ["x"]


def test_an_unanswered_try_whose_history_was_cut_keeps_its_files(pace: Pace) -> None:
    """It is in, and only an expired snapshot said so: whoever deletes its files deletes rows."""
    table = Table(["lost answer"])

    def expire() -> None:
        table.attempts.clear()
        table.after = None

    table.after = expire
    answer = commit_fenced(table, Staged("x"), "g", SPANS, pace)
    assert isinstance(answer, Fenced)
    assert answer.unanswered
    assert table.marks == Marks({"g": {P: 20}})


def test_away_lands_late_raced(pace: Pace) -> None:
    """A try that lands while the next one loses the race against it is no clash: it is in."""
    table = Table(["away", "late"])
    assert commit_fenced(table, Staged("x"), "g", SPANS, pace) == Added(raced=1)
    assert table.attempts == ["x"]
    assert table.marks == Marks({"g": {P: 20}})


def test_a_call_off_after_away_and_raced_is_unsure(pace: Pace) -> None:
    """A lost race says nothing about the try before it: the files must stay."""
    table = Table(["away", "late"])

    def call_off_at_the_race() -> None:
        if not table.script:
            pace.cancel.set()

    table.after = call_off_at_the_race
    with pytest.raises(Abandoned) as caught:
        commit_fenced(table, Staged("x"), "g", SPANS, pace)
    assert caught.value.unsure


def test_a_gap_goes_with_the_records_behind_it_and_once(pace: Pace) -> None:
    """A table that has gaps keeps them; a race in between, or a lost answer, doubles none."""
    table = Table(["race", "lost answer"], lacks=Gaps().plus("h", {P: [Gap(0, 3)]}))
    spans = {P: Span(10, 14, 20, (Gap(10, 14),)), Q: Span(None, 0, 2)}
    assert commit_fenced(table, Staged("x"), "g", spans, pace) == Added(raced=1)
    assert table.lacks.groups == {
        "g": {P: Missing((Gap(10, 14),))},
        "h": {P: Missing((Gap(0, 3),))},
    }


def test_calling_off_tells_whether_the_outcome_is_known(pace: Pace) -> None:
    """Files may be deleted after a call-off only if no commit can have gone through."""
    table = Table(["lost answer"], after=pace.cancel.set)
    with pytest.raises(Abandoned) as caught:
        commit_fenced(table, Staged("x"), "g", SPANS, pace)
    assert caught.value.unsure
    with pytest.raises(Abandoned) as caught:
        commit_fenced(Table([]), Staged("y"), "g", SPANS, pace)
    assert not caught.value.unsure
