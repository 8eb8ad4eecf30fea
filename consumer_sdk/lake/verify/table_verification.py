"""Is a table sound? Row by row, against its own marks and against the broker.

Everything is judged by partition of a topic, and of a table that may be written meanwhile. So the
order is: marks, rows, marks again. Below the first marks nothing may be missing, at or above the
second ones nothing may be: a writer that goes on in between moves neither bound the wrong way. The
rules:

1. A record is known by topic, partition and offset. Twice is *duplicated*. With several groups in
   one table each brings every record, and only more than that is too many.
2. A *hole* is a run of offsets below the mark that has no row, between two rows or before the mark.
   Dead letters count as rows. Recorded gaps (`gaps`) are no holes. What the broker still holds of
   the rest is *missing*; what it does not hold either is the log's own (compaction, markers of
   transactions). What retention has deleted since nobody can tell: it is *unknown*, no fault.
3. A row at or above the mark is *beyond the mark*: the sink did not write it. One at or above the
   broker's end is *beyond the end*: the topic is not the one that was read.
4. A row whose timestamp or key is not the record's is *different*. Values are not compared.
5. A transform may drop, multiply and change rows, so behind one only rule 3 holds; so in the tables
   that it fans out to. Of a dead-letter table nothing can be missing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gap, above, merged
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks
from trimtab.consumer_sdk.lake.ports import Records

Lots: TypeAlias = Callable[[Gap], Iterator[tuple[Gap, ...]]]
"""What of a log is compared: lots of ranges, each read at once (see `whole` and `sample`)."""

Told: TypeAlias = Callable[[str, int, int], None]
"""Called with a table, offsets compared and offsets to compare."""

EXAMPLES: Final = 5
"""Of each sort and partition."""

NEAR: Final = 10_000
"""Holes so many offsets apart are looked up by one read of the log: a seek costs as much."""

AT_ONCE: Final = 200_000
"""Offsets that one read of the log spans at most: what it finds is held in memory."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a table holds of a partition: rows, different offsets, the first and the last of them.

    `last_own` is the last one that is not a dead letter; -1: there is none.
    """

    rows: int
    distinct: int
    first: int
    last: int
    last_own: int


class Rows(Protocol):
    """The rows of one table and its dead letters, as they were when it was opened."""

    def facts(self) -> dict[TopicPartition, Facts]:
        """Return the facts of every partition that has rows."""
        ...

    def holes(self, where: TopicPartition) -> list[Gap]:
        """Return the runs of offsets that lie between two rows of a partition, rising."""
        ...

    def surplus(self, where: TopicPartition, copies: int) -> tuple[int, list[int]]:
        """Return how many rows are more than so many of one offset, and some of the offsets."""
        ...

    def beyond(self, where: TopicPartition, offset: int) -> tuple[int, list[int]]:
        """Return how many rows, dead letters aside, are at or above an offset, and some offsets."""
        ...

    def read(self, where: TopicPartition, ranges: Iterable[Gap]) -> Records:
        """Return offset, and timestamp and key where the table has them, of rows in ranges."""
        ...

    def replayed(self, where: TopicPartition) -> set[int]:
        """Return the offsets that came again by a replay of dead letters."""
        ...


class Log(Protocol):
    """The broker's side."""

    def bounds(self, where: TopicPartition) -> Gap | None:
        """Return the first offset that is there and the end; None: there is no such partition."""
        ...

    def read(self, where: TopicPartition, wanted: Gap) -> Records:
        """Return offset, timestamp and key of the records in a range."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """What can be said of a table's rows (rule 5).

    `once`: each is a record as it was; `whole`: each record has one.
    """

    name: str
    once: bool = True
    whole: bool = True


OWN: Final = Kind("own")
LETTERS: Final = Kind("dead letters", whole=False)
SIDE: Final = Kind("other", once=False, whole=False)


@dataclass(slots=True)
class Partition:
    """The verdict on a partition; counts of rows or offsets, and examples of what is wrong."""

    topic: str
    partition: int
    rows: int = 0
    first: int | None = None
    mark: int | None = None
    log_begin: int | None = None
    log_end: int | None = None
    duplicated: int = 0
    missing: int = 0
    beyond_mark: int = 0
    beyond_end: int = 0
    different: int = 0
    unknown: int = 0
    recorded: int = 0
    compared: int = 0
    examples: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    @property
    def faults(self) -> tuple[str, ...]:
        """The sorts of faults, by the names of `ADVICE`."""
        return tuple(name for name in ADVICE if getattr(self, name))

    def note(self, sort: str, count: int, offsets: Sequence[int]) -> None:
        """Add to a sort of fault."""
        setattr(self, sort, getattr(self, sort) + count)
        if offsets:
            known = self.examples.setdefault(sort, [])
            known.extend(offsets[: EXAMPLES - len(known)])


ADVICE: Final[Mapping[str, str]] = {
    "duplicated": "rows that stand there twice: something else than the sink has added them (an "
    "INSERT, a restored table). Keep one row of each (topic, partition, offset)",
    "missing": "records that the broker still holds have no row: they were deleted by hand, or "
    "replayed to another topic. Read them with another group.id into another table, and INSERT "
    "those",
    "beyond_mark": "rows that the sink has not written: it will write them once more when it gets "
    "there. DELETE them, with the writers stopped",
    "beyond_end": "rows that the topic does not reach: it was deleted and created anew, or its log "
    "was truncated. Let the new topic go to a table of its own",
    "different": "rows whose timestamp or key is not the record's: they were changed by hand, or "
    "the topic was created anew",
}
"""What each sort of fault means, and what to do."""

UNKNOWN_ADVICE: Final = (
    "offsets without a row that the broker no longer holds: compaction, markers of transactions or "
    "a loss, nobody can tell. Verify more often than retention deletes"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a table.

    `failed`: none could be reached, though there ought to be one; the notes say why.
    """

    table: str
    kind: str
    partitions: tuple[Partition, ...]
    notes: tuple[str, ...] = ()
    failed: bool = False

    @property
    def faults(self) -> tuple[str, ...]:
        """The sorts of faults that were found, in the order of `ADVICE`."""
        return tuple(name for name in ADVICE if any(name in p.faults for p in self.partitions))

    def bad(self, *, strict: bool) -> bool:
        """Whether something is wrong; `strict`: what nobody can explain is so too."""
        unknown = strict and any(p.unknown for p in self.partitions)
        return self.failed or bool(self.faults) or unknown


@dataclass(frozen=True, slots=True)
class Asked:
    """One table to be verified: its kind, marks before the rows were read, marks read by `again`.

    `recorded` are the gaps that it knows of.
    """

    name: str
    kind: Kind
    rows: Rows
    marks: Marks
    again: Callable[[], Marks]
    recorded: Callable[[TopicPartition], Iterable[Gap]]


def whole(size: int) -> Lots:
    """Compare everything, so many offsets at once."""

    def lots(log: Gap) -> Iterator[tuple[Gap, ...]]:
        for first in range(log.first, log.next, size):
            yield (Gap(first, min(first + size, log.next)),)

    return lots


def sample(windows: int, width: int, choose: Callable[[int], int]) -> Lots:
    """Compare so many windows of so many offsets; `choose(n)` gives a number below n."""

    def lots(log: Gap) -> Iterator[tuple[Gap, ...]]:
        if log.offsets <= windows * width:
            yield (log,)
            return
        starts = [log.first + choose(log.offsets - width) for _ in range(windows)]
        yield merged([Gap(start, start + width) for start in [*starts, log.next - width]])

    return lots


def verify(asked: Asked, log: Log | None, lots: Lots | None, tell: Told) -> Verdict:
    """Judge a table; without a `log` nothing is compared with the broker, without `lots` no rows.

    Raises LakeUnavailable, BrokerUnreachable.
    """
    facts = asked.rows.facts()
    after = asked.again()
    known = {p for partitions in asked.marks.groups.values() for p in partitions}
    found = [
        _Judge(asked, log, after, where, facts.get(where)) for where in sorted({*known, *facts})
    ]
    for judge in found:
        judge.bounds()
    if log is not None and lots is not None and asked.kind.once:
        _compare(asked.name, found, log, lots, tell)
    return Verdict(asked.name, asked.kind.name, tuple(judge.verdict for judge in found))


def _compare(name: str, judges: list["_Judge"], log: Log, lots: Lots, tell: Told) -> None:
    work = [(judge, lot) for judge in judges for lot in judge.lots(lots)]
    total, done = sum(gap.offsets for _, lot in work for gap in lot), 0
    for judge, lot in work:
        tell(name, done, total)
        judge.compare(log, lot)
        done += sum(gap.offsets for gap in lot)
    tell(name, total, total)


class _Judge:
    """Judges one partition of a table."""

    def __init__(
        self,
        asked: Asked,
        log: Log | None,
        after: Marks,
        where: TopicPartition,
        facts: Facts | None,
    ) -> None:
        self._asked = asked
        self._where = where
        self._facts = facts
        self._log = log.bounds(where) if log is not None else None
        self._copies = sum(1 for marks in asked.marks.groups.values() if where in marks)
        self._mark = _mark(asked.marks, where)
        self._after = _mark(after, where)
        self._broker = log
        self._recorded = merged(asked.recorded(where))
        self.verdict = Partition(*where, mark=self._after)
        self._lost: set[int] = set()

    def bounds(self) -> None:
        """Judge by what the table itself says, and by the ends of the log (rules 1 to 3)."""
        seen, facts, rows = self.verdict, self._facts, self._asked.rows
        if self._log is not None:
            seen.log_begin, seen.log_end = self._log
        if facts is None:
            if self._asked.kind.whole and self._mark:  # the record below the mark had a row
                self._holes(Facts(0, 0, self._mark - 1, self._mark - 2, -1))
            return
        seen.rows, seen.first = facts.rows, facts.first
        if self._asked.kind.once and facts.rows > facts.distinct:
            seen.note("duplicated", *rows.surplus(self._where, max(1, self._copies)))
        if facts.last_own >= (self._after or 0):
            seen.note("beyond_mark", *rows.beyond(self._where, self._after or 0))
        if self._log is not None and facts.last_own >= self._log.next:
            seen.note("beyond_end", *rows.beyond(self._where, self._log.next))
        if self._asked.kind.whole:
            self._holes(facts)

    def lots(self, lots: Lots) -> Iterator[tuple[Gap, ...]]:
        """Return what of this partition is to be compared."""
        if self._facts is None or self._log is None:
            return iter(())
        first = max(self._log.first, self._facts.first)
        following = min(self._log.next, self._mark or 0)
        return lots(Gap(first, following)) if first < following else iter(())

    def compare(self, log: Log, lot: tuple[Gap, ...]) -> None:
        """Compare rows with records (rules 2 and 4)."""
        rows = self._asked.rows.read(self._where, lot)
        for wanted in lot:
            records = log.read(self._where, wanted)
            self.verdict.compared += records.num_rows
            different = differing(rows, records)
            self.verdict.note("different", len(different), different)
            if self._asked.kind.whole:
                self._miss(absent(rows, records))

    def _holes(self, facts: Facts) -> None:
        mark = self._mark or 0
        between = facts.last - facts.first + 1 > facts.distinct
        holes = self._asked.rows.holes(self._where) if between else []
        holes += [Gap(facts.last + 1, mark)] if facts.last + 1 < mark else []
        below = [Gap(h.first, min(h.next, mark)) for h in holes if h.first < mark]
        self.verdict.recorded = _offsets(self._recorded)
        left = without(below, self._recorded)
        begin = None if self._log is None else self._log.first
        open_ = () if begin is None else above(left, begin)
        self.verdict.unknown = _offsets(left) - _offsets(open_)
        self._look_up(open_)

    def _look_up(self, holes: Sequence[Gap]) -> None:
        """Ask the broker whether it holds records where the table has none."""
        assert self._broker is not None or not holes
        for cluster in clusters(holes, NEAR, AT_ONCE):
            if self._broker is None:
                return
            held = self._broker.read(self._where, Gap(cluster[0].first, cluster[-1].next))
            self._miss(inside(held.column("offset").to_numpy(), cluster))

    def _miss(self, offsets: Sequence[int]) -> None:
        known = self._lost | set(inside(np.array(offsets, np.int64), self._recorded))
        fresh = [offset for offset in offsets if offset not in known]
        if fresh:
            again = self._asked.rows.replayed(self._where)
            fresh = [offset for offset in fresh if offset not in again]
        self._lost.update(fresh)
        self.verdict.note("missing", len(fresh), fresh)


def _mark(marks: Marks, where: TopicPartition) -> int | None:
    """Return how far a table holds a partition: the furthest of its groups."""
    found = [partitions[where] for partitions in marks.groups.values() if where in partitions]
    return max(found, default=None)


def _offsets(gaps: Iterable[Gap]) -> int:
    return sum(gap.offsets for gap in gaps)


def without(gaps: Iterable[Gap], taken: Sequence[Gap]) -> tuple[Gap, ...]:
    """Return what is left of gaps when others, rising and apart, are taken out."""
    left: list[Gap] = []
    for gap in gaps:
        first = gap.first
        for other in taken:
            if other.next > first and other.first < gap.next:
                if other.first > first:
                    left.append(Gap(first, other.first))
                first = max(first, other.next)
        if first < gap.next:
            left.append(Gap(first, gap.next))
    return tuple(left)


def clusters(gaps: Iterable[Gap], near: int, most: int) -> Iterator[list[Gap]]:
    """Return rising gaps in groups that span `most` offsets at most; a longer gap is cut.

    The members of a group are at most `near` offsets apart.
    """
    group: list[Gap] = []
    for gap in (piece for long in gaps for (piece,) in whole(most)(long)):
        if group and (gap.first - group[-1].next > near or gap.next - group[0].first > most):
            yield group
            group = []
        group.append(gap)
    if group:
        yield group


def inside(offsets: NDArray[np.int64], gaps: Sequence[Gap]) -> list[int]:
    """Return the offsets that lie in one of these gaps, which rise and are apart."""
    if not gaps:
        return []
    bounds = np.array(gaps)
    place = np.searchsorted(bounds[:, 0], offsets, side="right") - 1
    found: list[int] = offsets[(place >= 0) & (offsets < bounds[place, 1])].tolist()
    return found


def absent(rows: Records, records: Records) -> list[int]:
    """Return the offsets of records without a row."""
    held, wanted = (t.column("offset").to_numpy() for t in (rows, records))
    found: list[int] = np.setdiff1d(wanted, held).tolist()
    return found


def differing(rows: Records, records: Records) -> list[int]:
    """Return the offsets of rows whose timestamp or key is not that of the record there."""
    both = rows.join(records, "offset", right_suffix=" wanted", join_type="inner")
    kept = [name for name in ("timestamp", "key") if name in rows.column_names]
    wrong: set[int] = set()
    for name in kept:
        found, wanted = (_plain(both.column(c)) for c in (name, f"{name} wanted"))
        offsets = both.column("offset").to_pylist()
        wrong |= {o for o, a, b in zip(offsets, found, wanted, strict=True) if a != b}
    return sorted(wrong)


def _plain(column: Any) -> list[Any]:
    """Return values that compare; times as numbers, since Python knows none after the year 9999."""
    times = pa.types.is_timestamp(column.type)
    found: list[Any] = (column.cast(pa.int64()) if times else column).to_pylist()
    return found
