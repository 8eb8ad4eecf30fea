"""`ordered`'s state of one partition: what is read, in work, finished. Pure.

The rules:

1. Of messages with one key at most one is in work, and they go in the order of the log. Messages
   without a key wait for nobody.
2. What may be committed is the offset of the first message that is not finished: no commit is ever
   ahead of one.
3. `strict` (at most once) hands out in the order of the log: it waits at the first message whose
   key is in work. A message that is handed out counts as finished, since it is committed before.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MessageT = TypeVar("MessageT")


@dataclass(slots=True, eq=False)
class KeyOrdering(Generic[MessageT]):
    """Messages of one partition, by offset."""

    strict: bool = False
    end_offset: int = 0
    _unfinished: dict[int, bytes | None] = field(default_factory=dict[int, bytes | None])
    _ready: deque[tuple[int, bytes | None, MessageT]] = field(
        default_factory=deque[tuple[int, bytes | None, MessageT]]
    )
    _waiting_by_key: dict[bytes, deque[tuple[int, MessageT]]] = field(
        default_factory=dict[bytes, deque[tuple[int, MessageT]]]
    )
    _in_work: dict[int, bytes | None] = field(default_factory=dict[int, bytes | None])
    _busy_keys: set[bytes] = field(default_factory=set[bytes])

    def __len__(self) -> int:
        """Return how many messages are held: waiting or in work."""
        return len(self._unfinished) if not self.strict else len(self._ready) + len(self._in_work)

    @property
    def in_work_count(self) -> int:
        """How many messages are in work."""
        return len(self._in_work)

    @property
    def committable_offset(self) -> int:
        """The offset that may be committed (rule 2)."""
        return next(iter(self._unfinished), self.end_offset)

    def add_message(self, offset: int, key: bytes | None, message: MessageT) -> None:
        """Take in the next message of the log."""
        self.end_offset = offset + 1
        self._unfinished[offset] = key
        if self.strict or key is None:
            self._ready.append((offset, key, message))
        elif key in self._waiting_by_key:
            self._waiting_by_key[key].append((offset, message))
        else:
            self._waiting_by_key[key] = deque()
            self._ready.append((offset, key, message))

    def release_ready(self, max_messages: int) -> list[MessageT]:
        """Hand out up to `max_messages` messages that nothing holds back."""
        taken: list[MessageT] = []
        while self._ready and len(taken) < max_messages:
            offset, key, message = self._ready[0]
            if key in self._busy_keys:  # only where strict
                break
            self._ready.popleft()
            self._in_work[offset] = key
            if key is not None:
                self._busy_keys.add(key)
            if self.strict:
                del self._unfinished[offset]
            taken.append(message)
        return taken

    def finish_message(self, offset: int) -> None:
        """Note that a message which was handed out is over."""
        key = self._in_work.pop(offset)
        self._unfinished.pop(offset, None)
        if key is None:
            return
        self._busy_keys.discard(key)
        behind = self._waiting_by_key.get(key)
        if behind:
            following, message = behind.popleft()
            self._ready.append((following, key, message))
        elif behind is not None:
            del self._waiting_by_key[key]

    def undo_release(self, offsets: Collection[int]) -> None:
        """Undo the last `release_ready` where `strict`: these and all behind them will be added again."""
        for offset in offsets:
            key = self._in_work.pop(offset)
            if key is not None:
                self._busy_keys.discard(key)
        self.end_offset = min(offsets)
        self._unfinished.clear()
        self._ready.clear()

    def discard_waiting(self) -> None:
        """Forget what is not in work: somebody else will read it."""
        self._ready.clear()
        self._waiting_by_key.clear()
