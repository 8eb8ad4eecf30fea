"""The fenced commit: look, check, commit, and decide by the marks whatever the answer was.

One loop serves every outcome. Before each try the table is read afresh. If a mark is not the
expected one, either the attempt is in the table's history, and an earlier try went through; or the
batch is refused (rule 1 of `progress`). Else the commit adds files and carries all marks forward. A
lost race against a writer of *other* partitions simply goes round again, with that writer's marks.

Only the history tells that a try went through, and it is asked whatever the answers were: a try
that was not answered may land during a later one, which then loses the race against it. An attempt
that landed has moved its own marks, so the history need not be asked where they are as expected.
The history may have been cut (an expiry that keeps one snapshot): then a try that was not answered
looks refused although it is in. The rows are safe, since the marks tell; the files must stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitRaced, LakeUnavailable
from trimtab.consumer_sdk.lake.offsets.table_offsets import Clash, Span, lost
from trimtab.consumer_sdk.lake.ports import LakeTable, Staged
from trimtab.consumer_sdk.lake.retry import Abandoned, Pace, log


@dataclass(frozen=True, slots=True)
class Added:
    """The rows and their marks are in the table."""

    raced: int = 0


@dataclass(frozen=True, slots=True)
class Fenced:
    """The table has other marks than the batch began from; nothing was added.

    `unanswered`: a try had no answer, so the table may name the attempt's files after all.
    """

    clashes: tuple[Clash, ...]
    unanswered: bool = False


Answer: TypeAlias = Added | Fenced


def commit_fenced(
    table: LakeTable, staged: Staged, group: str, spans: Mapping[TopicPartition, Span], pace: Pace
) -> Answer:
    """Add a staged attempt to a table, or find that it may not be.

    Raises Abandoned when cancelled, `unsure` if a try had no answer: no later answer, a lost race
    neither, tells that it did not go through and will not.
    """
    return _Commit(table, staged, group, spans, pace).run()


@dataclass(slots=True)
class _Commit:
    table: LakeTable
    staged: Staged
    group: str
    spans: Mapping[TopicPartition, Span]
    pace: Pace
    raced: int = 0
    away: int = 0
    unanswered: bool = False

    def run(self) -> Answer:
        try:
            while True:
                self.pace.check()
                answer = self._round()
                if answer is not None:
                    return answer
        except Abandoned as error:
            error.unsure = self.unanswered
            raise

    def _round(self) -> Answer | None:
        try:
            return self._try()
        except CommitRaced:
            self.raced += 1
            self.pace.race(self.raced)
        except LakeUnavailable as error:
            log.warning("%s: %s; asking the table again, nothing is lost", self.table.name, error)
            self.away += 1
            self.pace.away(self.away)
        return None

    def _try(self) -> Answer:
        seen = self.table.look()
        clashes = seen.marks.clashes(self.group, self.spans)
        if clashes:
            landed = self.table.landed(self.staged.attempt)
            return Added(self.raced) if landed else Fenced(clashes, self.unanswered)
        new = lost(self.spans)
        gaps = self.table.gaps().plus(self.group, new) if new else None
        marks = seen.marks.advanced(self.group, self.spans)
        try:
            self.table.commit(self.staged, marks, seen, gaps)
        except LakeUnavailable:
            self.unanswered = True  # from here on, and for good
            raise
        return Added(self.raced)
