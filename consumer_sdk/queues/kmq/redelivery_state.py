"""Open messages of one partition: a pure function of the markers read.

The rules:

1. `broker_time_ms` is the largest append time of the markers read, in the broker's milliseconds. A
   message is due when it reaches the message's deadline, which counts from `broker_time_ms` at its
   marker. So every marker appended before the deadline has been read by then, and only the
   leader's clock counts. If append times go back, since the clock of a new leader is behind, a
   message is due later by the difference, never sooner. Reading fewer markers, from `safe_offset`
   on, never gives a later deadline.
2. A start marker opens its messages, also open ones: they were delivered again.
3. Extend, retry and reject markers move the deadline of open messages only. An end marker closes
   its messages.
4. A due message is returned once, and stays open until its end marker is read. The partition's
   next tracker finds it open and returns it again: a second redelivery is allowed, none is not.
5. `safe_offset` is the offset to commit, and to delete markers below: that of the oldest start
   marker with an open message, or the next offset to read if no message is open.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, TypeAlias

from trimtab.consumer_sdk.queues.kmq.markers import (
    Marker,
    MarkerKind,
    OffsetRanges,
    count_offsets,
    split_ranges,
)
from trimtab.consumer_sdk.queues.kmq.offset_ranges import OffsetRangeMap

TIMEOUT_REASON: Final = "timeout"  # not settled before the deadline
MAX_GROUP_MESSAGES: Final = 1000  # bounds what `pop_due` returns more than it was asked for


@dataclass(frozen=True, slots=True)
class DueMessage:
    """A message to redeliver or dead-letter."""

    offset: int
    delivery: int
    kind: MarkerKind
    reason: str
    deadline_ms: int  # in the broker's time


@dataclass(slots=True, eq=False)
class _OpenMessages:
    """Messages with the same start marker, deadline and kind, `MAX_GROUP_MESSAGES` at most."""

    start_marker_offset: int
    deadline_ms: int
    delivery: int
    kind: MarkerKind
    reason: str
    ranges: OffsetRanges
    open_count: int = field(init=False)  # of `ranges`, which also hold closed and moved messages


_Deadline: TypeAlias = tuple[int, int, _OpenMessages]  # the second breaks ties: _OpenMessages has no order


@dataclass(slots=True)
class RedeliveryState:
    """The open messages of one partition."""

    broker_time_ms: int = 0
    next_offset: int = 0  # of the next marker to read
    returned_count: int = 0  # open messages that were retried or rejected, so not in flight
    _open_ranges: OffsetRangeMap[_OpenMessages] = field(default_factory=OffsetRangeMap[_OpenMessages])
    _deadlines: list[_Deadline] = field(default_factory=list[_Deadline])
    # Start marker's offset → number of open messages, ascending since markers are read in order.
    _open_by_start_marker: dict[int, int] = field(default_factory=dict[int, int])
    _heap_sequence: int = 0

    def __len__(self) -> int:
        """Return the number of open messages."""
        return len(self._open_ranges)

    @property
    def safe_offset(self) -> int:
        """Offset to commit (rule 5)."""
        return next(iter(self._open_by_start_marker), self.next_offset)

    @property
    def next_deadline_ms(self) -> int | None:
        """Deadline of the next message to become due; None without one."""
        # Closed messages stay in the heap until they reach its top.
        while self._deadlines and not self._deadlines[0][2].open_count:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def apply_marker(self, offset: int, appended_ms: int, marker: Marker) -> None:
        """Apply the marker at an offset, appended at `appended_ms` of the broker's time."""
        self.next_offset = offset + 1
        self.broker_time_ms = max(self.broker_time_ms, appended_ms)
        ranges = marker.ranges
        deadline = self.broker_time_ms + marker.delay_ms
        match marker.kind:
            case MarkerKind.START:
                self._close(ranges)
                if ranges:
                    self._open_by_start_marker[offset] = count_offsets(ranges)
                for part in split_ranges(ranges, MAX_GROUP_MESSAGES):
                    kind, reason = MarkerKind.START, TIMEOUT_REASON
                    self._open(_OpenMessages(offset, deadline, marker.delivery, kind, reason, part))
            case MarkerKind.EXTEND:
                self._move(ranges, deadline, MarkerKind.START, TIMEOUT_REASON)
            case MarkerKind.RETRY | MarkerKind.REJECT:
                self._move(ranges, deadline, marker.kind, marker.reason or marker.kind.value)
            case MarkerKind.END:
                self._close(ranges)
            case MarkerKind.TICK:
                pass

    def pop_due(self, max_messages: int) -> list[DueMessage]:
        """Remove and return due messages: `max_messages`, or more to complete the last group.

        The caller gives messages that it could not write to `postpone_due`.
        """
        due: list[DueMessage] = []
        while len(due) < max_messages and self.has_due:
            _, _, group = heappop(self._deadlines)
            due += (
                DueMessage(offset, group.delivery, group.kind, group.reason, group.deadline_ms)
                for begin, end in group.ranges
                for first, last, owner in self._open_ranges.find_owned(begin, end)
                if owner is group  # else closed, or moved to another deadline
                for offset in range(first, last + 1)
            )
        return due

    @property
    def has_due(self) -> bool:
        """Whether a deadline has passed, by the broker's time."""
        deadline = self.next_deadline_ms
        return deadline is not None and deadline <= self.broker_time_ms

    def postpone_due(self, messages: Iterable[DueMessage], delay_ms: int) -> None:
        """Make messages of `pop_due` due again `delay_ms` later, as far as they are open."""
        groups: dict[int, _OpenMessages] = {}
        for message in messages:
            for _, _, group in self._open_ranges.find_owned(message.offset, message.offset):
                groups[id(group)] = group
        for group in groups.values():
            self._schedule(group, self.broker_time_ms + delay_ms)

    def _open(self, opened: _OpenMessages) -> None:
        opened.open_count = count_offsets(opened.ranges)
        self.returned_count += opened.open_count * (opened.kind is not MarkerKind.START)
        for first, last in opened.ranges:
            self._open_ranges.assign_range(first, last, opened)
        if opened.open_count:
            self._schedule(opened, opened.deadline_ms)

    def _schedule(self, opened: _OpenMessages, deadline_ms: int) -> None:
        self._heap_sequence += 1
        heappush(self._deadlines, (deadline_ms, self._heap_sequence, opened))

    def _move(self, ranges: OffsetRanges, deadline_ms: int, kind: MarkerKind, reason: str) -> None:
        groups: dict[int, tuple[_OpenMessages, list[tuple[int, int]]]] = {}
        for begin, end in ranges:
            for first, last, group in self._open_ranges.find_owned(begin, end):
                # An extension of a retried or rejected message came too late.
                if group.kind is MarkerKind.START or kind is not MarkerKind.START:
                    groups.setdefault(id(group), (group, []))[1].append((first, last))
        for group, moved in groups.values():
            self._subtract(group, count_offsets(moved))
            start = group.start_marker_offset
            self._open(_OpenMessages(start, deadline_ms, group.delivery, kind, reason, tuple(moved)))

    def _close(self, ranges: OffsetRanges) -> None:
        for begin, end in ranges:
            for first, last, group in self._open_ranges.remove_range(begin, end):
                count = last - first + 1
                self._subtract(group, count)
                self._open_by_start_marker[group.start_marker_offset] -= count
                if not self._open_by_start_marker[group.start_marker_offset]:
                    del self._open_by_start_marker[group.start_marker_offset]

    def _subtract(self, opened: _OpenMessages, count: int) -> None:
        opened.open_count -= count
        self.returned_count -= count * (opened.kind is not MarkerKind.START)
