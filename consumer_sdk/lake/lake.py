"""Base of the lakes of all table formats: a Spark session, table inspection."""

from abc import ABC, abstractmethod
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from trimtab.consumer_sdk.lake.ports import Frame, LakeTable, Records
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitionSpec
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.session import stop_session


class StoredTable(LakeTable, Protocol):
    """A table with the totals that the inventory shows."""

    # Of readable versions.
    def count_snapshots(self) -> int: ...  # noqa: D102

    # Rows, files and bytes of the current version.
    def read_totals(self) -> dict[str, int]: ...  # noqa: D102


class SparkLake(ABC):
    """A lake on a Spark session of this process; close() stops a session that it owns."""

    def __init__(self, spark: SparkSession, *, owns_session: bool = False, arrow: bool = False) -> None:
        self.spark = spark
        self._owns_session = owns_session
        self._writes_arrow = arrow  # this process writes the data files, Spark's JVM only commits

    @abstractmethod
    def open_table(self, name: str) -> StoredTable | None:
        """Return a table, None if it does not exist. Raises LakeUnavailableError."""

    @abstractmethod
    def create_table(self, name: str, frame: Frame, partition_spec: PartitionSpec = ()) -> StoredTable:
        """Return the table; create it with the frame's columns if it does not exist."""

    @abstractmethod
    def create_scratch_table(self, folder: str, frame: Frame) -> StoredTable:
        """Return a table with the frame's columns in a local folder, outside the catalog."""

    @abstractmethod
    def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted. Raises LakeUnavailableError."""

    def to_frame(self, records: Records) -> Frame:
        """Return a frame of these records, for `stage_rows`."""
        return records if self._writes_arrow else self.to_spark_frame(records)

    def to_spark_frame(self, records: Records) -> DataFrame:
        """Return a Spark frame of these records in one partition."""
        with jvm_errors.translate_errors("passing a batch to Spark"):
            return self.spark.createDataFrame(records).coalesce(1)  # a flush writes one file per partition

    def is_empty(self, frame: Frame) -> bool:
        """Return whether a frame has no rows. Raises TransformError, SparkSessionError."""
        if not isinstance(frame, DataFrame):
            return bool(frame.num_rows == 0)
        with jvm_errors.translate_errors("evaluating a batch in Spark"):
            return frame.isEmpty()

    def close(self) -> None:
        """Stop the session if this lake owns it."""
        if self._owns_session:
            stop_session(self.spark)
