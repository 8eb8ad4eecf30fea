"""Verifies a table's rows against its committed offsets and the broker, per partition.

Writers may run meanwhile, so the order is offsets, rows, offsets: no row may be missing below the
first offsets, none may exist at or above the second ones. Rules:

1. A record is identified by topic, partition and offset; a second row is *duplicated*. With several
   groups in a table, one row per group is allowed.
2. A *hole* is a run of offsets without rows below the committed offset. Dead letters count as rows;
   recorded gaps are no holes. A record of a hole that the broker holds is *missing*; if the broker
   has none either, the hole is the log's own (compaction, transaction markers). Offsets deleted by
   retention since are *unknown*, which is no fault.
3. A row at or above the committed offset is *beyond committed*: Trimtab did not write it. A row at
   or above the broker's end is *beyond the end*: the topic is not the one that was read.
4. A row with another timestamp or key than the record is *different*. Values are not compared.
5. A transform may drop, multiply and change rows, so derived tables are checked by rule 3 only. A
   dead-letter table cannot miss rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, clip_gaps, merge_gaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.ports import Records

RangeSampler: TypeAlias = Callable[[OffsetGap], Iterator[tuple[OffsetGap, ...]]]
"""Selects the ranges of a log to compare; each yielded tuple is read at once."""

VerificationProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with the table, the number of compared offsets and their total."""

MAX_FAULT_EXAMPLES: Final = 5
"""Limit per fault and partition."""

MAX_CLUSTER_DISTANCE: Final = 10_000
"""Holes within this distance are looked up by one read of the log: a seek costs as much."""

MAX_READ_OFFSETS: Final = 200_000
"""Limit of offsets per read of the log, whose records are held in memory."""


@dataclass(frozen=True, slots=True)
class PartitionRowStats:
    """A partition's rows in a table: count, distinct offsets, first and last offset.

    `last_own` is the last offset that is not a dead letter, -1 for none.
    """

    rows: int
    distinct: int
    first: int
    last: int
    last_own: int


class TableRows(Protocol):
    """Rows of one table and its dead letters, as of opening."""

    def read_partition_stats(self) -> dict[TopicPartition, PartitionRowStats]:
        """Return the statistics of every partition with rows."""
        ...

    def find_holes(self, where: TopicPartition) -> list[OffsetGap]:
        """Return the runs of offsets that lie between two rows of a partition, rising."""
        ...

    def count_surplus(self, where: TopicPartition, copies: int) -> tuple[int, list[int]]:
        """Return the number of rows beyond `copies` per offset, and example offsets."""
        ...

    def count_beyond(self, where: TopicPartition, offset: int) -> tuple[int, list[int]]:
        """Return the number of rows at or above an offset, without dead letters, and examples."""
        ...

    def read_rows(self, where: TopicPartition, ranges: Iterable[OffsetGap]) -> Records:
        """Return offset, and timestamp and key where the table has them, of rows in ranges."""
        ...

    def replayed_offsets(self, where: TopicPartition) -> set[int]:
        """Return the offsets that came again by a replay of dead letters."""
        ...


class TopicLog(Protocol):
    """The broker's side."""

    def read_bounds(self, where: TopicPartition) -> OffsetGap | None:
        """Return the log start and end offset, None if the partition does not exist."""
        ...

    def read_records(self, where: TopicPartition, offsets: OffsetGap) -> Records:
        """Return offset, timestamp and key of the records in a range."""
        ...


@dataclass(frozen=True, slots=True)
class TableKind:
    """Applicable checks of a table (rule 5).

    `unchanged`: each row is an unmodified record; `complete`: each record has a row.
    """

    name: str
    unchanged: bool = True
    complete: bool = True


TOPIC_TABLE: Final = TableKind("topic table")
DEAD_LETTER_TABLE: Final = TableKind("dead letters", complete=False)
DERIVED_TABLE: Final = TableKind("derived", unchanged=False, complete=False)


@dataclass(slots=True)
class PartitionVerification:
    """Result for one partition: counts of rows or offsets, and example offsets of faults."""

    topic: str
    partition: int
    rows: int = 0
    first: int | None = None
    committed_offset: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    duplicated: int = 0
    missing: int = 0
    beyond_committed: int = 0
    beyond_end: int = 0
    different: int = 0
    unknown: int = 0
    recorded_gaps: int = 0
    compared: int = 0
    examples: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the faults, as in `FAULT_ADVICE`."""
        return tuple(name for name in FAULT_ADVICE if getattr(self, name))

    def add_fault(self, sort: str, count: int, offsets: Sequence[int]) -> None:
        """Add occurrences of a fault."""
        setattr(self, sort, getattr(self, sort) + count)
        if offsets:
            known = self.examples.setdefault(sort, [])
            known.extend(offsets[: MAX_FAULT_EXAMPLES - len(known)])


FAULT_ADVICE: Final[Mapping[str, str]] = {
    "duplicated": "more than one row of a record, added by something else than Trimtab (an INSERT, "
    "a restored table). Keep one row of each (topic, partition, offset)",
    "missing": "records on the broker without a row: deleted by hand, or replayed to another "
    "topic. Read them with another group.id into another table, and INSERT those",
    "beyond_committed": "rows that Trimtab has not written: it will write them again when it "
    "reaches their offsets. DELETE them, with the writers stopped",
    "beyond_end": "rows above the end of the topic, which was deleted and created anew, or its log "
    "truncated. Give the new topic a table of its own",
    "different": "rows with another timestamp or key than the record: changed by hand, or the "
    "topic was created anew",
}
"""Meaning of each fault, and what to do."""

UNKNOWN_ADVICE: Final = (
    "offsets without a row that the broker no longer holds: compaction, transaction markers or a "
    "loss cannot be told apart. Verify more often than retention deletes"
)


@dataclass(frozen=True, slots=True)
class TableVerification:
    """Result for one table; `failed`: it could not be verified, and the notes say why."""

    table: str
    kind: str
    partitions: tuple[PartitionVerification, ...]
    notes: tuple[str, ...] = ()
    failed: bool = False

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the faults, in the order of `FAULT_ADVICE`."""
        return tuple(name for name in FAULT_ADVICE if any(name in p.faults for p in self.partitions))

    def is_bad(self, *, strict: bool) -> bool:
        """Return whether the table has faults; `strict` includes unknown offsets."""
        unknown = strict and any(p.unknown for p in self.partitions)
        return self.failed or bool(self.faults) or unknown


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """A table to verify: `offsets` before and `reread_offsets` after reading the rows.

    `recorded_gaps` returns the gaps that the table has recorded for a partition.
    """

    name: str
    kind: TableKind
    rows: TableRows
    offsets: CommittedOffsets
    reread_offsets: Callable[[], CommittedOffsets]
    recorded_gaps: Callable[[TopicPartition], Iterable[OffsetGap]]


def sample_everything(size: int) -> RangeSampler:
    """Compare everything, so many offsets at once."""

    def lots(log: OffsetGap) -> Iterator[tuple[OffsetGap, ...]]:
        for first in range(log.first, log.next, size):
            yield (OffsetGap(first, min(first + size, log.next)),)

    return lots


def sample_windows(windows: int, width: int, random_below: Callable[[int], int]) -> RangeSampler:
    """Compare so many windows of so many offsets; `random_below(n)` gives a number below n."""

    def lots(log: OffsetGap) -> Iterator[tuple[OffsetGap, ...]]:
        if log.offset_count <= windows * width:
            yield (log,)
            return
        starts = [log.first + random_below(log.offset_count - width) for _ in range(windows)]
        yield merge_gaps([OffsetGap(start, start + width) for start in [*starts, log.next - width]])

    return lots


def verify_table(
    request: VerificationRequest,
    log: TopicLog | None,
    sampler: RangeSampler | None,
    report_progress: VerificationProgress,
) -> TableVerification:
    """Verify a table; `log` None skips the broker, `sampler` None the comparison of rows.

    Raises LakeUnavailableError, BrokerUnreachableError.
    """
    facts = request.rows.read_partition_stats()
    after = request.reread_offsets()
    known = {p for partitions in request.offsets.groups.values() for p in partitions}
    found = [
        _PartitionVerifier(request, log, after, where, facts.get(where)) for where in sorted({*known, *facts})
    ]
    for judge in found:
        judge.check_bounds()
    if log is not None and sampler is not None and request.kind.unchanged:
        _compare_with_log(request.name, found, log, sampler, report_progress)
    return TableVerification(request.name, request.kind.name, tuple(judge.result for judge in found))


def _compare_with_log(
    name: str,
    verifiers: list["_PartitionVerifier"],
    log: TopicLog,
    sampler: RangeSampler,
    report_progress: VerificationProgress,
) -> None:
    work = [(judge, lot) for judge in verifiers for lot in judge.plan_comparison(sampler)]
    total, done = sum(gap.offset_count for _, lot in work for gap in lot), 0
    for judge, lot in work:
        report_progress(name, done, total)
        judge.compare_ranges(log, lot)
        done += sum(gap.offset_count for gap in lot)
    report_progress(name, total, total)


class _PartitionVerifier:
    """Judges one partition of a table."""

    def __init__(
        self,
        request: VerificationRequest,
        log: TopicLog | None,
        offsets_after: CommittedOffsets,
        where: TopicPartition,
        stats: PartitionRowStats | None,
    ) -> None:
        self._request = request
        self._where = where
        self._stats = stats
        self._log_range = log.read_bounds(where) if log is not None else None
        self._copies = sum(1 for marks in request.offsets.groups.values() if where in marks)
        self._offset_before = _furthest_offset(request.offsets, where)
        self._offset_after = _furthest_offset(offsets_after, where)
        self._topic_log = log
        self._recorded_gaps = merge_gaps(request.recorded_gaps(where))
        self.result = PartitionVerification(*where, committed_offset=self._offset_after)
        self._missing_offsets: set[int] = set()

    def check_bounds(self) -> None:
        """Judge by what the table itself says, and by the ends of the log (rules 1 to 3)."""
        seen, facts, rows = self.result, self._stats, self._request.rows
        if self._log_range is not None:
            seen.log_start, seen.log_end = self._log_range
        if facts is None:
            if self._request.kind.complete and self._offset_before:  # the record below the mark had a row
                self._check_holes(
                    PartitionRowStats(0, 0, self._offset_before - 1, self._offset_before - 2, -1)
                )
            return
        seen.rows, seen.first = facts.rows, facts.first
        if self._request.kind.unchanged and facts.rows > facts.distinct:
            seen.add_fault("duplicated", *rows.count_surplus(self._where, max(1, self._copies)))
        if facts.last_own >= (self._offset_after or 0):
            seen.add_fault("beyond_committed", *rows.count_beyond(self._where, self._offset_after or 0))
        if self._log_range is not None and facts.last_own >= self._log_range.next:
            seen.add_fault("beyond_end", *rows.count_beyond(self._where, self._log_range.next))
        if self._request.kind.complete:
            self._check_holes(facts)

    def plan_comparison(self, sampler: RangeSampler) -> Iterator[tuple[OffsetGap, ...]]:
        """Return what of this partition is to be compared."""
        if self._stats is None or self._log_range is None:
            return iter(())
        first = max(self._log_range.first, self._stats.first)
        following = min(self._log_range.next, self._offset_before or 0)
        return sampler(OffsetGap(first, following)) if first < following else iter(())

    def compare_ranges(self, log: TopicLog, ranges: tuple[OffsetGap, ...]) -> None:
        """Compare rows with records (rules 2 and 4)."""
        rows = self._request.rows.read_rows(self._where, ranges)
        for wanted in ranges:
            records = log.read_records(self._where, wanted)
            self.result.compared += records.num_rows
            different = find_different_offsets(rows, records)
            self.result.add_fault("different", len(different), different)
            if self._request.kind.complete:
                self._note_missing(find_absent_offsets(rows, records))

    def _check_holes(self, stats: PartitionRowStats) -> None:
        mark = self._offset_before or 0
        between = stats.last - stats.first + 1 > stats.distinct
        holes = self._request.rows.find_holes(self._where) if between else []
        holes += [OffsetGap(stats.last + 1, mark)] if stats.last + 1 < mark else []
        below = [OffsetGap(h.first, min(h.next, mark)) for h in holes if h.first < mark]
        self.result.recorded_gaps = _count_offsets(self._recorded_gaps)
        left = subtract_gaps(below, self._recorded_gaps)
        begin = None if self._log_range is None else self._log_range.first
        open_ = () if begin is None else clip_gaps(left, begin)
        self.result.unknown = _count_offsets(left) - _count_offsets(open_)
        self._look_up_holes(open_)

    def _look_up_holes(self, holes: Sequence[OffsetGap]) -> None:
        """Ask the broker whether it holds records where the table has none."""
        assert self._topic_log is not None or not holes
        for cluster in cluster_gaps(holes, MAX_CLUSTER_DISTANCE, MAX_READ_OFFSETS):
            if self._topic_log is None:
                return
            held = self._topic_log.read_records(self._where, OffsetGap(cluster[0].first, cluster[-1].next))
            self._note_missing(select_inside(held.column("offset").to_numpy(), cluster))

    def _note_missing(self, offsets: Sequence[int]) -> None:
        known = self._missing_offsets | set(select_inside(np.array(offsets, np.int64), self._recorded_gaps))
        fresh = [offset for offset in offsets if offset not in known]
        if fresh:
            again = self._request.rows.replayed_offsets(self._where)
            fresh = [offset for offset in fresh if offset not in again]
        self._missing_offsets.update(fresh)
        self.result.add_fault("missing", len(fresh), fresh)


def _furthest_offset(offsets: CommittedOffsets, where: TopicPartition) -> int | None:
    """Return how far a table holds a partition: the furthest of its groups."""
    found = [partitions[where] for partitions in offsets.groups.values() if where in partitions]
    return max(found, default=None)


def _count_offsets(gaps: Iterable[OffsetGap]) -> int:
    return sum(gap.offset_count for gap in gaps)


def subtract_gaps(gaps: Iterable[OffsetGap], taken: Sequence[OffsetGap]) -> tuple[OffsetGap, ...]:
    """Return what is left of gaps when others, rising and apart, are taken out."""
    left: list[OffsetGap] = []
    for gap in gaps:
        first = gap.first
        for other in taken:
            if other.next > first and other.first < gap.next:
                if other.first > first:
                    left.append(OffsetGap(first, other.first))
                first = max(first, other.next)
        if first < gap.next:
            left.append(OffsetGap(first, gap.next))
    return tuple(left)


def cluster_gaps(gaps: Iterable[OffsetGap], near: int, most: int) -> Iterator[list[OffsetGap]]:
    """Return rising gaps in groups that span `most` offsets at most; a longer gap is cut.

    The members of a group are at most `near` offsets apart.
    """
    group: list[OffsetGap] = []
    for gap in (piece for long in gaps for (piece,) in sample_everything(most)(long)):
        if group and (gap.first - group[-1].next > near or gap.next - group[0].first > most):
            yield group
            group = []
        group.append(gap)
    if group:
        yield group


def select_inside(offsets: NDArray[np.int64], gaps: Sequence[OffsetGap]) -> list[int]:
    """Return the offsets that lie in one of these gaps, which rise and are apart."""
    if not gaps:
        return []
    bounds = np.array(gaps)
    place = np.searchsorted(bounds[:, 0], offsets, side="right") - 1
    found: list[int] = offsets[(place >= 0) & (offsets < bounds[place, 1])].tolist()
    return found


def find_absent_offsets(rows: Records, records: Records) -> list[int]:
    """Return the offsets of records without a row."""
    held, wanted = (t.column("offset").to_numpy() for t in (rows, records))
    found: list[int] = np.setdiff1d(wanted, held).tolist()
    return found


def find_different_offsets(rows: Records, records: Records) -> list[int]:
    """Return the offsets of rows whose timestamp or key is not that of the record there."""
    both = rows.join(records, "offset", right_suffix=" wanted", join_type="inner")
    kept = [name for name in ("timestamp", "key") if name in rows.column_names]
    wrong: set[int] = set()
    for name in kept:
        found, wanted = (_comparable_values(both.column(c)) for c in (name, f"{name} wanted"))
        offsets = both.column("offset").to_pylist()
        wrong |= {o for o, a, b in zip(offsets, found, wanted, strict=True) if a != b}
    return sorted(wrong)


def _comparable_values(column: Any) -> list[Any]:
    """Return values that compare; times as numbers, since Python knows none after the year 9999."""
    times = pa.types.is_timestamp(column.type)
    found: list[Any] = (column.cast(pa.int64()) if times else column).to_pylist()
    return found
