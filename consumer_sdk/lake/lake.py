"""What the lakes of all table formats have in common: a Spark session, and ways to look around."""

from abc import ABC, abstractmethod
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from trimtab.consumer_sdk.lake.ports import Frame, LakeTable, Records
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitionSpec
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.session import stop_session


class StoredTable(LakeTable, Protocol):
    """A table as the inventory sees it."""

    def count_snapshots(self) -> int:
        """Return how many versions of the table can still be read."""
        ...

    def read_totals(self) -> dict[str, int]:
        """Return rows, files and bytes of the current version."""
        ...


class SparkLake(ABC):
    """A lake that is written by a Spark session of this process.

    `owns_session`: the session was started for this lake, and ends with it.

    `arrow`: data files are written from the records' Arrow table, and Spark's JVM only commits.
    """

    def __init__(
        self, spark: SparkSession, *, owns_session: bool = False, arrow: bool = False
    ) -> None:
        self.spark = spark
        self._owns_session = owns_session
        self._writes_arrow = arrow

    @abstractmethod
    def open_table(self, name: str) -> StoredTable | None:
        """Return a table, None where there is none of that name. Raises LakeUnavailableError."""

    @abstractmethod
    def create_table(
        self, name: str, frame: Frame, partition_spec: PartitionSpec = ()
    ) -> StoredTable:
        """Return the table of that name, made with the frame's columns if it is missing."""

    @abstractmethod
    def create_scratch_table(self, folder: str, frame: Frame) -> StoredTable:
        """Return a table with the frame's columns in a local folder, which no one else sees."""

    @abstractmethod
    def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted. Raises LakeUnavailableError."""

    def to_frame(self, records: Records) -> Frame:
        """Return what a table stages these rows from."""
        return records if self._writes_arrow else self.to_spark_frame(records)

    def to_spark_frame(self, records: Records) -> DataFrame:
        """Return a frame with these rows in one partition: one flush makes one file."""
        try:
            return self.spark.createDataFrame(records).coalesce(1)
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, "a batch on its way into Spark") from error

    def is_empty(self, frame: Frame) -> bool:
        """Whether a frame has no rows. Raises TransformError, SparkSessionError, LakeUnavailableError."""
        if not isinstance(frame, DataFrame):
            return bool(frame.num_rows == 0)
        try:
            return frame.isEmpty()
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, "a batch in Spark") from error

    def close(self) -> None:
        """Stop the session if it was started for this lake."""
        if self._owns_session:
            stop_session(self.spark)
