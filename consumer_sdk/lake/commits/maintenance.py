"""Table maintenance beside running writers: compaction, expiry, removal of orphan files.

The formats do the work (Iceberg: `rewrite_data_files`, `expire_snapshots`, `remove_orphan_files`;
Delta: OPTIMIZE, VACUUM). Rules that keep the exactly-once promise:

1. *Offsets are never written from memory.* The offsets read when a compaction began are stale when
   it commits. Its commit carries none; readers take those of the commit before it, and they are
   committed again behind it, fenced like any write.
2. *A lost race is retried* with jitter, at most `MAX_LOST_RACES` times. Writers retry on their own.
   A compaction that lost RACES_BEFORE_HOLD races holds writers of changes up (`compaction_hold`).
3. *Young data stays.* Versions younger than an hour are kept: writers look up commits of unknown
   outcome in them. Orphan files are kept for a day: an attempt in progress has staged them.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError, TrimtabError
from trimtab.common.type_vars import ResultT
from trimtab.consumer_sdk.errors import CommitConflictError
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable, StagedFiles, new_attempt_id

log = logging.getLogger("trimtab.lake")

TableT = TypeVar("TableT")

MAX_LOST_RACES: Final = 10
RACES_BEFORE_HOLD: Final = 2
HOLD_MARGIN_S: Final = 5.0  # beyond twice the time of the longest lost try
MAX_FILES_PER_ROUND: Final = 1000  # bounds the cost of a lost race, if the format supports a limit
SECONDS_PER_HOUR: Final = 3600.0
MIN_VERSION_AGE_S: Final = SECONDS_PER_HOUR
MIN_ORPHAN_AGE_S: Final = 24 * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Number and total size of files."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RewriteRound:
    """Result of one round of a compaction."""

    old_files: FileTotals
    new_files: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Result of a compaction."""

    table: str
    old_files: int = 0
    new_files: int = 0
    bytes: int = 0
    lost_races: int = 0  # commits that a writer overtook


@dataclass(frozen=True, slots=True)
class ExpiryPolicy:
    """Minimum ages of expirable versions and orphan files."""

    version_age_s: float
    orphan_age_s: float
    min_versions: int | None = None  # kept at any age; None: age alone decides

    def check_ages(self) -> None:
        """Raise SettingError for ages that would delete data in use by writers (rule 3)."""
        if self.version_age_s < MIN_VERSION_AGE_S:
            raise SettingError(
                "--older-than must be 1 h or more: a writer looks up commits of unknown outcome "
                "among the versions"
            )
        if self.orphan_age_s < MIN_ORPHAN_AGE_S:
            raise SettingError(
                "--orphans-older-than must be 1 d or more: staged files are orphans until a "
                "writer commits them"
            )


@dataclass(frozen=True, slots=True)
class ExpiryResult:
    """Numbers of expired versions and deleted files."""

    table: str
    versions: int
    files: int
    orphans: int | None  # None: counted in `files`


class TableMaintenance(Protocol):
    """Maintenance of the tables of one format.

    Every method raises CommitConflictError if a writer was faster, and LakeUnavailableError.
    """

    def plan_compaction(self, table: str, target: int | None) -> FileTotals:
        """Return the files to rewrite for a target size in bytes (None: the table's setting)."""
        ...

    def rewrite_small_files(self, table: str, target: int | None) -> RewriteRound:
        """Rewrite small files, at most `MAX_FILES_PER_ROUND` if the format supports a limit."""
        ...

    def set_hold(self, table: str, seconds: float | None) -> None:
        """Ask writers of changes to wait for so long; None: no more (`compaction_hold`)."""
        ...

    def preserve_offsets(self, table: str, since: float | None = None) -> None:
        """Ensure that a version younger than `since` (None: the newest version) has the offsets."""
        ...

    def expire_versions(self, table: str, policy: ExpiryPolicy, now: float) -> ExpiryResult:
        """Delete old versions, their files, and orphan files; `now` is in seconds since 1970."""
        ...


@dataclass(slots=True)
class RaceRetry:
    """Retries steps that lost a race, and counts the races."""

    backoff: RetryBackoff
    lost_races: int = 0
    limit: int = MAX_LOST_RACES

    def retry_on_race(self, what: str, step: Callable[[], ResultT]) -> ResultT:
        """Return the step's result. Raises CommitConflictError after `limit` races."""
        for attempt in range(1, self.limit + 1):
            try:
                return step()
            except CommitConflictError as error:
                self.lost_races += 1
                if attempt == self.limit:
                    raise CommitConflictError(
                        f"{what}: writers were faster {self.limit} times; the table is intact. "
                        f"Try again when they flush less often ({error})"
                    ) from error
                log.info("%s: a writer was faster, retrying (%d of %d)", what, attempt, self.limit)
                self.backoff.wait_after_race(attempt)
        raise AssertionError("unreachable")


def compact_table(
    maintenance: TableMaintenance,
    table: str,
    target: int | None,
    backoff: RetryBackoff,
    now: Callable[[], float] = SystemClock.monotonic,
) -> CompactionResult:
    """Rewrite a table's small files in rounds. Raises CommitConflictError, LakeUnavailableError."""
    races = RaceRetry(backoff)
    compaction = _Compaction(maintenance, table, target, now)
    try:
        return _compact_in_rounds(compaction, races)
    finally:
        compaction.release_hold(backoff)


@dataclass(slots=True)
class _Compaction:
    maintenance: TableMaintenance
    table: str
    target: int | None
    now: Callable[[], float]
    lost: int = 0  # tries
    longest_s: float = 0.0  # of the lost tries

    def rewrite(self) -> RewriteRound:
        if self.lost >= RACES_BEFORE_HOLD:
            doubled = 2 ** (1 + self.lost - RACES_BEFORE_HOLD)
            self.maintenance.set_hold(self.table, doubled * self.longest_s + HOLD_MARGIN_S)
        begun_at = self.now()
        try:
            return self.maintenance.rewrite_small_files(self.table, self.target)
        except CommitConflictError:
            self.lost += 1
            self.longest_s = max(self.longest_s, self.now() - begun_at)
            raise

    def release_hold(self, backoff: RetryBackoff) -> None:
        """End the hold; failures are logged only, as writers wait for a limited time."""
        if self.lost < RACES_BEFORE_HOLD:
            return
        try:
            RaceRetry(backoff).retry_on_race(
                f"{self.table}: end of its hold", lambda: self.maintenance.set_hold(self.table, None)
            )
        except TrimtabError as error:
            log.warning("%s: writers of changes wait for some time once more: %s", self.table, error)


def _compact_in_rounds(compaction: _Compaction, races: RaceRetry) -> CompactionResult:
    table, maintenance = compaction.table, compaction.maintenance
    old = new = size = 0
    while True:
        done = races.retry_on_race(f"{table}: compaction", compaction.rewrite)
        replaced = done.old_files
        old += replaced.files
        new += done.new_files
        size += replaced.bytes
        # A full round that leaves as many files would repeat for ever.
        if replaced.files < MAX_FILES_PER_ROUND or done.new_files >= replaced.files:
            break
    if old:
        races.retry_on_race(f"{table}: its offsets", lambda: maintenance.preserve_offsets(table))
    return CompactionResult(table, old, new, size, races.lost_races)


def expire_table(
    maintenance: TableMaintenance, table: str, policy: ExpiryPolicy, now: float, backoff: RetryBackoff
) -> ExpiryResult:
    """Expire versions and orphans, not offsets. Raises CommitConflictError, LakeUnavailableError."""
    races = RaceRetry(backoff)
    since = now - policy.version_age_s
    races.retry_on_race(f"{table}: its offsets", lambda: maintenance.preserve_offsets(table, since))
    return races.retry_on_race(f"{table}: expiry", lambda: maintenance.expire_versions(table, policy, now))


def require_table(table: TableT | None, name: str) -> TableT:
    """Return an opened table. Raises SettingError for None."""
    if table is None:
        raise SettingError(f"there is no table {name!r} in this lake")
    return table


def recommit_offsets(table: LakeTable) -> None:
    """Commit a table's current offsets again. Raises CommitConflictError, CommittedOffsetsLostError."""
    current = table.read_offsets()
    if current.version:
        table.commit(StagedFiles(new_attempt_id()), current.offsets, current)
