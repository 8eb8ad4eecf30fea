"""Delta tables: staged from Arrow or by Delta's writer, committed by its transaction with our fence.

*Stage.* Arrow (`arrow_files`), or a transaction that is never committed, writes the data files.
`StagedFiles.files` holds their `add` actions of the Delta protocol in JSON.

*Commit.* A second transaction starts from the newest version, whose offsets must be the expected
ones. It gets the `add` actions and a `txn` action (SetTransaction) per advanced partition: app id
`trimtab/group/topic/partition`, version = next offset.

`OptimisticTransaction` is not public API of Delta: only this module uses it, and the version is pinned.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommitConflictError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.commits.compaction_hold import HOLD_PROPERTY
from trimtab.consumer_sdk.lake.formats.delta import add_actions, arrow_files, log_stores, partition_values
from trimtab.consumer_sdk.lake.formats.delta import columns as delta_columns
from trimtab.consumer_sdk.lake.formats.delta.deletion_vectors import UPSERT_TABLE_DEFAULTS, DeltaOldRows
from trimtab.consumer_sdk.lake.formats.delta.offset_transactions import (
    TXN_RETENTION_PROPERTY,
    find_advanced,
    parse_attempt,
    parse_offset_transactions,
    reject_txn_retention,
)
from trimtab.consumer_sdk.lake.formats.delta.vector_cache import VectorCache
from trimtab.consumer_sdk.lake.formats.key_cache import FileCaches, KeyCache
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.formats.staging_frames import StagingFrames
from trimtab.consumer_sdk.lake.formats.upsert_staging import discard_lost_vectors, stage_changes
from trimtab.consumer_sdk.lake.model.file_writers import DELTA_FILE_SETTINGS
from trimtab.consumer_sdk.lake.model.interfaces import (
    Frame,
    Records,
    StagedChanges,
    StagedFiles,
    VersionedOffsets,
)
from trimtab.consumer_sdk.lake.model.partition_spec import PartitionSpec
from trimtab.consumer_sdk.lake.model.table_names import initial_properties
from trimtab.consumer_sdk.lake.offsets.offset_gaps import GAPS_PROPERTY, TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.options.storage_config import S3, find_storage
from trimtab.consumer_sdk.lake.schema.column_mapping import explain_mismatch, spark_schema_of
from trimtab.consumer_sdk.lake.schema.schema_evolution import find_column_changes
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.cluster_storage import check_files_visible
from trimtab.consumer_sdk.lake.spark.gateway import java_frame, java_session
from trimtab.consumer_sdk.lake.spark.gateway import java_packages as java

log = logging.getLogger("trimtab.lake")

# Writers commit every few seconds: a checkpoint takes as long as several commits and saves readers little.
DELTA_TABLE_DEFAULTS: Final[dict[str, str]] = {"delta.checkpointInterval": "50"}
MAX_CREATION_REFUSALS: Final = 3  # of a folder with an empty log: another writer needs less time for a commit
AddActions: TypeAlias = tuple[str, ...]  # of the staged files, in JSON

_NOT_A_TABLE: Final = re.compile("NON_EMPTY_LOCATION|DELTA_(TABLE_NOT_FOUND|MISSING_DELTA_TABLE)")
_COMMIT_FILE: Final = re.compile(r"(\d{20})\.json")


class DeltaLake(SparkLake):
    """Delta tables below the folder or URI `warehouse`: table "shop.orders" is folder shop/orders."""

    def __init__(
        self, spark: SparkSession, warehouse: str, *, owns_session: bool = False, file_writer: str
    ) -> None:
        super().__init__(spark, owns_session=owns_session, file_writer=file_writer)
        self._warehouse = warehouse.rstrip("/")
        self._registered: set[str] = set()
        self._caches = FileCaches(KeyCache(), VectorCache())
        self._refused: Counter[str] = Counter()  # creations of a table whose log has no commit
        self._is_store_checked = find_storage(warehouse) != S3
        for name, value in DELTA_FILE_SETTINGS.items():  # an application may have started the session
            spark.conf.set(name, value)
        with jvm_errors.translate_errors("Delta's log stores"):  # before the first access to a table
            log_stores.install_log_store(java(spark), on_s3=find_storage(warehouse) == S3)

    def open_table(self, name: str) -> "DeltaTable | None":
        """Return a table, None if it does not exist; register its name in Spark SQL."""
        with jvm_errors.translate_errors(f"table {name}"):
            path = self._table_path(name)
            table = DeltaTable(name, self.spark, path, self._frames, self._caches, self._check_store)
            if not table.exists():
                return None
            self._register_in_spark(name)
            return table

    def _create_table(
        self, name: str, rows: StructType, partition_spec: PartitionSpec, *, keyed: bool
    ) -> None:
        self._check_store()
        properties = initial_properties(name) | (UPSERT_TABLE_DEFAULTS if keyed else {})
        self._create_at_path(self._table_path(name), rows, partition_spec, properties)

    def _check_store(self) -> None:
        """Raise SettingError if S3 lets a writer replace another one's commit; asks it once."""
        if not self._is_store_checked:
            hadoop = java_session(self.spark).sessionState().newHadoopConf()
            log_stores.check_conditional_puts(java(self.spark), self._warehouse, hadoop)
            self._is_store_checked = True

    def _is_creation_race(self, name: str, error: BaseException) -> bool:
        if isinstance(jvm_errors.to_trimtab_error(error, name), CommitConflictError):
            return True
        occupied = any(_NOT_A_TABLE.search(message) for _, message in jvm_errors.java_causes(error))
        # The other writer's empty _delta_log may be visible before its first commit.
        if not (occupied and self._holds_only_log(name)):
            return False
        self._refused[name] += 1
        if self._refused[name] % MAX_CREATION_REFUSALS == 0:
            self._remove_unfinished_log(name)
        return True

    def create_scratch_table(self, folder: str, frame: Frame) -> "DeltaTable":
        """Return a table with the frame's columns in a local folder, without a name in SQL."""
        with jvm_errors.translate_errors(f"table {folder}"):
            self._create_at_path(folder, spark_schema_of(frame), (), {})
            return DeltaTable(folder, self.spark, folder, self._frames, self._caches)

    def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        with jvm_errors.translate_errors("tables of lake.warehouse"):
            path, files = self._open_path(f"{self._warehouse}/*/*/_delta_log")
            folders = [str(status.getPath().getParent()) for status in files.globStatus(path) or ()]
        return sorted(".".join(folder.rsplit("/", 2)[1:]) for folder in folders)

    def namespace_path(self, namespace: str) -> str:
        """Return the folder of a namespace's tables."""
        return f"{self._warehouse}/{namespace}"

    def _open_path(self, place: str) -> tuple[Any, Any]:
        path = java(self.spark).org.apache.hadoop.fs.Path(place)
        return path, path.getFileSystem(java_session(self.spark).sessionState().newHadoopConf())

    def _table_path(self, name: str) -> str:
        namespace, _, table = name.partition(".")
        if "." in table:
            raise SettingError(
                f"table {name!r}: with lake.format=delta a name has two parts, like lake.orders, which is "
                "the folder lake/orders of lake.warehouse"
            )
        return f"{self.namespace_path(namespace)}/{table}"

    def _holds_only_log(self, name: str) -> bool:
        with jvm_errors.translate_errors(f"table {name}"):
            path, files = self._open_path(self._table_path(name))
            entries = {str(status.getPath().getName()) for status in files.listStatus(path)}
        return entries <= {"_delta_log"} or self.open_table(name) is not None

    def _remove_unfinished_log(self, name: str) -> None:
        with jvm_errors.translate_errors(f"table {name}"):
            path, files = self._open_path(f"{self._table_path(name)}/_delta_log")
            if str(files.getUri().getScheme()) == "file":  # an object store has no empty folders
                log_stores.remove_unfinished_log(Path(str(path.toUri().getPath())))

    def _create_at_path(
        self, path: str, rows: StructType, partition_spec: PartitionSpec, properties: dict[str, str]
    ) -> None:
        columns, partition_columns = delta_columns.build_columns(rows, partition_spec)
        partition_values.check_rule(delta_columns.DeltaSchema(columns, tuple(partition_columns)), self.spark)
        parsed = java(self.spark).org.apache.spark.sql.types.DataType.fromJson(columns.json())
        builder = java(self.spark).io.delta.tables.DeltaTable.createIfNotExists(java_session(self.spark))
        builder = builder.location(path).addColumns(parsed)
        for key, value in (DELTA_TABLE_DEFAULTS | properties).items():
            builder = builder.property(key, value)
        if partition_columns:
            builder = builder.partitionedBy(_to_scala_seq(self.spark, partition_columns))
        builder.execute()

    def _register_in_spark(self, name: str) -> None:
        if name in self._registered:
            return
        namespace = name.partition(".")[0]
        paths = self.namespace_path(namespace), self._table_path(name)
        folder, path = map(delta_columns.quote_sql, paths)
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace} LOCATION {folder}")
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {path}")
        self._registered.add(name)


class DeltaTable:
    """One Delta table; the module's docstring describes how it is written."""

    def __init__(
        self,
        name: str,
        spark: SparkSession,
        path: str,
        frames: StagingFrames,
        caches: FileCaches,
        check_store: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._frames = frames
        self._caches = caches
        self._check_store = check_store  # before a commit: one who only reads may not be allowed to write
        self._spark = spark
        self._path = path
        self._delta = java(spark).org.apache.spark.sql.delta
        self._log = self._delta.DeltaLog.forTable(java_session(spark), path)
        self._scala_none = java(spark).scala.Option.empty()
        self._opened_version = int(self._update_snapshot().version())
        self._staged_schema: delta_columns.DeltaSchema | None = None

    def exists(self) -> bool:
        """Return whether the log has a version."""
        return self._opened_version >= 0

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:
        """Return the offsets of the newest version. Raises TableSchemaMismatchError."""
        with jvm_errors.translate_errors(f"table {self.name}"):
            snapshot = self._update_snapshot() if refresh else self._log.unsafeVolatileSnapshot()
            text, version = self._read_snapshot_offsets(snapshot), int(snapshot.version())
        return VersionedOffsets.decode(text, self.name, version)

    def read_gaps(self) -> TableGaps:
        """Return the gaps of the newest version."""
        return TableGaps.decode(self.read_property(GAPS_PROPERTY), self.name)

    def has_committed(self, attempt: str) -> bool:
        """Return whether an attempt's commit is in the log."""
        with jvm_errors.translate_errors(f"table {self.name}"):
            # An attempt of this object committed after the object was opened: read no older commits.
            return any(self._read_attempt(p) == attempt for p in self._list_commits(self._opened_version))

    def evolve_schema(self, frame: Frame) -> None:
        """Add a frame's missing columns to the table. Raises CommitConflictError."""
        with jvm_errors.translate_errors(f"table {self.name}: new columns"):
            metadata = self._update_snapshot().metadata()
            changes = find_column_changes(delta_columns.read_schema(metadata).columns, spark_schema_of(frame))
            for clause in delta_columns.build_alter_clauses(changes, metadata):
                self._alter_table(clause)
                log.info("%s: %s", self.name, clause)

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        """Write rows as data files. Raises TableSchemaMismatchError, TransformError, DiskFullError."""
        with delta_columns.explain_widening(self.name, self._log, frame):
            if isinstance(frame, KeyedChanges):
                return stage_changes(self, frame, attempt, self._frames.to_frame)
            with jvm_errors.translate_errors(f"table {self.name}", explain_mismatch):
                schema, files = self._frames.stage(self.name, frame, partial(self._write_files, attempt))
        self._staged_schema = schema
        check_files_visible(self._spark, self.name, add_actions.list_paths(self._path, files))
        return add_actions.summarize_files(attempt, files)

    def find_old_rows(self, changes: KeyedChanges, attempt: str) -> DeltaOldRows:
        """Return the rows of changed keys. Raises TableSchemaMismatchError, LakeUnavailableError."""
        del attempt  # Delta names files of vectors itself
        return DeltaOldRows.find(self.name, self._log, changes, self._spark, self._caches)

    def list_columns(self) -> list[str]:
        """Return the names of the newest version's columns."""
        return delta_columns.read_schema(self._update_snapshot().metadata()).columns.names

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        """Add files, offsets, gaps in one version. Raises CommitConflictError, TableSchemaMismatchError."""
        with discard_lost_vectors(staged), jvm_errors.translate_errors(f"table {self.name}: commit"):
            self._check_store()
            transaction = self._start_transaction(expected.snapshot_id)
            self._check_unchanged(transaction.snapshot(), staged, expected)
            advanced = find_advanced(offsets, expected.offsets)
            # The fence: Delta refuses the commit if another one changes an app id that was read. After
            # any other commit (other partitions, OPTIMIZE, an INSERT) it retries with the next version.
            for app_id in advanced:
                transaction.readTxn().append(app_id)
            self._update_properties(transaction, staged, gaps)
            actions = self._build_actions(staged, advanced)
            if isinstance(staged, StagedChanges):
                actions += staged.old_rows.build_actions(transaction)
            operation = self._build_operation(staged.attempt)
            transaction.commit(_to_scala_seq(self._spark, actions), operation)

    def delete_staged_files(self, staged: StagedFiles) -> None:
        """Delete data files that will not be committed; failures are logged only."""
        try:
            root = self._log.dataPath()
            system = root.getFileSystem(self._log.newDeltaHadoopConf())
            for file in staged.files:
                name = unquote(str(json.loads(file)["add"]["path"]))  # the protocol escapes paths as URIs
                system.delete(java(self._spark).org.apache.hadoop.fs.Path(root, name), False)  # noqa: FBT003 - Hadoop's signature
        except jvm_errors.JVM_ERRORS as error:
            where = f"table {self.name}: files of an abandoned attempt are left behind"
            problem = jvm_errors.to_trimtab_error(error, where)
            log.warning("%s; trimtab tables expire removes them", problem)

    def read_id(self) -> str:
        """Return the table's id as of the last refresh."""
        with jvm_errors.translate_errors(f"table {self.name}"):
            return str(self._log.unsafeVolatileSnapshot().metadata().id())

    def read_property(self, name: str) -> str | None:
        """Return a table property of the newest version."""
        with jvm_errors.translate_errors(f"table {self.name}"):
            value = self._update_snapshot().metadata().configuration().get(name)
            return str(value.get()) if value.isDefined() else None

    def count_snapshots(self) -> int:
        """Return the number of commits that the log keeps."""
        return sum(1 for _ in self._list_commits(0))

    def read_totals(self) -> dict[str, int]:
        """Return rows, files and bytes of the newest version."""
        snapshot = self._update_snapshot()
        rows = self._spark.read.format("delta").load(self._path).count()
        return {"rows": rows, "files": int(snapshot.numOfFiles()), "bytes": int(snapshot.sizeInBytes())}

    def _write_files(self, attempt: str, frame: Frame) -> tuple[delta_columns.DeltaSchema, AddActions]:
        if isinstance(frame, DataFrame):
            return self._stage_with_spark(frame)
        return self._stage_with_arrow(frame, attempt)

    def _stage_with_spark(self, frame: DataFrame) -> tuple[delta_columns.DeltaSchema, AddActions]:
        # never committed, so it may begin at the version that the opening or the last refresh found
        transaction = self._start_transaction(int(self._log.unsafeVolatileSnapshot().version()))
        schema = delta_columns.read_schema(transaction.snapshot().metadata())
        rows = partition_values.cast_rows(self.name, frame, schema, self._spark)
        # Applies partitioning, generated columns, constraints, column mapping; collects statistics.
        actions = transaction.writeFiles(java_frame(rows))
        return schema, tuple(str(actions.apply(n).json()) for n in range(actions.size()))

    def _stage_with_arrow(self, rows: Records, attempt: str) -> tuple[delta_columns.DeltaSchema, AddActions]:
        metadata = self._log.unsafeVolatileSnapshot().metadata()  # of the opening or the last refresh
        schema = delta_columns.read_schema(metadata)
        properties = str(metadata.configuration().keys().mkString("\n")).splitlines()
        arrow_files.check_writable(self.name, schema, properties)
        root = java(self._spark)
        return schema, arrow_files.write_data_file(self._log, self.name, schema, rows, attempt, root)

    def _alter_table(self, clause: str) -> None:
        before = self._update_snapshot().version()
        try:
            self._spark.sql(f"ALTER TABLE delta.`{self._path}` {clause}")
        except jvm_errors.JVM_ERRORS as error:
            # A column that another writer has just added fails Spark's analysis like a real mismatch.
            if self._update_snapshot().version() == before:
                raise
            raise CommitConflictError(
                f"table {self.name}: another writer changed its columns first"
            ) from jvm_errors.MaskedError(error)

    def _start_transaction(self, version: int | None) -> Any:
        """Begin at a version if it is the newest known one, else at the newest one of the log."""
        # Without a version Delta lists the log, on S3 a request. Begun at an older one, a transaction loses
        # against what was committed since as against what is committed while it runs.
        known = self._log.unsafeVolatileSnapshot()
        start = java(self._spark).scala.Option.apply(known if known.version() == version else None)
        return self._log.startTransaction(self._scala_none, start)

    def _update_snapshot(self) -> Any:
        return self._log.update(False, self._scala_none, self._scala_none)  # noqa: FBT003 - Delta's signature

    def _read_snapshot_offsets(self, snapshot: Any) -> str | None:
        """Return the offsets of a version, encoded; None without offsets."""
        if snapshot.metadata().configuration().contains(TXN_RETENTION_PROPERTY):
            raise reject_txn_retention(self.name)
        # The version's checksum file usually has them; without it, Spark reads the whole log.
        checksum = snapshot.checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        txns = known.get() if known.isDefined() else snapshot.setTransactions()
        offsets = parse_offset_transactions(str(txns.mkString("\n")), self.name)
        return offsets.encode() if offsets.groups else None

    def _check_unchanged(self, snapshot: Any, staged: StagedFiles, expected: VersionedOffsets) -> None:
        if (self._read_snapshot_offsets(snapshot) or "") != expected.version:
            raise CommitConflictError(f"table {self.name}: another writer was faster")
        schema = delta_columns.read_schema(snapshot.metadata())
        if staged.files and self._staged_schema is not None and not self._staged_schema.fits_table(schema):
            raise TableSchemaMismatchError(
                f"table {self.name}: its columns or its partitioning changed after a batch was staged. "
                "Nothing was written and no offset moved: start this process again"
            )

    def _build_actions(self, staged: StagedFiles, advanced: dict[str, int]) -> list[Any]:
        txns = [{"txn": {"appId": app_id, "version": offset}} for app_id, offset in advanced.items()]
        texts = [*staged.files, *map(json.dumps, txns)]
        return [self._delta.actions.Action.fromJson(text) for text in texts]

    def _update_properties(self, transaction: Any, staged: StagedFiles, gaps: TableGaps | None) -> None:
        metadata = transaction.metadata()
        is_held = isinstance(staged, StagedChanges) and metadata.configuration().contains(HOLD_PROPERTY)
        if gaps is None and not is_held:
            return
        body = json.loads(str(metadata.json()))
        properties = body["metaData"]["configuration"]
        if gaps is not None:
            properties[GAPS_PROPERTY] = gaps.encode()
        if is_held:
            del properties[HOLD_PROPERTY]
        changed = self._delta.actions.Action.fromJson(json.dumps(body))
        transaction.updateMetadata(changed, False)  # noqa: FBT003 - Delta's signature

    def _build_operation(self, attempt: str) -> Any:
        root = java(self._spark)
        none = self._scala_none
        append = root.org.apache.spark.sql.SaveMode.Append
        # Delta stores it as the commit's `userMetadata`, where `has_committed` looks it up.
        user_metadata = root.scala.Option.apply(attempt)
        write = self._delta.DeltaOperations.Write
        return write(append, none, none, user_metadata, none, none, none, none, none)

    def _list_commits(self, first: int) -> Iterator[Any]:
        """Yield the paths of the kept commits, from version `first` on."""
        start = java(self._spark).org.apache.hadoop.fs.Path(self._log.logPath(), f"{first:020}.json")
        files = self._log.store().listFrom(start, self._log.newDeltaHadoopConf())
        while files.hasNext():
            path = files.next().getPath()
            if _COMMIT_FILE.fullmatch(str(path.getName())):  # checkpoints and checksums lie there too
                yield path

    def _read_attempt(self, commit: Any) -> str | None:
        first = self._log.store().read(commit, self._log.newDeltaHadoopConf()).headOption()
        return parse_attempt(str(first.get())) if first.isDefined() else None


def _to_scala_seq(spark: SparkSession, items: list[Any]) -> Any:
    return java(spark).org.apache.spark.api.python.PythonUtils.toSeq(items)
