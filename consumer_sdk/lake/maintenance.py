"""Table care: small files become large ones, old versions and orphan files go, beside writers.

The work itself is the table format's own (Iceberg's `rewrite_data_files`, `expire_snapshots`,
`remove_orphan_files`; Delta's OPTIMIZE and VACUUM), in `care_iceberg` and `care_delta`. What the
sink's promise adds to it stands here:

1. *Marks are never written from memory.* Those that were read when a compaction began are old when
   it commits. So its commit has none; whoever asks finds those of the commit before it, and they
   are committed once more, fenced, as any writer would.
2. *A race is no failure.* What a writer has overtaken is tried again, at most `TRIES` times, with
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
from trimtab.consumer_sdk.errors import CommitRaced
from trimtab.consumer_sdk.lake.ports import LakeTable, Staged, new_attempt
from trimtab.consumer_sdk.lake.retry import Pace

log = logging.getLogger("trimtab.lake")

T = TypeVar("T")

TRIES: Final = 10
"""Times that one step may lose the race against writers."""

FILES_AT_ONCE: Final = 1000
"""Files that a round rewrites at most, where the format can be told: a lost race costs no more."""

HOUR: Final = 3600.0
LEAST_AGE: Final = HOUR
LEAST_ORPHAN_AGE: Final = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Files:
    """So many files and bytes."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What one round of a compaction did."""

    old: Files
    new_files: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did to a table; `raced`: how often a writer was faster."""

    table: str
    old_files: int = 0
    new_files: int = 0
    bytes: int = 0
    raced: int = 0


@dataclass(frozen=True, slots=True)
class Ages:
    """What may go: versions and orphan files older than so many seconds.

    `keep`: so many of the newest versions stay, however old they are; None: by age alone.
    """

    versions: float
    orphans: float
    keep: int | None = None

    def check(self) -> None:
        """Raise SettingError for ages that would take away what writers still need."""
        if self.versions < LEAST_AGE:
            raise SettingError(
                "--older-than must be 1 h or more: a writer whose commit was not answered looks "
                "for it among the versions"
            )
        if self.orphans < LEAST_ORPHAN_AGE:
            raise SettingError(
                "--orphans-older-than must be 1 d or more: files that a writer has staged are "
                "orphans until they are committed"
            )


@dataclass(frozen=True, slots=True)
class Expired:
    """What went: versions, files that only they named, files that none named (None: among them)."""

    table: str
    versions: int
    files: int
    orphans: int | None


class Keeper(Protocol):
    """Takes care of the tables of one format.

    Every method raises CommitRaced where a writer was faster, LakeUnavailable and DiskFull.
    """

    def small(self, table: str, target: int | None) -> Files:
        """Return what a compaction to files of `target` bytes (None: the table's) would rewrite."""
        ...

    def compact(self, table: str, target: int | None) -> Rewritten:
        """Rewrite small files, at most `FILES_AT_ONCE` where the format can be told."""
        ...

    def keep_marks(self, table: str, since: float | None = None) -> None:
        """See to it that the marks stand in a version that no expiry takes away.

        `since`: in one that is younger than this time; None: in the newest one.
        """
        ...

    def expire(self, table: str, ages: Ages, now: float) -> Expired:
        """Let old versions, their files, and orphan files go; `now` is seconds since the epoch."""
        ...


@dataclass(slots=True)
class Races:
    """Tries again what a writer has overtaken, and counts it."""

    pace: Pace
    lost: int = 0

    def outlast(self, what: str, step: Callable[[], T]) -> T:
        """Return the step's result. Raises CommitRaced when it was overtaken `TRIES` times."""
        for attempt in range(1, TRIES + 1):
            try:
                return step()
            except CommitRaced as error:
                self.lost += 1
                if attempt == TRIES:
                    raise CommitRaced(
                        f"{what}: writers were faster {TRIES} times; nothing is harmed. Try again "
                        f"when they flush less often ({error})"
                    ) from error
                log.info("%s: a writer was faster, trying again (%d of %d)", what, attempt, TRIES)
                self.pace.race(attempt)
        raise AssertionError("unreachable")


def compact(keeper: Keeper, table: str, target: int | None, pace: Pace) -> Compacted:
    """Rewrite a table's small files, round by round. Raises CommitRaced, LakeUnavailable."""
    races = Races(pace)
    old = new = size = 0
    while True:
        done = races.outlast(f"{table}: compaction", lambda: keeper.compact(table, target))
        old, new, size = old + done.old.files, new + done.new_files, size + done.old.bytes
        if done.old.files < FILES_AT_ONCE or done.new_files >= done.old.files:
            break
    if old:
        races.outlast(f"{table}: its offsets", lambda: keeper.keep_marks(table))
    return Compacted(table, old, new, size, races.lost)


def expire(keeper: Keeper, table: str, ages: Ages, now: float, pace: Pace) -> Expired:
    """Let what is old go; the marks of every partition stay.

    Raises CommitRaced, LakeUnavailable.
    """
    races = Races(pace)
    since = now - ages.versions
    races.outlast(f"{table}: its offsets", lambda: keeper.keep_marks(table, since))
    return races.outlast(f"{table}: expiry", lambda: keeper.expire(table, ages, now))


def existing(found: T | None, name: str) -> T:
    """Return a table that was opened. Raises SettingError if there is none."""
    if found is None:
        raise SettingError(f"there is no table {name!r} in this lake")
    return found


def carry(table: LakeTable) -> None:
    """Commit the marks that a table has once more. Raises CommitRaced, MarksLost."""
    seen = table.look()
    if seen.version:
        table.commit(Staged(new_attempt()), seen.marks, seen)
