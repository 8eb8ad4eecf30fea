"""Delta tables: staged by Delta's own writer, committed by its transaction with our fence.

*Stage.* A transaction that is never committed writes the data files (`writeFiles`: partitioning,
generated columns, constraints, column mapping, statistics). They come back as `add` actions of the
Delta protocol, and so they are kept in `Staged.files`, as JSON: whoever writes the files in another
way needs only to write the same actions, as `delta_arrow` does with `lake.stage: arrow`.

*Commit.* A second transaction begins from the newest version. If its marks are not those that were
seen, the race is lost. Else it gets the `add` actions and one `txn` action (SetTransaction) for
each partition that moves: its app id is `trimtab/group/topic/partition`, its version the next
offset. The app ids are noted as read, so Delta refuses the commit if another one changes them
meanwhile; any other commit that comes in between (of other partitions, OPTIMIZE, an INSERT) is
looked at by Delta, which then tries the next version.

The transaction is not public API of Delta. It is touched in this module only, the version is
pinned, and tests fail loudly when a release changes it.
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
from trimtab.consumer_sdk.errors import CommitRaced, LakeUnavailable, MarksLost, TableMismatch
from trimtab.consumer_sdk.lake.formats.delta import (
    arrow_files,
    link_log_store,
)
from trimtab.consumer_sdk.lake.formats.delta import (
    columns as delta_columns,
)
from trimtab.consumer_sdk.lake.lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.offset_gaps import PROPERTY as GAPS
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks
from trimtab.consumer_sdk.lake.ports import Frame, Records, Sight, Staged
from trimtab.consumer_sdk.lake.schema.column_mapping import columns, explained
from trimtab.consumer_sdk.lake.schema.partition_spec import Parts, check_columns
from trimtab.consumer_sdk.lake.schema.schema_evolution import changes
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.session import frame_object, session_object
from trimtab.consumer_sdk.lake.spark.session import jvm as java

log = logging.getLogger("trimtab.lake")

CREATED_WITH: Final = {"delta.checkpointInterval": "50"}
"""A commit every few seconds: a checkpoint costs several commits' time and readers little."""

FORGETS: Final = "delta.setTransactionRetentionDuration"
"""A table property that makes Delta drop the marks of idle partitions."""

Files: TypeAlias = tuple[str, ...]
"""Staged files: `add` actions in JSON."""

_MARK: Final = re.compile(r"SetTransaction\(trimtab/([^/,()]+)/([^/,()]+)/(\d+),(\d+),")
_NO_TABLE: Final = re.compile("NON_EMPTY_LOCATION|DELTA_(TABLE_NOT_FOUND|MISSING_DELTA_TABLE)")
_COMMIT: Final = re.compile(r"(\d{20})\.json")


class DeltaLake(SparkLake):
    """The Delta tables below one folder or URI, `warehouse`: "shop.orders" is shop/orders.

    A table that was opened or made here has its name in Spark SQL too.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: str,
        *,
        owns_session: bool = False,
        arrow: bool = False,
    ) -> None:
        super().__init__(spark, owns_session=owns_session, arrow=arrow)
        self._warehouse = warehouse.rstrip("/")
        self._named: set[str] = set()
        try:
            link_log_store.install(java(spark))
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, "Delta's log store for local folders") from error

    def open(self, name: str) -> "DeltaTable | None":
        """Return a table, None where there is none. Raises LakeUnavailable, SettingError."""
        try:
            table = DeltaTable(name, self.spark, self._path(name))
            if not table.exists():
                return None
            self._name(name)
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {name}") from error
        return table

    def create(self, name: str, frame: Frame, parts: Parts = ()) -> "DeltaTable":
        """Return the table of that name, made with the frame's columns if it is missing.

        Raises SettingError for a partitioning that the columns or Delta do not allow.
        """
        found = self.open(name)
        if found is not None:
            return found
        rows = columns(frame)
        check_columns(name, parts, rows.names)
        try:
            self._make(self._path(name), rows, parts)
            log.info("%s: made, with %s", name, rows.simpleString())
        except jvm_errors.JvmError as error:
            told = jvm_errors.translate(error, f"table {name} cannot be made")
            raced = isinstance(told, CommitRaced)  # another writer has just made it
            if not raced and not (_occupied(error) and self._only_log(name)):
                raise told from error
        made = self.open(name)
        if made is None:
            raise LakeUnavailable(
                f"table {name} is none yet: another writer makes it just now, or dropped it. If "
                "this is said for long, look into its folder, and remove it if it is empty"
            )
        return made

    def scratch(self, folder: str, frame: Frame) -> "DeltaTable":
        """Return a table with the frame's columns in a local folder, without a name in SQL."""
        try:
            self._make(folder, columns(frame), ())
            return DeltaTable(folder, self.spark, folder)
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {folder}") from error

    def names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        path = java(self.spark).org.apache.hadoop.fs.Path(f"{self._warehouse}/*/*/_delta_log")
        try:
            files = path.getFileSystem(session_object(self.spark).sessionState().newHadoopConf())
            found = [str(status.getPath().getParent()) for status in files.globStatus(path) or ()]
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"warehouse {self._warehouse}") from error
        return sorted(".".join(place.rsplit("/", 2)[1:]) for place in found)

    def place(self, namespace: str) -> str:
        """Return the folder of a namespace's tables, for SQL that makes one: LOCATION."""
        return f"{self._warehouse}/{namespace}"

    def _path(self, name: str) -> str:
        namespace, _, table = name.partition(".")
        if "." in table:
            raise SettingError(
                f"table {name!r}: with lake.format=delta a name has two parts, like lake.orders; "
                "it is the folder lake/orders of lake.warehouse"
            )
        return f"{self.place(namespace)}/{table}"

    def _only_log(self, name: str) -> bool:
        """Whether the folder of a table holds no more than what making one begins with."""
        path = java(self.spark).org.apache.hadoop.fs.Path(self._path(name))
        try:
            files = path.getFileSystem(session_object(self.spark).sessionState().newHadoopConf())
            found = {str(status.getPath().getName()) for status in files.listStatus(path)}
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {name}") from error
        return found <= {"_delta_log"} or self.open(name) is not None

    def _make(self, path: str, rows: StructType, parts: Parts) -> None:
        maker = java(self.spark).io.delta.tables.DeltaTable.createIfNotExists(
            session_object(self.spark)
        )
        whole, by = delta_columns.created(rows, parts)
        parsed = java(self.spark).org.apache.spark.sql.types.DataType.fromJson(whole.json())
        maker = maker.location(path).addColumns(parsed)
        for key, value in CREATED_WITH.items():
            maker = maker.property(key, value)
        if by:
            maker = maker.partitionedBy(_sequence(self.spark, by))
        maker.execute()

    def _name(self, name: str) -> None:
        """Let Spark SQL know the table, once."""
        if name in self._named:
            return
        namespace = name.partition(".")[0]
        folder, path = self.place(namespace), self._path(name)
        for statement in (
            f"CREATE NAMESPACE IF NOT EXISTS {namespace} LOCATION {_text(folder)}",
            f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {_text(path)}",
        ):
            self.spark.sql(statement)
        self._named.add(name)


class DeltaTable:
    """One Delta table; see the module's text for how it is written.

    The attempt of a commit stands in the commit's `userMetadata`.
    """

    def __init__(self, name: str, spark: SparkSession, path: str) -> None:
        self.name = name
        self._spark = spark
        self._path = path
        self._delta = java(spark).org.apache.spark.sql.delta
        self._log = self._delta.DeltaLog.forTable(session_object(spark), path)
        self._none = java(spark).scala.Option.empty()
        self._first = int(self._snapshot().version())
        self._shape: delta_columns.Shape | None = None

    def exists(self) -> bool:
        """Whether there is such a table."""
        return self._first >= 0

    def look(self) -> Sight:
        """Read the marks of the newest version. Raises MarksLost, LakeUnavailable."""
        try:
            text = self._marks(self._snapshot())
        except jvm_errors.JvmError as error:
            if _dropped(error):
                return Sight(Marks(), "")
            raise jvm_errors.translate(error, f"table {self.name}") from error
        return Sight(Marks.decode(text, self.name) if text else Marks(), text)

    def gaps(self) -> Gaps:
        """Return the gaps of the newest version. Raises MarksLost, LakeUnavailable."""
        try:
            found = self._snapshot().metadata().configuration().get(GAPS)
            text = str(found.get()) if found.isDefined() else None
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {self.name}") from error
        return Gaps.decode(text, self.name)

    def landed(self, attempt: str) -> bool:
        """Whether an attempt's commit is in the log, from where it stood when this was opened."""
        try:
            return any(_attempt(self._head(path)) == attempt for path in self._commits(self._first))
        except jvm_errors.JvmError as error:
            if _dropped(error):
                return False
            raise jvm_errors.translate(error, f"table {self.name}") from error

    def evolve(self, frame: Frame) -> None:
        """Add the columns that a frame has and the table lacks.

        Raises CommitRaced, LakeUnavailable.
        """
        try:
            metadata = self._snapshot().metadata()
            needed = changes(delta_columns.shape(metadata).columns, columns(frame))
            for statement in delta_columns.statements(needed, metadata):
                self._alter(statement)
                log.info("%s: %s", self.name, statement)
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {self.name}: new columns") from error

    def stage(self, frame: Frame, attempt: str) -> Staged:
        """Write a frame's rows as data files.

        Raises TableMismatch, TransformFailed, DiskFull, LakeUnavailable.
        """
        try:
            in_spark = isinstance(frame, DataFrame)
            shape, files = (self._by_job if in_spark else self._by_arrow)(frame, attempt)
        except jvm_errors.JvmError as error:
            raise explained(jvm_errors.translate(error, f"table {self.name}")) from error
        self._shape = shape
        adds = [json.loads(file)["add"] for file in files]
        rows = sum(map(_rows, adds))
        return Staged(attempt, files, rows, sum(int(add["size"]) for add in adds))

    def commit(self, staged: Staged, marks: Marks, seen: Sight, gaps: Gaps | None = None) -> None:
        """Add files and marks in one version, and in the same one the gaps.

        Raises CommitRaced, TableMismatch if the table has become another one since the files were
        staged, LakeUnavailable (outcome unknown).
        """
        try:
            change = self._log.startTransaction(self._none, self._none)
            self._check(change.snapshot(), staged, seen)
            moved = _moved(marks, seen.marks)
            for app in moved:
                change.readTxn().append(app)  # refused if another commit changes one of these
            if gaps is not None:
                change.updateMetadata(self._told(change.metadata(), gaps), False)  # noqa: FBT003 - Delta's signature
            change.commit(self._actions(staged, moved), self._operation(staged.attempt))
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {self.name}: commit") from error

    def discard(self, staged: Staged) -> None:
        """Delete data files that will never be committed."""
        root = self._log.dataPath()
        try:
            system = root.getFileSystem(self._log.newDeltaHadoopConf())
            for file in staged.files:
                place = unquote(str(json.loads(file)["add"]["path"]))
                system.delete(java(self._spark).org.apache.hadoop.fs.Path(root, place), False)  # noqa: FBT003 - Hadoop's signature
        except jvm_errors.JvmError as error:
            told = jvm_errors.translate(
                error, f"table {self.name}: files of a dropped attempt stay behind"
            )
            log.warning("%s; trimtab tables expire takes them away", told)

    def snapshots(self) -> int:
        """Return how many commits the log keeps."""
        return sum(1 for _ in self._commits(0))

    def totals(self) -> dict[str, int]:
        """Return rows, files and bytes of the newest version."""
        now = self._snapshot()
        rows = self._spark.read.format("delta").load(self._path).count()
        return {"rows": rows, "files": int(now.numOfFiles()), "bytes": int(now.sizeInBytes())}

    def _by_job(self, frame: DataFrame, _attempt: str) -> tuple[delta_columns.Shape, Files]:
        writer = self._log.startTransaction(self._none, self._none)
        shape = delta_columns.shape(writer.snapshot().metadata())
        fitted = delta_columns.fitted(self.name, frame, shape, java(self._spark))
        written = writer.writeFiles(frame_object(fitted))
        return shape, tuple(str(written.apply(n).json()) for n in range(written.size()))

    def _by_arrow(self, rows: Records, attempt: str) -> tuple[delta_columns.Shape, Files]:
        metadata = self._snapshot().metadata()
        shape = delta_columns.shape(metadata)
        arrow_files.check(self.name, shape, _names(metadata))
        root = java(self._spark)
        return shape, arrow_files.write(self._log, self.name, shape, rows, attempt, root)

    def _alter(self, statement: str) -> None:
        before = self._snapshot().version()
        try:
            self._spark.sql(f"ALTER TABLE delta.`{self._path}` {statement}")
        except jvm_errors.JvmError as error:
            if self._snapshot().version() == before:
                raise
            told = f"table {self.name}: another writer was faster to change its columns"
            raise CommitRaced(told) from error

    def _snapshot(self) -> Any:
        return self._log.update(False, self._none, self._none)  # noqa: FBT003 - Delta's signature

    def _marks(self, snapshot: Any) -> str:
        """Return the marks of a version, encoded; "" where it has none.

        They stand in the version's checksum file as a rule; else Spark has to read the whole log.
        """
        if snapshot.metadata().configuration().contains(FORGETS):
            raise MarksLost(
                f"table {self.name}: its property {FORGETS} lets Delta drop the offsets of "
                "partitions that are idle, so that their records would come again: "
                f"ALTER TABLE {self.name} UNSET TBLPROPERTIES ('{FORGETS}')"
            )
        checksum = snapshot.checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        found = known.get() if known.isDefined() else snapshot.setTransactions()
        groups: dict[str, dict[TopicPartition, int]] = {}
        for group, topic, partition, offset in _MARK.findall(str(found.mkString("\n"))):
            where = TopicPartition(topic, int(partition))
            groups.setdefault(unquote(group), {})[where] = int(offset)
        return Marks(groups).encode() if groups else ""

    def _check(self, snapshot: Any, staged: Staged, seen: Sight) -> None:
        if self._marks(snapshot) != seen.version:
            raise CommitRaced(f"table {self.name}: another writer was faster")
        now = delta_columns.shape(snapshot.metadata())
        if staged.files and self._shape is not None and not self._shape.holds(now):
            raise TableMismatch(
                f"table {self.name}: its columns or its partitioning were changed while a batch "
                "was on its way. Nothing was written and no offset moved: start this process again"
            )

    def _actions(self, staged: Staged, moved: dict[str, int]) -> Any:
        txns = [{"txn": {"appId": app, "version": next_}} for app, next_ in moved.items()]
        texts = [*staged.files, *map(json.dumps, txns)]
        return _sequence(self._spark, [self._delta.actions.Action.fromJson(t) for t in texts])

    def _told(self, metadata: Any, gaps: Gaps) -> Any:
        """Return a table's metadata with these gaps in its configuration."""
        body = json.loads(str(metadata.json()))
        body["metaData"]["configuration"][GAPS] = gaps.encode()
        return self._delta.actions.Action.fromJson(json.dumps(body))

    def _operation(self, attempt: str) -> Any:
        """Return what the commit calls itself in the table's history."""
        root, none = java(self._spark), self._none
        append = root.org.apache.spark.sql.SaveMode.Append
        note = root.scala.Option.apply(attempt)
        return self._delta.DeltaOperations.Write(
            append, none, none, note, none, none, none, none, none
        )

    def _commits(self, first: int) -> Iterator[Any]:
        """Return the paths of the commits from a version on that the log still keeps."""
        root = java(self._spark).org.apache.hadoop.fs.Path(self._log.logPath(), f"{first:020}.json")
        files = self._log.store().listFrom(root, self._log.newDeltaHadoopConf())
        while files.hasNext():
            path = files.next().getPath()
            if _COMMIT.fullmatch(str(path.getName())):
                yield path

    def _head(self, path: Any) -> str:
        return str(self._log.store().read(path, self._log.newDeltaHadoopConf()).head())


def _dropped(error: BaseException) -> bool:
    """Whether the error says that the table's folder is gone: then it holds nothing."""
    return any("_delta_log does not exist" in message for _, message in jvm_errors.causes(error))


def _occupied(error: BaseException) -> bool:
    """Whether the error says that there is something in a new table's folder, and no table."""
    return any(_NO_TABLE.search(message) for _, message in jvm_errors.causes(error))


def app_id(group: str, where: TopicPartition) -> str:
    """Return the name under which a table keeps a partition's mark."""
    return f"trimtab/{quote(group, safe='')}/{where.topic}/{where.partition}"


def _moved(marks: Marks, seen: Marks) -> dict[str, int]:
    """Return app id → next offset of every partition whose mark is another one than was seen."""
    return {
        app_id(group, where): offset
        for group, partitions in sorted(marks.groups.items())
        for where, offset in sorted(partitions.items())
        if seen.of(group, where) != offset
    }


def _names(metadata: Any) -> list[str]:
    """Return the names of a table's properties."""
    return str(metadata.configuration().keys().mkString("\n")).splitlines()


def _rows(add: dict[str, Any]) -> int:
    if "stats" not in add:
        raise SettingError(
            "spark.databricks.delta.stats.collect=false leaves files without a count of their "
            "rows, which the sink needs; leave it out"
        )
    return int(json.loads(add["stats"])["numRecords"])


def _attempt(head: str) -> str | None:
    """Return the attempt that a commit's first line tells of."""
    found: str | None = json.loads(head).get("commitInfo", {}).get("userMetadata")
    return found


def _sequence(spark: SparkSession, items: list[Any]) -> Any:
    return java(spark).org.apache.spark.api.python.PythonUtils.toSeq(items)


def _text(value: str) -> str:
    """Return a string literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
