"""Delta tables: staged by Delta's writer, committed by its transaction with our fence.

*Stage.* A transaction that is never committed writes the data files (`writeFiles`: partitioning,
generated columns, constraints, column mapping, statistics). `StagedFiles.files` holds their `add`
actions of the Delta protocol in JSON; `arrow_files` makes the same actions.

*Commit.* A second transaction starts from the newest version. If its offsets are not the expected
ones, the race is lost. Otherwise it gets the `add` actions and a `txn` action (SetTransaction) per
advanced partition: app id `trimtab/group/topic/partition`, version = next offset. The app ids are
recorded as read, so Delta refuses the commit if another one changes them. After any other commit
(other partitions, OPTIMIZE, an INSERT) Delta retries with the next version.

The transaction is not public API of Delta. Only this module uses it, the version is pinned, and
tests fail when a release changes it.
"""

import json
import logging
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import (
    CommitConflictError,
    CommittedOffsetsLostError,
    LakeUnavailableError,
    TableSchemaMismatchError,
)
from trimtab.consumer_sdk.lake.formats.delta import arrow_files, link_log_store
from trimtab.consumer_sdk.lake.formats.delta import columns as delta_columns
from trimtab.consumer_sdk.lake.lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.offset_gaps import GAPS_PROPERTY, TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.ports import Frame, Records, StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.schema.column_mapping import explain_mismatch, spark_schema_of
from trimtab.consumer_sdk.lake.schema.partition_spec import PartitionSpec, check_partition_columns
from trimtab.consumer_sdk.lake.schema.schema_evolution import find_column_changes
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.session import java_frame, java_session
from trimtab.consumer_sdk.lake.spark.session import java_packages as java

log = logging.getLogger("trimtab.lake")

DELTA_TABLE_DEFAULTS: Final = {"delta.checkpointInterval": "50"}
"""A commit every few seconds: a checkpoint costs several commits' time and readers little."""

TXN_RETENTION_PROPERTY: Final = "delta.setTransactionRetentionDuration"
"""A table property that makes Delta drop the marks of idle partitions."""

AddActions: TypeAlias = tuple[str, ...]
"""Staged files: `add` actions in JSON."""

_OFFSET_TXN: Final = re.compile(r"SetTransaction\(trimtab/([^/,()]+)/([^/,()]+)/(\d+),(\d+),")
_NOT_A_TABLE: Final = re.compile("NON_EMPTY_LOCATION|DELTA_(TABLE_NOT_FOUND|MISSING_DELTA_TABLE)")
_COMMIT_FILE: Final = re.compile(r"(\d{20})\.json")


class DeltaLake(SparkLake):
    """The Delta tables below one folder or URI, `warehouse`: "shop.orders" is shop/orders.

    A table that was opened or made here has its name in Spark SQL too.
    """

    def __init__(
        self, spark: SparkSession, warehouse: str, *, owns_session: bool = False, arrow: bool = False
    ) -> None:
        super().__init__(spark, owns_session=owns_session, arrow=arrow)
        self._warehouse = warehouse.rstrip("/")
        self._registered: set[str] = set()
        try:
            link_log_store.install_log_store(java(spark))
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, "Delta's log store for local folders") from error

    def open_table(self, name: str) -> "DeltaTable | None":
        """Return a table, None where there is none. Raises LakeUnavailableError, SettingError."""
        try:
            table = DeltaTable(name, self.spark, self._table_path(name))
            if not table.exists():
                return None
            self._register_in_spark(name)
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, f"table {name}") from error
        return table

    def create_table(self, name: str, frame: Frame, partition_spec: PartitionSpec = ()) -> "DeltaTable":
        """Return the table of that name, made with the frame's columns if it is missing.

        Raises SettingError for a partitioning that the columns or Delta do not allow.
        """
        found = self.open_table(name)
        if found is not None:
            return found
        rows = spark_schema_of(frame)
        check_partition_columns(name, partition_spec, rows.names)
        try:
            self._create_at_path(self._table_path(name), rows, partition_spec)
            log.info("%s: made, with %s", name, rows.simpleString())
        except jvm_errors.JVM_ERRORS as error:
            told = jvm_errors.to_trimtab_error(error, f"table {name} cannot be created")
            raced = isinstance(told, CommitConflictError)  # another writer has just made it
            if not raced and not (_is_folder_occupied(error) and self._holds_only_log(name)):
                raise told from error
        made = self.open_table(name)
        if made is None:
            raise LakeUnavailableError(
                f"table {name} is none yet: another writer makes it just now, or dropped it. If "
                "this is said for long, look into its folder, and remove it if it is empty"
            )
        return made

    def create_scratch_table(self, folder: str, frame: Frame) -> "DeltaTable":
        """Return a table with the frame's columns in a local folder, without a name in SQL."""
        try:
            self._create_at_path(folder, spark_schema_of(frame), ())
            return DeltaTable(folder, self.spark, folder)
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, f"table {folder}") from error

    def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        path = java(self.spark).org.apache.hadoop.fs.Path(f"{self._warehouse}/*/*/_delta_log")
        try:
            files = path.getFileSystem(java_session(self.spark).sessionState().newHadoopConf())
            found = [str(status.getPath().getParent()) for status in files.globStatus(path) or ()]
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, f"warehouse {self._warehouse}") from error
        return sorted(".".join(place.rsplit("/", 2)[1:]) for place in found)

    def namespace_path(self, namespace: str) -> str:
        """Return the folder of a namespace's tables, for SQL that makes one: LOCATION."""
        return f"{self._warehouse}/{namespace}"

    def _table_path(self, name: str) -> str:
        namespace, _, table = name.partition(".")
        if "." in table:
            raise SettingError(
                f"table {name!r}: with lake.format=delta a name has two parts, like lake.orders; "
                "it is the folder lake/orders of lake.warehouse"
            )
        return f"{self.namespace_path(namespace)}/{table}"

    def _holds_only_log(self, name: str) -> bool:
        """Whether the folder of a table holds no more than what making one begins with."""
        path = java(self.spark).org.apache.hadoop.fs.Path(self._table_path(name))
        try:
            files = path.getFileSystem(java_session(self.spark).sessionState().newHadoopConf())
            found = {str(status.getPath().getName()) for status in files.listStatus(path)}
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, f"table {name}") from error
        return found <= {"_delta_log"} or self.open_table(name) is not None

    def _create_at_path(self, path: str, rows: StructType, partition_spec: PartitionSpec) -> None:
        maker = java(self.spark).io.delta.tables.DeltaTable.createIfNotExists(java_session(self.spark))
        whole, by = delta_columns.build_columns(rows, partition_spec)
        parsed = java(self.spark).org.apache.spark.sql.types.DataType.fromJson(whole.json())
        maker = maker.location(path).addColumns(parsed)
        for key, value in DELTA_TABLE_DEFAULTS.items():
            maker = maker.property(key, value)
        if by:
            maker = maker.partitionedBy(_to_scala_seq(self.spark, by))
        maker.execute()

    def _register_in_spark(self, name: str) -> None:
        """Let Spark SQL know the table, once."""
        if name in self._registered:
            return
        namespace = name.partition(".")[0]
        folder, path = self.namespace_path(namespace), self._table_path(name)
        for statement in (
            f"CREATE NAMESPACE IF NOT EXISTS {namespace} LOCATION {_sql_literal(folder)}",
            f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {_sql_literal(path)}",
        ):
            self.spark.sql(statement)
        self._registered.add(name)


class DeltaTable:
    """One Delta table; see the module's text for how it is written.

    The attempt of a commit stands in the commit's `userMetadata`.
    """

    def __init__(self, name: str, spark: SparkSession, path: str) -> None:
        self.name = name
        self._spark = spark
        self._path = path
        self._delta = java(spark).org.apache.spark.sql.delta
        self._log = self._delta.DeltaLog.forTable(java_session(spark), path)
        self._scala_none = java(spark).scala.Option.empty()
        self._opened_version = int(self._update_snapshot().version())
        self._staged_schema: delta_columns.DeltaSchema | None = None

    def exists(self) -> bool:
        """Whether there is such a table."""
        return self._opened_version >= 0

    def read_offsets(self) -> VersionedOffsets:
        """Return the offsets of the newest version.

        Raises CommittedOffsetsLostError, LakeUnavailableError.
        """
        try:
            text = self._read_snapshot_offsets(self._update_snapshot())
        except jvm_errors.JVM_ERRORS as error:
            if _is_table_dropped(error):
                return VersionedOffsets(CommittedOffsets(), "")
            raise jvm_errors.to_trimtab_error(error, f"table {self.name}") from error
        return VersionedOffsets(
            CommittedOffsets.decode(text, self.name) if text else CommittedOffsets(), text
        )

    def read_gaps(self) -> TableGaps:
        """Return the gaps of the newest version.

        Raises CommittedOffsetsLostError, LakeUnavailableError.
        """
        try:
            found = self._update_snapshot().metadata().configuration().get(GAPS_PROPERTY)
            text = str(found.get()) if found.isDefined() else None
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, f"table {self.name}") from error
        return TableGaps.decode(text, self.name)

    def has_committed(self, attempt: str) -> bool:
        """Whether an attempt's commit is in the log, from where it stood when this was opened."""
        try:
            return any(
                _read_attempt(self._read_first_line(path)) == attempt
                for path in self._list_commits(self._opened_version)
            )
        except jvm_errors.JVM_ERRORS as error:
            if _is_table_dropped(error):
                return False
            raise jvm_errors.to_trimtab_error(error, f"table {self.name}") from error

    def evolve_schema(self, frame: Frame) -> None:
        """Add the columns that a frame has and the table lacks.

        Raises CommitConflictError, LakeUnavailableError.
        """
        try:
            metadata = self._update_snapshot().metadata()
            needed = find_column_changes(delta_columns.read_schema(metadata).columns, spark_schema_of(frame))
            for statement in delta_columns.build_alter_clauses(needed, metadata):
                self._alter_table(statement)
                log.info("%s: %s", self.name, statement)
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, f"table {self.name}: new columns") from error

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        """Write a frame's rows as data files.

        Raises TableSchemaMismatchError, TransformError, DiskFullError, LakeUnavailableError.
        """
        try:
            in_spark = isinstance(frame, DataFrame)
            shape, files = (self._stage_with_spark if in_spark else self._stage_with_arrow)(frame, attempt)
        except jvm_errors.JVM_ERRORS as error:
            raise explain_mismatch(jvm_errors.to_trimtab_error(error, f"table {self.name}")) from error
        self._staged_schema = shape
        adds = [json.loads(file)["add"] for file in files]
        rows = sum(map(_count_rows, adds))
        return StagedFiles(attempt, files, rows, sum(int(add["size"]) for add in adds))

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        """Add files, offsets and gaps in one version.

        Raises CommitConflictError, TableSchemaMismatchError if the table's schema has changed since
        staging, LakeUnavailableError (outcome unknown).
        """
        try:
            change = self._log.startTransaction(self._scala_none, self._scala_none)
            self._check_unchanged(change.snapshot(), staged, expected)
            moved = _changed_offsets(offsets, expected.offsets)
            for app in moved:
                change.readTxn().append(app)  # refused if another commit changes one of these
            if gaps is not None:
                change.updateMetadata(self._metadata_with_gaps(change.metadata(), gaps), False)  # noqa: FBT003 - Delta's signature
            change.commit(self._build_actions(staged, moved), self._build_operation(staged.attempt))
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, f"table {self.name}: commit") from error

    def delete_staged_files(self, staged: StagedFiles) -> None:
        """Delete data files that will never be committed."""
        root = self._log.dataPath()
        try:
            system = root.getFileSystem(self._log.newDeltaHadoopConf())
            for file in staged.files:
                place = unquote(str(json.loads(file)["add"]["path"]))
                system.delete(java(self._spark).org.apache.hadoop.fs.Path(root, place), False)  # noqa: FBT003 - Hadoop's signature
        except jvm_errors.JVM_ERRORS as error:
            told = jvm_errors.to_trimtab_error(
                error, f"table {self.name}: files of a dropped attempt stay behind"
            )
            log.warning("%s; trimtab tables expire takes them away", told)

    def count_snapshots(self) -> int:
        """Return how many commits the log keeps."""
        return sum(1 for _ in self._list_commits(0))

    def read_totals(self) -> dict[str, int]:
        """Return rows, files and bytes of the newest version."""
        now = self._update_snapshot()
        rows = self._spark.read.format("delta").load(self._path).count()
        return {"rows": rows, "files": int(now.numOfFiles()), "bytes": int(now.sizeInBytes())}

    def _stage_with_spark(
        self, frame: DataFrame, _attempt: str
    ) -> tuple[delta_columns.DeltaSchema, AddActions]:
        writer = self._log.startTransaction(self._scala_none, self._scala_none)
        shape = delta_columns.read_schema(writer.snapshot().metadata())
        fitted = delta_columns.cast_to_table(self.name, frame, shape, java(self._spark))
        written = writer.writeFiles(java_frame(fitted))
        return shape, tuple(str(written.apply(n).json()) for n in range(written.size()))

    def _stage_with_arrow(self, rows: Records, attempt: str) -> tuple[delta_columns.DeltaSchema, AddActions]:
        metadata = self._update_snapshot().metadata()
        shape = delta_columns.read_schema(metadata)
        arrow_files.check_writable(self.name, shape, _property_names(metadata))
        root = java(self._spark)
        return shape, arrow_files.write_data_file(self._log, self.name, shape, rows, attempt, root)

    def _alter_table(self, statement: str) -> None:
        before = self._update_snapshot().version()
        try:
            self._spark.sql(f"ALTER TABLE delta.`{self._path}` {statement}")
        except jvm_errors.JVM_ERRORS as error:
            if self._update_snapshot().version() == before:
                raise
            told = f"table {self.name}: another writer was faster to change its columns"
            raise CommitConflictError(told) from error

    def _update_snapshot(self) -> Any:
        return self._log.update(False, self._scala_none, self._scala_none)  # noqa: FBT003 - Delta's signature

    def _read_snapshot_offsets(self, snapshot: Any) -> str:
        """Return the marks of a version, encoded; "" where it has none.

        They stand in the version's checksum file as a rule; else Spark has to read the whole log.
        """
        if snapshot.metadata().configuration().contains(TXN_RETENTION_PROPERTY):
            raise CommittedOffsetsLostError(
                f"table {self.name}: its property {TXN_RETENTION_PROPERTY} lets Delta drop the "
                "offsets of idle partitions, so that their records would be written again: "
                f"ALTER TABLE {self.name} UNSET TBLPROPERTIES ('{TXN_RETENTION_PROPERTY}')"
            )
        checksum = snapshot.checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        found = known.get() if known.isDefined() else snapshot.setTransactions()
        groups: dict[str, dict[TopicPartition, int]] = {}
        for group, topic, partition, offset in _OFFSET_TXN.findall(str(found.mkString("\n"))):
            where = TopicPartition(topic, int(partition))
            groups.setdefault(unquote(group), {})[where] = int(offset)
        return CommittedOffsets(groups).encode() if groups else ""

    def _check_unchanged(self, snapshot: Any, staged: StagedFiles, expected: VersionedOffsets) -> None:
        if self._read_snapshot_offsets(snapshot) != expected.version:
            raise CommitConflictError(f"table {self.name}: another writer was faster")
        now = delta_columns.read_schema(snapshot.metadata())
        if staged.files and self._staged_schema is not None and not self._staged_schema.fits_table(now):
            raise TableSchemaMismatchError(
                f"table {self.name}: its columns or its partitioning were changed while a batch "
                "was on its way. Nothing was written and no offset moved: start this process again"
            )

    def _build_actions(self, staged: StagedFiles, moved: dict[str, int]) -> Any:
        txns = [{"txn": {"appId": app, "version": next_}} for app, next_ in moved.items()]
        texts = [*staged.files, *map(json.dumps, txns)]
        return _to_scala_seq(self._spark, [self._delta.actions.Action.fromJson(t) for t in texts])

    def _metadata_with_gaps(self, metadata: Any, gaps: TableGaps) -> Any:
        """Return a table's metadata with these gaps in its configuration."""
        body = json.loads(str(metadata.json()))
        body["metaData"]["configuration"][GAPS_PROPERTY] = gaps.encode()
        return self._delta.actions.Action.fromJson(json.dumps(body))

    def _build_operation(self, attempt: str) -> Any:
        """Return what the commit calls itself in the table's history."""
        root, none = java(self._spark), self._scala_none
        append = root.org.apache.spark.sql.SaveMode.Append
        note = root.scala.Option.apply(attempt)
        return self._delta.DeltaOperations.Write(append, none, none, note, none, none, none, none, none)

    def _list_commits(self, first: int) -> Iterator[Any]:
        """Return the paths of the commits from a version on that the log still keeps."""
        root = java(self._spark).org.apache.hadoop.fs.Path(self._log.logPath(), f"{first:020}.json")
        files = self._log.store().listFrom(root, self._log.newDeltaHadoopConf())
        while files.hasNext():
            path = files.next().getPath()
            if _COMMIT_FILE.fullmatch(str(path.getName())):
                yield path

    def _read_first_line(self, path: Any) -> str:
        return str(self._log.store().read(path, self._log.newDeltaHadoopConf()).head())


def _is_table_dropped(error: BaseException) -> bool:
    """Whether the error says that the table's folder is gone: then it holds nothing."""
    return any("_delta_log does not exist" in message for _, message in jvm_errors.java_causes(error))


def _is_folder_occupied(error: BaseException) -> bool:
    """Whether the error says that there is something in a new table's folder, and no table."""
    return any(_NOT_A_TABLE.search(message) for _, message in jvm_errors.java_causes(error))


def transaction_app_id(group: str, where: TopicPartition) -> str:
    """Return the name under which a table keeps a partition's mark."""
    return f"trimtab/{quote(group, safe='')}/{where.topic}/{where.partition}"


def _changed_offsets(offsets: CommittedOffsets, expected: CommittedOffsets) -> dict[str, int]:
    """Return app id → next offset of every partition whose mark is another one than was seen."""
    return {
        transaction_app_id(group, where): offset
        for group, partitions in sorted(offsets.groups.items())
        for where, offset in sorted(partitions.items())
        if expected.next_offset(group, where) != offset
    }


def _property_names(metadata: Any) -> list[str]:
    """Return the names of a table's properties."""
    return str(metadata.configuration().keys().mkString("\n")).splitlines()


def _count_rows(add: dict[str, Any]) -> int:
    if "stats" not in add:
        raise SettingError(
            "spark.databricks.delta.stats.collect=false leaves files without a count of their "
            "rows, which the sink needs; leave it out"
        )
    return int(json.loads(add["stats"])["numRecords"])


def _read_attempt(head: str) -> str | None:
    """Return the attempt that a commit's first line tells of."""
    found: str | None = json.loads(head).get("commitInfo", {}).get("userMetadata")
    return found


def _to_scala_seq(spark: SparkSession, items: list[Any]) -> Any:
    return java(spark).org.apache.spark.api.python.PythonUtils.toSeq(items)


def _sql_literal(value: str) -> str:
    """Return a string literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
