"""Arrow tables to Parquet files: the lane that writes a batch's data files without a Spark job.

The rules, the same for every table format, and those that Spark's writers go by:

1. A file has all of the table's columns, found by name; what the rows lack is null.
2. A value takes a column's type only where that never changes it: a longer integer, a double, a
   decimal of more digits, a finer time. All else is TableSchemaMismatchError.
3. A column that the table requires has a value in every row.
4. A file of this machine is written in its place; one of another storage is written here first and
   handed to the table's own client of that storage. Half a file does not stay, nor does a whole one
   that cannot be named to the table.
"""

import errno
import logging
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds
from pyspark.sql.pandas.types import from_arrow_schema

from trimtab.consumer_sdk.errors import DiskFullError, LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.schema.column_mapping import find_missing_columns, spark_schema_of
from trimtab.consumer_sdk.lake.spark.jvm_errors import JVM_ERRORS

log = logging.getLogger("trimtab.lake")

ArrowSchema: TypeAlias = Any
"""A pyarrow schema; Any, because pyarrow ships no types."""

ArrowType: TypeAlias = Any
"""A pyarrow data type."""

SPARK_WRITER_ADVICE: Final = "set lake.file.writer=spark"
_DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ARROW_VALUE_ERRORS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)
"""What Arrow raises for values; not what it raises for memory."""

_TIME_UNITS: Final = ("s", "ms", "us", "ns")


@dataclass(frozen=True, slots=True)
class ParquetCodec:
    """How a file is compressed, in Parquet's names; `level` None for the codec's own default."""

    name: str
    level: int | None = None


def refuse_table(table: str, reasons: Iterable[tuple[object, str]]) -> None:
    """Raise TableSchemaMismatchError for the first reason that holds."""
    for holds, what in reasons:
        if holds:
            raise TableSchemaMismatchError(
                f"table {table} {what}, and lake.file.writer=arrow writes plain Parquet files of "
                f"tables without partitions: {SPARK_WRITER_ADVICE}. Nothing was written and no "
                "offset moved"
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


def write_parquet(table: str, rows: Records, target: "ParquetTarget", codec: ParquetCodec) -> None:
    """Write the rows as one Parquet file.

    Raises TableSchemaMismatchError, DiskFullError, LakeUnavailableError.
    """
    options: dict[str, Any] = {
        "compression": codec.name,
        "compression_level": codec.level,
        "store_decimal_as_integer": True,  # as Spark's writer
        "store_schema": False,
        "use_dictionary": _dictionary_columns(rows.schema),
    }
    place = target.path
    try:
        with target.writable_path() as path:
            place = path
            pq.write_table(rows, path, **options)
            place = target.path
    except _ARROW_VALUE_ERRORS as error:
        raise TableSchemaMismatchError(
            f"table {table} cannot be written from these rows: {error}: {SPARK_WRITER_ADVICE}. "
            "Nothing was written and no offset moved"
        ) from error
    except OSError as error:
        place = error.filename or place
        if error.errno in _DISK_FULL_ERRNOS:
            told = f"{place}: the storage is full, make room: {error}"
            raise DiskFullError(told) from error
        raise LakeUnavailableError(f"{place}: cannot be written: {error}") from error


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    """Where a file goes.

    `path` is Hadoop's, `open_stream` opens a stream in the JVM, whose packages are `root`, and
    `delete_file` deletes it.
    """

    path: Any
    open_stream: Callable[[], Any]
    delete_file: Callable[[], object]
    root: Any

    @contextmanager
    def writable_path(self) -> Generator[str, None, None]:
        """Yield the local path to write at (rule 4)."""
        uri = self.path.toUri()
        if uri.getScheme() in (None, "file"):
            yield from _write_in_place(Path(uri.getPath()))
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
        """Delete the file if what is done meanwhile fails: no table would ever name it."""
        try:
            yield
        except BaseException:
            try:
                self.delete_file()
            except JVM_ERRORS as error:  # logged only: it must not hide what led here
                log.warning("%s stays until orphans are removed: %s", self.path, error)
            raise


def _write_in_place(path: Path) -> Generator[str, None, None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield str(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _dictionary_columns(schema: ArrowSchema) -> list[str]:
    """Return the columns that are worth a dictionary: bytes seldom come twice."""
    return [field.name for field in schema if not kinds.is_binary(field.type)]


def _cast_column(table: str, field: Any, values: Any) -> Any:
    """Return a column's values in the table's type."""
    _check_type_fits((field.name,), table, values.type, field.type)
    if not field.nullable and values.null_count:
        raise TableSchemaMismatchError(
            f"table {table}: its column {field.name} is required, and {values.null_count} rows "
            "have no value for it. Nothing was written and no offset moved"
        )
    try:
        return values if values.type == field.type else values.cast(field.type)
    except _ARROW_VALUE_ERRORS as error:
        raise TableSchemaMismatchError(
            f"table {table}: its column {field.name} does not take the values of these rows: "
            f"{error}: {SPARK_WRITER_ADVICE}. Nothing was written and no offset moved"
        ) from error


def _check_type_fits(path: tuple[str, ...], table: str, have: ArrowType, want: ArrowType) -> None:
    """Raise TableSchemaMismatchError unless values of one type fit into the other (rule 2)."""
    if have == want or kinds.is_null(have):
        return
    if kinds.is_struct(have) and kinds.is_struct(want):
        for field in have:
            at = want.get_field_index(field.name)
            if at < 0:
                raise _build_mismatch((*path, field.name), table, field.type, "missing")
            _check_type_fits((*path, field.name), table, field.type, want.field(at).type)
    elif kinds.is_list(have) and kinds.is_list(want):
        _check_type_fits((*path, "element"), table, have.value_type, want.value_type)
    elif kinds.is_map(have) and kinds.is_map(want):
        _check_type_fits((*path, "key"), table, have.key_type, want.key_type)
        _check_type_fits((*path, "value"), table, have.item_type, want.item_type)
    elif not _is_widening(have, want):
        raise _build_mismatch(path, table, have, want)


def _is_widening(have: ArrowType, want: ArrowType) -> bool:
    """Whether every value of one type is one of the other, which has more."""
    if kinds.is_signed_integer(have) and kinds.is_signed_integer(want):
        return bool(have.bit_width <= want.bit_width)
    if kinds.is_decimal(have) and kinds.is_decimal(want):
        whole = want.precision - want.scale >= have.precision - have.scale
        return bool(whole and want.scale >= have.scale)
    if kinds.is_timestamp(have) and kinds.is_timestamp(want):
        return _TIME_UNITS.index(have.unit) <= _TIME_UNITS.index(want.unit)
    return bool(kinds.is_float32(have) and kinds.is_float64(want))


def _build_mismatch(
    path: tuple[str, ...], table: str, have: ArrowType, want: object
) -> TableSchemaMismatchError:
    return TableSchemaMismatchError(
        f"table {table} does not fit the rows: {'.'.join(path)} is {have} in the rows and {want} "
        "in the table, and lake.file.writer=arrow only widens numbers and times: "
        f"{SPARK_WRITER_ADVICE}"
    )
