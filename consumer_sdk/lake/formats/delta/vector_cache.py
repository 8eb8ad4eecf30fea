"""Deletion vectors of Delta tables, kept from flush to flush.

A vector never changes: a data file whose rows are deleted gets another one, with another id.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.consumer_sdk.lake.formats.file_cache import VECTOR_CACHE_BYTES, FileCache


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
    """Deletion vectors of all tables of a lake, by their ids."""

    def __init__(self, limit: int = VECTOR_CACHE_BYTES) -> None:
        super().__init__(limit)


def read_vector_id(add: Mapping[str, Any]) -> Hashable:
    """Return what Delta's protocol derives as `uniqueId` of an `add` action's vector, None without one."""
    vector = add.get("deletionVector")
    return vector and (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))
