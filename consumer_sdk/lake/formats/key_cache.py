"""Key columns of data files that were read before, kept from flush to flush.

Data files never change, so what was read of one holds for as long as it is in its table.
"""

import threading
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from trimtab.consumer_sdk.lake.interfaces import Records

KEY_CACHE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class FileKeys:
    """Key columns of a data file."""

    row_count: int
    columns: Records | None  # None: the file is older than they are

    @property
    def memory_bytes(self) -> int:
        """The memory that they take, about."""
        return 1000 + (0 if self.columns is None else int(self.columns.nbytes))


class KeyCache:
    """Keys of the files of all tables of a lake, up to a size; used by the threads of several flushes.

    A full cache drops files of the table that has most of it, and never those of a smaller one: two tables
    that do not fit do not drop each other's in turn, and of one that does not fit a part stays.
    """

    def __init__(self, limit: int = KEY_CACHE_BYTES) -> None:
        self._limit = limit
        self._files: dict[str, dict[Hashable, FileKeys]] = {}  # by table
        self._bytes: dict[str, int] = {}  # by table
        self._lock = threading.Lock()

    @property
    def memory_bytes(self) -> int:
        """The memory of all keys."""
        return sum(self._bytes.values())

    def find(self, table: str, file: Hashable) -> FileKeys | None:
        """Return the keys of a file, None if they are not kept."""
        with self._lock:
            return self._files.get(table, {}).get(file)

    def add(self, table: str, file: Hashable, keys: FileKeys) -> None:
        """Keep the keys of a file if there is room."""
        with self._lock:
            if file not in self._files.get(table, {}) and self._make_room(table, keys.memory_bytes):
                self._files.setdefault(table, {})[file] = keys
                self._bytes[table] = self._bytes.get(table, 0) + keys.memory_bytes

    def retain(self, table: str, files: Collection[Hashable]) -> None:
        """Drop the files of a table that are none of these: it has lost them to a compaction."""
        with self._lock:
            for file in self._files.get(table, {}).keys() - files:
                self._drop(table, file)

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
