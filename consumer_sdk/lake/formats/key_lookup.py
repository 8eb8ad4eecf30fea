"""Positions of rows by key in Parquet data files: only the key columns are read.

There is no index: nothing has to be rebuilt, or to follow a compaction.
"""

import io
import re
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from trimtab.consumer_sdk.errors import LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats import parquet_writer
from trimtab.consumer_sdk.lake.formats.key_cache import FileKeys, KeyCache
from trimtab.consumer_sdk.lake.formats.parquet_writer import ArrowSchema
from trimtab.consumer_sdk.lake.formats.side_by_side import PARALLEL_READS, map_side_by_side
from trimtab.consumer_sdk.lake.model.interfaces import Records

Positions: TypeAlias = Any  # numpy array of int64, ascending: places of rows in a file, from 0
# Returns the names of the key columns in a file's schema, None if it lacks one.
KeyNames: TypeAlias = Callable[[ArrowSchema], Sequence[str] | None]

# Reads from a stream in the JVM up to a number of bytes, fewer at the end.
ReadBytes: TypeAlias = Callable[[Any, int], bytes]

WHOLE_FILE_BYTES: Final = 1 << 20
"""Up to this size a file of an object storage is read by one request, in place of one for its footer and more
for its key columns: an answer takes longer than the transfer."""

VECTOR_WINDOW_BYTES: Final = 32 << 20
"""Of deletion vectors that a commit merges and writes at a time; a table of many rows may have more."""

FileT = TypeVar("FileT")

_KEPT_ROWS: Final = 1_000_000
"""The keys of a file with more rows are read by row group, and not kept."""

_WINDOW_BYTES: Final = 16 << 20  # of files whose keys are in memory at a time, beside the cache
_LOCAL_URI: Final = re.compile(r"file:(?://[^/]*)?(/.*)", re.DOTALL)

NO_POSITIONS: Final[Positions] = np.empty(0, np.int64)
KEY_ADVICE: Final = (
    "correct lake.key, or write the topic to another table (lake.tables). Nothing was written and no "
    "offset moved"
)
_ROW: Final = "__row"


def fit_keys(table: str, changes: KeyedChanges, columns: ArrowSchema) -> Records:
    """Return the touched keys with the table's names and types. Raises TableSchemaMismatchError."""
    by_name = {field.name.lower(): field for field in columns if _is_comparable(field.type)}
    for name in changes.key_columns:
        if name.lower() not in by_name:
            raise TableSchemaMismatchError(
                f"table {table}: the key column {name} is missing, or its values cannot be compared; a key "
                f"may consist of {', '.join(f.name for f in by_name.values())}: {KEY_ADVICE}"
            )
        if nulls := changes.touched_keys.column(name).null_count:
            raise TableSchemaMismatchError(
                f"table {table}: the key column {name} is null in {nulls} changes: {KEY_ADVICE}"
            )
    # optional: a file that another program wrote may have rows without a key
    schema = pa.schema([by_name[n.lower()].with_nullable(nullable=True) for n in changes.key_columns])
    try:
        return parquet_writer.fit_to_schema(table, changes.touched_keys, schema)
    except parquet_writer.ArrowFilesRefusedError as error:  # Spark would not look for keys either
        raise TableSchemaMismatchError(f"{error.reason}: {KEY_ADVICE}") from error


@dataclass(frozen=True, slots=True)
class SearchedFile:
    """A data file in which keys are looked up."""

    location: str  # as Hadoop writes it, with its scheme
    size: int
    open_stream: Callable[[], Any]  # in the JVM
    keys: Records
    key_names: KeyNames
    cache_key: Hashable  # its key columns in the cache

    @property
    def local_path(self) -> str | None:
        """The local path, None in another storage."""
        found = _LOCAL_URI.fullmatch(self.location)
        return found and found[1]

    @property
    def is_small_object(self) -> bool:
        """Whether it takes longer to wait for the storage's answer than to transfer the file."""
        return self.size <= WHOLE_FILE_BYTES and self.local_path is None


@dataclass(frozen=True, slots=True)
class KeySearch:
    """Looks keys up in data files of a table; small objects are read side by side."""

    table: str
    cache: KeyCache
    read_bytes: ReadBytes

    def find_rows(self, files: Sequence[SearchedFile]) -> list[Positions]:
        """Return the rows of each file with one of its keys.

        Raises LakeUnavailableError, TableSchemaMismatchError, exceptions of the JVM.
        """
        found: list[Positions] = []
        for window in split_by_size(files, lambda file: file.size, _WINDOW_BYTES):
            found += self._match_window(window, self._load_window(window))
        return found

    def _load_window(self, files: Sequence[SearchedFile]) -> "list[FileKeys | Positions]":
        kept = {file.cache_key: self.cache.find(self.table, file.cache_key) for file in files}
        objects = [file for file in files if file.is_small_object and kept[file.cache_key] is None]
        read = map_side_by_side(self._load_file, objects, PARALLEL_READS)
        loaded = kept | dict(zip((file.cache_key for file in objects), read, strict=True))
        return [self._load_file(file) if (k := loaded[file.cache_key]) is None else k for file in files]

    def _load_file(self, file: SearchedFile) -> "FileKeys | Positions":
        """Return the keys of a file, or the rows found in one with many keys."""
        if (path := file.local_path) is not None:
            loaded = load_keys(path, file.keys, file.key_names)
        else:
            with JavaFile(file.location, file.open_stream(), file.size, self.read_bytes) as opened:
                loaded = load_keys(opened, file.keys, file.key_names)
        if isinstance(loaded, FileKeys):
            self.cache.add(self.table, file.cache_key, loaded)
        return loaded

    def _match_window(
        self, files: Sequence[SearchedFile], loaded: "Sequence[FileKeys | Positions]"
    ) -> list[Positions]:
        """Match the files with the same keys together: each join would hash the keys again."""
        positions = list(loaded)
        by_keys: dict[int, list[int]] = {}
        for number, file in enumerate(files):
            if isinstance(loaded[number], FileKeys):
                by_keys.setdefault(id(file.keys), []).append(number)
        for numbers in by_keys.values():
            pairs = [(files[number].location, loaded[number]) for number in numbers]
            found = match_keys(pairs, files[numbers[0]].keys)
            for number, rows in zip(numbers, found, strict=True):
                positions[number] = rows
        return positions


def load_keys(source: Any, keys: Records, key_names: KeyNames) -> "FileKeys | Positions":
    """Return the keys of a Parquet file, or its rows with one of `keys` if it has many.

    `source` is a path or a file object. Raises LakeUnavailableError, TableSchemaMismatchError.
    """
    with _name_errors(source), pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
        names = key_names(file.schema_arrow)
        if names and file.metadata.num_rows > _KEPT_ROWS:
            return _search_groups(source, file, names, keys)
        return _read_keys(file, names)


def match_keys(files: Sequence[tuple[object, FileKeys]], keys: Records) -> list[Positions]:
    """Return the rows of each file, given with its name, that have one of the keys."""
    if not keys.column_names:  # those of the files' partition, so all rows have one
        return [np.arange(known.row_count) for _, known in files]
    tables = [_fit_columns(name, known, keys) for name, known in files]
    starts = np.cumsum([0, *(table.num_rows for table in tables)])
    rows = _match_rows(pa.concat_tables(tables), keys)
    splits = np.searchsorted(rows, starts)
    return [rows[a:b] - first for a, b, first in zip(splits, splits[1:], starts, strict=False)]


def _fit_columns(name: object, known: FileKeys, keys: Records) -> Records:
    if known.columns is None:  # its rows have no key
        return keys.schema.empty_table()
    with _name_errors(name):  # a file may be older than a widening of the column
        return known.columns.rename_columns(keys.column_names).cast(keys.schema)


def split_by_size(
    files: Iterable[FileT], measure: Callable[[FileT], int], limit: int
) -> Iterator[list[FileT]]:
    """Yield the files in groups that fit into memory at a time; one that is larger has a group of its own."""
    window: list[FileT] = []
    size = 0
    for file in files:
        if window and size + measure(file) > limit:
            yield window
            window, size = [], 0
        window.append(file)
        size += measure(file)
    if window:
        yield window


@contextmanager
def _name_errors(source: object) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise LakeUnavailableError(f"{source}: its keys cannot be read: {error}") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # at the next try as well
        raise TableSchemaMismatchError(
            f"{source}: its keys cannot be compared with those of the changes: {error}. Restore the file "
            f"if it is damaged; else {KEY_ADVICE}"
        ) from error


class PositionLists:
    """Turns positions into Java lists; one call passes all of one file."""

    def __init__(self, gateway: Any) -> None:
        java = gateway.jvm.java  # once: py4j asks the JVM for each of these names
        self._wrap, self._stream = java.nio.ByteBuffer.wrap, java.util.Arrays.stream
        self._create_array = partial(gateway.new_array, gateway.jvm.long)

    def convert(self, positions: Positions) -> Any:
        """Return a list of Longs."""
        array = self._create_array(len(positions))
        self._wrap(positions.astype(">i8").tobytes()).asLongBuffer().get(array)
        return self._stream(array).boxed().toList()


def read_bytes_by(gateway: Any) -> "ReadBytes":
    """Return the function that reads from streams in a JVM. `gateway` is py4j's."""
    buffers = gateway.jvm.java.io.ByteArrayOutputStream
    copy = gateway.jvm.org.apache.commons.io.IOUtils.copyLarge

    def read_bytes(stream: Any, count: int) -> bytes:
        buffer = buffers()
        copy(stream, buffer, 0, count)
        # as text: py4j would decode an array byte by byte, in Python
        return str(buffer.toString("ISO-8859-1")).encode("latin-1")

    return read_bytes


class JavaFile(io.RawIOBase):
    """A file of any storage, read with the table's own client of it; a small one by one request."""

    def __init__(self, location: str, stream: Any, size: int, read_bytes: ReadBytes) -> None:
        super().__init__()
        self._location = location
        self._stream = stream  # Iceberg's or Hadoop's seekable input stream
        self._size = size
        self._read_bytes = read_bytes
        self._position = 0
        self._whole: bytes | None = None

    def __str__(self) -> str:
        return self._location

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position in bytes and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return the number of bytes, fewer at the end."""
        count = max(0, min(len(buffer), self._size - self._position))
        data = self._read_whole()[self._position :][:count] if self._is_small() else self._read_part(count)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        """Close the stream."""
        if not self.closed:
            self._stream.close()
        super().close()

    def _is_small(self) -> bool:
        return self._size <= WHOLE_FILE_BYTES

    def _read_whole(self) -> bytes:
        if self._whole is None:
            self._whole = self._read_fully(self._size)
        return self._whole

    def _read_part(self, count: int) -> bytes:
        self._stream.seek(self._position)
        return self._read_fully(count)

    def _read_fully(self, count: int) -> bytes:
        data = self._read_bytes(self._stream, count)
        if len(data) < count:  # a connection that was cut, not a damaged file
            raise OSError(f"{len(data)} of {count} bytes arrived")
        return data


def _read_keys(file: Any, names: Sequence[str] | None) -> FileKeys:
    rows = None if names is None else pa.table({})
    if names:
        # in this thread: each further one would connect to the JVM
        rows = file.read(columns=list(names), use_threads=False).select(list(names))
    return FileKeys(file.metadata.num_rows, rows)


def _search_groups(source: object, file: Any, names: Sequence[str], keys: Records) -> Positions:
    found: list[Positions] = []
    first = 0
    for group in range(file.num_row_groups):
        rows = file.read_row_group(group, columns=list(names), use_threads=False).select(list(names))
        found.append(first + match_keys([(source, FileKeys(rows.num_rows, rows))], keys)[0])
        first += rows.num_rows
    return np.concatenate([NO_POSITIONS, *found])


def _match_rows(rows: Records, keys: Records) -> Positions:
    numbered = rows.append_column(_ROW, [np.arange(rows.num_rows)])
    matched = numbered.join(keys, keys.column_names, join_type="left semi", use_threads=False)
    return np.sort(matched.column(_ROW).to_numpy())


def _is_comparable(kind: Any) -> bool:
    # of floating-point numbers NaN equals nothing, not even itself
    return not (kinds.is_floating(kind) or kinds.is_nested(kind))
