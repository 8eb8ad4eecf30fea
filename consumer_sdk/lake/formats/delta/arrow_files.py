"""Writes data files of a Delta table from Arrow, and the `add` action of each.

The action has the statistics that Delta skips files by, of top-level columns: minimum and maximum
of integers, dates, timestamps and short texts, and null counts. Omitted statistics (floats, which
may be NaN; long texts; years outside 1 to 9999; nested columns) only make readers skip less.
"""

import json
from collections.abc import Iterable
from datetime import date, datetime
from typing import Any, Final
from urllib.parse import quote

import pyarrow.compute as pc
import pyarrow.types as kinds
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats import parquet_writer
from trimtab.consumer_sdk.lake.formats.delta.columns import DeltaSchema
from trimtab.consumer_sdk.lake.formats.parquet_writer import SPARK_WRITER_ADVICE, ParquetCodec
from trimtab.consumer_sdk.lake.ports import Records

_DELTA_CODEC: Final = ParquetCodec("zstd")
_INDEXED_COLUMNS: Final = 32
"""Delta keeps statistics of so many columns, from the first on."""

_MAX_BOUND_CHARS: Final = 32
"""Characters of a text that Delta keeps as a bound."""

_UNSUPPORTED_PROPERTIES: Final = ("delta.constraints.", "delta.columnMapping.mode")
_COLUMN_RULE_PROPERTIES: Final = ("delta.generationExpression", "delta.identity.start", "delta.invariants")
"""Properties of columns that a writer has to act upon."""

_BOUNDED_TYPES: Final = (kinds.is_signed_integer, kinds.is_date, kinds.is_string, kinds.is_timestamp)


def write_data_file(
    log: Any, name: str, schema: DeltaSchema, rows: Records, attempt: str, root: Any
) -> tuple[str, ...]:
    """Write rows as a data file; return its `add` action in JSON, nothing where there are no rows.

    `log` is Delta's own object, `root` the JVM's packages. Raises TableSchemaMismatchError,
    DiskFullError, LakeUnavailableError, and exceptions of the JVM.
    """
    whole = parquet_writer.fit_to_schema(name, rows, _arrow_schema(name, schema))
    if whole.num_rows == 0:
        return ()
    file = f"{attempt}.parquet"
    path = root.org.apache.hadoop.fs.Path(log.dataPath(), file)
    system = path.getFileSystem(log.newDeltaHadoopConf())
    target = parquet_writer.ParquetTarget(
        path,
        open_stream=lambda: system.create(path),
        delete_file=lambda: system.delete(path, False),  # noqa: FBT003 - Hadoop's signature
        root=root,
    )
    parquet_writer.write_parquet(name, whole, target, _DELTA_CODEC)
    with target.delete_on_failure():
        return (_build_add_action(file, system.getFileStatus(path), whole),)


def _build_add_action(file: str, status: Any, rows: Records) -> str:
    add = {
        "path": quote(file),
        "partitionValues": {},
        "size": int(status.getLen()),
        "modificationTime": int(status.getModificationTime()),
        "dataChange": True,
        "stats": json.dumps(collect_statistics(rows)),
    }
    return json.dumps({"add": add})


def check_writable(name: str, schema: DeltaSchema, settings: Iterable[str]) -> None:
    """Raise TableSchemaMismatchError for a table whose writers must do more than write rows.

    `settings` are the names of the table's properties.
    """
    acting = [c.name for c in schema.columns if c.metadata.keys() & set(_COLUMN_RULE_PROPERTIES)]
    reasons = (
        (schema.partition_columns, "is partitioned"),
        (acting, f"has rules for {', '.join(acting)}"),
        (any(s.startswith(_UNSUPPORTED_PROPERTIES) for s in settings), "has constraints or maps its columns"),
    )
    parquet_writer.refuse_table(name, reasons)


def collect_statistics(rows: Records) -> dict[str, Any]:
    """Return a file's statistics as the Delta protocol words them."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in rows.column_names[:_INDEXED_COLUMNS]:
        column = rows.column(name)
        if kinds.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        bounds = _column_bounds(column)
        if bounds is not None:
            least[name], greatest[name] = bounds
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _column_bounds(column: Any) -> tuple[Any, Any] | None:
    """Return the least and the greatest value, None where Delta gets none."""
    kind = column.type
    if not any(is_kind(kind) for is_kind in _BOUNDED_TYPES):
        return None
    found = pc.call_function("min_max", [column])
    try:
        bounds = found["min"].as_py(), found["max"].as_py()
    except OverflowError:  # a date before the year 1 or after 9999: Python has none
        return None
    return (
        (_encode_bound(bounds[0]), _encode_bound(bounds[1])) if all(map(_is_storable_bound, bounds)) else None
    )


def _is_storable_bound(bound: Any) -> bool:
    """Whether a bound can stand there: not a long text, nor a time without a zone."""
    if isinstance(bound, str):
        return len(bound) <= _MAX_BOUND_CHARS
    if isinstance(bound, datetime):
        return bound.tzinfo is not None
    return bound is not None


def _encode_bound(bound: Any) -> Any:
    """Return a bound as it stands in JSON; times in milliseconds, which readers know of."""
    if isinstance(bound, datetime):
        return bound.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return bound.isoformat() if isinstance(bound, date) else bound


def _arrow_schema(name: str, schema: DeltaSchema) -> Any:
    try:
        return to_arrow_schema(schema.columns)
    except PySparkException as error:
        told = str(error).strip().splitlines()[0]
        raise TableSchemaMismatchError(
            f"table {name} has a column that lake.file.writer=arrow does not write: {told}: "
            f"{SPARK_WRITER_ADVICE}"
        ) from error
