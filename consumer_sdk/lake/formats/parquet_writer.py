"""Arrow tables to Parquet files, written in this process instead of by a Spark job.

Rules of every table format, like those of Spark's writers:

1. A file has all of the table's columns, matched by name; columns missing in the rows are null.
2. A value takes a column's type only if that never changes it (`keeps_values`); texts of other types are
   left to Spark. Everything else is TableSchemaMismatchError.
3. A column that the table requires has a value in every row.
4. A local file is written in place; a file of another storage is written to a temporary folder and
   uploaded with the table's client of that storage. After a failure no file is left.
"""

import errno
import logging
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import DataType, StringType

from trimtab.common.units import format_count
from trimtab.consumer_sdk.errors import DiskFullError, LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.schema.column_mapping import (
    NOTHING_WRITTEN,
    ColumnTypeMismatchError,
    find_missing_columns,
    spark_schema_of,
)
from trimtab.consumer_sdk.lake.schema.schema_evolution import find_misfits, keeps_values
from trimtab.consumer_sdk.lake.spark.jvm_errors import JVM_ERRORS, MaskedError

log = logging.getLogger("trimtab.lake")

ArrowSchema: TypeAlias = Any  # pyarrow ships no types
ArrowType: TypeAlias = Any
T = TypeVar("T")

_DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Without pa.ArrowMemoryError, which is no mismatch.
_ARROW_VALUE_ERRORS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


class ArrowFilesRefusedError(TableSchemaMismatchError):
    """A table, or rows of it, that Arrow's writer cannot write but Spark may."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: set lake.file.writer=spark. {NOTHING_WRITTEN}")
        self.reason: Final = reason


@dataclass(frozen=True, slots=True)
class ParquetCodec:
    """Compression of a file, in Parquet's names."""

    name: str
    level: int | None = None  # None: the codec's default


def local_path(path: Any) -> str | None:
    """Return the local path of a path in Hadoop's terms, None in another storage.

    A path without a scheme is in the default file system, `fs.defaultFS`, which only Hadoop knows.
    """
    uri = path.toUri()
    return str(uri.getPath()) if uri.getScheme() == "file" else None


def refuse_table(table: str, reasons: Iterable[tuple[object, str]]) -> None:
    """Raise ArrowFilesRefusedError for the first reason that holds."""
    for holds, what in reasons:
        if holds:
            raise ArrowFilesRefusedError(
                f"table {table} {what}, and files from Arrow are plain Parquet files of tables without "
                "partitions"
            )


def fit_to_schema(table: str, rows: Records, schema: ArrowSchema) -> Records:
    """Return the rows with the table's columns and types. Raises TableSchemaMismatchError."""
    find_missing_columns(table, spark_schema_of(rows), from_arrow_schema(schema))
    have = {name.lower(): name for name in rows.column_names}
    arrays = [
        pa.nulls(rows.num_rows, field.type)
        if (name := have.get(field.name.lower())) is None
        else _cast_column(table, field, rows.column(name))
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def write_parquet(
    table: str, rows: Records, target: "ParquetTarget", codec: ParquetCodec, describe: Callable[[str], T]
) -> T:
    """Write a Parquet file; return what `describe` returns of its local path.

    Raises TableSchemaMismatchError, DiskFullError, LakeUnavailableError.
    """
    options: dict[str, Any] = {
        "compression": codec.name,
        "compression_level": codec.level,
        "store_decimal_as_integer": True,  # as Spark's writer
        "store_schema": False,  # Arrow's copy of the schema, which no reader of a table uses
        # Keys and values seldom repeat: a dictionary of bytes would be built and dropped again.
        "use_dictionary": [field.name for field in rows.schema if not kinds.is_binary(field.type)],
        # One: Iceberg would take the bounds of the groups whose statistics have some for the file's.
        "row_group_size": max(rows.num_rows, 1),
    }
    place = target.path
    try:
        with target.writable_path() as path:
            place = path  # a full disk is reported with the temporary path, a failed upload is not
            pq.write_table(rows, path, **options)
            description = describe(path)  # before the upload: an object store would be asked for it again
            place = target.path
    except _ARROW_VALUE_ERRORS as error:
        raise ArrowFilesRefusedError(f"table {table} cannot be written from these rows: {error}") from error
    except OSError as error:
        place = error.filename or place
        if error.errno in _DISK_FULL_ERRNOS:
            raise DiskFullError(f"{place}: the storage is full, make room: {error}") from error
        raise LakeUnavailableError(f"{place}: cannot be written: {error}") from error
    return description


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    """Destination of a file, in Hadoop's terms."""

    path: Any
    open_stream: Callable[[], Any]  # in the JVM
    delete_file: Callable[[], object]
    root: Any  # the JVM's packages

    @contextmanager
    def writable_path(self) -> Generator[str, None, None]:
        """Yield the local path to write at (rule 4)."""
        if (place := local_path(self.path)) is not None:
            yield from _write_in_place(Path(place))
            return
        with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
            local = str(Path(folder, "data.parquet"))
            yield local
            self._upload_file(local)

    def _upload_file(self, local: str) -> None:
        stream = self.open_stream()
        # Closing completes the object in an object store, even a truncated one: delete it then.
        with self.delete_on_failure():
            try:
                self.root.java.nio.file.Files.copy(self.root.java.io.File(local).toPath(), stream)
            finally:
                stream.close()

    @contextmanager
    def delete_on_failure(self) -> Generator[None, None, None]:
        """Delete the file if the block fails: no table would reference it."""
        try:
            yield
        except BaseException:
            try:
                self.delete_file()
            except JVM_ERRORS as error:  # logged only: raising it would hide the first error
                log.warning("%s stays until orphans are removed: %s", self.path, MaskedError(error))
            raise


def _write_in_place(path: Path) -> Generator[str, None, None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield str(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _cast_column(table: str, field: Any, values: Any) -> Any:
    if values.type != field.type:
        _check_type_fits(table, field.name, values.type, field.type)
    if not field.nullable and values.null_count:
        rows = format_count(values.null_count, "row has", "rows have")
        raise TableSchemaMismatchError(
            f"table {table}: its column {field.name} is required, and {rows} "
            f"no value for it. {NOTHING_WRITTEN}"
        )
    try:
        return values if values.type == field.type else values.cast(field.type)
    except _ARROW_VALUE_ERRORS as error:  # e.g. milliseconds beyond the range of microseconds
        raise ArrowFilesRefusedError(
            f"table {table}: its column {field.name} does not take the values of these rows: {error}"
        ) from error


def _check_type_fits(table: str, column: str, have: ArrowType, want: ArrowType) -> None:
    """Raise TableSchemaMismatchError unless every value of one type fits the other (rule 2)."""
    first, second = (from_arrow_type(kind, prefer_timestamp_ntz=True) for kind in (have, want))
    for path, kind, wanted in find_misfits(first, second, _is_written_by_arrow, (column,)):
        name = "missing" if wanted is None else wanted.simpleString()
        mismatch = ColumnTypeMismatchError(table, path, kind.simpleString(), name)
        if wanted is not None and not keeps_values(kind, wanted):
            raise mismatch
        raise ArrowFilesRefusedError(f"{mismatch.fault}, and Arrow only widens numbers and times")


def _is_written_by_arrow(have: DataType, want: DataType) -> bool:
    return keeps_values(have, want) and (not isinstance(want, StringType) or isinstance(have, StringType))
