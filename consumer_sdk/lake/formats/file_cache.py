"""What was read of files that never change, kept from flush to flush."""

import threading
from collections.abc import Collection, Hashable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from trimtab.common.clock import Clock, SystemClock

VECTOR_CACHE_BYTES: Final = 32 << 20  # of the JVM's memory, for deletion vectors of all tables
FILE_OVERHEAD_BYTES: Final = 1000  # of the names and objects of a file, about
IDLE_TABLE_S: Final = 600.0  # of a table that was not searched since, nothing is kept


class CachedContent(Protocol):
    """What was read of a file."""

    @property
    def memory_bytes(self) -> int:
        """The memory that it takes, about."""
        ...


ContentT = TypeVar("ContentT", bound=CachedContent)


class FileCache(Generic[ContentT]):
    """Contents of the files of all tables of a lake, up to a size; used by the threads of several flushes.

    A full cache drops files of the table that has most of it, and never those of a smaller one: two tables
    that do not fit do not drop each other's in turn, and of one that does not fit a part stays.

    A table that this process no longer writes, since its partitions were revoked, is dropped by age, with
    the next flush of another one: a rebalance may give them back within seconds. So is one that is flushed
    less often.
    """

    def __init__(self, limit: int, clock: Clock | None = None) -> None:
        self._limit = limit
        self._clock = clock or SystemClock()
        self._files: dict[str, dict[Hashable, ContentT]] = {}  # by table
        self._bytes: dict[str, int] = {}  # by table
        self._used_at: dict[str, float] = {}  # by table
        self._lock = threading.Lock()

    @property
    def memory_bytes(self) -> int:
        """The memory of all contents."""
        return sum(self._bytes.values())

    def find(self, table: str, file: Hashable) -> ContentT | None:
        """Return the content of a file, None if it is not kept."""
        with self._lock:
            return self._files.get(table, {}).get(file)

    def add(self, table: str, file: Hashable, content: ContentT) -> None:
        """Keep the content of a file if there is room."""
        with self._lock:
            if file not in self._files.get(table, {}) and self._make_room(table, content.memory_bytes):
                self._files.setdefault(table, {})[file] = content
                self._bytes[table] = self._bytes.get(table, 0) + content.memory_bytes
                self._used_at.setdefault(table, self._clock.monotonic())

    def retain(self, table: str, files: Collection[Hashable]) -> None:
        """Drop idle tables, and the files of this one that are none of these: it has lost them."""
        with self._lock:
            self._used_at[table] = self._clock.monotonic()
            self._drop_idle_tables()
            for file in self._files.get(table, {}).keys() - files:
                self._drop(table, file)

    def discard(self, table: str, files: Collection[Hashable]) -> None:
        """Drop these files of a table."""
        with self._lock:
            for file in self._files.get(table, {}).keys() & files:
                self._drop(table, file)

    def _drop_idle_tables(self) -> None:
        oldest = self._clock.monotonic() - IDLE_TABLE_S
        for table in [table for table, used_at in self._used_at.items() if used_at < oldest]:
            del self._used_at[table]
            self._files.pop(table, None)
            self._bytes.pop(table, None)

    def _make_room(self, table: str, size: int) -> bool:
        while self.memory_bytes + size > self._limit:
            largest = _find_largest(self._bytes)
            if largest is None or self._bytes[largest] <= self._bytes.get(table, 0) + size:
                return False
            self._drop(largest, next(iter(self._files[largest])))
        return True

    def _drop(self, table: str, file: Hashable) -> None:
        self._bytes[table] -= self._files[table].pop(file).memory_bytes


def _find_largest(sizes: Mapping[str, int]) -> str | None:
    return max(sizes, key=lambda table: (sizes[table], table), default=None)
