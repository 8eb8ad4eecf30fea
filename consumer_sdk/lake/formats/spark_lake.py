"""Base of the lakes of all table formats: a Spark session, creation of tables, their inspection."""

import logging
from abc import ABC, abstractmethod
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trimtab.consumer_sdk.errors import LakeUnavailableError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.decoding.spark_frames import build_frame
from trimtab.consumer_sdk.lake.formats.staging_frames import StagingFrames
from trimtab.consumer_sdk.lake.model.file_writers import AUTO_FILE_WRITER, SPARK_FILE_WRITER
from trimtab.consumer_sdk.lake.model.interfaces import Frame, LakeTable, Records
from trimtab.consumer_sdk.lake.model.partition_spec import PartitionSpec, check_partition_columns
from trimtab.consumer_sdk.lake.schema.column_mapping import spark_schema_of
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.gateway import stop_session

log = logging.getLogger("trimtab.lake")


class StoredTable(LakeTable, Protocol):
    """A table with the totals that the inventory shows."""

    # Of the table, not of its name: a table that was created again has another one.
    def read_id(self) -> str: ...  # noqa: D102

    # None: the table does not have it.
    def read_property(self, name: str) -> str | None: ...  # noqa: D102

    # Of readable versions.
    def count_snapshots(self) -> int: ...  # noqa: D102

    # Rows, files and bytes of the current version.
    def read_totals(self) -> dict[str, int]: ...  # noqa: D102


class SparkLake(ABC):
    """A lake on a Spark session of this process; close() stops a session that it owns.

    `file_writer` has no default here: that of `lake.file.writer` depends on other settings (`file_writers`).
    """

    def __init__(self, spark: SparkSession, *, file_writer: str, owns_session: bool = False) -> None:
        self.spark = spark
        self._owns_session = owns_session
        self._file_writer = file_writer
        self._frames = StagingFrames(
            self.to_frame, self.to_spark_frame, falls_back_to_spark=file_writer == AUTO_FILE_WRITER
        )

    @abstractmethod
    def open_table(self, name: str) -> StoredTable | None:
        """Return a table, None if it does not exist. Raises LakeUnavailableError."""

    def create_table(self, name: str, frame: Frame, partition_spec: PartitionSpec = ()) -> StoredTable:
        """Return the table; create it with the frame's columns if it does not exist. Raises SettingError."""
        if (table := self.open_table(name)) is not None:
            return table
        rows = spark_schema_of(frame)
        check_partition_columns(name, partition_spec, rows.names)
        try:
            self._create_table(name, rows, partition_spec, keyed=isinstance(frame, KeyedChanges))
            log.info("%s: created with %s", name, rows.simpleString())
        except jvm_errors.JVM_ERRORS as error:
            if not self._is_creation_race(name, error):
                where = f"table {name} cannot be created"
                raise jvm_errors.to_trimtab_error(error, where) from jvm_errors.MaskedError(error)
        if (table := self.open_table(name)) is not None:
            return table
        raise LakeUnavailableError(
            f"table {name} does not exist yet: another writer is creating it, or dropped it. If this "
            "lasts, find out what drops it; remove its folder if it is empty"
        )

    # `keyed`: for upserts.
    @abstractmethod
    def _create_table(
        self, name: str, rows: StructType, partition_spec: PartitionSpec, *, keyed: bool
    ) -> None: ...

    # Whether another writer has just created the table, or is creating it.
    @abstractmethod
    def _is_creation_race(self, name: str, error: BaseException) -> bool: ...

    @abstractmethod
    def create_scratch_table(self, folder: str, frame: Frame) -> StoredTable:
        """Return a table with the frame's columns in a local folder, outside the catalog."""

    @abstractmethod
    def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted. Raises LakeUnavailableError."""

    def to_frame(self, records: Records) -> Frame:
        """Return a frame of these records, for `stage_rows`."""
        return self.to_spark_frame(records) if self._file_writer == SPARK_FILE_WRITER else records

    def to_spark_frame(self, records: Records) -> DataFrame:
        """Return a Spark frame of these records in one partition."""
        with jvm_errors.translate_errors("passing a batch to Spark"):
            return build_frame(self.spark, records)

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
