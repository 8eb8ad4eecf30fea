"""Key columns of data files that were read before, kept from flush to flush."""

from dataclasses import dataclass
from typing import Any, Final

from trimtab.common.clock import Clock
from trimtab.consumer_sdk.lake.formats.file_cache import FILE_OVERHEAD_BYTES, FileCache
from trimtab.consumer_sdk.lake.model.interfaces import Records

KEY_CACHE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class FileKeys:
    """Key columns of a data file."""

    row_count: int
    columns: Records | None  # None: the file is older than they are

    @property
    def memory_bytes(self) -> int:
        """The memory that they take, about."""
        return FILE_OVERHEAD_BYTES + (0 if self.columns is None else int(self.columns.nbytes))


class KeyCache(FileCache[FileKeys]):
    """Keys of the data files of all tables of a lake."""

    def __init__(self, limit: int = KEY_CACHE_BYTES, clock: Clock | None = None) -> None:
        super().__init__(limit, clock)


@dataclass(frozen=True, slots=True)
class FileCaches:
    """What a lake keeps of the files of its tables from flush to flush."""

    keys: KeyCache
    vectors: Any  # deletion vectors: Iceberg's `ContentCache`, Delta's `VectorCache`
