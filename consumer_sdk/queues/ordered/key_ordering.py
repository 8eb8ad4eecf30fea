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

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Lanes(Generic[T]):
    """Messages of one partition, by offset."""

    strict: bool = False
    end: int = 0
    _open: dict[int, bytes | None] = field(default_factory=dict[int, bytes | None])
    _ready: deque[tuple[int, bytes | None, T]] = field(
        default_factory=deque[tuple[int, bytes | None, T]]
    )
    _behind: dict[bytes, deque[tuple[int, T]]] = field(
        default_factory=dict[bytes, deque[tuple[int, T]]]
    )
    _working: dict[int, bytes | None] = field(default_factory=dict[int, bytes | None])
    _busy: set[bytes] = field(default_factory=set[bytes])

    def __len__(self) -> int:
        """Return how many messages are held: waiting or in work."""
        return len(self._open) if not self.strict else len(self._ready) + len(self._working)

    @property
    def working(self) -> int:
        """How many messages are in work."""
        return len(self._working)

    @property
    def committable(self) -> int:
        """The offset that may be committed (rule 2)."""
        return next(iter(self._open), self.end)

    def add(self, offset: int, key: bytes | None, message: T) -> None:
        """Take in the next message of the log."""
        self.end = offset + 1
        self._open[offset] = key
        if self.strict or key is None:
            self._ready.append((offset, key, message))
        elif key in self._behind:
            self._behind[key].append((offset, message))
        else:
            self._behind[key] = deque()
            self._ready.append((offset, key, message))

    def take(self, most: int) -> list[T]:
        """Hand out up to `most` messages that nothing holds back."""
        taken: list[T] = []
        while self._ready and len(taken) < most:
            offset, key, message = self._ready[0]
            if key in self._busy:  # only where strict
                break
            self._ready.popleft()
            self._working[offset] = key
            if key is not None:
                self._busy.add(key)
            if self.strict:
                del self._open[offset]
            taken.append(message)
        return taken

    def finish(self, offset: int) -> None:
        """Note that a message which was handed out is over."""
        key = self._working.pop(offset)
        self._open.pop(offset, None)
        if key is None:
            return
        self._busy.discard(key)
        behind = self._behind.get(key)
        if behind:
            following, message = behind.popleft()
            self._ready.append((following, key, message))
        elif behind is not None:
            del self._behind[key]

    def take_back(self, offsets: Collection[int]) -> None:
        """Undo the last `take` where `strict`: these and all behind them will be added again."""
        for offset in offsets:
            key = self._working.pop(offset)
            if key is not None:
                self._busy.discard(key)
        self.end = min(offsets)
        self._open.clear()
        self._ready.clear()

    def discard(self) -> None:
        """Forget what is not in work: somebody else will read it."""
        self._ready.clear()
        self._behind.clear()
