"""An Iceberg table's data files written from Arrow: columns with field ids, metrics, `DataFile`.

Readers find the columns of an Iceberg file by their ids, so the Parquet columns carry them, those
inside of structs, lists and maps too. The metrics (bounds, counts) are taken from the file's footer
by Iceberg itself, as the table's `write.metadata.metrics.*` say.
"""

import json
import re
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats import parquet_writer
from trimtab.consumer_sdk.lake.formats.parquet_writer import (
    SPARK_WRITER_ADVICE,
    ArrowSchema,
    ArrowType,
    ParquetCodec,
)
from trimtab.consumer_sdk.lake.ports import Records

_FIELD_ID_KEY: Final = b"PARQUET:field_id"
_ARROW_TYPES: Final = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_DECIMAL_TYPE: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_CODEC_PROPERTY: Final = "write.parquet.compression-codec"
_LEVEL_PROPERTY: Final = "write.parquet.compression-level"
_SUPPORTED_CODECS: Final = ("brotli", "gzip", "lz4", "lz4_raw", "snappy", "zstd")
_LEVELLED_CODECS: Final = ("brotli", "gzip", "zstd")
"""The codecs that have levels."""


def write_data_file(table: Any, name: str, rows: Records, attempt: str, root: Any) -> tuple[Any, ...]:
    """Write rows as a data file; return Iceberg's `DataFile` of it, nothing where there are none.

    `table` is Iceberg's own object, `root` the JVM's packages. Raises TableSchemaMismatchError,
    DiskFullError, LakeUnavailableError, and exceptions of the JVM.
    """
    properties = {str(key): str(value) for key, value in table.properties().items()}
    _check_writable(name, table, properties)
    codec = _resolve_codec(name, properties)
    iceberg = root.org.apache.iceberg
    whole = parquet_writer.fit_to_schema(
        name, rows, build_arrow_schema(name, iceberg.SchemaParser.toJson(table.schema()))
    )
    if whole.num_rows == 0:
        return ()
    place = table.locationProvider().newDataLocation(f"{attempt}.parquet")
    io = table.io()
    path = root.org.apache.hadoop.fs.Path(place)
    opened = io.newOutputFile(place).create
    target = parquet_writer.ParquetTarget(path, opened, lambda: io.deleteFile(place), root)
    parquet_writer.write_parquet(name, whole, target, codec)
    with target.delete_on_failure():
        file = io.newInputFile(place)
        config = iceberg.MetricsConfig.forTable(table)
        made = iceberg.DataFiles.builder(table.spec()).withInputFile(file).withFormat("parquet")
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, config)
        return (made.withMetrics(metrics).build(),)


def build_arrow_schema(name: str, text: Any) -> ArrowSchema:
    """Return the pyarrow schema of a table's, which is given as Iceberg's JSON.

    Raises TableSchemaMismatchError for a type that this lane does not write.
    """
    try:
        return pa.schema(list(map(_parse_field, json.loads(str(text))["fields"])))
    except _UnsupportedTypeError as error:
        raise TableSchemaMismatchError(
            f"table {name} has a column of type {error}, which lake.file.writer=arrow does not "
            f"write: {SPARK_WRITER_ADVICE}"
        ) from error


class _UnsupportedTypeError(Exception):
    """A type that is not written here."""


def _check_writable(name: str, table: Any, properties: dict[str, str]) -> None:
    """Raise TableSchemaMismatchError for a table whose files must be more than these are."""
    reasons = (
        (table.spec().isPartitioned(), "is partitioned"),
        (properties.get("write.format.default", "parquet") != "parquet", "is not kept in Parquet"),
        ("encryption.key-id" in properties, "is encrypted"),
    )
    parquet_writer.refuse_table(name, reasons)


def _resolve_codec(name: str, properties: dict[str, str]) -> ParquetCodec:
    """Return the table's codec. Raises TableSchemaMismatchError for an unsupported one."""
    found = properties.get(_CODEC_PROPERTY, "zstd").lower()
    if found == "uncompressed":
        return ParquetCodec("none")
    level = properties.get(_LEVEL_PROPERTY) if found in _LEVELLED_CODECS else None
    if found in _SUPPORTED_CODECS:
        with suppress(OSError, ValueError, pa.ArrowException):  # each library has its own word
            codec = ParquetCodec(found, int(level) if level else None)
            pa.Codec(found, compression_level=codec.level)
            return codec
    told = f"{_CODEC_PROPERTY}={found}" + (f" and {_LEVEL_PROPERTY}={level}" if level else "")
    raise TableSchemaMismatchError(
        f"table {name} has {told}, which lake.file.writer=arrow does not write: choose another of "
        f"{', '.join(_SUPPORTED_CODECS)}, or {SPARK_WRITER_ADVICE}. "
        "Nothing was written and no offset moved"
    )


def _parse_field(field: dict[str, Any]) -> Any:
    return _build_field(field["name"], field["type"], field["id"], required=field["required"])


def _build_field(name: str, kind: Any, number: int, *, required: bool) -> Any:
    return pa.field(name, _arrow_type(kind), nullable=not required, metadata={_FIELD_ID_KEY: str(number)})


def _arrow_type(kind: Any) -> ArrowType:
    if isinstance(kind, str):
        return _primitive_type(kind)
    if kind["type"] == "struct":
        return pa.struct(list(map(_parse_field, kind["fields"])))
    if kind["type"] == "list":
        need = kind["element-required"]
        return pa.list_(_build_field("element", kind["element"], kind["element-id"], required=need))
    if kind["type"] == "map":
        need = kind["value-required"]
        return pa.map_(
            _build_field("key", kind["key"], kind["key-id"], required=True),
            _build_field("value", kind["value"], kind["value-id"], required=need),
        )
    raise _UnsupportedTypeError(kind["type"])


def _primitive_type(kind: str) -> ArrowType:
    decimal = _DECIMAL_TYPE.fullmatch(kind)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if kind not in _ARROW_TYPES:
        raise _UnsupportedTypeError(kind)
    return _ARROW_TYPES[kind]
