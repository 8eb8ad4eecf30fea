"""Fenced commit: adds staged files if the table's offsets are the expected ones.

Each iteration:

1. Read the table's offsets; changes wait until a compaction that asked for it has ended
   (`compaction_hold`). If an offset is not as expected, the attempt is either in the
   table's history (an earlier try succeeded) or refused (`table_offsets`, rule 1).
2. Commit the files with all offsets carried forward; files as old as MAX_STAGED_AGE_S have to be
   staged again, since removal of orphan files may have deleted them.
3. Repeat after a lost race against a writer of other partitions, and after an outage, for as long as
   the batch is patient.

The history decides whether a try succeeded, whatever its answer was: an unanswered try may land
during a later one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError
from trimtab.consumer_sdk.lake.commits.compaction_hold import HOLD_PROPERTY, parse_hold
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff, log
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable, StagedChanges, StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetConflict, OffsetSpan, gaps_before

# A quarter of the least age of deleted orphan files (`maintenance`): time for a commit call to land.
MAX_STAGED_AGE_S: Final = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class CommitSucceeded:
    """The table has the rows and their offsets."""

    lost_races: int = 0


@dataclass(frozen=True, slots=True)
class CommitFenced:
    """Refused: the table has other offsets than expected."""

    conflicts: tuple[OffsetConflict, ...]


@dataclass(frozen=True, slots=True)
class FilesOutdated:
    """Nothing was committed: the files are too old."""


FencedCommitOutcome: TypeAlias = CommitSucceeded | CommitFenced | FilesOutdated


def commit_fenced(
    table: LakeTable,
    staged: StagedFiles,
    group: str,
    spans: Mapping[TopicPartition, OffsetSpan],
    backoff: RetryBackoff,
    now: Callable[[], float],
) -> FencedCommitOutcome:
    """Commit a staged attempt, or refuse it; `now` returns seconds of the clock of `staged.begun_at`.

    Files are deleted if no commit of them was tried. The others may be referenced; if they are not, they are
    orphans (`maintenance`). Raises FlushAbandonedError when cancelled, LakeUnavailableError when the patience
    has run out.
    """
    return _FencedCommit(table, staged, group, spans, backoff, now).run()


@dataclass(slots=True)
class _FencedCommit:
    table: LakeTable
    staged: StagedFiles
    group: str
    spans: Mapping[TopicPartition, OffsetSpan]
    backoff: RetryBackoff
    now: Callable[[], float]
    lost_races: int = 0
    outages: int = 0
    tried: bool = False
    hold_ended: bool = False  # one was met, and is over for this batch

    def run(self) -> FencedCommitOutcome:
        try:
            while True:
                self.backoff.raise_if_cancelled()
                try:
                    outcome = self._attempt()
                except CommitConflictError:
                    self.lost_races += 1
                    self.backoff.wait_after_race(self.lost_races)
                except LakeUnavailableError as error:
                    self.backoff.raise_if_overdue(error)
                    log.warning("%s: %s; checking the table again, no record is lost", self.table.name, error)
                    self.outages += 1
                    self.backoff.wait_after_outage(self.outages)
                else:
                    self.backoff.failing_since = None
                    if not isinstance(outcome, CommitSucceeded):
                        self._delete_untried_files()
                    return outcome
        except BaseException:
            self._delete_untried_files()
            raise

    def _delete_untried_files(self) -> None:
        # A try without an answer may have succeeded in a part of the history that expiry has cut: its
        # snapshot would reference the files. So may a lost race: a client that repeats a request may have
        # lost it against itself.
        if not self.tried:
            self.table.delete_staged_files(self.staged)

    def _attempt(self) -> FencedCommitOutcome:
        current = self._read_unheld() if isinstance(self.staged, StagedChanges) else self.table.read_offsets()
        conflicts = current.offsets.find_conflicts(self.group, self.spans)
        # a committed attempt has moved its own offsets: without conflicts, skip the history
        if conflicts:
            committed = self.table.has_committed(self.staged.attempt)
            return CommitSucceeded(self.lost_races) if committed else CommitFenced(conflicts)
        if self.staged.files and self.now() - self.staged.begun_at > MAX_STAGED_AGE_S:
            return FilesOutdated()
        new_gaps = gaps_before(self.spans)
        gaps = self.table.read_gaps().with_group_gaps(self.group, new_gaps) if new_gaps else None
        offsets = current.offsets.advanced_by(self.group, self.spans)
        self.tried = True
        self.table.commit(self.staged, offsets, current, gaps)
        return CommitSucceeded(self.lost_races)

    def _read_unheld(self) -> VersionedOffsets:
        """Return the table's offsets once no compaction holds changes up, or the hold is over."""
        current = self.table.read_offsets()
        begun_at, polls = self.now(), 0
        while not self.hold_ended:
            hold_s = parse_hold(self.table.read_property(HOLD_PROPERTY))
            if not hold_s and not polls:
                break  # the next try may meet one: Delta refuses this one if a hold is set meanwhile
            self.hold_ended = self.backoff.urgent.is_set() or not self.now() < begun_at + hold_s
            if not self.hold_ended:
                polls += 1
                self.backoff.wait_after_race(polls)
                current = self.table.read_offsets()
        return current
