"""Data files of Iceberg tables before their commit, written by Iceberg's Spark writer or from Arrow."""

import json
import logging
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats.iceberg import arrow_files, row_delta
from trimtab.consumer_sdk.lake.formats.staging_frames import StagingFrames
from trimtab.consumer_sdk.lake.formats.table_format import STAGING_CATALOG
from trimtab.consumer_sdk.lake.model.interfaces import Frame
from trimtab.consumer_sdk.lake.schema.column_mapping import cast_to_table, to_nullable_schema
from trimtab.consumer_sdk.lake.schema.schema_evolution import ColumnChange
from trimtab.consumer_sdk.lake.spark.cluster_storage import check_files_visible
from trimtab.consumer_sdk.lake.spark.gateway import java_packages as java
from trimtab.consumer_sdk.lake.spark.gateway import py4j_gateway

log = logging.getLogger("trimtab.lake")


class StagingWriter:
    """Iceberg's catalog and coordinator for rewriting tables."""

    def __init__(self, spark: SparkSession, frames: StagingFrames) -> None:
        self._spark = spark
        self.frames = frames
        self.java_root = java(spark)
        self._iceberg = java(spark).org.apache.iceberg
        self._coordinator = self._iceberg.spark.FileRewriteCoordinator.get()
        self._file_caches = row_delta.create_file_caches(self.java_root)
        self._cache = _call_static_get(spark, "org.apache.iceberg.spark.SparkTableCache")

    def staged_schema(self, table: Any) -> StructType:
        """Return the columns that Iceberg's rewriting catalog expects."""
        schema = table.schema()
        # The rewriting catalog also expects the columns of row lineage (format version 3).
        if self._iceberg.TableUtil.supportsRowLineage(table):
            schema = self._iceberg.MetadataColumns.schemaWithRowLineage(schema)
        struct = self._iceberg.spark.SparkSchemaUtil.convert(schema)
        return StructType.fromJson(json.loads(str(struct.json())))

    def apply_changes(self, table: Any, changes: Sequence[ColumnChange]) -> None:
        """Add and widen columns in one commit."""
        update = table.updateSchema().caseSensitive(False)  # noqa: FBT003 - Iceberg's signature
        for change in changes:
            kind = self._to_iceberg_type(change.type)
            if change.widens:
                update.updateColumn(change.name, kind.asPrimitiveType())
            elif len(change.path) == 1:
                update.addColumn(change.name, kind)
            else:
                update.addColumn(".".join(change.path[:-1]), change.path[-1], kind)
        update.commit()

    def _to_iceberg_type(self, kind: DataType) -> Any:
        struct = to_nullable_schema(self._spark, StructType([StructField("c", kind)]))
        return self._iceberg.spark.SparkSchemaUtil.convert(struct).columns().get(0).type()

    def find_old_rows(
        self, name: str, table: Any, changes: KeyedChanges, attempt: str
    ) -> row_delta.IcebergOldRows:
        """Return the rows of changed keys. Raises TableSchemaMismatchError, exceptions of the JVM."""
        keys = row_delta.find_keys(table, name, changes, java(self._spark))
        gateway = py4j_gateway(self._spark)
        return row_delta.IcebergOldRows(name, table, keys, attempt, gateway, self._file_caches)

    def write_files(self, name: str, table: Any, frame: Frame, attempt: str) -> tuple[Any, ...]:
        """Return Iceberg's `DataFile` of each new file. Raises TableSchemaMismatchError, DiskFullError."""
        return self.frames.stage(name, frame, lambda staged: self._write_frame(name, table, staged, attempt))

    def _write_frame(self, name: str, table: Any, frame: Frame, attempt: str) -> tuple[Any, ...]:
        if isinstance(frame, DataFrame):
            return self._write_by_spark(name, table, frame, attempt)
        if self.frames.falls_back_to_spark:  # who names Arrow's writer, has its layout
            arrow_files.refuse_layout(name, table)
        return arrow_files.write_data_file(table, name, frame, attempt, self.java_root)

    def _write_by_spark(self, name: str, table: Any, frame: DataFrame, attempt: str) -> tuple[Any, ...]:
        rows = cast_to_table(name, frame, self.staged_schema(table))
        self._cache.add(attempt, table)  # the rewriting catalog finds a table under its attempt
        try:
            # Fanout keeps one file per partition open, so that Spark need not sort the rows by partition.
            rows.writeTo(f"{STAGING_CATALOG}.`{attempt}`").option("fanout-enabled", "true").append()
            files = tuple(self._coordinator.fetchNewFiles(table, attempt))
            check_files_visible(self._spark, name, (str(file.location()) for file in files))
            return files
        finally:
            self._clear_attempt(table, attempt)

    def _clear_attempt(self, table: Any, attempt: str) -> None:
        try:
            self._cache.remove(attempt)
            self._coordinator.clearRewrite(table, attempt)
        except (Py4JError, PySparkException, OSError) as error:
            log.debug("staging of %s was not cleaned up: %s", attempt, error)


def _call_static_get(spark: SparkSession, name: str) -> Any:
    # Reflection: py4j takes the instance method of the same name for the static one.
    root = java(spark)
    gateway = py4j_gateway(spark)
    cls = root.py4j.reflection.ReflectionUtil.classForName(name)
    method = cls.getMethod("get", gateway.new_array(root.java.lang.Class, 0))
    return method.invoke(None, gateway.new_array(root.java.lang.Object, 0))
