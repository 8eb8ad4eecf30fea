"""What a tracker knows of one partition's messages: a pure function of the markers it has read.

The rules:

1. `now` is the append time of the newest marker read, in the broker's milliseconds; it never goes
   back. A message is due when `now` has reached its deadline, which is counted from `now` at its
   marker. So whatever was appended before the deadline has been read by then, and no clock but the
   leader's counts. Where append times go back, as another broker leads whose clock is behind, a
   message is due later by as much, and never sooner; whoever reads fewer markers, from `safe` on,
   has no later deadlines.
2. A start marker opens its messages, also those that are open: they were handed out once more.
3. Extend, retry and reject move the deadline of a message that is open and of no other: what is
   over stays over. An end marker closes.
4. A due message is told once, and stays open until its end marker is read. Whoever takes the
   partition over finds it open and tells it again: twice is allowed, never is not.
5. `safe` is the offset that may be committed, and below which markers may be deleted: that of the
   oldest start marker with a message that is still open, else the end of what was read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from trimtab.consumer_sdk.queues.kmq.markers import Kind, Marker, Ranges, size
from trimtab.consumer_sdk.queues.kmq.offset_ranges import Spans

TIMEOUT: Final = "timeout"
"""Why a message is due that nobody has settled."""


@dataclass(frozen=True, slots=True)
class Due:
    """A message to deliver again, or to give up; `deadline` is in the broker's milliseconds."""

    offset: int
    delivery: int
    kind: Kind
    reason: str
    deadline: int


@dataclass(slots=True, eq=False)
class _Open:
    """Messages that have all in common; `left` of them are open."""

    start: int  # offset of the start marker
    deadline: int
    delivery: int
    kind: Kind
    reason: str
    ranges: Ranges
    left: int = 0


@dataclass(slots=True)
class Ledger:
    """The open messages of one partition; `next` is the offset of the next marker to read."""

    now: int = 0
    next: int = 0
    returned: int = 0  # of the open messages those that nobody has in hand: given back, or up
    _open: Spans[_Open] = field(default_factory=Spans[_Open])
    _heap: list[tuple[int, int, _Open]] = field(default_factory=list[tuple[int, int, _Open]])
    _needed: dict[int, int] = field(default_factory=dict[int, int])  # start marker → open messages
    _count: int = 0  # tells entries of the heap apart

    def __len__(self) -> int:
        """Return how many messages are open."""
        return len(self._open)

    @property
    def safe(self) -> int:
        """The offset that may be committed (rule 5)."""
        return next(iter(self._needed), self.next)

    @property
    def deadline(self) -> int | None:
        """When the next message is due; None where none is waited for."""
        while self._heap and not self._heap[0][2].left:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, at: int, appended: int, marker: Marker) -> None:
        """Take in the marker at an offset, with the time when it was appended."""
        self.next = at + 1
        self.now = max(self.now, appended)
        ranges, deadline = marker.ranges, self.now + marker.ms
        match marker.kind:
            case Kind.START:
                self._close(ranges)
                if ranges:
                    self._needed[at] = size(ranges)
                self._enter(_Open(at, deadline, marker.delivery, Kind.START, TIMEOUT, ranges))
            case Kind.EXTEND:
                self._move(ranges, deadline, Kind.START, TIMEOUT)
            case Kind.RETRY | Kind.REJECT:
                self._move(ranges, deadline, marker.kind, marker.reason or marker.kind.value)
            case Kind.END:
                self._close(ranges)
            case Kind.TICK:
                pass

    def due(self, most: int) -> list[Due]:
        """Return messages that are due, `most` of them or a few more, and forget their deadlines.

        Those that could not be dealt with must be given to `postpone`.
        """
        found: list[Due] = []
        while len(found) < most and self.deadline is not None and self.deadline <= self.now:
            _, _, of = heappop(self._heap)
            found += (
                Due(offset, of.delivery, of.kind, of.reason, of.deadline)
                for begin, end in of.ranges
                for first, last, owner in self._open.within(begin, end)
                if owner is of
                for offset in range(first, last + 1)
            )
        return found

    def postpone(self, messages: Iterable[Due], ms: int) -> None:
        """Let messages that were due be due again in so many milliseconds, if they are open."""
        places = (message.offset for message in messages)
        found = (of for place in places for _, _, of in self._open.within(place, place))
        for of in {id(of): of for of in found}.values():
            self._wait(of, self.now + ms)

    def _enter(self, of: _Open) -> None:
        of.left = size(of.ranges)
        self.returned += of.left * (of.kind is not Kind.START)
        for first, last in of.ranges:
            self._open.put(first, last, of)
        if of.left:
            self._wait(of, of.deadline)

    def _wait(self, of: _Open, deadline: int) -> None:
        self._count += 1
        heappush(self._heap, (deadline, self._count, of))

    def _move(self, ranges: Ranges, deadline: int, kind: Kind, reason: str) -> None:
        """Give open messages a new deadline, unless they are to be given back or up already."""
        groups: dict[int, tuple[_Open, list[tuple[int, int]]]] = {}
        for begin, end in ranges:
            for first, last, of in self._open.within(begin, end):
                if of.kind is Kind.START or kind is not Kind.START:
                    groups.setdefault(id(of), (of, []))[1].append((first, last))
        for of, moved in groups.values():
            self._leave(of, size(moved))
            self._enter(_Open(of.start, deadline, of.delivery, kind, reason, tuple(moved)))

    def _close(self, ranges: Ranges) -> None:
        for begin, end in ranges:
            for first, last, of in self._open.cut(begin, end):
                count = last - first + 1
                self._leave(of, count)
                self._needed[of.start] -= count
                if not self._needed[of.start]:
                    del self._needed[of.start]

    def _leave(self, of: _Open, count: int) -> None:
        of.left -= count
        self.returned -= count * (of.kind is not Kind.START)
