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

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, clip_gaps, merge_gaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

# selects the ranges of a log to compare; each yielded tuple is read at once
RangeSampler: TypeAlias = Callable[[OffsetGap], Iterator[tuple[OffsetGap, ...]]]
# called with the table, the number of compared offsets and their total
VerificationProgress: TypeAlias = Callable[[str, int, int], None]

MAX_FAULT_EXAMPLES: Final = 5  # per fault and partition
MAX_CLUSTER_DISTANCE: Final = 10_000  # offsets between holes of one read: a seek costs as much
MAX_READ_OFFSETS: Final = 200_000  # per read of the log, whose records are in memory


@dataclass(frozen=True, slots=True)
class PartitionRowStats:
    """A partition's rows in a table: count, distinct offsets, first and last offset."""

    rows: int
    distinct: int
    first: int
    last: int
    last_own: int  # without dead letters; -1 for none


class TableRows(Protocol):
    """Rows of one table and its dead letters, as of opening."""

    def read_partition_stats(self) -> dict[TopicPartition, PartitionRowStats]:
        """Return the statistics of every partition with rows."""
        ...

    def find_holes(self, where: TopicPartition) -> list[OffsetGap]:
        """Return the runs of missing offsets between two rows of a partition, ascending."""
        ...

    def count_surplus(self, where: TopicPartition, copies: int) -> tuple[int, list[int]]:
        """Return the number of rows beyond `copies` per offset, and example offsets."""
        ...

    def count_beyond(self, where: TopicPartition, offset: int) -> tuple[int, list[int]]:
        """Return the number of rows at or above an offset, without dead letters, and examples."""
        ...

    def read_rows(self, where: TopicPartition, ranges: Iterable[OffsetGap]) -> Records:
        """Return offset, and timestamp and key if the table has them, of rows in ranges."""
        ...

    def replayed_offsets(self, where: TopicPartition) -> set[int]:
        """Return the offsets whose records came back by a replay of dead letters."""
        ...


class TopicLog(Protocol):
    """Records of the broker."""

    def read_bounds(self, where: TopicPartition) -> OffsetGap | None:
        """Return the log start and end offset, None if the partition does not exist."""
        ...

    def read_records(self, where: TopicPartition, offsets: OffsetGap) -> Records:
        """Return offset, timestamp and key of the records in a range."""
        ...


@dataclass(frozen=True, slots=True)
class TableKind:
    """Applicable checks of a table (rule 5)."""

    name: str
    unchanged: bool = True  # each row is an unmodified record
    complete: bool = True  # each record has a row


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

    def add_fault(self, name: str, count: int, offsets: Sequence[int]) -> None:
        """Add occurrences of a fault."""
        setattr(self, name, getattr(self, name) + count)
        if offsets:
            known = self.examples.setdefault(name, [])
            known.extend(offsets[: MAX_FAULT_EXAMPLES - len(known)])


FAULT_ADVICE: Final[Mapping[str, str]] = {
    "duplicated": "more than one row of a record, not written by Trimtab (an INSERT, a restored "
    "table). Keep one row of each (topic, partition, offset)",
    "missing": "records on the broker without a row: deleted by hand, or replayed to another "
    "topic. Read them with another group.id into another table, and INSERT those",
    "beyond_committed": "rows that Trimtab has not written: it will write them again when it "
    "reaches their offsets. DELETE them, with the writers stopped",
    "beyond_end": "rows above the end of the topic, which was recreated or its log truncated. Give "
    "the new topic a table of its own",
    "different": "rows with another timestamp or key than the record: changed by hand, or the "
    "topic was recreated",
}
UNKNOWN_ADVICE: Final = (
    "offsets without a row that the broker no longer holds: compaction, transaction markers and "
    "losses look alike. Verify more often than retention deletes"
)


@dataclass(frozen=True, slots=True)
class TableVerification:
    """Result for one table."""

    table: str
    kind: str
    partitions: tuple[PartitionVerification, ...]
    notes: tuple[str, ...] = ()
    failed: bool = False  # not verified, for the reason in the notes

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
    """A table to verify."""

    name: str
    kind: TableKind
    rows: TableRows
    offsets: CommittedOffsets  # before the rows are read
    reread_offsets: Callable[[], CommittedOffsets]  # after it
    recorded_gaps: Callable[[TopicPartition], Iterable[OffsetGap]]


def sample_everything(size: int) -> RangeSampler:
    """Return a sampler of all offsets, `size` at once."""

    def sample(log: OffsetGap) -> Iterator[tuple[OffsetGap, ...]]:
        for first in range(log.first, log.next, size):
            yield (OffsetGap(first, min(first + size, log.next)),)

    return sample


def sample_windows(windows: int, width: int, random_below: Callable[[int], int]) -> RangeSampler:
    """Return a sampler of `windows` windows of `width` offsets, and one at the end."""

    def sample(log: OffsetGap) -> Iterator[tuple[OffsetGap, ...]]:
        if log.offset_count <= windows * width:
            yield (log,)
            return
        starts = [log.first + random_below(log.offset_count - width) for _ in range(windows)]
        yield merge_gaps([OffsetGap(start, start + width) for start in [*starts, log.next - width]])

    return sample


def verify_table(
    request: VerificationRequest,
    log: TopicLog | None,
    sampler: RangeSampler | None,
    report_progress: VerificationProgress,
) -> TableVerification:
    """Verify a table; `log` None skips the broker, `sampler` None the comparison of rows.

    Raises LakeUnavailableError, BrokerUnreachableError.
    """
    stats = request.rows.read_partition_stats()
    after = request.reread_offsets()
    known = {p for partitions in request.offsets.groups.values() for p in partitions}
    verifiers = [_PartitionVerifier(request, log, after, p, stats.get(p)) for p in sorted({*known, *stats})]
    for verifier in verifiers:
        verifier.check_bounds()
    if log is not None and sampler is not None and request.kind.unchanged:
        _compare_with_log(request.name, verifiers, log, sampler, report_progress)
    return TableVerification(request.name, request.kind.name, tuple(v.result for v in verifiers))


def _compare_with_log(
    name: str,
    verifiers: list["_PartitionVerifier"],
    log: TopicLog,
    sampler: RangeSampler,
    report_progress: VerificationProgress,
) -> None:
    work = [(verifier, ranges) for verifier in verifiers for ranges in verifier.plan_comparison(sampler)]
    total = sum(_count_offsets(ranges) for _, ranges in work)
    done = 0
    for verifier, ranges in work:
        report_progress(name, done, total)
        verifier.compare_ranges(log, ranges)
        done += _count_offsets(ranges)
    report_progress(name, total, total)


class _PartitionVerifier:
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
        self._copies = sum(where in partitions for partitions in request.offsets.groups.values())
        self._offset_before = _furthest_offset(request.offsets, where)
        self._offset_after = _furthest_offset(offsets_after, where)
        self._topic_log = log
        self._recorded_gaps = merge_gaps(request.recorded_gaps(where))
        self.result = PartitionVerification(*where, committed_offset=self._offset_after)
        self._missing_offsets: set[int] = set()

    def check_bounds(self) -> None:
        """Check the rows against the offsets and the ends of the log (rules 1 to 3)."""
        result = self.result
        stats = self._stats
        rows = self._request.rows
        kind = self._request.kind
        committed = self._offset_after or 0
        if self._log_range is not None:
            result.log_start, result.log_end = self._log_range
        if stats is None:
            # at least the record below the committed offset had a row: an empty range that ends there
            if kind.complete and (end := self._offset_before):
                self._check_holes(PartitionRowStats(0, 0, end - 1, end - 2, -1))
            return
        result.rows, result.first = stats.rows, stats.first
        if kind.unchanged and stats.rows > stats.distinct:
            result.add_fault("duplicated", *rows.count_surplus(self._where, max(1, self._copies)))
        if stats.last_own >= committed:
            result.add_fault("beyond_committed", *rows.count_beyond(self._where, committed))
        if self._log_range is not None and stats.last_own >= self._log_range.next:
            result.add_fault("beyond_end", *rows.count_beyond(self._where, self._log_range.next))
        if kind.complete:
            self._check_holes(stats)

    def plan_comparison(self, sampler: RangeSampler) -> Iterator[tuple[OffsetGap, ...]]:
        """Return the ranges of this partition to compare."""
        if self._stats is None or self._log_range is None:
            return iter(())
        # from the first row: a table may begin in the middle of a log
        first = max(self._log_range.first, self._stats.first)
        end = min(self._log_range.next, self._offset_before or 0)
        return sampler(OffsetGap(first, end)) if first < end else iter(())

    def compare_ranges(self, log: TopicLog, ranges: tuple[OffsetGap, ...]) -> None:
        """Compare rows with records (rules 2 and 4)."""
        rows = self._request.rows.read_rows(self._where, ranges)
        for offsets in ranges:
            records = log.read_records(self._where, offsets)
            self.result.compared += records.num_rows
            different = find_different_offsets(rows, records)
            self.result.add_fault("different", len(different), different)
            if self._request.kind.complete:
                stored, produced = (t.column("offset").to_numpy() for t in (rows, records))
                self._add_missing(np.setdiff1d(produced, stored).tolist())

    def _check_holes(self, stats: PartitionRowStats) -> None:
        end = self._offset_before or 0
        # counting first: the search for holes sorts all rows
        has_holes = stats.last - stats.first + 1 > stats.distinct
        holes = self._request.rows.find_holes(self._where) if has_holes else []
        holes += [OffsetGap(stats.last + 1, end)] if stats.last + 1 < end else []
        below = [OffsetGap(h.first, min(h.next, end)) for h in holes if h.first < end]
        self.result.recorded_gaps = _count_offsets(self._recorded_gaps)
        unexplained = subtract_gaps(below, self._recorded_gaps)
        in_log = () if self._log_range is None else clip_gaps(unexplained, self._log_range.first)
        self.result.unknown = _count_offsets(unexplained) - _count_offsets(in_log)
        self._look_up(in_log)

    def _look_up(self, holes: Sequence[OffsetGap]) -> None:
        """Count the holes in which the broker holds records as missing (rule 2)."""
        for cluster in cluster_gaps(holes, MAX_CLUSTER_DISTANCE, MAX_READ_OFFSETS):
            assert self._topic_log is not None  # without it no hole lies in the log
            offsets = OffsetGap(cluster[0].first, cluster[-1].next)
            records = self._topic_log.read_records(self._where, offsets)
            self._add_missing(select_inside(records.column("offset").to_numpy(), cluster))

    def _add_missing(self, offsets: Sequence[int]) -> None:
        # the lookup of holes and the comparison may find the same record
        known = self._missing_offsets | set(select_inside(np.array(offsets, np.int64), self._recorded_gaps))
        missing = [offset for offset in offsets if offset not in known]
        if missing:  # only then: replays are found by a scan of the headers
            replayed = self._request.rows.replayed_offsets(self._where)
            missing = [offset for offset in missing if offset not in replayed]
        self._missing_offsets.update(missing)
        self.result.add_fault("missing", len(missing), missing)


def _furthest_offset(offsets: CommittedOffsets, where: TopicPartition) -> int | None:
    """Return the highest next offset of all groups."""
    return max((group[where] for group in offsets.groups.values() if where in group), default=None)


def _count_offsets(gaps: Iterable[OffsetGap]) -> int:
    return sum(gap.offset_count for gap in gaps)


def subtract_gaps(gaps: Iterable[OffsetGap], taken: Sequence[OffsetGap]) -> tuple[OffsetGap, ...]:
    """Return the parts of gaps outside `taken`, which are ascending and disjoint."""
    rest: list[OffsetGap] = []
    for gap in gaps:
        first = gap.first
        for other in taken:
            if other.next > first and other.first < gap.next:
                if other.first > first:
                    rest.append(OffsetGap(first, other.first))
                first = max(first, other.next)
        if first < gap.next:
            rest.append(OffsetGap(first, gap.next))
    return tuple(rest)


def cluster_gaps(gaps: Iterable[OffsetGap], near: int, most: int) -> Iterator[list[OffsetGap]]:
    """Return ascending gaps in groups of at most `most` offsets, with at most `near` between two gaps."""
    group: list[OffsetGap] = []
    for gap in (piece for long in gaps for (piece,) in sample_everything(most)(long)):  # cuts long ones
        if group and (gap.first - group[-1].next > near or gap.next - group[0].first > most):
            yield group
            group = []
        group.append(gap)
    if group:
        yield group


def select_inside(offsets: NDArray[np.int64], gaps: Sequence[OffsetGap]) -> list[int]:
    """Return the offsets inside these gaps, which are ascending and disjoint."""
    if not gaps:
        return []
    bounds = np.array(gaps)
    place = np.searchsorted(bounds[:, 0], offsets, side="right") - 1
    inside: list[int] = offsets[(place >= 0) & (offsets < bounds[place, 1])].tolist()
    return inside


def find_different_offsets(rows: Records, records: Records) -> list[int]:
    """Return the offsets of rows whose timestamp or key differs from the record's."""
    both = rows.join(records, "offset", right_suffix=" produced", join_type="inner")
    offsets = both.column("offset").to_pylist()
    different = set[int]()
    for name in (name for name in ("timestamp", "key") if name in rows.column_names):
        stored, produced = (_to_values(both.column(c)) for c in (name, f"{name} produced"))
        different |= {o for o, a, b in zip(offsets, stored, produced, strict=True) if a != b}
    return sorted(different)


def _to_values(column: Any) -> list[Any]:
    # times as numbers: Python has none after the year 9999
    is_time = pa.types.is_timestamp(column.type)
    values: list[Any] = (column.cast(pa.int64()) if is_time else column).to_pylist()
    return values
