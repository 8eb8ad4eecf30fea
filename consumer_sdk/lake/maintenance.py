"""Table care: small files become large ones, old versions and orphan files go, beside writers.

The work itself is the table format's own (Iceberg's `rewrite_data_files`, `expire_snapshots`,
`remove_orphan_files`; Delta's OPTIMIZE and VACUUM), in `care_iceberg` and `care_delta`. What the
sink's promise adds to it stands here:

1. *Marks are never written from memory.* Those that were read when a compaction began are old when
   it commits. So its commit has none; whoever asks finds those of the commit before it, and they
   are committed once more, fenced, as any writer would.
2. *A race is no failure.* What a writer has overtaken is tried again, at most `MAX_LOST_RACES` times, with
   jitter. Writers try theirs again by themselves.
3. *Young things stay.* Versions younger than an hour are kept, whatever is asked for: a commit of
   unknown outcome is looked up among them. Files that no version names are kept for a day at least:
   an attempt that is under way has staged them.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommitConflictError
from trimtab.consumer_sdk.lake.ports import LakeTable, StagedFiles, new_attempt_id
from trimtab.consumer_sdk.lake.retry import RetryBackoff

log = logging.getLogger("trimtab.lake")

T = TypeVar("T")

MAX_LOST_RACES: Final = 10
"""Times that one step may lose the race against writers."""

MAX_FILES_PER_ROUND: Final = 1000
"""Files that a round rewrites at most, where the format can be told: a lost race costs no more."""

SECONDS_PER_HOUR: Final = 3600.0
MIN_VERSION_AGE_S: Final = SECONDS_PER_HOUR
MIN_ORPHAN_AGE_S: Final = 24 * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class FileTotals:
    """So many files and bytes."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RewriteRound:
    """What one round of a compaction did."""

    old_files: FileTotals
    new_files: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did to a table; `lost_races`: how often a writer was faster."""

    table: str
    old_files: int = 0
    new_files: int = 0
    bytes: int = 0
    lost_races: int = 0


@dataclass(frozen=True, slots=True)
class ExpiryPolicy:
    """What may go: versions and orphan files older than so many seconds.

    `min_versions`: so many of the newest versions stay, however old they are; None: by age alone.
    """

    version_age_s: float
    orphan_age_s: float
    min_versions: int | None = None

    def check_ages(self) -> None:
        """Raise SettingError for ages that would take away what writers still need."""
        if self.version_age_s < MIN_VERSION_AGE_S:
            raise SettingError(
                "--older-than must be 1 h or more: a writer whose commit was not answered looks "
                "for it among the versions"
            )
        if self.orphan_age_s < MIN_ORPHAN_AGE_S:
            raise SettingError(
                "--orphans-older-than must be 1 d or more: files that a writer has staged are "
                "orphans until they are committed"
            )


@dataclass(frozen=True, slots=True)
class ExpiryResult:
    """What went: versions, files that only they named, files that none named (None: among them)."""

    table: str
    versions: int
    files: int
    orphans: int | None


class TableMaintenance(Protocol):
    """Takes care of the tables of one format.

    Every method raises CommitConflictError where a writer was faster, LakeUnavailableError and DiskFullError.
    """

    def plan_compaction(self, table: str, target: int | None) -> FileTotals:
        """Return what a compaction to files of `target` bytes (None: the table's) would rewrite."""
        ...

    def rewrite_small_files(self, table: str, target: int | None) -> RewriteRound:
        """Rewrite small files, at most `MAX_FILES_PER_ROUND` where the format can be told."""
        ...

    def preserve_offsets(self, table: str, since: float | None = None) -> None:
        """See to it that the marks stand in a version that no expiry takes away.

        `since`: in one that is younger than this time; None: in the newest one.
        """
        ...

    def expire_versions(self, table: str, policy: ExpiryPolicy, now: float) -> ExpiryResult:
        """Let old versions, their files, and orphan files go; `now` is seconds since the epoch."""
        ...


@dataclass(slots=True)
class RaceRetry:
    """Tries again what a writer has overtaken, and counts it."""

    backoff: RetryBackoff
    lost_races: int = 0

    def retry_on_race(self, what: str, step: Callable[[], T]) -> T:
        """Return the step's result. Raises CommitConflictError when it was overtaken `MAX_LOST_RACES` times."""
        for attempt in range(1, MAX_LOST_RACES + 1):
            try:
                return step()
            except CommitConflictError as error:
                self.lost_races += 1
                if attempt == MAX_LOST_RACES:
                    raise CommitConflictError(
                        f"{what}: writers were faster {MAX_LOST_RACES} times; nothing is harmed. Try again "
                        f"when they flush less often ({error})"
                    ) from error
                log.info(
                    "%s: a writer was faster, trying again (%d of %d)",
                    what,
                    attempt,
                    MAX_LOST_RACES,
                )
                self.backoff.wait_after_race(attempt)
        raise AssertionError("unreachable")


def compact_table(
    maintenance: TableMaintenance, table: str, target: int | None, backoff: RetryBackoff
) -> CompactionResult:
    """Rewrite a table's small files, round by round. Raises CommitConflictError, LakeUnavailableError."""
    races = RaceRetry(backoff)
    old = new = size = 0
    while True:
        done = races.retry_on_race(
            f"{table}: compaction", lambda: maintenance.rewrite_small_files(table, target)
        )
        old, new, size = (
            old + done.old_files.files,
            new + done.new_files,
            size + done.old_files.bytes,
        )
        if done.old_files.files < MAX_FILES_PER_ROUND or done.new_files >= done.old_files.files:
            break
    if old:
        races.retry_on_race(f"{table}: its offsets", lambda: maintenance.preserve_offsets(table))
    return CompactionResult(table, old, new, size, races.lost_races)


def expire_table(
    maintenance: TableMaintenance,
    table: str,
    policy: ExpiryPolicy,
    now: float,
    backoff: RetryBackoff,
) -> ExpiryResult:
    """Let what is old go; the marks of every partition stay.

    Raises CommitConflictError, LakeUnavailableError.
    """
    races = RaceRetry(backoff)
    since = now - policy.version_age_s
    races.retry_on_race(f"{table}: its offsets", lambda: maintenance.preserve_offsets(table, since))
    return races.retry_on_race(
        f"{table}: expiry", lambda: maintenance.expire_versions(table, policy, now)
    )


def require_table(table: T | None, name: str) -> T:
    """Return a table that was opened. Raises SettingError if there is none."""
    if table is None:
        raise SettingError(f"there is no table {name!r} in this lake")
    return table


def recommit_offsets(table: LakeTable) -> None:
    """Commit the marks that a table has once more. Raises CommitConflictError, CommittedOffsetsLostError."""
    seen = table.read_offsets()
    if seen.version:
        table.commit(StagedFiles(new_attempt_id()), seen.offsets, seen)
