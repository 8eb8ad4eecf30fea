"""Opens the lake of a configuration's table format, and its maintenance."""

from pyspark.sql import SparkSession

from trimtab.consumer_sdk.lake.commits.maintenance import TableMaintenance
from trimtab.consumer_sdk.lake.formats.delta.maintenance import DeltaMaintenance
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.iceberg.maintenance import IcebergMaintenance
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.formats.table_format import hadoop_path
from trimtab.consumer_sdk.lake.model.file_writers import resolve_file_writer, resolve_on_master
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, SessionConfig
from trimtab.consumer_sdk.lake.session.spark_session import start_session
from trimtab.consumer_sdk.lake.session.warmup import rehearse_flush


def open_lake(config: SessionConfig, *, warm_up: bool = False) -> SparkLake:
    """Start Spark and return the lake; closing the lake stops the session.

    `warm_up` rehearses a flush. Raises JavaNotFoundError, UnsupportedJavaError, JarsUnavailableError,
    SparkSessionError.
    """
    lake = _create_lake(start_session(config), config)
    if warm_up:  # before the consumer joins: the first flush loads classes and compiles code
        rehearse_flush(lake)
    return lake


def _create_lake(spark: SparkSession, config: SessionConfig) -> SparkLake:
    # of the session: an application may have started it on a cluster that our settings do not name
    writer = resolve_on_master(
        resolve_file_writer(config.file_writer, config.spark), str(spark.sparkContext.master)
    )
    if config.format == DELTA_FORMAT:
        folder = hadoop_path(str(config.warehouse))
        return DeltaLake(spark, folder, owns_session=True, file_writer=writer)
    return IcebergLake(spark, config.catalog_name, owns_session=True, file_writer=writer)


def create_maintenance(lake: SparkLake) -> TableMaintenance:
    """Return the maintenance of a lake's tables."""
    if isinstance(lake, DeltaLake):
        return DeltaMaintenance(lake)
    assert isinstance(lake, IcebergLake)
    return IcebergMaintenance(lake)
