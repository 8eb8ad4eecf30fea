"""The lake of a configuration, by its table format."""

from trimtab.consumer_sdk.lake.config import DELTA, SessionConfig
from trimtab.consumer_sdk.lake.delta import DeltaLake
from trimtab.consumer_sdk.lake.engine import SparkLake
from trimtab.consumer_sdk.lake.formats import hadoop_path
from trimtab.consumer_sdk.lake.iceberg import IcebergLake
from trimtab.consumer_sdk.lake.session import start


def start_lake(config: SessionConfig) -> SparkLake:
    """Start Spark and return the lake; closing the lake ends the session.

    Raises NoJava, WrongJava, JarsUnavailable, SessionFailed.
    """
    spark = start(config)
    if config.format == DELTA:
        return DeltaLake(spark, hadoop_path(str(config.warehouse)), owns_session=True)
    return IcebergLake(spark, config.catalog_name, owns_session=True)
