"""Tables of any catalog and storage, read with Spark."""

from collections.abc import Iterable
from functools import partial

from pyspark.sql import DataFrame

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.lake.bridge import arrow_rows
from trimtab.consumer_sdk.lake.bridge.table_snapshot import TableSnapshot
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.interfaces import Records
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark_lake import SparkLake


class SparkTableReader:
    """Reads versions of one table as frames, which Spark evaluates when they are used."""

    def __init__(self, table: str, lake: SparkLake) -> None:
        self._table = table
        self._lake = lake

    def read_snapshot(
        self, group: str, partitions: Iterable[TopicPartition], *, newest: bool = False
    ) -> TableSnapshot:
        """Return the newest version, with the offsets of all groups. Raises CommittedOffsetsLostError."""
        del group, partitions, newest
        table = self._lake.open_table(self._table)
        if table is None:
            return TableSnapshot()
        read = table.read_offsets()  # of one version, as is its id
        return TableSnapshot(read.snapshot_id, read.offsets, partial(self._scan, read.snapshot_id))

    def to_frame(self, records: Records) -> DataFrame:
        """Return a Spark frame of Arrow records."""
        return self._lake.to_spark_frame(records)

    def append_rows(self, rows: DataFrame, more: DataFrame) -> DataFrame:
        """Return both. Raises TableSchemaMismatchError."""
        with jvm_errors.translate_errors(f"table {self._table}: records behind it"):
            return rows.unionByName(more, allowMissingColumns=True)

    def apply_changes(self, rows: DataFrame, changes: KeyedChanges) -> DataFrame:
        """Return the rows after these changes. Raises TableSchemaMismatchError."""
        if not changes.touched_keys.num_rows:
            return rows
        keys = arrow_rows.find_table_keys(self._table, changes, rows.columns)
        if keys is not None:
            rows = rows.join(self.to_frame(keys), keys.column_names, "left_anti").select(rows.columns)
        return self.append_rows(rows, self.to_frame(changes.upserts))

    def _scan(self, version: int | None) -> DataFrame:
        with jvm_errors.translate_errors(f"table {self._table}"):
            if version is None:
                return self._lake.spark.table(self._table).limit(0)
            return self._lake.spark.sql(f"SELECT * FROM {self._table} VERSION AS OF {version}")  # noqa: S608 - checked
