"""Rows of a bridge read, as Arrow, pandas, DuckDB or Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.bridge.arrow_tables import import_library
from trimtab.consumer_sdk.lake.bridge.spark_rows import SparkRows
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap


@dataclass(frozen=True, slots=True)
class LakeRows:
    """Rows of one consistent cut: of each partition the records below the end of its range.

    `topic_ranges` has the offsets that were read from the topic, because the table's version
    `table_version` (None: no rows) does not have them yet.
    """

    table: str
    table_version: int | None
    topic_ranges: Mapping[TopicPartition, OffsetGap]
    rows: Records | SparkRows

    def to_arrow(self) -> Records:
        """Return a pyarrow Table."""
        return self.rows.to_arrow() if isinstance(self.rows, SparkRows) else self.rows

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame. Raises MissingExtraError."""
        import_library("pandas")
        return self.to_arrow().to_pandas()

    def to_duckdb(self, connection: Any = None) -> Any:
        """Return a DuckDB relation, of a new connection if None is given. Raises MissingExtraError."""
        duckdb = import_library("duckdb")
        return (connection or duckdb.connect()).from_arrow(self.to_arrow())

    def to_spark(self) -> DataFrame:
        """Return a Spark DataFrame, which is evaluated when it is used.

        Raises SettingError if the rows were not read with Spark.
        """
        if not isinstance(self.rows, SparkRows):
            raise SettingError(f"table {self.table} was read without Spark; read it with engine='spark'")
        return self.rows.to_spark()
