"""Positions of the writer in its partitions: a state machine per partition.

Three offsets, always `committed` ≤ `submitted` ≤ `next`:

- `committed`: next offset of the table (None: the table does not know the partition);
- `submitted`: end of the records submitted for flushing;
- `next`: offset of the next record to accept.

Rules:

1. Records at or after `next` are accepted, in ascending order; holes are allowed (compaction,
   transactions).
2. A submitted span expects the previous `submitted` as the table's offset. Batches form a chain: a
   refused batch makes all later ones of the chain refused.
3. After a refusal, the partition is rewound to the table's offset; records beyond it are dropped. A table
   that has lost its offset (dropped, created again) is written on from the last known one. The outcome
   of a batch of an earlier assignment changes nothing: the partition was lost meanwhile, and what the
   table has by now was read when it was assigned again.
4. Records fetched before a partition was reassigned or rewound may still arrive. The first record
   after that must be the requested one; if it is not, or if the offsets of a run do not
   ascend, the run is dropped and requested once more. The second answer is accepted: the hole is
   the log's own (compaction, transaction markers).
5. A first record of an assignment below the table's offset means that the topic was deleted and
   recreated; going on would lose its records silently: OffsetRegressionError.
6. Offsets deleted by retention before they were read are a gap (`pending_gaps`). It is committed
   with the span of the first records behind it, and again if that span is refused.
7. A partition whose table is halted is rewound to the table's offsets at once, as after a refusal, and
   read on from there later. If nothing was read of it, that is where its first record stands.
8. A partition unknown to its table starts at the group's offset. A warning says so if that is not
   the beginning of the log: a new table will lack the earlier records.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import Final

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.offset_reset import OFFSET_RESET_SETTING, OffsetReset
from trimtab.consumer_sdk.errors import OffsetRegressionError, OffsetsExpiredError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, clip_gaps, merge_gaps, skip_gaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan

log = logging.getLogger("trimtab.lake")


@dataclass(slots=True)
class PartitionPosition:
    """One owned partition; offsets as in the module's rules."""

    committed: int | None
    submitted: int | None
    next: int | None
    start: int | None  # the first offset read
    awaits_first_record: bool = True
    reread_requested: bool = False
    is_rewound: bool = False
    pending_gaps: tuple[OffsetGap, ...] = ()  # those below `submitted` are in a batch or in the table
    began_without_offset: bool = False  # the group had no committed offset
    chained: list[OffsetSpan] = field(default_factory=list[OffsetSpan])  # in flight


class PositionTracker:
    """Owned partitions of one writer; used by the application's thread only."""

    def __init__(self) -> None:
        self._owned: dict[TopicPartition, PartitionPosition] = {}

    @property
    def owned(self) -> KeysView[TopicPartition]:
        """The partitions that are read."""
        return self._owned.keys()

    def assign(self, partition: TopicPartition, committed: int | None) -> None:
        """Add a partition; `committed` is the table's next offset."""
        self._owned[partition] = PartitionPosition(committed, committed, committed, committed)

    def forget_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions."""
        for partition in partitions:
            self._owned.pop(partition, None)

    def record_reset(self, reset: OffsetReset) -> None:
        """Record expired offsets (rule 6). Raises OffsetRegressionError (rule 5), OffsetsExpiredError."""
        position = self._owned.get(reset.partition)
        if position is None:
            return
        if reset.is_regression and position.next is not None:
            raise OffsetRegressionError(f"{reset}. {_NEW_TOPIC_ADVICE}")
        if reset.resume_offset is None:
            advice = _EXPIRED_OFFSETS_ADVICE
            raise OffsetsExpiredError(f"{reset}, and {OFFSET_RESET_SETTING} is error. {advice}")
        position.began_without_offset = reset.requested_offset is None
        if skipped := reset.skipped_offsets:
            gap = OffsetGap(reset.resume_offset - skipped, reset.resume_offset)
            # Offsets below `submitted` belong to a batch in flight, whose span has its own gaps.
            position.pending_gaps = clip_gaps(merge_gaps((*position.pending_gaps, gap)), position.submitted)

    def find_reread_offset(self, partition: TopicPartition, offsets: Sequence[int]) -> int | None:
        """Return the offset to request again if a run is unreliable (rule 4), else None."""
        position = self._owned.get(partition)
        if position is None:
            return None
        if not all(map(lt, offsets, offsets[1:])):
            return _first_not_none(position.next, min(offsets))
        requested = skip_gaps(position.pending_gaps, position.next)
        if (
            position.awaits_first_record
            and not position.reread_requested
            and offsets[0] > _first_not_none(requested, offsets[0])
        ):
            position.reread_requested = True
            return requested
        return None

    def accept_run(self, partition: TopicPartition, offsets: Sequence[int]) -> int:
        """Advance past a run of ascending offsets; return how many leading records to drop.

        Raises OffsetRegressionError (rule 5).
        """
        position = self._owned.get(partition)
        if position is None:  # fetched before its revocation
            return len(offsets)
        _note_start(partition, position, offsets[0])
        skip = 0 if position.next is None else bisect_left(offsets, position.next)
        if skip and position.awaits_first_record and not position.is_rewound:
            raise OffsetRegressionError(
                f"{partition} returned offset {offsets[0]}, but its table holds it up to {position.next}: "
                f"the topic was deleted and created again, or its log was truncated. {_NEW_TOPIC_ADVICE}"
            )
        if skip < len(offsets):
            position.awaits_first_record = False
            position.next = offsets[-1] + 1
        return skip

    def chain_spans(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, OffsetSpan]:
        """Return a batch's (first, next) ranges as spans chained to the previous batch (rule 2)."""
        spans: dict[TopicPartition, OffsetSpan] = {}
        for partition, (first, following) in sorted(ranges.items()):
            position = self._owned[partition]
            gaps = tuple(gap for gap in position.pending_gaps if gap.first < following)
            gaps = clip_gaps(gaps, position.submitted)
            spans[partition] = OffsetSpan(position.submitted, first, following, gaps)
            position.chained.append(spans[partition])
            position.submitted = following
        return spans

    def confirm_committed(self, spans: Mapping[TopicPartition, OffsetSpan]) -> dict[TopicPartition, int]:
        """Record a committed batch; return the new offsets of the partitions owned ever since."""
        offsets = {p: span.next for p, span in spans.items() if self._pop_chained(p, span)}
        for partition, offset in offsets.items():
            self._owned[partition].committed = offset
        return offsets

    def rewind_partitions(
        self, spans: Mapping[TopicPartition, OffsetSpan], offsets: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """Move to the table's offsets (rule 3); return where to read on, partitions owned ever since only."""
        restarts: dict[TopicPartition, int] = {}
        for partition, span in spans.items():
            if not self._pop_chained(partition, span):
                continue
            position = self._owned[partition]
            actual = offsets.get(partition)
            if actual is None and position.committed is not None:
                position.start = position.committed
                log.warning(_OFFSET_LOST_WARNING, partition, position.start)
            position.committed = actual
            restarts[partition] = _rewind(position, _first_not_none(position.start, span.first))
        return restarts

    def rewind_halted(self, partitions: Iterable[TopicPartition]) -> None:
        """Move to the table's offsets (rule 7); batches in flight no longer count."""
        for position in (self._owned[p] for p in partitions if p in self._owned):
            position.chained = []
            if position.next is not None:
                _rewind(position, _first_not_none(position.start, position.next))

    def stop_before(self, partition: TopicPartition, offset: int) -> None:
        """Note the first record of a partition that is read no further (rule 7)."""
        position = self._owned.get(partition)
        if position is not None and position.next is None:
            _note_start(partition, position, offset)
            position.next = offset

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to accept; None if the partition has none yet."""
        return self._owned[partition].next if partition in self._owned else None

    def _pop_chained(self, partition: TopicPartition, span: OffsetSpan) -> bool:
        """Take a span out of flight; return whether its partition has been owned ever since."""
        is_chained = self._is_chained(partition, span)
        if is_chained:
            position = self._owned[partition]
            position.chained = [chained for chained in position.chained if chained is not span]
        return is_chained

    def _is_chained(self, partition: TopicPartition, span: OffsetSpan) -> bool:
        position = self._owned.get(partition)
        # By identity: a span of an earlier assignment may be equal.
        return position is not None and any(chained is span for chained in position.chained)

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the table's next offsets of owned partitions that it knows."""
        offsets = ((p, self._owned[p].committed) for p in partitions if p in self._owned)
        return {p: offset for p, offset in offsets if offset is not None}

    def first_unwritten(self, partition: TopicPartition) -> int | None:
        """Return the offset of the first record that the table lacks; None if none is known."""
        position = self._owned.get(partition)
        if position is None:
            return None
        return position.start if position.committed is None else position.committed

    def unwritten_ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return (first, end) of the accepted offsets that the table does not have."""
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for partition, position in self._owned.items():
            first = self.first_unwritten(partition)
            if first is not None and position.next is not None and position.next > first:
                ranges[partition] = (first, position.next)
        return ranges


def log_starts(starts: Mapping[TopicPartition, int | None], *, resets_to_end: bool) -> None:
    """Log where assigned partitions start; None is the group's offset."""
    known = [str(partition) for partition, offset in starts.items() if offset is not None]
    if known and resets_to_end:
        log.warning(_RESET_TO_END_WARNING, ", ".join(known))
    log.info("assigned %s", _describe_starts(starts))


_NEW_TOPIC_ADVICE: Final = (
    "Nothing was written, and this partition is no longer read. "
    "Give the new topic a table of its own (lake.tables)"
)
_OFFSET_LOST_WARNING: Final = (
    "%s: its table was dropped and created again; it is written on from offset %d, without the rows of the "
    "dropped table"
)
_NEW_PARTITION_WARNING: Final = (
    "%s is new to its table, and the group already stands at offset %d: earlier records will not "
    "be in the table. To read from the beginning, use another group.id"
)
_RESET_TO_END_WARNING: Final = (
    "auto.offset.reset=latest: if retention deletes unread records, %s continue at the end of the log; "
    "write earliest to lose the deleted records only"
)
_EXPIRED_OFFSETS_ADVICE: Final = (
    "This partition is no longer read. To continue with the remaining records, write earliest "
    "there: the table then records the gap (docs/lake.md)"
)


def _note_start(partition: TopicPartition, position: PartitionPosition, offset: int) -> None:
    if position.start is None:
        position.start = offset
        if offset and not position.began_without_offset:
            log.warning(_NEW_PARTITION_WARNING, partition, offset)


def _rewind(position: PartitionPosition, start: int) -> int:
    """Move to the table's offset, or to `start` if it has none; return the next offset."""
    position.submitted = position.committed
    position.awaits_first_record = position.is_rewound = True
    position.reread_requested = False
    first = _first_not_none(position.committed, start)
    position.next = _first_not_none(skip_gaps(position.pending_gaps, first))
    return position.next


def _first_not_none(*offsets: int | None) -> int:
    return next(offset for offset in offsets if offset is not None)


def _describe_starts(starts: Mapping[TopicPartition, int | None]) -> str:
    known = ", ".join(f"{p} at {offset}" for p, offset in starts.items() if offset is not None)
    new = ", ".join(str(partition) for partition, offset in starts.items() if offset is None)
    # the group's offset is fetched after this, and it may have none
    where = "at the group's offset or, if it has none, by auto.offset.reset"
    return "; ".join(filter(None, (known, f"not in the table yet, so {where}: {new}" if new else "")))
