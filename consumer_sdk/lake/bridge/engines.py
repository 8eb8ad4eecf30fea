"""Selects what reads a table: Arrow in this process, or Spark."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from trimtab.common.errors import SettingError, suggest_name
from trimtab.consumer_sdk.lake.bridge.arrow_tables import DeltaTableReader, IcebergTableReader
from trimtab.consumer_sdk.lake.bridge.spark_tables import SparkTableReader
from trimtab.consumer_sdk.lake.bridge.version_keeper import VersionKeeper
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.formats.table_format import local_folder
from trimtab.consumer_sdk.lake.model.file_writers import SPARK_FILE_WRITER
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, LakeConfig
from trimtab.consumer_sdk.lake.session.factory import open_lake
from trimtab.consumer_sdk.lake.tables.inventory import check_lake_exists

ARROW_ENGINE: Final = "arrow"
SPARK_ENGINE: Final = "spark"
READ_ENGINES: Final = (ARROW_ENGINE, SPARK_ENGINE)


def select_engine(config: LakeConfig, engine: str | None) -> str:
    """Return the engine; None: Arrow where it can read the tables. Raises SettingError."""
    if engine not in (None, *READ_ENGINES):
        hint = suggest_name(str(engine), READ_ENGINES)
        raise SettingError(f"engine={engine!r} is not one of the choices{hint}; write arrow or spark")
    reason = find_spark_reason(config)
    if engine == ARROW_ENGINE and reason is not None:
        raise SettingError(f"engine=arrow: {reason}; write engine=spark, or leave it out")
    library = "deltalake" if config.session.format == DELTA_FORMAT else "pyiceberg"
    if engine is None:
        return SPARK_ENGINE if reason or find_spec(library) is None else ARROW_ENGINE
    return engine


def find_spark_reason(config: LakeConfig) -> str | None:
    """Return why the tables of a configuration can only be read with Spark, None if they need not."""
    session = config.session
    if config.transform is not None:
        return "lake.transform takes a Spark DataFrame"
    if config.schemas:
        return "lake.schema has types of Spark SQL"
    if session.catalog:
        return "lake.catalog.* describes a catalog that Spark connects to"
    return None if local_folder(str(session.warehouse)) else "lake.warehouse is not a local folder"


def open_table_reader(
    table: str, config: LakeConfig, engine: str | None, lake: SparkLake | None
) -> VersionKeeper:
    """Return the reader of a table. A session of Spark that it starts is left running, as its frames need it.

    Raises SettingError, MissingExtraError, and the errors of `open_lake`.
    """
    session = config.session
    if lake is None and select_engine(config, engine) == SPARK_ENGINE:
        check_lake_exists(session)  # Spark would create an empty one
        lake = open_lake(session)
    if lake is not None:
        parses_in_spark = bool(config.schemas) and session.file_writer == SPARK_FILE_WRITER
        decodes_frames = config.transform is not None or parses_in_spark
        return VersionKeeper(SparkTableReader(table, lake, decodes_frames=decodes_frames))
    folder = local_folder(str(session.warehouse)) or Path()
    if not folder.is_dir():
        raise SettingError(f"lake.warehouse: there is no folder {folder}")
    if session.format == DELTA_FORMAT:
        return VersionKeeper(DeltaTableReader(table, folder))
    return VersionKeeper(IcebergTableReader(table, folder / "catalog.db", session.catalog_name))
