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

    def count_snapshots(self) -> int:
        """Return the number of readable versions."""
        ...

    def read_totals(self) -> dict[str, int]:
        """Return rows, files and bytes of the current version."""
        ...


class SparkLake(ABC):
    """A lake on a Spark session of this process.

    `owns_session`: close() stops the session. `arrow`: this process writes the data files from
    Arrow tables, and Spark's JVM only commits.
    """

    def __init__(self, spark: SparkSession, *, owns_session: bool = False, arrow: bool = False) -> None:
        self.spark = spark
        self._owns_session = owns_session
        self._writes_arrow = arrow

    @abstractmethod
    def open_table(self, name: str) -> StoredTable | None:
        """Return a table, None where there is none of that name. Raises LakeUnavailableError."""

    @abstractmethod
    def create_table(self, name: str, frame: Frame, partition_spec: PartitionSpec = ()) -> StoredTable:
        """Return the table of that name, made with the frame's columns if it is missing."""

    @abstractmethod
    def create_scratch_table(self, folder: str, frame: Frame) -> StoredTable:
        """Return a table with the frame's columns in a local folder, outside the catalog."""

    @abstractmethod
    def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted. Raises LakeUnavailableError."""

    def to_frame(self, records: Records) -> Frame:
        """Return what a table stages these rows from."""
        return records if self._writes_arrow else self.to_spark_frame(records)

    def to_spark_frame(self, records: Records) -> DataFrame:
        """Return a Spark frame of these records in one partition."""
        # One partition, because a flush shall write one file.
        try:
            return self.spark.createDataFrame(records).coalesce(1)
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, "passing a batch to Spark") from error

    def is_empty(self, frame: Frame) -> bool:
        """Return whether a frame has no rows.

        Raises TransformError, SparkSessionError, LakeUnavailableError.
        """
        if not isinstance(frame, DataFrame):
            return bool(frame.num_rows == 0)
        try:
            return frame.isEmpty()
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, "evaluating a batch in Spark") from error

    def close(self) -> None:
        """Stop the session if this lake owns it."""
        if self._owns_session:
            stop_session(self.spark)
