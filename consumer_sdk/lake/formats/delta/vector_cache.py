"""Deletion vectors of Delta tables, kept from flush to flush.

A vector never changes: a data file whose rows are deleted gets another one, at another place.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trimtab.consumer_sdk.lake.formats.file_cache import FileCache

VECTOR_CACHE_BYTES: Final = 32 << 20  # of the JVM's memory
_PLACE: Final = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes")


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The deleted rows of a data file."""

    bitmap: Any  # Delta's `RoaringBitmapArray`
    stored_bytes: int

    @property
    def memory_bytes(self) -> int:
        """The memory that it takes, about."""
        return 1000 + self.stored_bytes


class VectorCache(FileCache[DeletionVector]):
    """Deletion vectors of all tables of a lake, by their places."""

    def __init__(self, limit: int = VECTOR_CACHE_BYTES) -> None:
        super().__init__(limit)


def read_vector_place(add: Mapping[str, Any]) -> Hashable:
    """Return where the deletion vector of an `add` action is stored, None without one."""
    descriptor = add.get("deletionVector")
    return descriptor and tuple(descriptor.get(name) for name in _PLACE)
