"""Learns how often a group commits: what was read since the last commit is not waiting. No I/O.

1. A commit interval is the time between two growths of a partition's committed offset. It begins when records
   wait behind the first, so a partition without writes does not count as one that commits rarely.
2. The group's interval is the median of its partitions' last ones: one that is stuck does not change it.
3. Until one interval is complete, the group's is unknown: for at most `patience_s` seconds after the start, a
   change of all members' partitions, or the first commit seen.
4. A backlog of less than the interval, with a tolerance of a quarter, is not overdue; nor is one of less than
   `patience_s` while the interval is unknown. A longer `backlog-grace` takes precedence.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median_low
from typing import Final, NamedTuple

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.number_ranges import Figure
from trimtab.common.lag import compute_lag
from trimtab.sidecar.measurement.write_rate import OffsetReadings

INTERVAL_TOLERANCE: Final = 1.25  # the sidecar sees a commit up to one of its own iterations later
OBSERVED_INTERVALS: Final = 3  # that a window of commits must hold to show a rate


@dataclass(frozen=True, slots=True)
class CommitInterval:
    """A commit interval that is longer than `backlog-grace`, in seconds."""

    grace: Figure  # backlog younger than this is not overdue
    interval: Figure | None = None  # None: unknown so far

    def format_line(self) -> str:
        """Return what was learned and what follows, as one sentence."""
        effect = f"backlog younger than {self.grace:.0f} s is not overdue"
        if self.interval is None:
            return f"Commits: how often is not known yet; until two have been seen {effect}"
        return f"Commits: every {self.interval:.0f} s, as learned; {effect}"


class WaitingCommit(NamedTuple):
    """A committed offset, and since when records wait behind it (None: there are none)."""

    offset: int
    since: float | None
    is_seen: bool = False  # whether the commit itself was observed, so that an interval begins with it


@dataclass(frozen=True, slots=True)
class CommitIntervals:
    """Commits of the owned partitions; times are monotonic, in seconds."""

    patience_s: float
    started_at: float = inf  # when a partition with an owner was first observed
    waiting: Mapping[TopicPartition, WaitingCommit] = field(
        default_factory=dict[TopicPartition, WaitingCommit]
    )
    intervals: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])

    def add_readings(
        self, now: float, readings: OffsetReadings, owned: Iterable[TopicPartition]
    ) -> "CommitIntervals":
        """Return the intervals with those that have ended by these readings."""
        committed = readings.committed_offsets or {}
        known = [p for p in owned if p in committed and p in readings.end_offsets]
        if not known:
            return self  # nobody commits, or no broker answered
        waiting: dict[TopicPartition, WaitingCommit] = {}
        intervals = {p: self.intervals[p] for p in known if p in self.intervals}
        for p in known:
            last = self.waiting.get(p, WaitingCommit(committed[p], None))
            has_grown = committed[p] > last.offset
            if has_grown and last.is_seen:
                intervals[p] = 0.0 if last.since is None else now - last.since
            since = last.since if committed[p] == last.offset and last.since is not None else now
            has_lag = compute_lag(readings.end_offsets[p], committed[p], 0, from_beginning=True)
            waiting[p] = WaitingCommit(committed[p], since if has_lag else None, has_grown or last.is_seen)
        is_first = not _has_seen_commit(self.waiting) and _has_seen_commit(waiting)
        is_new = not self.waiting.keys() & waiting.keys()
        started_at = now if is_first or is_new else self.started_at
        return replace(self, started_at=started_at, waiting=waiting, intervals=intervals)

    def find_rare_commits(self, now: float, backlog_grace: float) -> CommitInterval | None:
        """Return the interval, and the grace that follows, if it is longer than `backlog_grace`."""
        if self.intervals:
            interval = median_low(self.intervals.values())
            if interval <= backlog_grace:
                return None
            return CommitInterval(INTERVAL_TOLERANCE * interval, interval)
        is_early = 0 <= now - self.started_at < self.patience_s
        has_lag = any(one.since is not None for one in self.waiting.values())
        if is_early and has_lag and self.patience_s > backlog_grace:
            return CommitInterval(self.patience_s)
        return None


def _has_seen_commit(waiting: Mapping[TopicPartition, WaitingCommit]) -> bool:
    return any(one.is_seen for one in waiting.values())


def extend_window(window: float, rare: CommitInterval | None) -> float:
    """Return the seconds over which commits show a rate; 0 if they are not measured."""
    if not window or rare is None or rare.interval is None:
        return window
    return max(window, OBSERVED_INTERVALS * rare.interval)
