"""The sink's settings.

`lake.*` and `batch.*` of a flat configuration, and `spark.*` for the session.

Other names belong to the consumer and are left alone. Every error names the setting and says what
to write.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from trimtab.common.errors import SettingError
from trimtab.common.suggestions import suggest_name
from trimtab.common.units import parse_bytes, parse_seconds
from trimtab.consumer_sdk.lake.decoding import schema_registry
from trimtab.consumer_sdk.lake.decoding.schema_registry import (
    REGISTRY_USER_INFO,
    SCHEMA_REGISTRY_PREFIX,
)
from trimtab.consumer_sdk.lake.schema import partition_spec
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitioningRules
from trimtab.consumer_sdk.lake.schema.table_names import TableNames
from trimtab.consumer_sdk.lake.writer.batches import BatchLimits

Transform: TypeAlias = Callable[[Any], Any]

CATALOG_PREFIX: Final = "lake.catalog."
RESET_TO_END_VALUES: Final = ("latest", "largest", "end")
"""What librdkafka takes for `auto.offset.reset` to begin at the end."""

ICEBERG_FORMAT: Final = "iceberg"
DELTA_FORMAT: Final = "delta"
TABLE_FORMATS: Final = (ICEBERG_FORMAT, DELTA_FORMAT)
SPARK_FILE_WRITER: Final = "spark"
ARROW_FILE_WRITER: Final = "arrow"
FILE_WRITERS: Final = (SPARK_FILE_WRITER, ARROW_FILE_WRITER)
REGISTRY_DECODERS: Final = ("avro", "protobuf")
VALUE_DECODERS: Final = ("raw", "json", *REGISTRY_DECODERS)
LAKE_SETTING_NAMES: Final = frozenset(
    {
        "batch.bytes",
        "batch.memory",
        "batch.max.age",
        "lake.catalog.name",
        "lake.decoder",
        "lake.schema.evolution",
        "lake.format",
        "lake.partition",
        "lake.flush.timeout",
        "lake.schema",
        "lake.file.writer",
        "lake.table",
        "lake.tables",
        "lake.transform",
        "lake.warehouse",
    }
)
"""Every name of ours; `lake.catalog.*` beyond `name` is Iceberg's own."""

_SPARK_ONLY_SETTINGS: Final = {
    "lake.partition": "Spark divides rows among partitions",
    "lake.schema": "JSON is parsed by Spark",
    "lake.transform": "a transform takes a Spark DataFrame",
}
"""What `lake.file.writer=arrow` cannot do, and why."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What the Spark session is made of; `catalog` is empty for the embedded default.

    `format` is one of `TABLE_FORMATS`; Delta has a warehouse and no catalog. `file_writer` is one of `FILE_WRITERS`:
    who writes the data files.
    """

    warehouse: str | None
    catalog_name: str = "trimtab"
    catalog: Mapping[str, str] = field(default_factory=dict[str, str])
    spark: Mapping[str, str] = field(default_factory=dict[str, str])
    format: str = ICEBERG_FORMAT
    file_writer: str = SPARK_FILE_WRITER

    def __repr__(self) -> str:
        """Show no secret: the settings of the catalog and of Spark stay out."""
        return f"SessionConfig(format={self.format!r}, catalog_name={self.catalog_name!r})"


@dataclass(frozen=True, slots=True)
class LakeConfig:
    """A checked configuration.

    `flush_timeout_s` is how many seconds a revocation or a close waits for the lake.

    `schemas` maps a topic to the DDL of its JSON; the key "*" stands for every topic without one.

    `registry_settings` is how the schema registry is asked; empty for a decoder that needs none.

    `evolves_schema` is whether a table gets the columns that it lacks.

    `resets_to_end` is whether the consumer jumps to the end of a partition where its offset is gone.
    """

    group: str
    session: SessionConfig
    table_names: TableNames = field(default_factory=TableNames)
    limits: BatchLimits = field(default_factory=lambda: BatchLimits(64_000_000, 128_000_000, 10.0))
    schemas: Mapping[str, str] = field(default_factory=dict[str, str])
    transform: Transform | None = None
    flush_timeout_s: float = 30.0
    resets_to_end: bool = False
    partitioning: PartitioningRules = field(default_factory=PartitioningRules)
    evolves_schema: bool = False
    decoder: str = "raw"
    registry_settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __repr__(self) -> str:
        """Show no secret: the session's settings stay out."""
        return f"LakeConfig(group={self.group!r}, session={self.session!r})"

    def schema_for(self, topic: str) -> str | None:
        """Return the DDL that a topic's values are decoded with, None for raw."""
        return self.schemas.get(topic) or self.schemas.get("*")


def parse_lake_config(config: Mapping[str, Any]) -> LakeConfig:
    """Check a configuration. Raises SettingError."""
    for name in config:
        _check_setting_name(name)
    group = config.get("group.id")
    if not group:
        raise SettingError("'group.id' is missing; the table keeps its offsets by group")
    if str(config.get("enable.auto.commit", "")).lower() != "false":
        raise SettingError(
            "enable.auto.commit must be false, here and in the consumer: the sink "
            "commits after the table has the rows, "
            "the consumer's own commits would run ahead of it"
        )
    names = TableNames(str(config.get("lake.table", "lake.{topic}")), _parse_tables(config))
    schemas = _parse_schemas(config)
    _check_shared_schemas(names, schemas)
    return LakeConfig(
        group=str(group),
        session=parse_session_config(config),
        table_names=names,
        limits=_parse_limits(config),
        schemas=schemas,
        transform=_load_transform(config.get("lake.transform")),
        flush_timeout_s=parse_seconds(
            config.get("lake.flush.timeout", "30 s"), "lake.flush.timeout"
        ),
        resets_to_end=config.get("auto.offset.reset") in RESET_TO_END_VALUES,
        partitioning=partition_spec.parse_partitioning(
            config.get(partition_spec.PARTITION_SETTING)
        ),
        evolves_schema=_parse_evolution(config.get("lake.schema.evolution", "fail")),
        decoder=str(config.get("lake.decoder", "raw")),
        registry_settings=_parse_registry(config),
    )


def parse_session_config(config: Mapping[str, Any]) -> SessionConfig:
    """Return the part about Spark and the catalog. Raises SettingError."""
    catalog = {
        k.removeprefix(CATALOG_PREFIX): str(v)
        for k, v in config.items()
        if k.startswith(CATALOG_PREFIX)
    }
    form = _parse_format(config, catalog)
    name = catalog.pop("name", "trimtab")
    if not name.isidentifier():
        raise SettingError(f"lake.catalog.name: {name!r} is not a plain name")
    warehouse = config.get("lake.warehouse")
    if warehouse is None and not catalog:
        raise SettingError(
            "'lake.warehouse' is missing; write the folder for the tables, or describe a "
            "catalog with lake.catalog.type "
            "and its other settings"
        )
    return SessionConfig(
        warehouse=None if warehouse is None else _resolve_warehouse(str(warehouse)),
        catalog_name=name,
        catalog=catalog,
        spark={k: _format_spark_value(v) for k, v in config.items() if k.startswith("spark.")},
        format=form,
        file_writer=_parse_file_writer(config),
    )


def _parse_format(config: Mapping[str, Any], catalog: Mapping[str, str]) -> str:
    form = str(config.get("lake.format", ICEBERG_FORMAT))
    if form not in TABLE_FORMATS:
        raise SettingError(
            f"lake.format: {form!r} is not known{suggest_name(form, frozenset(TABLE_FORMATS))}; "
            "write iceberg or delta"
        )
    if form == DELTA_FORMAT and catalog:
        raise SettingError(
            f"{CATALOG_PREFIX}{min(catalog)}: lake.catalog.* describes a catalog of Iceberg tables; with "
            "lake.format=delta the tables are the folders of lake.warehouse, leave it out"
        )
    return form


def _parse_file_writer(config: Mapping[str, Any]) -> str:
    stage = str(config.get("lake.file.writer", SPARK_FILE_WRITER))
    if stage not in FILE_WRITERS:
        raise SettingError(
            f"lake.file.writer: {stage!r} is not known{suggest_name(stage, frozenset(FILE_WRITERS))}; "
            "write spark or arrow"
        )
    for name in (n for n in _SPARK_ONLY_SETTINGS if stage == ARROW_FILE_WRITER and config.get(n)):
        raise SettingError(
            f"{name}: {_SPARK_ONLY_SETTINGS[name]}, and with lake.file.writer=arrow data files are written without "
            f"Spark: set lake.file.writer=spark, or leave {name} out"
        )
    return stage


def is_lake_setting(name: str) -> bool:
    """Whether a setting is the sink's and not the consumer's."""
    return (
        name.startswith(("lake.", "batch.", "spark.", SCHEMA_REGISTRY_PREFIX))
        or name == REGISTRY_USER_INFO
    )


def _check_setting_name(name: str) -> None:
    if (
        name in LAKE_SETTING_NAMES
        or not name.startswith(("lake.", "batch."))
        or name.startswith(CATALOG_PREFIX)
    ):
        return
    raise SettingError(
        f"{name!r} is not a setting of the sink{suggest_name(name, LAKE_SETTING_NAMES)}"
    )


def _parse_limits(config: Mapping[str, Any]) -> BatchLimits:
    size = parse_bytes(config.get("batch.bytes", "64 MB"), "batch.bytes")
    memory = parse_bytes(config.get("batch.memory", 2 * size), "batch.memory")
    wait = parse_seconds(config.get("batch.max.age", "10 s"), "batch.max.age")
    if size <= 0:
        raise SettingError("batch.bytes must be above 0")
    if memory < size:
        raise SettingError(f"batch.memory={memory} must not be below batch.bytes={size}")
    return BatchLimits(batch_bytes=size, memory_bytes=memory, max_age_s=wait)


def _parse_tables(config: Mapping[str, Any]) -> dict[str, str]:
    tables = config.get("lake.tables") or {}
    if not isinstance(tables, Mapping):
        raise SettingError(f"lake.tables: {tables!r} is not a mapping of topic to table")
    return {str(topic): str(table) for topic, table in tables.items()}


def _parse_schemas(config: Mapping[str, Any]) -> dict[str, str]:
    decoder = config.get("lake.decoder", "raw")
    schema = config.get("lake.schema")
    if decoder not in VALUE_DECODERS:
        raise SettingError(
            f"lake.decoder: {decoder!r} is not "
            f"known{suggest_name(str(decoder), frozenset(VALUE_DECODERS))}; write raw, json, avro or protobuf"
        )
    if (decoder == "json") != bool(schema):
        raise SettingError(
            "lake.decoder=json and lake.schema need each other; write the schema as "
            "columns of Spark SQL, "
            'like "id BIGINT, name STRING", or a mapping of topic to that'
        )
    if isinstance(schema, Mapping):
        return {str(topic): str(ddl) for topic, ddl in schema.items()}
    return {"*": str(schema)} if schema else {}


def _parse_registry(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("lake.decoder") not in REGISTRY_DECODERS:
        return {}
    found = schema_registry.extract_registry_settings(config)
    schema_registry.parse_registry_address(found)
    return found


def _parse_evolution(setting: Any) -> bool:
    if setting not in ("add", "fail"):
        raise SettingError(
            f"lake.schema.evolution: {setting!r} is not known; write add (a table gets the columns that it "
            "lacks) or fail (it is an error)"
        )
    return bool(setting == "add")


def _check_shared_schemas(names: TableNames, schemas: Mapping[str, str]) -> None:
    """Raise SettingError if topics that share a table have different schemas."""
    chosen: dict[str, str | None] = {}
    for topic, table in sorted(names.mapping.items()):
        schema = schemas.get(topic) or schemas.get("*")
        if chosen.setdefault(table, schema) != schema:
            raise SettingError(
                f"lake.schema: the topics of table {table!r} must have one schema, "
                f"{topic!r} has another"
            )


def _load_transform(reference: Any) -> Transform | None:
    if reference is None:
        return None
    if callable(reference):
        return cast("Transform", reference)
    module, _, name = str(reference).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(
            f"lake.transform: {reference!r} cannot be loaded ({error}); write "
            '"module:function" with the module on '
            "PYTHONPATH"
        ) from error
    if not callable(found):
        raise SettingError(f"lake.transform: {reference!r} is not a function")
    return cast("Transform", found)


def _resolve_warehouse(warehouse: str) -> str:
    """Return a warehouse as a URI.

    A plain path is made absolute, so that every process means the same.
    """
    return (
        warehouse
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", warehouse)
        else str(Path(warehouse).expanduser().absolute())
    )


def _format_spark_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
