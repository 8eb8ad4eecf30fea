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
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetConflict, OffsetSpan, gaps_before
from trimtab.consumer_sdk.lake.ports import LakeTable, StagedFiles
from trimtab.consumer_sdk.lake.retry import FlushAbandonedError, RetryBackoff, log


@dataclass(frozen=True, slots=True)
class CommitSucceeded:
    """The rows and their marks are in the table."""

    lost_races: int = 0


@dataclass(frozen=True, slots=True)
class CommitFenced:
    """The table has other marks than the batch began from; nothing was added.

    `unanswered`: a try had no answer, so the table may name the attempt's files after all.
    """

    conflicts: tuple[OffsetConflict, ...]
    unanswered: bool = False


FencedCommitOutcome: TypeAlias = CommitSucceeded | CommitFenced


def commit_fenced(
    table: LakeTable,
    staged: StagedFiles,
    group: str,
    spans: Mapping[TopicPartition, OffsetSpan],
    backoff: RetryBackoff,
) -> FencedCommitOutcome:
    """Add a staged attempt to a table, or find that it may not be.

    Raises FlushAbandonedError when cancelled, `outcome_unknown` if a try had no answer: no later answer, a lost race
    neither, tells that it did not go through and will not.
    """
    return _FencedCommit(table, staged, group, spans, backoff).run()


@dataclass(slots=True)
class _FencedCommit:
    table: LakeTable
    staged: StagedFiles
    group: str
    spans: Mapping[TopicPartition, OffsetSpan]
    backoff: RetryBackoff
    lost_races: int = 0
    outages: int = 0
    unanswered: bool = False

    def run(self) -> FencedCommitOutcome:
        try:
            while True:
                self.backoff.raise_if_cancelled()
                answer = self._attempt_with_backoff()
                if answer is not None:
                    return answer
        except FlushAbandonedError as error:
            error.outcome_unknown = self.unanswered
            raise

    def _attempt_with_backoff(self) -> FencedCommitOutcome | None:
        try:
            return self._attempt_commit()
        except CommitConflictError:
            self.lost_races += 1
            self.backoff.wait_after_race(self.lost_races)
        except LakeUnavailableError as error:
            log.warning("%s: %s; asking the table again, nothing is lost", self.table.name, error)
            self.outages += 1
            self.backoff.wait_after_outage(self.outages)
        return None

    def _attempt_commit(self) -> FencedCommitOutcome:
        seen = self.table.read_offsets()
        clashes = seen.offsets.find_conflicts(self.group, self.spans)
        if clashes:
            landed = self.table.has_committed(self.staged.attempt)
            return (
                CommitSucceeded(self.lost_races)
                if landed
                else CommitFenced(clashes, self.unanswered)
            )
        new = gaps_before(self.spans)
        gaps = self.table.read_gaps().with_group_gaps(self.group, new) if new else None
        marks = seen.offsets.advanced_by(self.group, self.spans)
        try:
            self.table.commit(self.staged, marks, seen, gaps)
        except LakeUnavailableError:
            self.unanswered = True  # from here on, and for good
            raise
        return CommitSucceeded(self.lost_races)
