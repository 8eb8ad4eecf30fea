"""What a tracker knows of one partition's messages: a pure function of the markers it has read.

The rules:

1. `broker_time_ms` is the append time of the newest marker read, in the broker's milliseconds; it never goes
   back. A message is due when `broker_time_ms` has reached its deadline, which is counted from `broker_time_ms` at its
   marker. So whatever was appended before the deadline has been read by then, and no clock but the
   leader's counts. Where append times go back, as another broker leads whose clock is behind, a
   message is due later by as much, and never sooner; whoever reads fewer markers, from `safe_offset` on,
   has no later deadlines.
2. A start marker opens its messages, also those that are open: they were handed out once more.
3. Extend, retry and reject move the deadline of a message that is open and of no other: what is
   over stays over. An end marker closes.
4. A due message is told once, and stays open until its end marker is read. Whoever takes the
   partition over finds it open and tells it again: twice is allowed, never is not.
5. `safe_offset` is the offset that may be committed, and below which markers may be deleted: that of the
   oldest start marker with a message that is still open, else the end of what was read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind, OffsetRanges, count_offsets
from trimtab.consumer_sdk.queues.kmq.offset_ranges import OffsetRangeMap

TIMEOUT_REASON: Final = "timeout"
"""Why a message is due that nobody has settled."""


@dataclass(frozen=True, slots=True)
class DueMessage:
    """A message to deliver again, or to give up; `deadline_ms` is in the broker's milliseconds."""

    offset: int
    delivery: int
    kind: MarkerKind
    reason: str
    deadline_ms: int


@dataclass(slots=True, eq=False)
class _OpenMessages:
    """Messages that have all in common; `open_count` of them are open."""

    start_marker_offset: int  # offset of the start marker
    deadline_ms: int
    delivery: int
    kind: MarkerKind
    reason: str
    ranges: OffsetRanges
    open_count: int = 0


@dataclass(slots=True)
class RedeliveryState:
    """The open messages of one partition; `next_offset` is the offset of the next marker to read."""

    broker_time_ms: int = 0
    next_offset: int = 0
    returned_count: int = 0  # of the open messages those that nobody has in hand: given back, or up
    _open_ranges: OffsetRangeMap[_OpenMessages] = field(
        default_factory=OffsetRangeMap[_OpenMessages]
    )
    _deadlines: list[tuple[int, int, _OpenMessages]] = field(
        default_factory=list[tuple[int, int, _OpenMessages]]
    )
    _open_by_start_marker: dict[int, int] = field(
        default_factory=dict[int, int]
    )  # start marker → open messages
    _heap_sequence: int = 0  # tells entries of the heap apart

    def __len__(self) -> int:
        """Return how many messages are open."""
        return len(self._open_ranges)

    @property
    def safe_offset(self) -> int:
        """The offset that may be committed (rule 5)."""
        return next(iter(self._open_by_start_marker), self.next_offset)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next message is due; None where none is waited for."""
        while self._deadlines and not self._deadlines[0][2].open_count:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def apply_marker(self, offset: int, appended_ms: int, marker: Marker) -> None:
        """Take in the marker at an offset, with the time when it was appended."""
        self.next_offset = offset + 1
        self.broker_time_ms = max(self.broker_time_ms, appended_ms)
        ranges, deadline = marker.ranges, self.broker_time_ms + marker.delay_ms
        match marker.kind:
            case MarkerKind.START:
                self._close_ranges(ranges)
                if ranges:
                    self._open_by_start_marker[offset] = count_offsets(ranges)
                self._add_open(
                    _OpenMessages(
                        offset, deadline, marker.delivery, MarkerKind.START, TIMEOUT_REASON, ranges
                    )
                )
            case MarkerKind.EXTEND:
                self._move_deadline(ranges, deadline, MarkerKind.START, TIMEOUT_REASON)
            case MarkerKind.RETRY | MarkerKind.REJECT:
                self._move_deadline(
                    ranges, deadline, marker.kind, marker.reason or marker.kind.value
                )
            case MarkerKind.END:
                self._close_ranges(ranges)
            case MarkerKind.TICK:
                pass

    def pop_due(self, max_messages: int) -> list[DueMessage]:
        """Return messages that are due, `max_messages` of them or a few more, and forget their deadlines.

        Those that could not be dealt with must be given to `postpone_due`.
        """
        found: list[DueMessage] = []
        while (
            len(found) < max_messages
            and self.next_deadline_ms is not None
            and self.next_deadline_ms <= self.broker_time_ms
        ):
            _, _, of = heappop(self._deadlines)
            found += (
                DueMessage(offset, of.delivery, of.kind, of.reason, of.deadline_ms)
                for begin, end in of.ranges
                for first, last, owner in self._open_ranges.find_owned(begin, end)
                if owner is of
                for offset in range(first, last + 1)
            )
        return found

    def postpone_due(self, messages: Iterable[DueMessage], delay_ms: int) -> None:
        """Let messages that were due be due again in so many milliseconds, if they are open."""
        places = (message.offset for message in messages)
        found = (of for place in places for _, _, of in self._open_ranges.find_owned(place, place))
        for of in {id(of): of for of in found}.values():
            self._schedule_deadline(of, self.broker_time_ms + delay_ms)

    def _add_open(self, opened: _OpenMessages) -> None:
        opened.open_count = count_offsets(opened.ranges)
        self.returned_count += opened.open_count * (opened.kind is not MarkerKind.START)
        for first, last in opened.ranges:
            self._open_ranges.assign_range(first, last, opened)
        if opened.open_count:
            self._schedule_deadline(opened, opened.deadline_ms)

    def _schedule_deadline(self, opened: _OpenMessages, deadline_ms: int) -> None:
        self._heap_sequence += 1
        heappush(self._deadlines, (deadline_ms, self._heap_sequence, opened))

    def _move_deadline(
        self, ranges: OffsetRanges, deadline_ms: int, kind: MarkerKind, reason: str
    ) -> None:
        """Give open messages a new deadline, unless they are to be given back or up already."""
        groups: dict[int, tuple[_OpenMessages, list[tuple[int, int]]]] = {}
        for begin, end in ranges:
            for first, last, of in self._open_ranges.find_owned(begin, end):
                if of.kind is MarkerKind.START or kind is not MarkerKind.START:
                    groups.setdefault(id(of), (of, []))[1].append((first, last))
        for of, moved in groups.values():
            self._subtract_open(of, count_offsets(moved))
            self._add_open(
                _OpenMessages(
                    of.start_marker_offset, deadline_ms, of.delivery, kind, reason, tuple(moved)
                )
            )

    def _close_ranges(self, ranges: OffsetRanges) -> None:
        for begin, end in ranges:
            for first, last, of in self._open_ranges.remove_range(begin, end):
                count = last - first + 1
                self._subtract_open(of, count)
                self._open_by_start_marker[of.start_marker_offset] -= count
                if not self._open_by_start_marker[of.start_marker_offset]:
                    del self._open_by_start_marker[of.start_marker_offset]

    def _subtract_open(self, opened: _OpenMessages, count: int) -> None:
        opened.open_count -= count
        self.returned_count -= count * (opened.kind is not MarkerKind.START)
