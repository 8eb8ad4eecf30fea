"""Tables of any catalog and storage, read with Spark.

A frame is evaluated when it is used, which takes Spark longer than a second for a table of any size. So
once rows were asked for as Arrow, those of a version are read into memory (`VersionKeeper`), and the
records behind it joined there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.bridge import arrow_rows
from trimtab.consumer_sdk.lake.bridge.spark_rows import SparkRows
from trimtab.consumer_sdk.lake.bridge.table_snapshot import TableSnapshot
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import Frame, Records
from trimtab.consumer_sdk.lake.schema.schema_evolution import check_values_kept
from trimtab.consumer_sdk.lake.spark import jvm_errors


@dataclass(frozen=True, slots=True)
class ScannedVersion:
    """Rows of one version."""

    frame: DataFrame
    rows: Records | None  # None: not in memory


class SparkTableReader:
    """Reads versions of one table; `decodes_frames`: records are decoded by Spark."""

    def __init__(self, table: str, lake: SparkLake, *, decodes_frames: bool) -> None:
        self.keeps_rows = False  # until rows are asked for as Arrow
        self._table = table
        self._lake = lake
        self._decodes_frames = decodes_frames

    def read_snapshot(
        self, group: str, partitions: Iterable[TopicPartition], *, newest: bool = False
    ) -> TableSnapshot:
        """Return the newest version, with the offsets of all groups. Raises CommittedOffsetsLostError."""
        del group, partitions, newest
        table = self._lake.open_table(self._table)
        if table is None:
            return TableSnapshot()
        read = table.read_offsets()  # of one version, as is its id
        # versions of a Delta table that was created again begin at 0, too
        identity = table.read_id(), read.snapshot_id
        scan = partial(self._scan, read.snapshot_id, keeps_rows=self.keeps_rows)
        return TableSnapshot(read.snapshot_id, read.offsets, scan, identity)

    def to_frame(self, records: Records) -> Frame:
        """Return a frame of Arrow records, to decode."""
        return self._lake.to_spark_frame(records) if self._decodes_frames else records

    def join_rows(self, rows: ScannedVersion | None, behind: Frame | KeyedChanges | None) -> SparkRows:
        """Return both. Raises TableSchemaMismatchError."""
        in_memory = self.keeps_rows if rows is None else rows.rows is not None
        if not in_memory:
            frame = self._join_frames(rows, behind)
            return SparkRows(lambda: frame, partial(self._collect_and_keep, frame))
        kept = None if rows is None else rows.rows
        joined = arrow_rows.join_rows(self._table, kept, self._to_arrow(behind))
        return SparkRows(partial(self._join_frames, rows, behind), lambda: joined)

    def _scan(self, version: int | None, *, keeps_rows: bool) -> ScannedVersion:
        with jvm_errors.translate_errors(f"table {self._table}"):
            if version is None:
                frame = self._lake.spark.table(self._table).limit(0)
            else:
                query = f"SELECT * FROM {self._table} VERSION AS OF {version}"  # noqa: S608 - checked
                frame = self._lake.spark.sql(query)
            return ScannedVersion(frame, frame.toArrow() if keeps_rows else None)

    def _join_frames(self, rows: ScannedVersion | None, behind: Frame | KeyedChanges | None) -> DataFrame:
        if isinstance(behind, KeyedChanges):
            upserts = self._to_spark(behind.upserts)
            return upserts if rows is None else self._apply_changes(rows.frame, behind, upserts)
        if behind is None:
            assert rows is not None
            return rows.frame
        more = self._to_spark(behind)
        return more if rows is None else self._append_rows(rows.frame, more)

    def _apply_changes(self, rows: DataFrame, changes: KeyedChanges, upserts: DataFrame) -> DataFrame:
        if not changes.touched_keys.num_rows:
            return rows
        keys = arrow_rows.find_table_keys(self._table, changes, rows.columns)
        if keys is not None:
            rows = rows.join(self._to_spark(keys), keys.column_names, "left_anti").select(rows.columns)
        return self._append_rows(rows, upserts)

    def _append_rows(self, rows: DataFrame, more: DataFrame) -> DataFrame:
        with jvm_errors.translate_errors(f"table {self._table}: records behind it"):
            joined = rows.unionByName(more, allowMissingColumns=True)
        try:
            check_values_kept((rows.schema, more.schema), joined.schema)
        except TypeError as error:
            raise TableSchemaMismatchError(f"the records do not fit the table's columns: {error}") from error
        return joined

    def _to_spark(self, frame: Frame) -> DataFrame:
        return frame if isinstance(frame, DataFrame) else self._lake.to_spark_frame(frame)

    def _to_arrow(self, behind: Frame | KeyedChanges | None) -> Records | KeyedChanges | None:
        return self._collect(behind) if isinstance(behind, DataFrame) else behind

    def _collect(self, frame: DataFrame) -> Records:
        with jvm_errors.translate_errors(f"table {self._table}"):
            return frame.toArrow()

    def _collect_and_keep(self, frame: DataFrame) -> Records:
        self.keeps_rows = True
        return self._collect(frame)
