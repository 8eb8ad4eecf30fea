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
from trimtab.common.units import parse_bytes, parse_seconds
from trimtab.consumer_sdk.consumer.settings import nearest
from trimtab.consumer_sdk.lake.decoding import schema_registry
from trimtab.consumer_sdk.lake.decoding.schema_registry import SCHEMA_REGISTRY, USER_INFO
from trimtab.consumer_sdk.lake.schema import partition_spec
from trimtab.consumer_sdk.lake.schema.partition_spec import Partitioning
from trimtab.consumer_sdk.lake.schema.table_names import TableNames
from trimtab.consumer_sdk.lake.writer.batches import Limits

Transform: TypeAlias = Callable[[Any], Any]

CATALOG: Final = "lake.catalog."
ENDS: Final = ("latest", "largest", "end")
"""What librdkafka takes for `auto.offset.reset` to begin at the end."""

ICEBERG: Final = "iceberg"
DELTA: Final = "delta"
FORMATS: Final = (ICEBERG, DELTA)
SPARK: Final = "spark"
ARROW: Final = "arrow"
STAGES: Final = (SPARK, ARROW)
WITH_REGISTRY: Final = ("avro", "protobuf")
DECODERS: Final = ("raw", "json", *WITH_REGISTRY)
KNOWN: Final = frozenset(
    {
        "batch.bytes",
        "batch.memory",
        "batch.wait",
        "lake.catalog.name",
        "lake.decoder",
        "lake.evolve",
        "lake.format",
        "lake.partition",
        "lake.patience",
        "lake.schema",
        "lake.stage",
        "lake.table",
        "lake.tables",
        "lake.transform",
        "lake.warehouse",
    }
)
"""Every name of ours; `lake.catalog.*` beyond `name` is Iceberg's own."""

_IN_SPARK: Final = {
    "lake.partition": "Spark divides rows among partitions",
    "lake.schema": "JSON is parsed by Spark",
    "lake.transform": "a transform takes a Spark DataFrame",
}
"""What `lake.stage=arrow` cannot do, and why."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What the Spark session is made of; `catalog` is empty for the embedded default.

    `format` is one of `FORMATS`; Delta has a warehouse and no catalog. `stage` is one of `STAGES`:
    who writes the data files.
    """

    warehouse: str | None
    catalog_name: str = "trimtab"
    catalog: Mapping[str, str] = field(default_factory=dict[str, str])
    spark: Mapping[str, str] = field(default_factory=dict[str, str])
    format: str = ICEBERG
    stage: str = SPARK

    def __repr__(self) -> str:
        """Show no secret: the settings of the catalog and of Spark stay out."""
        return f"SessionConfig(format={self.format!r}, catalog_name={self.catalog_name!r})"


@dataclass(frozen=True, slots=True)
class LakeConfig:
    """A checked configuration.

    `patience` is how many seconds a revocation or a close waits for the lake.

    `schemas` maps a topic to the DDL of its JSON; the key "*" stands for every topic without one.

    `registry` is how the schema registry is asked; empty for a decoder that needs none.

    `evolve` is whether a table gets the columns that it lacks.

    `skips` is whether the consumer jumps to the end of a partition where its offset is gone.
    """

    group: str
    session: SessionConfig
    names: TableNames = field(default_factory=TableNames)
    limits: Limits = field(default_factory=lambda: Limits(64_000_000, 128_000_000, 10.0))
    schemas: Mapping[str, str] = field(default_factory=dict[str, str])
    transform: Transform | None = None
    patience: float = 30.0
    skips: bool = False
    partition: Partitioning = field(default_factory=Partitioning)
    evolve: bool = False
    decoder: str = "raw"
    registry: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __repr__(self) -> str:
        """Show no secret: the session's settings stay out."""
        return f"LakeConfig(group={self.group!r}, session={self.session!r})"

    def schema(self, topic: str) -> str | None:
        """Return the DDL that a topic's values are decoded with, None for raw."""
        return self.schemas.get(topic) or self.schemas.get("*")


def parse(config: Mapping[str, Any]) -> LakeConfig:
    """Check a configuration. Raises SettingError."""
    for name in config:
        _known(name)
    group = config.get("group.id")
    if not group:
        raise SettingError("'group.id' is missing; the table keeps its offsets by group")
    if str(config.get("enable.auto.commit", "")).lower() != "false":
        raise SettingError(
            "enable.auto.commit must be false, here and in the consumer: the sink "
            "commits after the table has the rows, "
            "the consumer's own commits would run ahead of it"
        )
    names = TableNames(str(config.get("lake.table", "lake.{topic}")), _tables(config))
    schemas = _schemas(config)
    _agree(names, schemas)
    return LakeConfig(
        group=str(group),
        session=session(config),
        names=names,
        limits=_limits(config),
        schemas=schemas,
        transform=_transform(config.get("lake.transform")),
        patience=parse_seconds(config.get("lake.patience", "30 s"), "lake.patience"),
        skips=config.get("auto.offset.reset") in ENDS,
        partition=partition_spec.parse(config.get(partition_spec.SETTING)),
        evolve=_evolve(config.get("lake.evolve", "fail")),
        decoder=str(config.get("lake.decoder", "raw")),
        registry=_registry(config),
    )


def session(config: Mapping[str, Any]) -> SessionConfig:
    """Return the part about Spark and the catalog. Raises SettingError."""
    catalog = {k.removeprefix(CATALOG): str(v) for k, v in config.items() if k.startswith(CATALOG)}
    form = _format(config, catalog)
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
        warehouse=None if warehouse is None else _location(str(warehouse)),
        catalog_name=name,
        catalog=catalog,
        spark={k: _plain(v) for k, v in config.items() if k.startswith("spark.")},
        format=form,
        stage=_stage(config),
    )


def _format(config: Mapping[str, Any], catalog: Mapping[str, str]) -> str:
    form = str(config.get("lake.format", ICEBERG))
    if form not in FORMATS:
        raise SettingError(
            f"lake.format: {form!r} is not known{nearest(form, frozenset(FORMATS))}; "
            "write iceberg or delta"
        )
    if form == DELTA and catalog:
        raise SettingError(
            f"{CATALOG}{min(catalog)}: lake.catalog.* describes a catalog of Iceberg tables; with "
            "lake.format=delta the tables are the folders of lake.warehouse, leave it out"
        )
    return form


def _stage(config: Mapping[str, Any]) -> str:
    stage = str(config.get("lake.stage", SPARK))
    if stage not in STAGES:
        raise SettingError(
            f"lake.stage: {stage!r} is not known{nearest(stage, frozenset(STAGES))}; "
            "write spark or arrow"
        )
    for name in (n for n in _IN_SPARK if stage == ARROW and config.get(n)):
        raise SettingError(
            f"{name}: {_IN_SPARK[name]}, and with lake.stage=arrow data files are written without "
            f"Spark: set lake.stage=spark, or leave {name} out"
        )
    return stage


def ours(name: str) -> bool:
    """Whether a setting is the sink's and not the consumer's."""
    return name.startswith(("lake.", "batch.", "spark.", SCHEMA_REGISTRY)) or name == USER_INFO


def _known(name: str) -> None:
    if name in KNOWN or not name.startswith(("lake.", "batch.")) or name.startswith(CATALOG):
        return
    raise SettingError(f"{name!r} is not a setting of the sink{nearest(name, KNOWN)}")


def _limits(config: Mapping[str, Any]) -> Limits:
    size = parse_bytes(config.get("batch.bytes", "64 MB"), "batch.bytes")
    memory = parse_bytes(config.get("batch.memory", 2 * size), "batch.memory")
    wait = parse_seconds(config.get("batch.wait", "10 s"), "batch.wait")
    if size <= 0:
        raise SettingError("batch.bytes must be above 0")
    if memory < size:
        raise SettingError(f"batch.memory={memory} must not be below batch.bytes={size}")
    return Limits(bytes=size, memory=memory, wait=wait)


def _tables(config: Mapping[str, Any]) -> dict[str, str]:
    tables = config.get("lake.tables") or {}
    if not isinstance(tables, Mapping):
        raise SettingError(f"lake.tables: {tables!r} is not a mapping of topic to table")
    return {str(topic): str(table) for topic, table in tables.items()}


def _schemas(config: Mapping[str, Any]) -> dict[str, str]:
    decoder = config.get("lake.decoder", "raw")
    schema = config.get("lake.schema")
    if decoder not in DECODERS:
        raise SettingError(
            f"lake.decoder: {decoder!r} is not "
            f"known{nearest(str(decoder), frozenset(DECODERS))}; write raw, json, avro or protobuf"
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


def _registry(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("lake.decoder") not in WITH_REGISTRY:
        return {}
    found = schema_registry.settings(config)
    schema_registry.address(found)
    return found


def _evolve(chosen: Any) -> bool:
    if chosen not in ("add", "fail"):
        raise SettingError(
            f"lake.evolve: {chosen!r} is not known; write add (a table gets the columns that it "
            "lacks) or fail (it is an error)"
        )
    return bool(chosen == "add")


def _agree(names: TableNames, schemas: Mapping[str, str]) -> None:
    """Raise SettingError if topics that share a table have different schemas."""
    chosen: dict[str, str | None] = {}
    for topic, table in sorted(names.mapping.items()):
        schema = schemas.get(topic) or schemas.get("*")
        if chosen.setdefault(table, schema) != schema:
            raise SettingError(
                f"lake.schema: the topics of table {table!r} must have one schema, "
                f"{topic!r} has another"
            )


def _transform(reference: Any) -> Transform | None:
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


def _location(warehouse: str) -> str:
    """Return a warehouse as a URI.

    A plain path is made absolute, so that every process means the same.
    """
    return (
        warehouse
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", warehouse)
        else str(Path(warehouse).expanduser().absolute())
    )


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
