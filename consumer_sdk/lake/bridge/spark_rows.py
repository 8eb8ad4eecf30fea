"""Rows that were read with Spark."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from trimtab.consumer_sdk.lake.model.interfaces import Records


@dataclass(frozen=True, slots=True)
class SparkRows:
    """Rows as a frame, which Spark evaluates when it is used, or as Arrow."""

    to_spark: Callable[[], DataFrame]
    to_arrow: Callable[[], Records]  # in memory, or evaluated by Spark
