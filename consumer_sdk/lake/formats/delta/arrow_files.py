"""Data files of a Delta table written from Arrow, and the `add` action of each."""

import json
from collections.abc import Sequence
from datetime import date, datetime
from os import stat_result
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow.compute as pc
import pyarrow.types as kinds
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

from trimtab.consumer_sdk.lake.formats import parquet_writer
from trimtab.consumer_sdk.lake.formats.delta.columns import DeltaSchema
from trimtab.consumer_sdk.lake.formats.parquet_writer import ArrowFilesRefusedError, ParquetCodec
from trimtab.consumer_sdk.lake.model.interfaces import Records

_DELTA_CODEC: Final = ParquetCodec("zstd")
_INDEXED_COLUMNS: Final = 32  # Delta's own writer collects statistics of the first 32 columns
_MAX_BOUND_CHARS: Final = 32  # Delta truncates longer texts; we omit them
_CHECKS: Final = ("delta.constraints.", "delta.columnMapping.mode")
_FILE_RULES: Final = ("delta.dataSkipping", "parquet.")  # which statistics, and how Parquet is written
# Column properties that a writer must evaluate for each row; the last one is the length of a VARCHAR.
_COLUMN_RULE_PROPERTIES: Final = (
    "delta.generationExpression",
    "delta.identity.start",
    "delta.invariants",
    "__CHAR_VARCHAR_TYPE_STRING",
)
# Floats have no bounds: NaN would make them wrong.
_BOUNDED_TYPES: Final = (kinds.is_signed_integer, kinds.is_date, kinds.is_string, kinds.is_timestamp)


def write_data_file(
    log: Any, name: str, schema: DeltaSchema, rows: Records, attempt: str, root: Any
) -> tuple[str, ...]:
    """Write rows as a data file; return its `add` action in JSON, () without rows.

    `log` is Delta's own object, `root` the JVM's packages. Raises ArrowFilesRefusedError,
    DiskFullError, LakeUnavailableError, and exceptions of the JVM.
    """
    fitted = parquet_writer.fit_to_schema(name, rows, _arrow_schema(name, schema))
    if fitted.num_rows == 0:
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

    def describe(local: str) -> str:
        return _build_add_action(file, Path(local).stat(), fitted)

    return (parquet_writer.write_parquet(name, fitted, target, _DELTA_CODEC, describe),)


def _build_add_action(file: str, status: stat_result, rows: Records) -> str:
    add = {
        "path": quote(file),  # a URI by the protocol
        "partitionValues": {},
        "size": status.st_size,
        "modificationTime": status.st_mtime_ns // 1_000_000,
        "dataChange": True,
        "stats": json.dumps(collect_statistics(rows)),
    }
    return json.dumps({"add": add})


def check_writable(name: str, schema: DeltaSchema, properties: Sequence[str]) -> None:
    """Raise ArrowFilesRefusedError for a table that plain Parquet files do not suit."""
    ruled = [c.name for c in schema.columns if c.metadata.keys() & set(_COLUMN_RULE_PROPERTIES)]
    reasons = (
        (schema.partition_columns, "is partitioned"),
        (ruled, f"has rules for {', '.join(ruled)}"),
        (any(p.startswith(_CHECKS) for p in properties), "has constraints or maps its columns"),
        (any(p.startswith(_FILE_RULES) for p in properties), "sets statistics or Parquet's options"),
    )
    parquet_writer.refuse_table(name, reasons)


def collect_statistics(rows: Records) -> dict[str, Any]:
    """Return a file's statistics, in the Delta protocol's names."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in rows.column_names[:_INDEXED_COLUMNS]:
        column = rows.column(name)
        if kinds.is_nested(column.type):
            continue  # omitted statistics only make readers skip less
        nulls[name] = column.null_count
        bounds = _column_bounds(column)
        if bounds is not None:
            least[name], greatest[name] = bounds
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _column_bounds(column: Any) -> tuple[Any, Any] | None:
    if not any(is_kind(column.type) for is_kind in _BOUNDED_TYPES):
        return None
    found = pc.call_function("min_max", [column])
    try:
        bounds = found["min"].as_py(), found["max"].as_py()
    except OverflowError:  # a date outside the years 1 to 9999, which Python lacks
        return None
    if not all(map(_is_storable_bound, bounds)):
        return None
    return _encode_bound(bounds[0]), _encode_bound(bounds[1])


def _is_storable_bound(bound: Any) -> bool:
    if isinstance(bound, str):
        return len(bound) <= _MAX_BOUND_CHARS
    if isinstance(bound, datetime):
        return bound.tzinfo is not None  # the protocol's bounds are instants
    return bound is not None


def _encode_bound(bound: Any) -> Any:
    if isinstance(bound, datetime):
        # The protocol truncates to milliseconds; readers allow for the rest in the maximum.
        return bound.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return bound.isoformat() if isinstance(bound, date) else bound


def _arrow_schema(name: str, schema: DeltaSchema) -> Any:
    try:
        return to_arrow_schema(schema.columns)
    except PySparkException as error:
        problem = str(error).strip().splitlines()[0]
        raise ArrowFilesRefusedError(
            f"table {name} has a column that files from Arrow cannot have: {problem}"
        ) from error
