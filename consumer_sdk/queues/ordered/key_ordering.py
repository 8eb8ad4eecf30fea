"""State of one partition of an `ordered` queue: messages read, in flight, finished. Pure.

The rules:

1. At most one message of a key is in flight, in the order of the log. Messages without a key
   never wait.
2. The committable offset is that of the first unfinished message.
3. `strict` (at most once) delivers in the order of the log and stops at the first message whose
   key is in flight. A delivered message counts as finished: it is committed before delivery.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

MessageT = TypeVar("MessageT")
Key: TypeAlias = bytes | None


@dataclass(slots=True, eq=False)
class KeyOrdering(Generic[MessageT]):
    """Messages of one partition, by offset."""

    strict: bool = False
    end_offset: int = 0
    _unfinished: dict[int, Key] = field(default_factory=dict[int, Key])  # ascending: read in order
    _ready: deque[tuple[int, Key, MessageT]] = field(default_factory=deque[tuple[int, Key, MessageT]])
    # A key is present while one of its messages is ready or in flight.
    _waiting: dict[bytes, deque[tuple[int, MessageT]]] = field(
        default_factory=dict[bytes, deque[tuple[int, MessageT]]]
    )
    _in_flight: dict[int, Key] = field(default_factory=dict[int, Key])
    _busy_keys: set[bytes] = field(default_factory=set[bytes])

    def __len__(self) -> int:
        """Return the number of messages that wait or are in flight."""
        # `strict` counts a delivered message as finished.
        return len(self._ready) + len(self._in_flight) if self.strict else len(self._unfinished)

    @property
    def in_flight_count(self) -> int:
        """Number of messages in flight."""
        return len(self._in_flight)

    @property
    def committable_offset(self) -> int:
        """Offset to commit (rule 2)."""
        return next(iter(self._unfinished), self.end_offset)

    def add_message(self, offset: int, key: Key, message: MessageT) -> None:
        """Add the next message of the log."""
        self.end_offset = offset + 1
        self._unfinished[offset] = key
        if self.strict or key is None:
            self._ready.append((offset, key, message))
        elif key in self._waiting:
            self._waiting[key].append((offset, message))
        else:
            self._waiting[key] = deque()
            self._ready.append((offset, key, message))

    def release_ready(self, max_messages: int) -> list[MessageT]:
        """Return up to `max_messages` deliverable messages; they are in flight from now on."""
        released: list[MessageT] = []
        while self._ready and len(released) < max_messages:
            offset, key, message = self._ready[0]
            if key in self._busy_keys:  # only if strict: else such a key waits in its own queue
                break
            self._ready.popleft()
            self._in_flight[offset] = key
            if key is not None:
                self._busy_keys.add(key)
            if self.strict:
                del self._unfinished[offset]
            released.append(message)
        return released

    def finish_message(self, offset: int) -> None:
        """Mark a message in flight as finished."""
        key = self._in_flight.pop(offset)
        self._unfinished.pop(offset, None)
        if key is None:
            return
        self._busy_keys.discard(key)
        waiting = self._waiting.get(key)
        if waiting:
            next_offset, message = waiting.popleft()
            self._ready.append((next_offset, key, message))
        elif waiting is not None:
            del self._waiting[key]

    def undo_release(self, offsets: Collection[int]) -> None:
        """Undo the last `release_ready` if `strict`: the log is read again from these offsets."""
        for offset in offsets:
            key = self._in_flight.pop(offset)
            if key is not None:
                self._busy_keys.discard(key)
        self.end_offset = min(offsets)
        self._unfinished.clear()
        self._ready.clear()

    def discard_waiting(self) -> None:
        """Discard messages not in flight: the partition's next owner reads them."""
        self._ready.clear()
        self._waiting.clear()
