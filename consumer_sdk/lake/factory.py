"""Creates the lake of a configuration's table format, and its maintenance."""

from trimtab.consumer_sdk.lake.formats.delta.maintenance import DeltaMaintenance
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.iceberg.maintenance import IcebergMaintenance
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.formats.table_format import hadoop_path
from trimtab.consumer_sdk.lake.maintenance import TableMaintenance
from trimtab.consumer_sdk.lake.settings import ARROW_FILE_WRITER, DELTA_FORMAT, SessionConfig
from trimtab.consumer_sdk.lake.spark.session import start_session
from trimtab.consumer_sdk.lake.spark_lake import SparkLake


def start_lake(config: SessionConfig) -> SparkLake:
    """Start Spark and return the lake; closing the lake stops the session.

    Raises JavaNotFoundError, UnsupportedJavaError, JarsUnavailableError, SparkSessionError.
    """
    spark = start_session(config)
    arrow = config.file_writer == ARROW_FILE_WRITER
    if config.format == DELTA_FORMAT:
        return DeltaLake(spark, hadoop_path(str(config.warehouse)), owns_session=True, arrow=arrow)
    return IcebergLake(spark, config.catalog_name, owns_session=True, arrow=arrow)


def create_maintenance(lake: SparkLake) -> TableMaintenance:
    """Return the maintenance of a lake's tables."""
    if isinstance(lake, DeltaLake):
        return DeltaMaintenance(lake)
    assert isinstance(lake, IcebergLake)
    return IcebergMaintenance(lake)
