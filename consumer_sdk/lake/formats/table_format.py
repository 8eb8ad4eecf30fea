"""Requirements of a table format on the Spark session: jars, settings, a class to probe.

Iceberg tables live in a catalog: that of `lake.catalog.*`, else an embedded one, Iceberg's JDBC
catalog in an SQLite file of the warehouse folder.

Delta tables are folders without a catalog: "shop.orders" is folder shop/orders of the warehouse.
Spark's session catalog, in memory, gives an opened table its name in SQL.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.java.jars import fetch_jars
from trimtab.consumer_sdk.lake.formats.object_storage import StorageClient, resolve_client
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, SessionConfig

ICEBERG_JAR: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
SQLITE_JAR: Final = "org.xerial:sqlite-jdbc:3.50.3.0"
DELTA_JAR: Final = "io.delta:delta-spark_4.1_2.13:4.4.0"
STAGING_CATALOG: Final = "trimtab_staging"  # writes files without committing them (`iceberg.table`)
_SQLITE_BUSY_TIMEOUT_MS: Final = 15_000
# Dependencies of Delta that Spark provides: 80 MB, and other versions would conflict.
_PROVIDED_BY_SPARK: Final = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.github.luben:*",
    "commons-logging:*",
    "commons-pool:*",
    "io.airlift:*",
    "javax.annotation:*",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.roaringbitmap:*",
    "org.scala-lang:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
_DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # a log of small commits is a small job
    # with fewer partitions than this, a version's checksum file has the offsets: no Spark job reads
    "spark.databricks.delta.setTransactionsInCrc.maxAllowed": "100000",
    # the same for data files, which upserts look keys up in
    "spark.databricks.delta.allFilesInCrc.thresholdNumFiles": "1000",
}

# Flushes of changes plan a table's files: manifests, which never change, are then read once.
_MANIFEST_CACHE: Final = {
    "io.manifest.cache-enabled": "true",
    "io.manifest.cache.max-total-bytes": str(32 << 20),
    "io.manifest.cache.expiration-interval-ms": "600000",
}


@dataclass(frozen=True, slots=True)
class SessionRequirements:
    """Jars and settings of a session."""

    name: str
    coordinates: tuple[str, ...]  # of Maven
    settings: Mapping[str, str]
    probe_class: str  # exists in this format's jars only
    excludes: Sequence[str] = ()
    storage: StorageClient | None = None

    def fetch_jars(
        self, progress: Callable[[str], None] | None = None, *, is_pinned: bool = True
    ) -> tuple[Path, ...]:
        """Return the jars; download missing ones. Raises JarsUnavailableError."""
        sets = [(self.name, self.coordinates, self.excludes)]
        if self.storage:
            sets.append((self.storage.name, self.storage.coordinates, self.storage.excludes))
        jars = (
            fetch_jars(name, coordinates, excludes=excludes, is_pinned=is_pinned, progress=progress)
            for name, coordinates, excludes in sets
        )
        return tuple(chain.from_iterable(jars))


def resolve_requirements(config: SessionConfig) -> SessionRequirements:
    """Return the requirements of a configuration's table format. Raises SettingError."""
    return _delta_requirements(config) if config.format == DELTA_FORMAT else _iceberg_requirements(config)


def local_folder(warehouse: str) -> Path | None:
    """Return the local folder of a warehouse, None for another storage."""
    if warehouse.startswith("file:"):
        return Path(unquote(urlparse(warehouse).path))
    return None if ":" in warehouse.split("/", 1)[0] else Path(warehouse)


def hadoop_path(warehouse: str) -> str:
    """Return a warehouse in Hadoop's form: with its scheme, without escapes."""
    folder = local_folder(warehouse)
    return warehouse if folder is None else f"file:{folder.absolute()}"


def _delta_requirements(config: SessionConfig) -> SessionRequirements:
    client = resolve_client(config)
    settings = {
        **_DELTA_SETTINGS,
        "spark.sql.warehouse.dir": _choose_database_folder(str(config.warehouse)),
        **(client.hadoop if client else {}),
    }
    probe = "org.apache.spark.sql.delta.DeltaLog"
    return SessionRequirements("delta", (DELTA_JAR,), settings, probe, _PROVIDED_BY_SPARK, client)


def _choose_database_folder(warehouse: str) -> str:
    """Return the folder of Spark's default database, in which no table is."""
    # Spark makes it before its first statement, and tries again with each one as long as it cannot: a remote
    # storage that does not answer would delay the rehearsal of a flush by minutes
    if local_folder(warehouse) is None:
        return Path(tempfile.gettempdir(), "trimtab-spark-warehouse").as_uri()
    return hadoop_path(warehouse)


def _iceberg_requirements(config: SessionConfig) -> SessionRequirements:
    client = resolve_client(config)
    catalog = dict(config.catalog) or _embedded_catalog(str(config.warehouse))
    catalog = {**(client.catalog if client else {}), **catalog}
    if config.warehouse is not None:
        catalog.setdefault("warehouse", _warehouse_uri(config.warehouse))
    catalog.setdefault("cache-enabled", "false")  # the fence compares with current offsets
    if config.catalog:
        catalog = _MANIFEST_CACHE | catalog
    prefix = f"spark.sql.catalog.{config.catalog_name}"
    settings = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{name}": value for name, value in catalog.items()},
        f"spark.sql.catalog.{STAGING_CATALOG}": "org.apache.iceberg.spark.SparkRewriteTableCatalog",
        "spark.sql.defaultCatalog": config.catalog_name,
        **(client.hadoop if client else {}),
    }
    jars = (ICEBERG_JAR,) if config.catalog else (ICEBERG_JAR, SQLITE_JAR)
    probe = "org.apache.iceberg.spark.SparkCatalog"
    return SessionRequirements("iceberg", jars, settings, probe, storage=client)


def _embedded_catalog(warehouse: str) -> dict[str, str]:
    folder = local_folder(warehouse)
    if folder is None:
        raise SettingError(
            "lake.warehouse is not a local folder, which the embedded catalog needs; "
            "describe a catalog with lake.catalog.type, lake.catalog.uri and so on"
        )
    # WAL and the timeout let several processes share the file; a commit must survive a power cut.
    options = f"busy_timeout={_SQLITE_BUSY_TIMEOUT_MS}&journal_mode=WAL&synchronous=FULL"
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}?{options}"}


def _warehouse_uri(warehouse: str) -> str:
    folder = local_folder(warehouse)
    return warehouse if folder is None else folder.as_uri()
