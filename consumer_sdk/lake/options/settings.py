"""Settings of the lake writer: `lake.*`, `batch.*`, `spark.*` and those of the schema registry.

`LakeWriterSettings` validates the settings as written. `parse_lake_config` validates a flat
configuration and then resolves it: it imports the transform and makes the warehouse path absolute.
Settings of the consumer in the same mapping are ignored.
"""

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, TypeAlias, cast

from trimtab.common.errors import SettingError, suggest_name
from trimtab.common.lag import RESET_TO_END_VALUES
from trimtab.common.settings.settings_model import (
    ByteSize,
    Duration,
    Parsed,
    SettingsModel,
    list_settings,
    setting,
    validate_settings,
)
from trimtab.common.settings.shared_defaults import DEFAULT_BATCH_MAX_AGE_S
from trimtab.common.telemetry.export import is_telemetry_on
from trimtab.consumer_sdk.lake.changes import change_settings
from trimtab.consumer_sdk.lake.changes.change_settings import ChangeSettings
from trimtab.consumer_sdk.lake.decoding import json_settings, schema_registry
from trimtab.consumer_sdk.lake.decoding.json_settings import TimestampRules
from trimtab.consumer_sdk.lake.decoding.schema_registry import REGISTRY_USER_INFO, SCHEMA_REGISTRY_PREFIX
from trimtab.consumer_sdk.lake.decoding.value_ranges import STRICT_RANGES, ValueRanges
from trimtab.consumer_sdk.lake.model import partition_spec
from trimtab.consumer_sdk.lake.model.file_writers import (
    ARROW_FILE_WRITER,
    DEFAULT_FILE_WRITER,
    FILE_WRITERS,
    check_delta_file_settings,
    find_arrow_problems,
    resolve_file_writer,
)
from trimtab.consumer_sdk.lake.model.partition_spec import PartitioningRules
from trimtab.consumer_sdk.lake.model.table_names import DEFAULT_TABLE_TEMPLATE, TableNames
from trimtab.consumer_sdk.lake.options.batch_limits import BatchLimits
from trimtab.consumer_sdk.lake.options.storage_config import (
    LOCATION_EXAMPLES,
    S3,
    STORAGES,
    StorageConfig,
    find_storage,
    resolve_warehouse,
)

Transform: TypeAlias = Callable[[Any], Any]

CATALOG_PREFIX: Final = "lake.catalog."
CATALOG_NAME_SETTING: Final = "lake.catalog.name"
DEFAULT_CATALOG: Final = "trimtab"

ICEBERG_FORMAT: Final = "iceberg"
DELTA_FORMAT: Final = "delta"
TABLE_FORMATS: Final = (ICEBERG_FORMAT, DELTA_FORMAT)
REGISTRY_DECODERS: Final = ("avro", "protobuf")


def _parse_choice(choices: tuple[str, ...], value: Any) -> str:
    if value not in choices:
        hint = suggest_name(str(value), choices)
        raise ValueError(f"{value!r} is not one of the choices{hint}; write {' or '.join(choices)}")
    return str(value)


def _choice(*choices: str) -> Parsed:
    return Parsed(partial(_parse_choice, choices))


def _parse_text_mapping(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SettingError(f"{value!r} is not a mapping of topic to table")
    return {str(key): str(text) for key, text in value.items()}


class LakeWriterSettings(SettingsModel, owner="the lake writer", separator="."):
    """Settings of the lake writer, named as in its configuration."""

    lake_format: Annotated[str, _choice(*TABLE_FORMATS)] = setting(
        "Table format: `iceberg` or [`delta`](#delta).", default=ICEBERG_FORMAT
    )
    lake_warehouse: Annotated[str, Parsed(str)] = setting(
        "Folder or URI of the tables; required unless `lake.catalog.*` describes a catalog. "
        "A relative folder in a file is relative to the file's folder.",
        default="",
        secret=True,  # a URI may hold credentials
    )
    lake_catalog_name: Annotated[str, Parsed(str)] = setting(
        "Name of the catalog in Spark SQL.", default=DEFAULT_CATALOG
    )
    lake_storage: Annotated[str, _choice(*STORAGES)] = setting(
        "[Object storage](storage.md) of the tables: `s3`, `gcs` or `azure`; its client is downloaded.",
        default="",
    )
    lake_s3_endpoint: Annotated[str, Parsed(str)] = setting(
        "URL of an S3-compatible storage; AWS's own by default.", default=""
    )
    lake_s3_region: Annotated[str, Parsed(str)] = setting(
        "Region of the buckets.", default="", default_text="the environment's; at endpoints else `us-east-1`"
    )
    lake_s3_path_style_access: bool = setting(
        "Whether the bucket is in the URL's path, not in the host's name, as most S3-compatible "
        "storages need it.",
        default=False,
    )
    lake_table: Annotated[str, Parsed(str)] = setting(
        "Template of table names; dots and dashes of a topic become `_`.", default=DEFAULT_TABLE_TEMPLATE
    )
    lake_tables: Annotated[dict[str, str], Parsed(_parse_text_mapping)] = setting(
        "Mapping of topic to table, for topics that the template does not suit.", default_factory=dict
    )
    lake_decoder: Annotated[str, _choice("raw", "json", *REGISTRY_DECODERS)] = setting(
        "`raw`, `json`, or `avro` and `protobuf` with a [schema registry](#values-of-a-schema-registry).",
        default="raw",
    )
    lake_schema: Any = setting(
        "Columns of JSON values as DDL (`id BIGINT, name STRING`), or a mapping of topic to DDL; "
        "topics that it does not name stay raw.",
        default=None,
    )
    lake_timestamps: Any = setting(
        "[Meaning of numbers](json-exactly.md#numbers-for-times) in timestamps of JSON: `epoch-seconds`, "
        "`epoch-millis`, `epoch-micros`, `iso` (they are dead letters), or a mapping of column to that.",
        default=json_settings.ISO,
    )
    lake_write: Annotated[str, _choice(change_settings.APPEND, change_settings.UPSERT)] = setting(
        "`append`: every record is a row; `upsert`: records are [changes](changes.md) of rows with a key.",
        default=change_settings.APPEND,
    )
    lake_key: Any = setting(
        "Columns that identify a row, with `lake.write: upsert`: `id`, `[id, region]`, or a mapping of "
        "topic to that.",
        default=None,
    )
    lake_changes: Any = setting(
        "[Format of changes](changes.md#formats): `debezium`, `keyed`, or a mapping of columns.",
        default=change_settings.DEBEZIUM,
    )
    lake_delete: Annotated[str, _choice(change_settings.HARD_DELETE, change_settings.SOFT_DELETE)] = setting(
        "`hard`: a delete removes the row; `soft`: it stays, with `__deleted` true.",
        default=change_settings.HARD_DELETE,
    )
    lake_truncate: Annotated[
        str, _choice(change_settings.REJECT_TRUNCATIONS, change_settings.APPLY_TRUNCATIONS)
    ] = setting(
        "`reject`: Debezium's TRUNCATE is a dead letter; `apply`: it removes the rows of its topic, "
        "which has [one partition](changes.md#meaning).",
        default=change_settings.REJECT_TRUNCATIONS,
    )
    lake_out_of_range: Annotated[str, _choice("dead-letter", "null")] = setting(
        "Values [outside the range of their type](#ranges), such as dates beyond the year 9999: the record "
        "is a dead letter, or the value is null.",
        default="dead-letter",
    )
    lake_schema_evolution: Annotated[str, _choice("add", "fail")] = setting(
        "`add`: a table gets the [columns that it lacks](#columns-that-come-later); "
        "`fail`: they are an error.",
        default="fail",
    )
    lake_partition: Any = setting(
        "[Partitioning](#partitions) of new tables: `day(timestamp), country`.", default=None
    )
    lake_file_writer: Annotated[str, _choice(*FILE_WRITERS)] = setting(
        "Writer of the data files: `spark`, [`arrow`](#files-written-from-arrow) in this process, or "
        "`auto`: Arrow unless a setting or a table needs Spark.",
        default=DEFAULT_FILE_WRITER,
    )
    lake_transform: Any = setting("`module:function`, see [Transform](#transform).", default=None)
    lake_flush_timeout: Duration = setting(
        "Limit of the wait for the lake in a flush, a revocation, an assignment or a close.", default=30.0
    )
    lake_flush_parallelism: int = setting(
        "Number of tables that are flushed at the same time; each needs another `batch.bytes` of memory.",
        default=2,
    )
    batch_bytes: ByteSize = setting(
        "Size (of the Arrow buffers) at which a table's batch is flushed.", default=64_000_000
    )
    batch_max_age: Duration = setting(
        "Age of the oldest record at which a table's batch is flushed ([freshness](#freshness-and-metrics)).",
        default=DEFAULT_BATCH_MAX_AGE_S,
    )
    batch_memory: ByteSize = setting(
        "Limit of all batches being filled.",
        default=0,
        default_text="2 × `batch.bytes`",  # noqa: RUF001 - a product
    )

    def find_problems(self, given: Collection[str]) -> Iterable[str]:
        """Yield contradictions between settings."""
        if self.lake_flush_parallelism < 1:
            yield "lake.flush.parallelism must be at least 1"
        if self.batch_bytes <= 0:
            yield "batch.bytes must be above 0"
        if "batch.memory" in given and self.batch_memory < self.batch_bytes:
            yield f"batch.memory={self.batch_memory} must not be below batch.bytes={self.batch_bytes}"
        yield from json_settings.find_json_problems(
            self.lake_decoder, self.lake_schema, self.batch_bytes, given
        )
        yield from self._find_storage_problems(given)
        yield from change_settings.find_change_problems(
            self.lake_write, self.lake_decoder, self.batch_bytes, given
        )
        yield from change_settings.find_truncation_problems(
            self.lake_truncate, self.lake_delete, self.lake_changes
        )
        if not self.lake_catalog_name.isidentifier():
            yield f"{CATALOG_NAME_SETTING}: {self.lake_catalog_name!r} is not a plain name"
        if self.lake_file_writer == ARROW_FILE_WRITER:
            yield from find_arrow_problems(given)

    def _find_storage_problems(self, given: Collection[str]) -> Iterable[str]:
        for name in sorted(given):
            if name.startswith("lake.s3.") and self.lake_storage != S3:
                yield f"{name}: set lake.storage={S3} with it"
        storage = find_storage(self.lake_warehouse)
        if not self.lake_storage or not self.lake_warehouse or storage == self.lake_storage:
            return
        if storage:
            hint = f"is a location of another storage; write lake.storage={storage}"
        else:  # a folder of this machine, which no other consumer has
            hint = (
                f"is no location of it; write one like {LOCATION_EXAMPLES[self.lake_storage]} (the name that "
                "a catalog has for a warehouse is lake.catalog.warehouse)"
            )
        yield f"lake.storage={self.lake_storage}, and lake.warehouse {hint}"

    @property
    def limits(self) -> BatchLimits:
        """Limits of a batch."""
        memory = self.batch_memory or 2 * self.batch_bytes
        return BatchLimits(self.batch_bytes, memory, self.batch_max_age)

    @property
    def changes(self) -> ChangeSettings | None:
        """Settings of upserts, None for appends. Raises SettingError."""
        if self.lake_write == change_settings.APPEND:
            return None
        return ChangeSettings(
            change_settings.parse_key_columns(self.lake_key),
            change_settings.parse_change_format(self.lake_changes),
            soft_deletes=self.lake_delete == change_settings.SOFT_DELETE,
            applies_truncations=self.lake_truncate == change_settings.APPLY_TRUNCATIONS,
        )

    @property
    def schemas(self) -> dict[str, str]:
        """DDL by topic; the key "*" stands for every other topic."""
        if isinstance(self.lake_schema, Mapping):
            return _parse_text_mapping(self.lake_schema)
        return {"*": str(self.lake_schema)} if self.lake_schema else {}


# Of `lake.catalog.*` only `name` is ours: the others are Iceberg's.
LAKE_SETTING_NAMES: Final = frozenset(one.name for one in list_settings(LakeWriterSettings))


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Settings of the Spark session."""

    warehouse: str | None
    catalog_name: str = DEFAULT_CATALOG
    catalog: Mapping[str, str] = field(default_factory=dict[str, str])  # empty: Delta, or the embedded one
    spark: Mapping[str, str] = field(default_factory=dict[str, str])
    format: str = ICEBERG_FORMAT
    file_writer: str = DEFAULT_FILE_WRITER
    storage: StorageConfig = field(default_factory=StorageConfig)

    def __repr__(self) -> str:
        # Without the settings of the catalog and of Spark, which contain secrets.
        return f"SessionConfig(format={self.format!r}, catalog_name={self.catalog_name!r})"


@dataclass(frozen=True, slots=True)
class LakeConfig:
    """Validated and resolved configuration."""

    group: str
    session: SessionConfig
    table_names: TableNames
    limits: BatchLimits
    schemas: Mapping[str, str]  # topic to the DDL of its JSON; "*": every other topic
    transform: Transform | None
    flush_timeout_s: float
    flush_parallelism: int  # tables
    resets_to_end: bool  # where the consumer continues when its offset is deleted
    partitioning: PartitioningRules
    evolves_schema: bool
    decoder: str
    registry_settings: Mapping[str, Any]
    timestamp_rules: TimestampRules = field(default_factory=dict[str, str])  # of JSON
    changes: ChangeSettings | None = None  # None: every record is a row
    ranges: ValueRanges = STRICT_RANGES
    telemetry: bool = False

    def __repr__(self) -> str:
        # Without the session's settings, which contain secrets.
        return f"LakeConfig(group={self.group!r}, session={self.session!r})"

    def schema_for(self, topic: str) -> str | None:
        """Return the DDL of a topic's JSON values, None for raw."""
        return self.schemas.get(topic) or self.schemas.get("*")


def parse_lake_config(config: Mapping[str, Any]) -> LakeConfig:
    """Validate and resolve a configuration. Raises SettingError."""
    options = _validate_options(config)
    group = config.get("group.id")
    if not group:
        raise SettingError("'group.id' is missing; the table keeps its offsets by group")
    if str(config.get("enable.auto.commit", "")).lower() != "false":
        raise SettingError(
            "enable.auto.commit must be false, here and in the consumer: the writer commits "
            "offsets after the table has the rows; the consumer's own commits would run ahead"
        )
    names = TableNames(options.lake_table, options.lake_tables)
    _check_shared_schemas(names, options.schemas)
    changes = options.changes
    if changes is not None:
        change_settings.check_shared_keys(names, changes)
    return LakeConfig(
        group=str(group),
        session=_build_session_config(options, config),
        table_names=names,
        limits=options.limits,
        schemas=options.schemas,
        transform=_load_transform(options.lake_transform),
        flush_timeout_s=options.lake_flush_timeout,
        flush_parallelism=options.lake_flush_parallelism,
        resets_to_end=config.get("auto.offset.reset") in RESET_TO_END_VALUES,
        partitioning=partition_spec.parse_partitioning(options.lake_partition),
        evolves_schema=options.lake_schema_evolution == "add",
        decoder=options.lake_decoder,
        registry_settings=_parse_registry(options, config),
        timestamp_rules=json_settings.parse_timestamp_rules(options.lake_timestamps),
        changes=changes,
        ranges=ValueRanges(nulls=options.lake_out_of_range == "null"),
        telemetry=is_telemetry_on(config),
    )


def parse_session_config(config: Mapping[str, Any]) -> SessionConfig:
    """Return the settings of Spark and the catalog. Raises SettingError."""
    return _build_session_config(_validate_options(config), config)


def is_lake_setting(name: str) -> bool:
    """Return whether a setting belongs to the lake writer, not to the consumer."""
    return (
        name.startswith(("lake.", "batch.", "spark.", SCHEMA_REGISTRY_PREFIX)) or name == REGISTRY_USER_INFO
    )


def _validate_options(config: Mapping[str, Any]) -> LakeWriterSettings:
    own = {
        name: value
        for name, value in config.items()
        if name.startswith(("lake.", "batch."))
        and (name in LAKE_SETTING_NAMES or not name.startswith(CATALOG_PREFIX))
        and value is not None
    }
    return validate_settings(LakeWriterSettings, own)


def _build_session_config(options: LakeWriterSettings, config: Mapping[str, Any]) -> SessionConfig:
    catalog = {
        name.removeprefix(CATALOG_PREFIX): str(value)
        for name, value in config.items()
        if name.startswith(CATALOG_PREFIX)
    }
    if options.lake_format == DELTA_FORMAT and catalog:
        raise SettingError(
            f"{CATALOG_PREFIX}{min(catalog)}: lake.catalog.* describes an Iceberg catalog; "
            "with lake.format=delta the tables are the folders of lake.warehouse, omit it"
        )
    if options.lake_format == DELTA_FORMAT:
        check_delta_file_settings(config)
    catalog.pop(CATALOG_NAME_SETTING.removeprefix(CATALOG_PREFIX), None)
    if not options.lake_warehouse and not catalog:
        raise SettingError(
            "'lake.warehouse' is missing; write the folder of the tables, or describe a catalog "
            "with lake.catalog.type and its other settings"
        )
    return SessionConfig(
        warehouse=resolve_warehouse(options.lake_warehouse) if options.lake_warehouse else None,
        catalog_name=options.lake_catalog_name,
        catalog=catalog,
        spark={k: _format_spark_value(v) for k, v in config.items() if k.startswith("spark.")},
        format=options.lake_format,
        file_writer=resolve_file_writer(options.lake_file_writer, config),
        storage=StorageConfig(
            options.lake_storage,
            options.lake_s3_endpoint,
            options.lake_s3_region,
            options.lake_s3_path_style_access,
        ),
    )


def _parse_registry(options: LakeWriterSettings, config: Mapping[str, Any]) -> dict[str, Any]:
    if options.lake_decoder not in REGISTRY_DECODERS:
        return {}
    registry = schema_registry.extract_registry_settings(config)
    schema_registry.parse_registry_address(registry)
    return registry


def _check_shared_schemas(names: TableNames, schemas: Mapping[str, str]) -> None:
    schema_by_table: dict[str, str | None] = {}
    for topic, table in sorted(names.mapping.items()):
        schema = schemas.get(topic) or schemas.get("*")
        if schema_by_table.setdefault(table, schema) != schema:
            raise SettingError(
                f"lake.schema: the topics of table {table!r} must have one schema, {topic!r} has another"
            )


def _load_transform(reference: Any) -> Transform | None:
    if reference is None:
        return None
    if callable(reference):
        return cast("Transform", reference)
    module, _, name = str(reference).partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(
            f"lake.transform: {reference!r} cannot be loaded ({error}); write "
            '"module:function" with the module on PYTHONPATH'
        ) from error
    if not callable(function):
        raise SettingError(f"lake.transform: {reference!r} is not a function")
    return cast("Transform", function)


def _format_spark_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)  # YAML's true is Python's True
