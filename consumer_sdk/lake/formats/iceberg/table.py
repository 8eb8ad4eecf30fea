"""Iceberg tables: staged from Arrow or by Iceberg's Spark writer, committed by its public API with our fence.

*Stage.* A Spark job writes data files through Iceberg's catalog for rewriting tables
(`SparkRewriteTableCatalog`); a coordinator in the driver collects them instead of committing a
snapshot. Files from Arrow take no job (`arrow_files`).

*Commit.* `start_append(…).appendFile(…).set(offsets).validateWith(validator)`. Iceberg calls the
validator with the ancestors of the snapshot that the commit would follow. It refuses unless the
newest offsets there equal the expected ones, byte for byte; if none of them has offsets, the snapshot
at which the expected ones were read must be among them.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableWriteError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.commits.compaction_hold import HOLD_PROPERTY
from trimtab.consumer_sdk.lake.formats.iceberg import commit_dates, row_delta
from trimtab.consumer_sdk.lake.formats.iceberg.appends import start_append
from trimtab.consumer_sdk.lake.formats.iceberg.staging_writer import StagingWriter
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.formats.upsert_staging import discard_lost_vectors, stage_changes
from trimtab.consumer_sdk.lake.model.interfaces import Frame, StagedChanges, StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.model.partition_spec import PARTITION_SETTING, PartitionSpec
from trimtab.consumer_sdk.lake.model.table_names import initial_properties
from trimtab.consumer_sdk.lake.offsets.offset_gaps import GAPS_PROPERTY, TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import (
    ATTEMPT_PROPERTY,
    OFFSETS_PROPERTY,
    CommittedOffsets,
    find_newest_offsets,
    warn_of_offset_cost,
)
from trimtab.consumer_sdk.lake.schema.column_mapping import (
    explain_mismatch,
    spark_schema_of,
    to_nullable_schema,
)
from trimtab.consumer_sdk.lake.schema.schema_evolution import find_column_changes
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.gateway import java_packages as java
from trimtab.consumer_sdk.lake.spark.gateway import java_session

log = logging.getLogger("trimtab.lake")

ICEBERG_TABLE_DEFAULTS: Final = {
    "commit.retry.num-retries": "0",  # the fenced commit retries, with current offsets
    # a commit every few seconds leaves many metadata files behind
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    # zstd's level 3, Parquet's default, takes three times the CPU of level 1 and gains little on
    # JSON; compaction may compress further. Both: a REST catalog need not add Iceberg's default codec,
    # and writers would take gzip, which refuses the level
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
}

MAX_CREATION_REFUSALS: Final = 5  # of a table: one that another writer creates can be loaded at once


class IcebergLake(SparkLake):
    """Tables of one Iceberg catalog of a Spark session."""

    def __init__(
        self, spark: SparkSession, catalog: str, *, owns_session: bool = False, file_writer: str
    ) -> None:
        super().__init__(spark, owns_session=owns_session, file_writer=file_writer)
        self.catalog_name = catalog
        self._refused: Counter[str] = Counter()  # creations of a table that is there, and cannot be loaded
        with jvm_errors.translate_errors(f"catalog {catalog}"):
            tools = java(spark).org.apache.iceberg.spark.Spark3Util
            self._catalog = tools.loadIcebergCatalog(java_session(spark), catalog)
            self._staging_writer = StagingWriter(spark, self._frames)

    def open_table(self, name: str) -> "IcebergTable | None":
        """Return a table, None if it does not exist."""
        try:
            table = self._catalog.loadTable(self._table_identifier(name))
            self._refused.pop(name, None)
            return IcebergTable(name, table, self._staging_writer)
        except jvm_errors.JVM_ERRORS as error:
            if jvm_errors.is_table_missing(error):
                return None
            raise jvm_errors.to_trimtab_error(error, f"table {name}") from jvm_errors.MaskedError(error)

    def _is_creation_race(self, name: str, error: BaseException) -> bool:
        if not any("AlreadyExists" in cause for cause, _ in jvm_errors.java_causes(error)):
            return False
        self._refused[name] += 1
        if self._refused[name] >= MAX_CREATION_REFUSALS:
            raise TableWriteError(
                f"table {name} cannot be created: a view or a table of another format has this name: set "
                "lake.tables to another one"
            ) from jvm_errors.MaskedError(error)
        return True

    def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        with jvm_errors.translate_errors(f"catalog {self.catalog_name}"):
            tables = [t for space in self._walk_namespaces() for t in self._catalog.listTables(space)]
            return sorted(str(table.toString()) for table in tables)

    def create_scratch_table(self, folder: str, frame: Frame) -> "IcebergTable":
        """Return a table with the frame's columns in a local folder, outside the catalog."""
        iceberg = java(self.spark).org.apache.iceberg
        with jvm_errors.translate_errors(f"table {folder}"):
            tables = iceberg.hadoop.HadoopTables(java_session(self.spark).sessionState().newHadoopConf())
            schema = self._to_iceberg_schema(spark_schema_of(frame))
            return IcebergTable(folder, tables.create(schema, folder), self._staging_writer)

    def _create_table(
        self, name: str, rows: StructType, partition_spec: PartitionSpec, *, keyed: bool
    ) -> None:
        schema = self._to_iceberg_schema(rows)
        spec = self._build_partition_spec(name, schema, partition_spec)
        self._create_namespace(f"{self.catalog_name}.{name.rpartition('.')[0]}")
        properties = ICEBERG_TABLE_DEFAULTS | initial_properties(name)
        properties |= row_delta.UPSERT_TABLE_DEFAULTS if keyed else {}
        self._catalog.createTable(self._table_identifier(name), schema, spec, properties)

    def _create_namespace(self, namespace: str) -> None:
        try:
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        except jvm_errors.JVM_ERRORS:
            # A catalog looks first and then creates: another writer may do so in between.
            if not self.spark.catalog.databaseExists(namespace):
                raise

    def _build_partition_spec(self, name: str, schema: Any, partition_spec: PartitionSpec) -> Any:
        spec = java(self.spark).org.apache.iceberg.PartitionSpec.builderFor(schema)
        spec.caseSensitive(False)  # noqa: FBT003 - Iceberg's signature; Spark SQL ignores case, too
        try:
            for part in partition_spec:
                width = () if part.width is None else (part.width,)
                getattr(spec, part.transform)(part.column, *width)
            return spec.build()
        except jvm_errors.JVM_ERRORS as error:
            # Iceberg refuses a transform that does not suit the column's type: the setting is wrong.
            where = f"{PARTITION_SETTING}: table {name}: {', '.join(map(str, partition_spec))}"
            text = str(jvm_errors.to_trimtab_error(error, where))
            raise SettingError(text) from jvm_errors.MaskedError(error)

    def _to_iceberg_schema(self, rows: StructType) -> Any:
        struct = to_nullable_schema(self.spark, rows)
        return java(self.spark).org.apache.iceberg.spark.SparkSchemaUtil.convert(struct)

    def _table_identifier(self, name: str) -> Any:
        return java(self.spark).org.apache.iceberg.catalog.TableIdentifier.parse(name)

    def _walk_namespaces(self) -> Iterator[Any]:
        waiting = list(self._catalog.listNamespaces())
        while waiting:
            space = waiting.pop()
            yield space
            waiting.extend(self._catalog.listNamespaces(space))


class IcebergTable:
    """One Iceberg table; the module's docstring describes how it is written."""

    def __init__(self, name: str, table: Any, staging: StagingWriter) -> None:
        self.name = name
        self.java_table = table
        self._staging_writer = staging

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:
        """Return the offsets of the newest snapshot with offsets. Raises TableSchemaMismatchError."""
        with jvm_errors.translate_errors(f"table {self.name}"):
            if refresh:
                self.java_table.refresh()
            text = self._newest_offsets()
            snapshot_id = next((int(s.snapshotId()) for s in self.walk_ancestors()), None)
        return VersionedOffsets.decode(text, self.name, snapshot_id)

    def read_gaps(self) -> TableGaps:
        """Return the gaps as of the last refresh."""
        return TableGaps.decode(self.read_property(GAPS_PROPERTY), self.name)

    def has_committed(self, attempt: str) -> bool:
        """Return whether an attempt's commit is among the snapshots."""
        with jvm_errors.translate_errors(f"table {self.name}"):
            return any(_summary_value(s, ATTEMPT_PROPERTY) == attempt for s in self.walk_ancestors())

    def evolve_schema(self, frame: Frame) -> None:
        """Add a frame's missing columns to the table in one commit. Raises CommitConflictError."""
        with jvm_errors.translate_errors(f"table {self.name}: new columns"):
            self.java_table.refresh()
            columns = self._staging_writer.staged_schema(self.java_table)
            if changes := find_column_changes(columns, spark_schema_of(frame)):
                self._staging_writer.apply_changes(self.java_table, changes)
                log.info("%s: new columns: %s", self.name, "; ".join(map(str, changes)))

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        """Write rows as data files. Raises TableSchemaMismatchError, TransformError, DiskFullError."""
        if isinstance(frame, KeyedChanges):
            return stage_changes(self, frame, attempt, self._staging_writer.frames.to_frame)
        with jvm_errors.translate_errors(f"table {self.name}", explain_mismatch):
            files = self._staging_writer.write_files(self.name, self.java_table, frame, attempt)
            rows = sum(int(file.recordCount()) for file in files)
            size = sum(int(file.fileSizeInBytes()) for file in files)
        return StagedFiles(attempt, files, rows, size)

    def find_old_rows(self, changes: KeyedChanges, attempt: str) -> row_delta.IcebergOldRows:
        """Return the rows of changed keys. Raises TableSchemaMismatchError, LakeUnavailableError."""
        self.java_table.refresh()
        return self._staging_writer.find_old_rows(self.name, self.java_table, changes, attempt)

    def list_columns(self) -> list[str]:
        """Return the names of the columns as of the last refresh."""
        return [str(column.name()) for column in self.java_table.schema().columns()]

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        """Add files, offsets and gaps in one commit. Raises CommitConflictError."""
        with discard_lost_vectors(staged), jvm_errors.translate_errors(f"table {self.name}: commit"):
            # An append cannot change table properties: one transaction commits both.
            metadata = self.java_table.operations().current()  # None: dropped, which the append reports
            # Offsets set by hand are used up: once snapshots expire, they would count again.
            used_up = [OFFSETS_PROPERTY, *([HOLD_PROPERTY] if isinstance(staged, StagedChanges) else ())]
            removed = [p for p in used_up if metadata is not None and p in metadata.properties()]
            validator = self._build_validator(staged, expected)
            text = offsets.encode()
            if metadata is not None:
                self._warn_of_offset_cost(text, int(metadata.snapshots().size()) + 1)
            if gaps is None and not removed:
                self._commit_snapshot(staged, text, validator)
                return
            try:
                self._commit_with_properties(staged, text, validator, removed, gaps)
            except jvm_errors.JVM_ERRORS as error:
                if gaps is not None or removed != [HOLD_PROPERTY] or not jvm_errors.are_clocks_apart(error):
                    raise
                # A commit with an earlier date changes no properties. A hold that stays costs each batch
                # its seconds; a batch that waits for the clocks would hold up all behind it.
                self._commit_dated(staged, text, validator)

    def _commit_with_properties(
        self,
        staged: StagedFiles,
        offsets: str,
        validator: "_OffsetsValidator",
        removed: list[str],
        gaps: TableGaps | None,
    ) -> None:
        transaction = self.java_table.newTransaction()
        properties = transaction.updateProperties()
        for name in removed:
            properties = properties.remove(name)
        if gaps is not None:
            properties = properties.set(GAPS_PROPERTY, gaps.encode())
        properties.commit()
        self._build_update(transaction, staged, offsets, validator).commit()
        transaction.commitTransaction()

    def _commit_snapshot(self, staged: StagedFiles, offsets: str, validator: "_OffsetsValidator") -> None:
        try:
            self._build_update(self.java_table, staged, offsets, validator).commit()
        except jvm_errors.JVM_ERRORS as error:
            if not jvm_errors.are_clocks_apart(error):
                raise
            self._commit_dated(staged, offsets, validator)

    def _commit_dated(self, staged: StagedFiles, offsets: str, validator: "_OffsetsValidator") -> None:
        commit_dates.warn_of_clocks(self.name)
        # anew: the refused one has deleted its manifests
        update = self._build_update(self.java_table, staged, offsets, validator)
        commit_dates.commit_dated(self.java_table, update, self._staging_writer.java_root)

    def _build_update(
        self, target: Any, staged: StagedFiles, offsets: str, validator: "_OffsetsValidator"
    ) -> Any:
        update = self._start_update(target, staged)
        update.set(OFFSETS_PROPERTY, offsets).set(ATTEMPT_PROPERTY, staged.attempt)
        # Validated again on each retry, which `commit.retry.num-retries` of a table may cause.
        return update.validateWith(validator)

    def _build_validator(self, staged: StagedFiles, expected: VersionedOffsets) -> "_OffsetsValidator":
        if not isinstance(staged, StagedChanges):
            return _OffsetsValidator(expected)
        snapshot = self.java_table.currentSnapshot()
        return _SnapshotValidator(expected, None if snapshot is None else int(snapshot.snapshotId()))

    def _start_update(self, target: Any, staged: StagedFiles) -> Any:
        if isinstance(staged, StagedChanges):
            return staged.old_rows.start_commit(target, staged.files)
        append = start_append(target, self.java_table)
        for file in staged.files:
            append.appendFile(file)
        return append

    def delete_staged_files(self, staged: StagedFiles) -> None:
        """Delete data files that will not be committed; failures are logged only."""
        try:
            for file in staged.files:
                self.java_table.io().deleteFile(file.location())
        except jvm_errors.JVM_ERRORS as error:
            where = f"table {self.name}: files of an abandoned attempt are left behind"
            problem = jvm_errors.to_trimtab_error(error, where)
            log.warning("%s; trimtab tables expire removes them", problem)

    def read_id(self) -> str:
        """Return the table's id."""
        with jvm_errors.translate_errors(f"table {self.name}"):
            return str(self.java_table.uuid())

    def read_property(self, name: str) -> str | None:
        """Return a table property as of the last refresh."""
        with jvm_errors.translate_errors(f"table {self.name}"):
            value: str | None = self.java_table.properties().get(name)
            return value

    def count_snapshots(self) -> int:
        """Return the number of snapshots."""
        return sum(1 for _ in self.java_table.snapshots())

    def read_totals(self) -> dict[str, int]:
        """Return rows, files and bytes of the current snapshot's summary."""
        current = self.java_table.currentSnapshot()
        keys = {"rows": "total-records", "files": "total-data-files", "bytes": "total-files-size"}
        return {k: int((current and _summary_value(current, key)) or 0) for k, key in keys.items()}

    def _warn_of_offset_cost(self, text: str, snapshots: int) -> None:
        size = len(text) + text.count('"')  # JSON in JSON
        if warning := warn_of_offset_cost(self.name, size, snapshots):
            log.warning(warning)

    def _newest_offsets(self) -> str | None:
        ancestors = self.walk_ancestors()
        history = ((_summary_value(s, OFFSETS_PROPERTY), s.parentId() is not None) for s in ancestors)
        return find_newest_offsets(self.name, history, self.java_table.properties().get(OFFSETS_PROPERTY))

    def walk_ancestors(self) -> Iterator[Any]:
        """Yield the kept snapshots, newest first; a dropped table has none."""
        metadata = self.java_table.operations().current()
        snapshot = None if metadata is None else self.java_table.currentSnapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.java_table.snapshot(parent)


# Iceberg calls it back from the JVM within a commit.
class _OffsetsValidator:
    class Java:
        implements: Final = ["org.apache.iceberg.SnapshotAncestryValidator"]

    def __init__(self, expected: VersionedOffsets) -> None:
        self._expected = expected

    def validate(self, ancestors: Any) -> bool:
        snapshots = ancestors.iterator()
        parent: int | None = None
        while snapshots.hasNext():
            snapshot = snapshots.next()
            offsets = _summary_value(snapshot, OFFSETS_PROPERTY)
            if offsets is not None:
                return offsets == self._expected.version
            if snapshot.snapshotId() == self._expected.snapshot_id:
                return True  # nothing has been committed since the look but snapshots without offsets
            parent = snapshot.parentId()
        # Expired snapshots may have had other offsets: all since the look must be kept.
        return self._expected.snapshot_id is None and parent is None

    def errorMessage(self) -> str:  # noqa: N802 - Iceberg's name
        return "the table's trimtab.offsets changed after they were read"


class _SnapshotValidator(_OffsetsValidator):
    """Refuses keyed changes unless the snapshot in which their old rows were found is still current."""

    def __init__(self, expected: VersionedOffsets, snapshot_id: int | None) -> None:
        super().__init__(expected)
        self._snapshot_id = snapshot_id

    def validate(self, ancestors: Any) -> bool:
        newest = ancestors.iterator()
        found = newest.next().snapshotId() if newest.hasNext() else None
        return found == self._snapshot_id and super().validate(ancestors)


def _summary_value(snapshot: Any, key: str) -> str | None:
    value = snapshot.summary().get(key)
    return None if value is None else str(value)
