"""Positions of rows by key in Parquet data files: only the key columns are read.

There is no index: nothing has to be kept, rebuilt, or to follow a compaction.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from trimtab.consumer_sdk.errors import LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats import parquet_writer
from trimtab.consumer_sdk.lake.formats.parquet_writer import ArrowSchema
from trimtab.consumer_sdk.lake.interfaces import Records

Positions: TypeAlias = Any  # numpy array of int64, ascending: places of rows in a file, from 0
# Returns the names of the key columns in a file's schema, None if it lacks one.
KeyNames: TypeAlias = Callable[[ArrowSchema], Sequence[str] | None]

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
class ParquetSource:
    """A data file, in Hadoop's terms."""

    path: Any
    size: int
    open_stream: Callable[[], Any]  # in the JVM

    def find_rows(self, keys: Records, key_names: KeyNames) -> Positions:
        """Return the rows with one of these keys. Raises like the function, and exceptions of the JVM."""
        local = parquet_writer.local_path(self.path)
        if local is not None:
            return find_rows(local, keys, key_names)
        with JavaFile(str(self.path), self.open_stream(), self.size) as file:
            return find_rows(file, keys, key_names)


def find_rows(source: Any, keys: Records, key_names: KeyNames) -> Positions:
    """Return the rows of a Parquet file with one of these keys; `source` is a path or a file object.

    Raises LakeUnavailableError, TableSchemaMismatchError.
    """
    try:
        with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
            names = key_names(file.schema_arrow)
            # without the columns the file is older than they are: its rows have no key
            return NO_POSITIONS if names is None else _search_file(file, names, keys)
    except OSError as error:
        raise LakeUnavailableError(f"{source}: its keys cannot be read: {error}") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # at the next try as well
        raise TableSchemaMismatchError(
            f"{source}: its keys cannot be compared with those of the changes: {error}. Restore the file "
            f"if it is damaged; else {KEY_ADVICE}"
        ) from error


def to_java_list(positions: Positions, gateway: Any) -> Any:
    """Return positions as a Java list; one call passes all of them. `gateway` is py4j's."""
    java = gateway.jvm.java
    numbers = java.nio.ByteBuffer.wrap(positions.astype(">i8").tobytes()).asLongBuffer()
    array = gateway.new_array(gateway.jvm.long, len(positions))
    numbers.get(array)
    return java.util.Arrays.stream(array).boxed().toList()


class JavaFile(io.RawIOBase):
    """A file of any storage, read with the table's own client of it."""

    def __init__(self, location: str, stream: Any, size: int) -> None:
        super().__init__()
        self._location = location
        self._stream = stream  # Iceberg's or Hadoop's seekable input stream
        self._size = size

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
        return int(self._stream.getPos())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position in bytes and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._stream.seek(start + offset)
        return start + offset

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return the number of bytes, fewer at the end."""
        data = bytes(self._stream.readNBytes(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the stream."""
        if not self.closed:
            self._stream.close()
        super().close()


def _search_file(file: Any, names: Sequence[str], keys: Records) -> Positions:
    if not names:  # the keys are those of the whole file
        return np.arange(file.metadata.num_rows)
    found: list[Positions] = []
    first = 0
    for group in range(file.num_row_groups):
        # in this thread: each further one would connect to the JVM
        rows = file.read_row_group(group, columns=list(names), use_threads=False).select(list(names))
        found.append(first + _match_rows(rows.rename_columns(keys.column_names), keys))
        first += rows.num_rows
    return np.concatenate([NO_POSITIONS, *found])


def _match_rows(rows: Records, keys: Records) -> Positions:
    # a file may be older than a widening of the column
    numbered = rows.cast(keys.schema).append_column(_ROW, [np.arange(rows.num_rows)])
    matched = numbered.join(keys, keys.column_names, join_type="left semi", use_threads=False)
    return np.sort(matched.column(_ROW).to_numpy())


def _is_comparable(kind: Any) -> bool:
    # of floating-point numbers NaN equals nothing, not even itself
    return not (kinds.is_floating(kind) or kinds.is_nested(kind))
