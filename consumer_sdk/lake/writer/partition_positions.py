"""Where the writer stands in each of its partitions: one small state machine a partition.

Three offsets, always `committed` ≤ `cut` ≤ `next`:

- `committed`: what the table holds up to (None: the table does not know the partition);
- `cut`: up to where records have been handed to the stager;
- `next`: the offset of the next record to accept.

Rules:

1. Only records at or after `next` are accepted, in rising order; a gap is fine (compaction,
   transactions).
2. A span handed to the stager expects the `cut` of before as the table's mark: batches form a
   chain, and a refused batch makes every later one of the chain refused too.
3. After a refusal the partition is rewound to the table's mark; what was accepted beyond it is
   forgotten.
4. Records fetched before a partition was taken away and given back may still be under way. So the
   first record after an assignment must be the one that was asked for; if it is not, or if the
   offsets of a run do not rise, the run is dropped and the consumer is asked once more. The second
   answer is believed: then the hole is the log's own (compaction, markers of transactions).
5. The first record after an assignment cannot lie below the mark: such a topic was deleted and
   created anew, and going on would lose its records silently. That is the named error
   OffsetRegressionError.
6. Offsets that the consumer had to skip, since retention had deleted them, are a gap (`pending_gaps`). It
   goes with the span of the first records behind it, once, and again if that span is refused.
7. A partition that its table does not know begins where the group stands. If that is behind the
   log's beginning, it is told: the table may be a new one, and will lack what lies before.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import lt
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.offset_reset import OFFSET_RESET_SETTING, OffsetReset
from trimtab.consumer_sdk.errors import OffsetRegressionError, OffsetsExpiredError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import (
    OffsetGap,
    clip_gaps,
    merge_gaps,
    skip_gaps,
)
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan

log = logging.getLogger("trimtab.lake")


@dataclass(slots=True)
class PartitionPosition:
    """One owned partition.

    Offsets as in the rules above, `start` where reading began (None: not known yet), `pending_gaps` those
    that no table has been told of yet, `began_without_offset`: the group had no offset to begin at.
    """

    committed: int | None
    submitted: int | None
    next: int | None
    start: int | None
    awaits_first_record: bool = True
    reread_requested: bool = False
    pending_gaps: tuple[OffsetGap, ...] = ()
    began_without_offset: bool = False


class PositionTracker:
    """The owned partitions of one writer; used by the application's thread only."""

    def __init__(self) -> None:
        self._owned: dict[TopicPartition, PartitionPosition] = {}

    def __contains__(self, partition: object) -> bool:
        return partition in self._owned

    def assign(self, partition: TopicPartition, committed: int | None) -> None:
        """Own a partition whose table holds it up to `committed`."""
        self._owned[partition] = PartitionPosition(committed, committed, committed, committed)

    def forget_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Own these no longer."""
        for partition in partitions:
            self._owned.pop(partition, None)

    def record_reset(self, reset: OffsetReset) -> None:
        """Note offsets that nobody will hand out any more (rule 6).

        Raises OffsetRegressionError (rule 5), and OffsetsExpiredError where the consumer was not to go on.
        """
        position = self._owned.get(reset.partition)
        if position is None:
            return
        if reset.is_regression and position.next is not None:
            raise OffsetRegressionError(f"{reset}. {_NEW_TOPIC_ADVICE}")
        if reset.resume_offset is None:
            raise OffsetsExpiredError(
                f"{reset}, and {OFFSET_RESET_SETTING}=error says to stop. {_EXPIRED_OFFSETS_ADVICE}"
            )
        position.began_without_offset = reset.requested_offset is None
        if reset.requested_offset is not None and reset.skipped_offsets:
            gaps = merge_gaps(
                (*position.pending_gaps, OffsetGap(reset.requested_offset, reset.resume_offset))
            )
            position.pending_gaps = clip_gaps(gaps, position.submitted)

    def find_reread_offset(self, partition: TopicPartition, offsets: Sequence[int]) -> int | None:
        """Return the offset to ask for again where a run cannot be trusted (rule 4), else None."""
        position = self._owned.get(partition)
        if position is None:
            return None
        if not all(map(lt, offsets, offsets[1:])):
            return _first_not_none(position.next, min(offsets))
        wanted = skip_gaps(position.pending_gaps, position.next)
        if (
            position.awaits_first_record
            and not position.reread_requested
            and offsets[0] > _first_not_none(wanted, offsets[0])
        ):
            position.reread_requested = True
            return wanted
        return None

    def accept_run(self, partition: TopicPartition, offsets: Sequence[int]) -> int:
        """Return how many leading records to drop, and stand after the last one.

        `offsets` rise. Records of partitions that are not owned are all dropped. Raises
        OffsetRegressionError (rule 5).
        """
        position = self._owned.get(partition)
        if position is None:
            return len(offsets)
        if position.start is None:
            position.start = offsets[0]
            if offsets[0] and not position.began_without_offset:
                log.warning(_NEW_PARTITION_WARNING, partition, offsets[0])
        skip = _count_below(offsets, position.next)
        if skip and position.awaits_first_record:
            raise _build_regression_error(partition, offsets[0], position.next)
        position.awaits_first_record = False
        if skip < len(offsets):
            position.next = offsets[-1] + 1
        return skip

    def chain_spans(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, OffsetSpan]:
        """Turn a batch's (first, next) ranges into spans chained to the batch before (rule 2)."""
        spans: dict[TopicPartition, OffsetSpan] = {}
        for partition, (first, following) in sorted(ranges.items()):
            position = self._owned[partition]
            gaps = tuple(gap for gap in position.pending_gaps if gap.first < following)
            spans[partition] = OffsetSpan(
                position.submitted, first, following, clip_gaps(gaps, position.submitted)
            )
            position.submitted = following
        return spans

    def confirm_committed(
        self, spans: Mapping[TopicPartition, OffsetSpan]
    ) -> dict[TopicPartition, int]:
        """Note that a batch is in the table.

        Return the marks of those partitions that are still owned.
        """
        marks = {p: span.next for p, span in spans.items() if p in self._owned}
        for partition, mark in marks.items():
            position = self._owned[partition]
            position.committed = mark
            position.pending_gaps = clip_gaps(position.pending_gaps, mark)
        return marks

    def rewind_partitions(
        self,
        spans: Mapping[TopicPartition, OffsetSpan],
        offsets: Mapping[TopicPartition, int | None],
    ) -> dict[TopicPartition, int]:
        """Go back, or on, to the table's marks (rule 3).

        Return where to read on, owned partitions only.
        """
        seeks: dict[TopicPartition, int] = {}
        for partition in spans:
            position = self._owned.get(partition)
            if position is None:
                continue
            mark = offsets.get(partition)
            position.committed = position.submitted = mark
            again = _first_not_none(mark, position.start, spans[partition].first)
            seeks[partition] = position.next = _first_not_none(
                skip_gaps(position.pending_gaps, again)
            )
        return seeks

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the table's marks of owned partitions that it knows."""
        found = ((p, self._owned[p].committed) for p in partitions if p in self._owned)
        return {p: mark for p, mark in found if mark is not None}

    def unwritten_ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return (first, end) of the accepted offsets that the table does not have."""
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for partition, position in self._owned.items():
            first = position.start if position.committed is None else position.committed
            if first is not None and position.next is not None and position.next > first:
                ranges[partition] = (first, position.next)
        return ranges


_NEW_TOPIC_ADVICE: Final = (
    "Nothing was written, and this partition is not read any more. "
    "Let the new topic go to a table of its own (lake.tables)"
)
_NEW_PARTITION_WARNING: Final = (
    "%s is new to its table, and the group already stands at offset %d: what lies before will not "
    "be in the table. To have it from the beginning, use another group.id"
)
_EXPIRED_OFFSETS_ADVICE: Final = (
    "This partition is not read any more. To go on with what is left, write earliest there: "
    "the table then notes what it lacks (docs/lake.md)"
)


def _count_below(offsets: Sequence[int], following: int | None) -> int:
    if following is None or offsets[0] >= following:
        return 0
    return sum(offset < following for offset in offsets)


def _first_not_none(*offsets: int | None) -> int:
    return next(offset for offset in offsets if offset is not None)


def _build_regression_error(
    partition: TopicPartition, offset: int, committed: int | None
) -> OffsetRegressionError:
    return OffsetRegressionError(
        f"{partition} hands out offset {offset}, but its table already holds it up to {committed}: "
        f"the topic was deleted and created anew, or its log was truncated. {_NEW_TOPIC_ADVICE}"
    )
