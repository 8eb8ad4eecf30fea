"""Upserts into an Iceberg table: positions of older rows, deletion vectors, `RowDelta`.

A commit of keyed changes holds for one snapshot. Each try

1. plans the files of the current snapshot and looks the keys up in those not yet searched: data files
   never change, so a search holds for as long as its file is in the table. After a compaction only
   the new files are searched;
2. merges the positions with each file's deletion vector, and writes all vectors into one Puffin file;
3. commits data files, vectors and offsets, if that snapshot is still the current one.

Equality deletes are never written: every reader would have to join them.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats import key_lookup
from trimtab.consumer_sdk.lake.formats.iceberg import arrow_files
from trimtab.consumer_sdk.lake.formats.key_lookup import KEY_ADVICE, ParquetSource, Positions
from trimtab.consumer_sdk.lake.formats.parquet_writer import ArrowSchema
from trimtab.consumer_sdk.lake.interfaces import Records
from trimtab.consumer_sdk.lake.spark.jvm_errors import JVM_ERRORS

log = logging.getLogger("trimtab.lake")

MIN_FORMAT_VERSION: Final = 3  # of deletion vectors
UPSERT_TABLE_DEFAULTS: Final = {
    "format-version": str(MIN_FORMAT_VERSION),
    # of UPDATE, DELETE and MERGE by others: deletion vectors, too, instead of rewritten files
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}


def find_keys(table: Any, name: str, changes: KeyedChanges, root: Any) -> Records:
    """Return the touched keys, their columns with Iceberg's field ids. Raises TableSchemaMismatchError.

    `table` is Iceberg's own object, `root` the JVM's packages.
    """
    iceberg = root.org.apache.iceberg
    version = int(iceberg.TableUtil.formatVersion(table))
    if version < MIN_FORMAT_VERSION:
        raise TableSchemaMismatchError(
            f"table {name} has format version {version}, and lake.write=upsert needs the deletion vectors "
            f"of version {MIN_FORMAT_VERSION}: ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = "
            f"'{MIN_FORMAT_VERSION}') once all of its readers know that version, or {KEY_ADVICE}"
        )
    columns = arrow_files.build_key_candidates(iceberg.SchemaParser.toJson(table.schema()))
    return key_lookup.fit_keys(name, changes, columns)


@dataclass(frozen=True, slots=True)
class _TouchedFile:
    path: str
    data_file: Any
    vector: Any  # of the old rows and of all rows deleted before
    previous: Any  # vector, None for none


@dataclass(slots=True)
class IcebergOldRows:
    """Rows of changed keys in one table, by data file; `table` is Iceberg's own object."""

    name: str
    table: Any
    keys: Records
    attempt: str
    gateway: Any  # py4j's
    positions: dict[str, Positions] = field(default_factory=dict[str, Positions])
    vectors: list[str] = field(default_factory=list[str])  # their file of each try, "" for none
    tries: int = 0

    def search(self) -> None:
        """Look the keys up in the current snapshot's files. Raises LakeUnavailableError."""
        for task in self._plan_files():
            self._find_positions(task.file())

    def start_commit(self, target: Any, files: Sequence[Any]) -> Any:
        """Return a `RowDelta` that adds data files and deletes the old rows; `target` starts it."""
        snapshot = self.table.currentSnapshot()
        touched = [f for task in self._plan_files() if (f := self._touch_file(task)) is not None]
        update = target.newRowDelta()
        for file in files:
            update.addRows(file)
        if not touched:
            self.vectors.append("")
            return update
        written = self._write_vectors(touched)
        for vector in written.deleteFiles():
            update.addDeletes(vector)
        for replaced in written.rewrittenDeleteFiles():
            update.removeDeletes(replaced)
        update.validateFromSnapshot(snapshot.snapshotId()).validateDeletedFiles()
        return update.validateDataFilesExist(written.referencedDataFiles())

    def delete_earlier_vectors(self) -> None:
        """Delete the files of all tries but the last; failures are logged only."""
        try:
            for location in filter(None, self.vectors[:-1]):
                self.table.io().deleteFile(location)
        except JVM_ERRORS as error:
            log.warning(
                "table %s: vectors of a lost race stay until orphans are removed: %s", self.name, error
            )

    def _plan_files(self) -> Iterator[Any]:
        snapshot = self.table.currentSnapshot()
        if snapshot is None:
            return
        planned = self.table.newScan().useSnapshot(snapshot.snapshotId()).planFiles()
        try:
            tasks = planned.iterator()
            while tasks.hasNext():  # py4j's own loop would take an error for the end
                yield tasks.next()
        finally:
            planned.close()

    def _find_positions(self, file: Any) -> Positions:
        path = str(file.location())
        if path not in self.positions:
            if str(file.format()) != "PARQUET":
                raise TableSchemaMismatchError(
                    f"table {self.name} is kept in {file.format()}, and lake.write=upsert reads Parquet: "
                    f"set write.format.default=parquet and rewrite its data files, or {KEY_ADVICE}"
                )
            self.positions[path] = self._search_file(path, file)
        return self.positions[path]

    def _search_file(self, path: str, file: Any) -> Positions:
        source = ParquetSource(
            self.gateway.jvm.org.apache.hadoop.fs.Path(path),
            int(file.fileSizeInBytes()),
            lambda: self._open(file).newStream(),
        )
        return source.find_rows(self.keys, self._name_keys)

    def _name_keys(self, schema: ArrowSchema) -> list[str] | None:
        """Return the names of the key columns in a file, whose ids outlive a rename."""
        names = {arrow_files.read_field_id(column): column.name for column in schema}
        if names.keys() <= {None}:  # another program's file, added to the table as it is
            shared = [column for column in self.keys.schema if column.name in schema.names]
            names = {arrow_files.read_field_id(column): column.name for column in shared}
        ids = [arrow_files.read_field_id(column) for column in self.keys.schema]
        return [names[number] for number in ids] if names.keys() >= {*ids} else None

    def _touch_file(self, task: Any) -> _TouchedFile | None:
        file = task.file()
        positions = self._find_positions(file)
        if not len(positions):
            return None
        path = str(file.location())
        vector = self._to_vector(positions)
        previous = self._load_vector(path, task.deletes())
        if previous is not None:
            vector.merge(previous)
            if vector.cardinality() == previous.cardinality():
                return None  # all of these rows were deleted before
        return _TouchedFile(path, file, vector, previous)

    def _to_vector(self, positions: Positions) -> Any:
        root = self.gateway.jvm
        longs = key_lookup.to_java_list(positions, self.gateway)
        closeable = root.org.apache.iceberg.io.CloseableIterable.combine(longs, root.java.io.StringReader(""))
        return root.org.apache.iceberg.deletes.Deletes.toPositionIndex(closeable)

    def _open(self, file: Any) -> Any:
        """Return Iceberg's `InputFile` of a data or delete file, whose size need not be asked for."""
        return self.table.io().newInputFile(str(file.location()), int(file.fileSizeInBytes()))

    def _load_vector(self, path: str, deletes: Any) -> Any:
        if deletes.isEmpty():
            return None
        loader = self.gateway.jvm.org.apache.iceberg.data.BaseDeleteLoader(_Function(self._open))
        return loader.loadPositionDeletes(deletes, path)

    def _write_vectors(self, touched: Sequence[_TouchedFile]) -> Any:
        self.tries += 1  # a file for each try: the last one may be in the table after all
        iceberg = self.gateway.jvm.org.apache.iceberg
        factory = iceberg.io.OutputFileFactory.builderFor(self.table, 0, 0)
        factory = (
            factory.operationId(f"{self.attempt}-{self.tries}").format(iceberg.FileFormat.PUFFIN).build()
        )
        previous = {file.path: file.previous for file in touched}
        writer = iceberg.deletes.BaseDVFileWriter(factory, _Function(previous.get))
        specs = self.table.specs()
        for file in touched:
            spec = specs.get(file.data_file.specId())
            writer.delete(file.path, file.vector, spec, file.data_file.partition())
        writer.close()
        written = writer.result()
        self.vectors.append(str(written.deleteFiles().get(0).location()))
        return written


# Iceberg calls it back from the JVM.
class _Function:
    class Java:
        implements: Final = ["java.util.function.Function"]

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def apply(self, argument: Any) -> Any:
        return self._function(argument)
