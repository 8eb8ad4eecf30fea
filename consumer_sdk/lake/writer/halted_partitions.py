"""Partitions of a writer that are not read, and why (rule 6 of the writer).

1. A partition that is halted for itself is not read until its next assignment; no halt of its table has it.
2. A *halted* table is not read until its delay has passed: 5 s, which doubles with each further failure up to
   5 min, with jitter of up to a half. Then it is *tried*: read again from its own offsets. An outage ends
   by itself, and may be everybody's: its delay is at most 30 s.
3. A table that fails while it is tried is halted again. Its halt is over when it has the records that it
   failed at, or, if it failed before any, when it is tried without an error.
4. Partitions that are assigned meanwhile share the halt of their table. A table without any is forgotten.
5. The log says when a table is halted, when the reason changes, and when the halt is over. Reasons are
   compared without digits, since those of file names and offsets differ each time. What the log says is also
   committed as metadata of the group's offsets (`pop_news`), once there is an offset to commit.
"""

import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import TableWriteError
from trimtab.consumer_sdk.lake.commits.retry import backoff_seconds
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics

log = logging.getLogger("trimtab.lake")

RETRY_MIN_S: Final = 5.0
RETRY_MAX_S: Final = 300.0
OUTAGE_RETRY_MAX_S: Final = 30.0
_VARYING: Final = re.compile(r"[0-9a-f]*\d[0-9a-f]*")


@dataclass(slots=True)
class _TableHalt:
    error: TrimtabError
    partitions: set[TopicPartition]
    retry_at: float  # seconds of a monotonic clock; inf: it is tried
    failures: int = 0
    # of the records that it failed at
    ends: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


class HaltedPartitions:
    """Halted partitions with their errors; used by the application's thread only."""

    def __init__(self, metrics: LakeMetrics, rng: random.Random) -> None:
        self._metrics = metrics
        self._rng = rng
        self._errors: dict[TopicPartition, TrimtabError] = {}  # of partitions that are halted for themselves
        self._tables: dict[str, _TableHalt] = {}
        self._counted: Counter[str] = Counter()
        self._news: dict[TopicPartition, str] = {}
        self._first_unread: dict[TopicPartition, int] = {}  # of partitions without a position

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._errors or self.has_halted_table(partition)

    def has_halted_table(self, partition: TopicPartition) -> bool:
        """Return whether a partition is not read since its table is halted."""
        return any(partition in halt.partitions and halt.retry_at < inf for halt in self._tables.values())

    def list_tried(self) -> set[str]:
        """Return the tables that are tried."""
        return {table for table, halt in self._tables.items() if halt.retry_at == inf}

    def halt(self, partitions: Collection[TopicPartition], error: TrimtabError) -> None:
        """Add partitions that are halted for themselves, and log their error once."""
        if partitions:
            log.error("%s not read until assigned again: %s", format_partitions(partitions), error)
            self._leave_tables(partitions)
            self._errors.update(dict.fromkeys(partitions, error))
            self._news.update(dict.fromkeys(partitions, str(error)))
            self._export()

    def note_first_unread(self, partition: TopicPartition, offset: int | None) -> None:
        """Keep where the first record stands that is not read of a partition that is halted for itself."""
        if offset is not None and partition in self._errors:
            self._first_unread.setdefault(partition, offset)

    def halt_table(
        self,
        table: str,
        partitions: Collection[TopicPartition],
        error: TrimtabError,
        now: float,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Halt a table for an error with the records up to `ends`; `now` is a monotonic clock."""
        known = self._tables.get(table)
        halt = known or self._tables.setdefault(table, _TableHalt(error, set(), now))
        longest = OUTAGE_RETRY_MAX_S if error.retryable else RETRY_MAX_S
        delay = backoff_seconds(RETRY_MIN_S, longest, halt.failures, self._rng)
        if known is None or _describe_reason(error) != _describe_reason(known.error):
            _log_halt(table, error, delay, is_first=known is None)
            self._news.update(dict.fromkeys((*halt.partitions, *partitions), str(error)))
        halt.error, halt.retry_at, halt.failures = error, now + delay, halt.failures + 1
        halt.partitions.update(partitions)
        halt.ends.update((p, max(end, halt.ends.get(p, end))) for p, end in (ends or {}).items())
        self._export()

    def join_table(self, table: str, partitions: Collection[TopicPartition]) -> None:
        """Let partitions share the halt of their table, if it has one."""
        if table in self._tables:
            halt = self._tables[table]
            halt.partitions.update(partitions)
            self._news.update(dict.fromkeys(partitions, str(halt.error)))
            self._export()

    def begin_trials(self, now: float) -> dict[str, frozenset[TopicPartition]]:
        """Return the tables whose delay has passed, with their partitions: they are tried from now on."""
        due = {table: halt for table, halt in self._tables.items() if halt.retry_at <= now}
        for halt in due.values():
            halt.retry_at = inf
        return {table: frozenset(halt.partitions) for table, halt in due.items()}

    def end_trial(self, table: str, committed: Mapping[TopicPartition, int]) -> None:
        """End a table's halt if it is tried and these offsets are behind the records that it failed at."""
        halt = self._tables.get(table)
        if halt is None or halt.retry_at < inf:
            return
        halt.ends = {p: end for p, end in halt.ends.items() if committed.get(p, 0) < end}
        if not halt.ends:
            del self._tables[table]
            self._news.update(dict.fromkeys(halt.partitions, ""))
            log.info("%s resumed: it is written again from where it stopped", table)
            self._metrics.set_table_halted(table, halted=False)
            self._export()

    def discard(self, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions that are assigned again or no longer owned."""
        for partition in partitions:
            self._errors.pop(partition, None)
            self._news.pop(partition, None)
            self._first_unread.pop(partition, None)
        self._leave_tables(partitions)
        self._export()

    def pop_news(
        self, find_offset: Callable[[TopicPartition], int | None]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Return once why partitions were halted, "" if they are read again, and offsets to commit with it.

        News of a partition without an offset wait for one.
        """
        found = {p: find_offset(p) for p in self._news}
        known = {p: self._first_unread.get(p) if offset is None else offset for p, offset in found.items()}
        offsets = {p: offset for p, offset in known.items() if offset is not None}
        return offsets, {p: self._news.pop(p) for p in offsets}

    def raise_first_error(self) -> None:
        """Raise the error of the first partition; return if none is halted."""
        if errors := self._list_errors():
            raise errors[min(errors)].with_traceback(None)

    def _leave_tables(self, partitions: Collection[TopicPartition]) -> None:
        for halt in self._tables.values():
            halt.partitions.difference_update(partitions)
            halt.ends = {p: end for p, end in halt.ends.items() if p in halt.partitions}
        for table in [table for table, halt in self._tables.items() if not halt.partitions]:
            del self._tables[table]
            self._metrics.set_table_halted(table, halted=False)

    def _list_errors(self) -> dict[TopicPartition, TrimtabError]:
        return {p: halt.error for halt in self._tables.values() for p in halt.partitions} | self._errors

    def _export(self) -> None:
        counts = Counter(partition.topic for partition in self._list_errors())
        for topic in self._counted.keys() | counts.keys():
            self._metrics.set_halted(topic, counts[topic])
        self._counted = counts
        for table in self._tables:
            self._metrics.set_table_halted(table, halted=True)


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of the partitions, sorted."""
    return ", ".join(map(str, sorted(partitions)))


def _describe_reason(error: TrimtabError) -> str:
    return f"{type(error).__name__} {_VARYING.sub('', str(error))}"


def _log_halt(table: str, error: TrimtabError, delay: float, *, is_first: bool) -> None:
    state = "halted, which touches no other table" if is_first else "still halted, for another reason"
    # the code that raised it is known unless nobody expected the error
    details = error if isinstance(error, TableWriteError) else None
    log.error("%s %s: %s; tried again in %.0f s", table, state, error, delay, exc_info=details)
