"""Data files of an Iceberg table written from Arrow: field ids, metrics, `DataFile`."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from trimtab.consumer_sdk.lake.formats import parquet_writer
from trimtab.consumer_sdk.lake.formats.key_bounds import Bound, Bounds, decode_bound
from trimtab.consumer_sdk.lake.formats.parquet_writer import (
    ArrowFilesRefusedError,
    ArrowSchema,
    ArrowType,
    ParquetCodec,
)
from trimtab.consumer_sdk.lake.model.interfaces import Records

# Iceberg finds the columns of a file by field id, not by name: nested ones carry theirs, too.
_FIELD_ID_KEY: Final = b"PARQUET:field_id"
_FIRST_ROW_GROUP: Final = 4  # its place in a file: behind the magic number
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


def write_data_file(table: Any, name: str, rows: Records, attempt: str, root: Any) -> tuple[Any, ...]:
    """Write rows as a data file; return Iceberg's `DataFile` of it, () without rows.

    `table` is Iceberg's own object, `root` the JVM's packages. Raises ArrowFilesRefusedError,
    DiskFullError, LakeUnavailableError, and exceptions of the JVM.
    """
    properties = {str(key): str(value) for key, value in table.properties().items()}
    _check_writable(name, table, properties)
    codec = _resolve_codec(name, properties)
    iceberg = root.org.apache.iceberg
    schema = build_arrow_schema(name, iceberg.SchemaParser.toJson(table.schema()))
    fitted = parquet_writer.fit_to_schema(name, rows, schema)
    if fitted.num_rows == 0:
        return ()
    location = table.locationProvider().newDataLocation(f"{attempt}.parquet")
    io = table.io()
    path = root.org.apache.hadoop.fs.Path(location)
    create = io.newOutputFile(location).createOrOverwrite  # a new name: `create` would look for it
    target = parquet_writer.ParquetTarget(path, create, lambda: io.deleteFile(location), root)

    def describe(local: str) -> Any:
        file = iceberg.Files.localInput(local)
        # Iceberg reads bounds and counts from the footer, as the table's write.metadata.metrics.* say.
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, iceberg.MetricsConfig.forTable(table))
        builder = iceberg.DataFiles.builder(table.spec()).withInputFile(file).withPath(location)
        boxed = root.java.util.stream.LongStream.of(_FIRST_ROW_GROUP).boxed()  # py4j sends an Integer
        groups = boxed.collect(root.java.util.stream.Collectors.toList())
        return builder.withFormat("parquet").withMetrics(metrics).withSplitOffsets(groups).build()

    return (parquet_writer.write_parquet(name, fitted, target, codec, describe),)


def build_arrow_schema(name: str, text: Any) -> ArrowSchema:
    """Return the pyarrow schema of a schema in Iceberg's JSON. Raises ArrowFilesRefusedError."""
    try:
        return pa.schema(list(map(_parse_field, json.loads(str(text))["fields"])))
    except _UnsupportedTypeError as error:
        raise ArrowFilesRefusedError(
            f"table {name} has a column of type {error}, which files from Arrow cannot have"
        ) from error


def build_key_candidates(text: Any) -> ArrowSchema:
    """Return the columns of a schema in Iceberg's JSON that may be part of a key."""
    fields = json.loads(str(text))["fields"]
    return pa.schema([_parse_field(field) for field in fields if _is_primitive(field["type"])])


def read_field_id(field: Any) -> int | None:
    """Return Iceberg's id of a column of a data file, None if the file has none."""
    number = (field.metadata or {}).get(_FIELD_ID_KEY)
    return None if number is None else int(number)


def read_bounds(file: Mapping[str, Any], columns: ArrowSchema) -> Bounds:
    """Return the bounds of columns that the metadata of a data file have, in Iceberg's JSON.

    Texts and bytes have none in a file of several row groups, or of an unknown number: where a group's
    statistics lack long values, Iceberg takes the bounds of the others for those of the file.
    """
    has_one_group = len(file.get("split-offsets") or ()) == 1
    sides = [_read_values(file.get(name)) for name in ("lower-bounds", "upper-bounds")]
    found: dict[str, tuple[Bound, Bound]] = {}
    for column in columns:
        number = read_field_id(column)
        if not has_one_group and (kinds.is_string(column.type) or kinds.is_binary(column.type)):
            continue
        lower, upper = (decode_bound(column.type, side.get(number)) for side in sides)
        if lower is not None and upper is not None:
            found[column.name] = lower, upper
    return found


def _read_values(side: Mapping[str, Any] | None) -> dict[int | None, bytes]:
    pairs = zip(side["keys"], side["values"], strict=True) if side else ()
    return {number: bytes.fromhex(value) for number, value in pairs}


def refuse_layout(name: str, table: Any) -> None:
    """Raise ArrowFilesRefusedError for a table with a layout that only Iceberg's own writer follows."""
    layout = sorted(filter(_is_layout, map(str, table.properties())))
    reasons = ((table.sortOrder().isSorted(), "has a sort order"), (layout, f"sets {', '.join(layout)}"))
    parquet_writer.refuse_table(name, reasons)


def _is_layout(key: str) -> bool:
    if key in {_CODEC_PROPERTY, _LEVEL_PROPERTY}:
        return False
    return key.startswith("write.parquet.") or key == "write.target-file-size-bytes"


class _UnsupportedTypeError(Exception):
    pass


def _check_writable(name: str, table: Any, properties: dict[str, str]) -> None:
    not_parquet = properties.get("write.format.default", "parquet") != "parquet"
    reasons = (
        (table.spec().isPartitioned(), "is partitioned"),
        (not_parquet, "is not kept in Parquet"),
        ("encryption.key-id" in properties, "is encrypted"),
    )
    parquet_writer.refuse_table(name, reasons)


def _resolve_codec(name: str, properties: dict[str, str]) -> ParquetCodec:
    codec = properties.get(_CODEC_PROPERTY, "zstd").lower()  # Iceberg's default
    if codec == "uncompressed":
        return ParquetCodec("none")
    # Iceberg ignores the level of a codec without levels; Arrow would reject it.
    level = properties.get(_LEVEL_PROPERTY) if codec in _LEVELLED_CODECS else None
    if codec in _SUPPORTED_CODECS:
        # Checked before the write, where it would pass for an outage and be retried for ever.
        with suppress(OSError, ValueError, pa.ArrowException):  # codecs differ in what they raise
            resolved = ParquetCodec(codec, int(level) if level else None)
            pa.Codec(codec, compression_level=resolved.level)
            return resolved
    given = f"{_CODEC_PROPERTY}={codec}" + (f" and {_LEVEL_PROPERTY}={level}" if level else "")
    raise ArrowFilesRefusedError(
        f"table {name} has {given}, and files from Arrow are compressed by "
        f"{', '.join(_SUPPORTED_CODECS)}, at their levels"
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


def _is_primitive(kind: Any) -> bool:
    return isinstance(kind, str) and (kind in _ARROW_TYPES or _DECIMAL_TYPE.fullmatch(kind) is not None)


def _primitive_type(kind: str) -> ArrowType:
    decimal = _DECIMAL_TYPE.fullmatch(kind)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if kind not in _ARROW_TYPES:
        raise _UnsupportedTypeError(kind)
    return _ARROW_TYPES[kind]
