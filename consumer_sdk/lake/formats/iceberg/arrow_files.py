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

from trimtab.consumer_sdk.errors import TableMismatch
from trimtab.consumer_sdk.lake.formats import parquet_writer
from trimtab.consumer_sdk.lake.formats.parquet_writer import ADVICE, ArrowType, Codec, Schema
from trimtab.consumer_sdk.lake.ports import Records

_ID: Final = b"PARQUET:field_id"
_TYPES: Final = {
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
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_CODEC: Final = "write.parquet.compression-codec"
_LEVEL: Final = "write.parquet.compression-level"
_CODECS: Final = ("brotli", "gzip", "lz4", "lz4_raw", "snappy", "zstd")
_LEVELS: Final = ("brotli", "gzip", "zstd")
"""The codecs that have levels."""


def write(table: Any, name: str, rows: Records, attempt: str, root: Any) -> tuple[Any, ...]:
    """Write rows as a data file; return Iceberg's `DataFile` of it, nothing where there are none.

    `table` is Iceberg's own object, `root` the JVM's packages. Raises TableMismatch, DiskFull,
    LakeUnavailable, and what comes out of the JVM.
    """
    properties = {str(key): str(value) for key, value in table.properties().items()}
    _check(name, table, properties)
    codec = _codec(name, properties)
    iceberg = root.org.apache.iceberg
    whole = parquet_writer.fitted(
        name, rows, schema(name, iceberg.SchemaParser.toJson(table.schema()))
    )
    if whole.num_rows == 0:
        return ()
    place = table.locationProvider().newDataLocation(f"{attempt}.parquet")
    io = table.io()
    path = root.org.apache.hadoop.fs.Path(place)
    opened = io.newOutputFile(place).create
    target = parquet_writer.Target(path, opened, lambda: io.deleteFile(place), root)
    parquet_writer.write(name, whole, target, codec)
    with target.kept():
        file = io.newInputFile(place)
        config = iceberg.MetricsConfig.forTable(table)
        made = iceberg.DataFiles.builder(table.spec()).withInputFile(file).withFormat("parquet")
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, config)
        return (made.withMetrics(metrics).build(),)


def schema(name: str, text: Any) -> Schema:
    """Return the pyarrow schema of a table's, which is given as Iceberg's JSON.

    Raises TableMismatch for a type that this lane does not write.
    """
    try:
        return pa.schema(list(map(_field, json.loads(str(text))["fields"])))
    except _Unknown as error:
        raise TableMismatch(
            f"table {name} has a column of type {error}, which lake.stage=arrow does not write: "
            f"{ADVICE}"
        ) from error


class _Unknown(Exception):
    """A type that is not written here."""


def _check(name: str, table: Any, properties: dict[str, str]) -> None:
    """Raise TableMismatch for a table whose files must be more than these are."""
    reasons = (
        (table.spec().isPartitioned(), "is partitioned"),
        (properties.get("write.format.default", "parquet") != "parquet", "is not kept in Parquet"),
        ("encryption.key-id" in properties, "is encrypted"),
    )
    parquet_writer.refuse(name, reasons)


def _codec(name: str, properties: dict[str, str]) -> Codec:
    """Return how the table wants to be compressed. Raises TableMismatch for what cannot be here."""
    found = properties.get(_CODEC, "zstd").lower()
    if found == "uncompressed":
        return Codec("none")
    level = properties.get(_LEVEL) if found in _LEVELS else None
    if found in _CODECS:
        with suppress(OSError, ValueError, pa.ArrowException):  # each library has its own word
            codec = Codec(found, int(level) if level else None)
            pa.Codec(found, compression_level=codec.level)
            return codec
    told = f"{_CODEC}={found}" + (f" and {_LEVEL}={level}" if level else "")
    raise TableMismatch(
        f"table {name} has {told}, which lake.stage=arrow does not write: choose another of "
        f"{', '.join(_CODECS)}, or {ADVICE}. Nothing was written and no offset moved"
    )


def _field(told: dict[str, Any]) -> Any:
    return _column(told["name"], told["type"], told["id"], required=told["required"])


def _column(name: str, kind: Any, number: int, *, required: bool) -> Any:
    return pa.field(name, _type(kind), nullable=not required, metadata={_ID: str(number)})


def _type(kind: Any) -> ArrowType:
    if isinstance(kind, str):
        return _primitive(kind)
    if kind["type"] == "struct":
        return pa.struct(list(map(_field, kind["fields"])))
    if kind["type"] == "list":
        need = kind["element-required"]
        return pa.list_(_column("element", kind["element"], kind["element-id"], required=need))
    if kind["type"] == "map":
        need = kind["value-required"]
        return pa.map_(
            _column("key", kind["key"], kind["key-id"], required=True),
            _column("value", kind["value"], kind["value-id"], required=need),
        )
    raise _Unknown(kind["type"])


def _primitive(kind: str) -> ArrowType:
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if kind not in _TYPES:
        raise _Unknown(kind)
    return _TYPES[kind]
