"""Where the writer stands in each of its partitions: one small state machine a partition.

Three offsets, always `mark` ≤ `cut` ≤ `next`:

- `mark`: what the table holds up to (None: the table does not know the partition);
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
   answer is believed: then the gap is the log's own. It is logged as "offset gap", since records
   that retention deleted before they were read are lost, and no error tells.
5. The first record after an assignment cannot lie below the mark: such a topic was deleted and
   created anew, and going on would lose its records silently. That is the named error
   OffsetsWentBack.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import lt

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import OffsetsWentBack
from trimtab.consumer_sdk.lake.progress import Span

log = logging.getLogger("trimtab.lake")


@dataclass(slots=True)
class Position:
    """One owned partition.

    Offsets as in the rules above, `start` where reading began (None: not known yet).
    """

    mark: int | None
    cut: int | None
    next: int | None
    start: int | None
    fresh: bool = True
    asked: bool = False


class Positions:
    """The owned partitions of one writer; used by the application's thread only."""

    def __init__(self) -> None:
        self._owned: dict[TopicPartition, Position] = {}

    def __contains__(self, partition: object) -> bool:
        return partition in self._owned

    def assign(self, partition: TopicPartition, mark: int | None) -> None:
        """Own a partition whose table holds it up to `mark`."""
        self._owned[partition] = Position(mark, mark, mark, mark)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Own these no longer."""
        for partition in partitions:
            self._owned.pop(partition, None)

    def doubt(self, partition: TopicPartition, offsets: Sequence[int]) -> int | None:
        """Return the offset to ask for again where a run cannot be trusted (rule 4), else None."""
        position = self._owned.get(partition)
        if position is None:
            return None
        if not all(map(lt, offsets, offsets[1:])):
            return _first_known(position.next, min(offsets))
        if (
            position.fresh
            and not position.asked
            and offsets[0] > _first_known(position.next, offsets[0])
        ):
            position.asked = True
            return position.next
        return None

    def accept(self, partition: TopicPartition, offsets: Sequence[int]) -> int:
        """Return how many leading records to drop, and stand after the last one.

        `offsets` rise. Records of partitions that are not owned are all dropped. Raises
        OffsetsWentBack (rule 5).
        """
        position = self._owned.get(partition)
        if position is None:
            return len(offsets)
        if position.start is None:
            position.start = offsets[0]
        skip = _below(offsets, position.next)
        if skip and position.fresh:
            raise _went_back(partition, offsets[0], position.next)
        if position.fresh:
            _tell_gap(partition, position.next, offsets[0])
        position.fresh = False
        if skip < len(offsets):
            position.next = offsets[-1] + 1
        return skip

    def cut(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, Span]:
        """Turn a batch's (first, next) ranges into spans chained to the batch before (rule 2)."""
        spans: dict[TopicPartition, Span] = {}
        for partition, (first, following) in sorted(ranges.items()):
            position = self._owned[partition]
            spans[partition] = Span(position.cut, first, following)
            position.cut = following
        return spans

    def landed(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, int]:
        """Note that a batch is in the table.

        Return the marks of those partitions that are still owned.
        """
        marks = {p: span.next for p, span in spans.items() if p in self._owned}
        for partition, mark in marks.items():
            self._owned[partition].mark = mark
        return marks

    def rewind(
        self, spans: Mapping[TopicPartition, Span], marks: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """Go back, or on, to the table's marks (rule 3).

        Return where to read on, owned partitions only.
        """
        seeks: dict[TopicPartition, int] = {}
        for partition in spans:
            position = self._owned.get(partition)
            if position is None:
                continue
            mark = marks.get(partition)
            position.mark = position.cut = mark
            seeks[partition] = position.next = _first_known(
                mark, position.start, spans[partition].first
            )
        return seeks

    def marks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the table's marks of owned partitions that it knows."""
        found = ((p, self._owned[p].mark) for p in partitions if p in self._owned)
        return {p: mark for p, mark in found if mark is not None}


def _below(offsets: Sequence[int], following: int | None) -> int:
    if following is None or offsets[0] >= following:
        return 0
    return sum(offset < following for offset in offsets)


def _first_known(*offsets: int | None) -> int:
    return next(offset for offset in offsets if offset is not None)


def _tell_gap(partition: TopicPartition, mark: int | None, first: int) -> None:
    if mark is not None and first > mark:
        log.warning(
            "offset gap: %s: its table holds it up to offset %d, the first record handed out is "
            "%d: what lay between is not in the table. Retention has deleted it, or "
            "auto.offset.reset=latest has skipped it; only compaction and the markers of "
            "transactions leave a gap without a loss",
            partition,
            mark,
            first,
        )


def _went_back(partition: TopicPartition, offset: int, mark: int | None) -> OffsetsWentBack:
    return OffsetsWentBack(
        f"{partition} hands out offset {offset}, but its table already holds it up to {mark}: "
        "the topic was deleted and created anew, or its log was truncated. Nothing was written. "
        "Let the new topic go to a table of its own (lake.tables), or use another group.id"
    )
