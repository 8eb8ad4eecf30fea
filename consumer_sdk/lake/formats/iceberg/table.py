"""Iceberg tables: staged by Iceberg's own Spark writer, committed by its public API with our fence.

*Stage.* A Spark job writes data files through the catalog that Iceberg keeps for rewriting tables
(`SparkRewriteTableCatalog`): the same writer as for an INSERT (partitioning, sort order, file
sizes, field ids, column metrics, the table's own properties), but the files end up with a
coordinator in the driver instead of in a snapshot. That catalog is not public API; it is touched in
`_Staging` only, and a test fails loudly when a release changes it. The public way, plain Parquet
files listed by `TableMigrationUtil`, cannot fill a partitioned table, reads every footer again, and
needs a name mapping on the user's table. With `lake.stage: arrow` no job runs (`iceberg_arrow`).

*Commit.* `newAppend().appendFile(…).set(marks).validateWith(validator)`. Iceberg calls the
validator with the ancestors of the snapshot that the commit would follow; it refuses unless the
newest marks there are, to the letter, those that the new marks were made from. So it holds even
where a table's own `commit.retry.num-retries` makes Iceberg try again.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import LakeUnavailable, MarksLost
from trimtab.consumer_sdk.lake.formats.iceberg import arrow_files
from trimtab.consumer_sdk.lake.formats.table_format import STAGING
from trimtab.consumer_sdk.lake.lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.offset_gaps import PROPERTY as GAPS
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import ATTEMPT, PROPERTY, Marks
from trimtab.consumer_sdk.lake.ports import Frame, Sight, Staged
from trimtab.consumer_sdk.lake.schema.column_mapping import all_nullable, columns, explained, fitted
from trimtab.consumer_sdk.lake.schema.partition_spec import SETTING, Parts, check_columns
from trimtab.consumer_sdk.lake.schema.schema_evolution import Change, changes
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.session import gateway, session_object
from trimtab.consumer_sdk.lake.spark.session import jvm as java

log = logging.getLogger("trimtab.lake")

CREATED_WITH: Final = {
    "commit.retry.num-retries": "0",  # we try again ourselves, with fresh marks
    # a commit every few seconds leaves many metadata files behind
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    # zstd's third level, Parquet's own choice, takes three times the CPU of the first and gains
    # little on JSON: compaction may press harder
    "write.parquet.compression-level": "1",
}


class IcebergLake(SparkLake):
    """The tables of one Iceberg catalog of a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: str,
        *,
        owns_session: bool = False,
        arrow: bool = False,
    ) -> None:
        super().__init__(spark, owns_session=owns_session, arrow=arrow)
        self.catalog_name = catalog
        try:
            tools = java(spark).org.apache.iceberg.spark.Spark3Util
            self._catalog = tools.loadIcebergCatalog(session_object(spark), catalog)
            self._staging = _Staging(spark)
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"catalog {catalog}") from error

    def open(self, name: str) -> "IcebergTable | None":
        """Return a table, None where there is none. Raises LakeUnavailable."""
        try:
            return IcebergTable(
                name, self._catalog.loadTable(self._identifier(name)), self._staging
            )
        except jvm_errors.JvmError as error:
            if jvm_errors.is_missing(error):
                return None
            raise jvm_errors.translate(error, f"table {name}") from error

    def create(self, name: str, frame: Frame, parts: Parts = ()) -> "IcebergTable":
        """Return the table of that name, made with the frame's columns if it is missing.

        Raises SettingError for a partitioning that the columns do not allow.
        """
        found = self.open(name)
        if found is not None:
            return found
        try:
            self._make(name, columns(frame), parts)
            log.info("%s: made, with %s", name, columns(frame).simpleString())
        except jvm_errors.JvmError as error:
            if not any("AlreadyExists" in cause for cause, _ in jvm_errors.causes(error)):
                raise jvm_errors.translate(error, f"table {name} cannot be made") from error
        made = self.open(name)
        if made is None:
            raise LakeUnavailable(f"table {name} was made and is gone again: who drops it?")
        return made

    def names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        try:
            found = [t for space in self._namespaces() for t in self._catalog.listTables(space)]
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"catalog {self.catalog_name}") from error
        return sorted(str(table.toString()) for table in found)

    def scratch(self, folder: str, frame: Frame) -> "IcebergTable":
        """Return a table with the frame's columns in a local folder, outside the catalog."""
        iceberg = java(self.spark).org.apache.iceberg
        try:
            tables = iceberg.hadoop.HadoopTables(
                session_object(self.spark).sessionState().newHadoopConf()
            )
            schema = self._schema(columns(frame))
            return IcebergTable(folder, tables.create(schema, folder), self._staging)
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {folder}") from error

    def _make(self, name: str, rows: StructType, parts: Parts) -> None:
        check_columns(name, parts, rows.names)
        schema = self._schema(rows)
        spec = self._spec(name, schema, parts)
        namespace = name.rpartition(".")[0]
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog_name}.{namespace}")
        self._catalog.createTable(self._identifier(name), schema, spec, CREATED_WITH)

    def _spec(self, name: str, schema: Any, parts: Parts) -> Any:
        spec = java(self.spark).org.apache.iceberg.PartitionSpec.builderFor(schema)
        spec.caseSensitive(False)  # noqa: FBT003 - Iceberg's signature
        try:
            for part in parts:
                width = () if part.width is None else (part.width,)
                getattr(spec, part.transform)(part.column, *width)
            return spec.build()
        except jvm_errors.JvmError as error:
            told = jvm_errors.translate(
                error, f"{SETTING}: table {name}: {', '.join(map(str, parts))}"
            )
            raise SettingError(str(told)) from error

    def _schema(self, rows: StructType) -> Any:
        struct = all_nullable(self.spark, rows)
        return java(self.spark).org.apache.iceberg.spark.SparkSchemaUtil.convert(struct)

    def _identifier(self, name: str) -> Any:
        return java(self.spark).org.apache.iceberg.catalog.TableIdentifier.parse(name)

    def _namespaces(self) -> Iterator[Any]:
        waiting = list(self._catalog.listNamespaces())
        while waiting:
            space = waiting.pop()
            yield space
            waiting.extend(self._catalog.listNamespaces(space))


class IcebergTable:
    """One Iceberg table; see the module's text for how it is written."""

    def __init__(self, name: str, table: Any, staging: "_Staging") -> None:
        self.name = name
        self.table = table
        self._staging = staging

    def look(self) -> Sight:
        """Read the marks of the newest snapshot that has some.

        Raises MarksLost, LakeUnavailable.
        """
        try:
            self.table.refresh()
            text = self._newest_marks()
        except jvm_errors.JvmError as error:
            if jvm_errors.is_missing(error):  # dropped meanwhile: it holds nothing
                return Sight(Marks(), "")
            raise jvm_errors.translate(error, f"table {self.name}") from error
        return Sight(Marks.decode(text, self.name) if text else Marks(), text)

    def gaps(self) -> Gaps:
        """Return the gaps as of the last look. Raises MarksLost, LakeUnavailable."""
        try:
            text = self.table.properties().get(GAPS)
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {self.name}") from error
        return Gaps.decode(text, self.name)

    def landed(self, attempt: str) -> bool:
        """Whether an attempt's commit is among the snapshots."""
        try:
            return any(_summary(s, ATTEMPT) == attempt for s in self.ancestors())
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {self.name}") from error

    def evolve(self, frame: Frame) -> None:
        """Add the columns that a frame has and the table lacks, in one commit.

        Raises CommitRaced, LakeUnavailable.
        """
        try:
            self.table.refresh()
            needed = changes(self._staging.schema(self.table), columns(frame))
            if needed:
                self._staging.update(self.table, needed)
                log.info("%s: new columns: %s", self.name, "; ".join(map(str, needed)))
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {self.name}: new columns") from error

    def stage(self, frame: Frame, attempt: str) -> Staged:
        """Write a frame's rows as data files.

        Raises TableMismatch, TransformFailed, DiskFull, LakeUnavailable.
        """
        try:
            files = self._staging.write(self.name, self.table, frame, attempt)
            rows = sum(int(file.recordCount()) for file in files)
            size = sum(int(file.fileSizeInBytes()) for file in files)
        except jvm_errors.JvmError as error:
            raise explained(jvm_errors.translate(error, f"table {self.name}")) from error
        return Staged(attempt, files, rows, size)

    def commit(self, staged: Staged, marks: Marks, seen: Sight, gaps: Gaps | None = None) -> None:
        """Add files and marks in one snapshot, and in the same commit the gaps.

        Raises CommitRaced, LakeUnavailable (outcome unknown).
        """
        try:
            change = None if gaps is None else self.table.newTransaction()
            if change is not None and gaps is not None:
                change.updateProperties().set(GAPS, gaps.encode()).commit()
            append = (change or self.table).newAppend()
            for file in staged.files:
                append.appendFile(file)
            append.set(PROPERTY, marks.encode()).set(ATTEMPT, staged.attempt)
            append.validateWith(_Validator(seen.version)).commit()
            if change is not None:
                change.commitTransaction()
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {self.name}: commit") from error

    def discard(self, staged: Staged) -> None:
        """Delete data files that will never be committed."""
        try:
            for file in staged.files:
                self.table.io().deleteFile(file.location())
        except jvm_errors.JvmError as error:
            told = jvm_errors.translate(
                error, f"table {self.name}: files of a dropped attempt stay behind"
            )
            log.warning("%s; trimtab tables expire takes them away", told)

    def snapshots(self) -> int:
        """Return how many snapshots the table keeps."""
        return sum(1 for _ in self.table.snapshots())

    def totals(self) -> dict[str, int]:
        """Return rows, files and bytes as the current snapshot states them."""
        current = self.table.currentSnapshot()
        keys = {"rows": "total-records", "files": "total-data-files", "bytes": "total-files-size"}
        found = {k: _summary(current, v) if current is not None else None for k, v in keys.items()}
        return {name: int(value or 0) for name, value in found.items()}

    def _newest_marks(self) -> str:
        oldest = None
        for snapshot in self.ancestors():
            marks = _summary(snapshot, PROPERTY)
            if marks is not None:
                return marks
            oldest = snapshot
        given = self.table.properties().get(PROPERTY)
        if given is None and oldest is not None and oldest.parentId() is not None:
            raise MarksLost(
                f"table {self.name}: the snapshots that kept {PROPERTY} have expired, so it is "
                "not known up to which offsets the table is filled; set them by hand as table "
                f"property {PROPERTY} (docs/lake.md), or write into a new table"
            )
        return str(given or "")

    def ancestors(self) -> Iterator[Any]:
        """Walk from the newest snapshot to the oldest that is kept; a dropped table has none."""
        known = self.table.operations().current()
        snapshot = None if known is None else self.table.currentSnapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.table.snapshot(parent)


class _Staging:
    """Iceberg's rewrite machinery, the one place that touches it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._iceberg = java(spark).org.apache.iceberg
        self._coordinator = self._iceberg.spark.FileRewriteCoordinator.get()
        self._cache = _static_get(spark, "org.apache.iceberg.spark.SparkTableCache")

    def schema(self, table: Any) -> StructType:
        """Return the columns that a staged frame must have."""
        schema = table.schema()
        if self._iceberg.TableUtil.supportsRowLineage(table):
            schema = self._iceberg.MetadataColumns.schemaWithRowLineage(schema)
        struct = self._iceberg.spark.SparkSchemaUtil.convert(schema)
        return StructType.fromJson(_json(struct.json()))

    def update(self, table: Any, needed: Sequence[Change]) -> None:
        """Change a table's columns, in one commit."""
        update = table.updateSchema().caseSensitive(False)  # noqa: FBT003 - Iceberg's signature
        for change in needed:
            kind = self._type(change.type)
            if change.widen:
                update.updateColumn(change.name, kind.asPrimitiveType())
            elif len(change.path) == 1:
                update.addColumn(change.name, kind)
            else:
                update.addColumn(".".join(change.path[:-1]), change.path[-1], kind)
        update.commit()

    def _type(self, kind: DataType) -> Any:
        struct = all_nullable(self._spark, StructType([StructField("c", kind)]))
        return self._iceberg.spark.SparkSchemaUtil.convert(struct).columns().get(0).type()

    def write(self, name: str, table: Any, frame: Frame, attempt: str) -> tuple[Any, ...]:
        """Write a frame by a Spark job, an Arrow table here, and return the data files."""
        if not isinstance(frame, DataFrame):
            return arrow_files.write(table, name, frame, attempt, java(self._spark))
        whole = fitted(name, frame, self.schema(table))
        self._cache.add(attempt, table)
        try:
            whole.writeTo(f"{STAGING}.`{attempt}`").option("fanout-enabled", "true").append()
            return tuple(self._coordinator.fetchNewFiles(table, attempt))
        finally:
            self._forget(table, attempt)

    def _forget(self, table: Any, attempt: str) -> None:
        try:
            self._cache.remove(attempt)
            self._coordinator.clearRewrite(table, attempt)
        except (Py4JError, PySparkException, OSError) as error:
            log.debug("staging of %s was not tidied up: %s", attempt, error)


class _Validator:
    """Called back from the JVM in the middle of a commit.

    May the snapshot be added on top of these ancestors?
    """

    class Java:
        """What py4j needs to know."""

        implements: Final = ["org.apache.iceberg.SnapshotAncestryValidator"]

    def __init__(self, seen: str) -> None:
        self._seen = seen

    def validate(self, ancestors: Any) -> bool:
        """Whether the newest marks are, to the letter, those that were seen."""
        snapshots = ancestors.iterator()
        while snapshots.hasNext():
            marks = _summary(snapshots.next(), PROPERTY)
            if marks is not None:
                return marks == self._seen
        return True

    def errorMessage(self) -> str:  # noqa: N802 - Iceberg's name
        """Say why it was refused."""
        return "the table's trimtab.offsets changed after they were read"


def _summary(snapshot: Any, key: str) -> str | None:
    value = snapshot.summary().get(key)
    return None if value is None else str(value)


def _static_get(spark: SparkSession, name: str) -> Any:
    """Call a class's static get(); py4j alone stumbles over an instance method of the same name."""
    root = java(spark)
    method = root.py4j.reflection.ReflectionUtil.classForName(name).getMethod(
        "get", gateway(spark).new_array(root.java.lang.Class, 0)
    )
    return method.invoke(None, gateway(spark).new_array(root.java.lang.Object, 0))


def _json(text: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(str(text))
    return body
