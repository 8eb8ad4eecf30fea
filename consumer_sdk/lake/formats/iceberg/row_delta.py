"""Upserts into an Iceberg table: positions of older rows, deletion vectors, `RowDelta`.

A commit of keyed changes holds for one snapshot. Each try

1. plans the files of the current snapshot and looks the keys up in those not yet searched whose bounds
   do not rule them out: data files never change, so a search holds for as long as its file is in the
   table. After a compaction only the new files are searched;
2. merges the positions with each file's deletion vector, and writes all vectors into one Puffin file, into
   several if they take more memory than `VECTOR_WINDOW_BYTES`;
3. commits data files, vectors and offsets, if that snapshot is still the current one.

Equality deletes are never written: every reader would have to join them.
"""

import itertools
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats import key_lookup
from trimtab.consumer_sdk.lake.formats.file_cache import FILE_OVERHEAD_BYTES, IDLE_TABLE_S, VECTOR_CACHE_BYTES
from trimtab.consumer_sdk.lake.formats.iceberg import arrow_files
from trimtab.consumer_sdk.lake.formats.key_bounds import Bounds, KeyRanges
from trimtab.consumer_sdk.lake.formats.key_cache import FileCaches, KeyCache
from trimtab.consumer_sdk.lake.formats.key_lookup import (
    KEY_ADVICE,
    NO_POSITIONS,
    VECTOR_WINDOW_BYTES,
    KeySearch,
    Positions,
    SearchedFile,
)
from trimtab.consumer_sdk.lake.formats.parquet_writer import ArrowSchema
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.spark.jvm_errors import JVM_ERRORS, MaskedError

log = logging.getLogger("trimtab.lake")

MIN_FORMAT_VERSION: Final = 3  # of deletion vectors
UPSERT_TABLE_DEFAULTS: Final = {
    "format-version": str(MIN_FORMAT_VERSION),
    # of UPDATE, DELETE and MERGE by others: deletion vectors, too, instead of rewritten files
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}

VECTOR_CACHE_MS: Final = int(IDLE_TABLE_S * 1000)  # after the last use of a file of vectors


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
class _PlannedFile:
    task: Any
    data_file: Any
    path: str
    size: int
    rows: int
    format: str  # upper case
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class _TouchedFile:
    path: str
    data_file: Any
    vector: Any  # of the old rows and of all rows deleted before
    previous: Any  # vector, None for none


def create_file_caches(root: Any) -> FileCaches:
    """Return empty caches; `root` is the JVM's packages."""
    vectors = root.org.apache.iceberg.io.ContentCache(
        VECTOR_CACHE_MS, VECTOR_CACHE_BYTES, VECTOR_CACHE_BYTES // 4
    )
    return FileCaches(KeyCache(), vectors)


@dataclass(slots=True)
class IcebergOldRows:
    """Rows of changed keys in one table, by data file; `table` is Iceberg's own object."""

    name: str
    table: Any
    keys: Records
    attempt: str
    gateway: Any  # py4j's
    caches: FileCaches
    positions: dict[str, Positions] = field(default_factory=dict[str, Positions])
    vectors: list[list[str]] = field(default_factory=list[list[str]])  # their files of each try
    written_files: int = 0
    _planned: tuple[int, list[_PlannedFile]] | None = None  # the snapshot's id and its files

    def search(self) -> None:
        """Look the keys up in the current snapshot's files. Raises LakeUnavailableError."""
        files = self._plan_files()
        self.caches.keys.retain(self.name, {self._cache_key(file) for file in files})
        ranges = KeyRanges(self.keys)
        unknown = [file for file in files if file.path not in self.positions]
        searched = [file for file in unknown if ranges.may_be_in(file.bounds)]
        search = KeySearch(self.name, self.caches.keys, key_lookup.read_bytes_by(self.gateway))
        found = search.find_rows([self._describe_search(file) for file in searched])
        self.positions |= dict.fromkeys((file.path for file in unknown), NO_POSITIONS)
        self.positions |= zip((file.path for file in searched), found, strict=True)

    def start_commit(self, target: Any, files: Sequence[Any]) -> Any:
        """Return a `RowDelta` that adds data files and deletes the old rows; `target` starts it."""
        snapshot = self.table.currentSnapshot()
        self.search()
        update = target.newRowDelta()
        for file in files:
            update.addRows(file)
        self.vectors.append([])
        found = [file for file in self._plan_files() if len(self.positions[file.path])]
        for window in key_lookup.split_by_size(found, _measure_vector, VECTOR_WINDOW_BYTES):
            self._delete_rows(update, window, snapshot)
        return update

    def _delete_rows(self, update: Any, files: Sequence[_PlannedFile], snapshot: Any) -> None:
        touched = self._touch_files(files)
        if not touched:
            return
        written = self._write_vectors(touched)
        for vector in written.deleteFiles():
            update.addDeletes(vector)
        for replaced in written.rewrittenDeleteFiles():
            update.removeDeletes(replaced)
        update.validateFromSnapshot(snapshot.snapshotId()).validateDeletedFiles()
        update.validateDataFilesExist(written.referencedDataFiles())

    def delete_earlier_vectors(self) -> None:
        """Delete the files of all tries but the last; failures are logged only."""
        try:
            for location in itertools.chain.from_iterable(self.vectors[:-1]):
                self.table.io().deleteFile(location)
        except JVM_ERRORS as error:
            log.warning(
                "table %s: vectors of a lost race stay until orphans are removed: %s",
                self.name,
                MaskedError(error),
            )

    def _plan_files(self) -> list[_PlannedFile]:
        """Return the current snapshot's files; planned once for each snapshot."""
        snapshot = self.table.currentSnapshot()
        if snapshot is None:
            return []
        snapshot_id = int(snapshot.snapshotId())
        if self._planned is None or self._planned[0] != snapshot_id:
            to_json = self.gateway.jvm.org.apache.iceberg.ContentFileParser.toJson
            files = [self._describe_file(task, to_json) for task in self._plan_tasks(snapshot_id)]
            self._planned = snapshot_id, files
        return self._planned[1]

    def _plan_tasks(self, snapshot_id: int) -> Iterator[Any]:
        scan = self.table.newScan().includeColumnStats(self.keys.column_names)
        planned = scan.useSnapshot(snapshot_id).planFiles()
        try:
            tasks = planned.iterator()
            while tasks.hasNext():  # py4j's own loop would take an error for the end
                yield tasks.next()
        finally:
            planned.close()

    def _describe_file(self, task: Any, to_json: Callable[..., Any]) -> _PlannedFile:
        file = task.file()
        known = json.loads(str(to_json(file, task.spec())))  # one call for all values
        bounds = arrow_files.read_bounds(known, self.keys.schema)
        size = int(known["file-size-in-bytes"])
        rows, kind = int(known["record-count"]), known["file-format"].upper()
        return _PlannedFile(task, file, known["file-path"], size, rows, kind, bounds)

    def _cache_key(self, file: _PlannedFile) -> tuple[object, ...]:
        ids = map(arrow_files.read_field_id, self.keys.schema)
        return file.path, *self.keys.column_names, *ids

    def _describe_search(self, file: _PlannedFile) -> SearchedFile:
        if file.format != "PARQUET":
            raise TableSchemaMismatchError(
                f"table {self.name} is kept in {file.format}, and lake.write=upsert reads Parquet: "
                f"set write.format.default=parquet and rewrite its data files, or {KEY_ADVICE}"
            )
        return SearchedFile(
            file.path,
            file.size,
            lambda: self._open(file.path, file.size).newStream(),
            self.keys,
            partial(self._name_keys, file),
            self._cache_key(file),
        )

    def _name_keys(self, file: _PlannedFile, schema: ArrowSchema) -> list[str] | None:
        """Return the names of the key columns in a file, whose ids outlive a rename; None if it lacks one.

        Raises TableSchemaMismatchError.
        """
        names = {arrow_files.read_field_id(column): column.name for column in schema}
        if names.keys() <= {None}:  # another program's file, added to the table as it is
            shared = [column for column in self.keys.schema if column.name in schema.names]
            names = {arrow_files.read_field_id(column): column.name for column in shared}
        ids = [arrow_files.read_field_id(column) for column in self.keys.schema]
        missing = [number for number in ids if number not in names]
        self._refuse_values_outside_file(file, missing)
        return None if missing else [names[number] for number in ids]

    def _refuse_values_outside_file(self, file: _PlannedFile, missing: Sequence[int | None]) -> None:
        """Raise TableSchemaMismatchError if rows have values of columns that their file lacks.

        Rows with null in a column of the key have no key, as those of before the column was added.
        """
        for number in missing:
            column = self.table.schema().findField(number)
            if column is None:  # another writer has dropped it since
                continue
            if column.initialDefault() is not None or file.task.spec().identitySourceIds().contains(number):
                raise TableSchemaMismatchError(
                    f"table {self.name}: data file {file.path} lacks the key column {column.name()}, whose "
                    f"values come from the column's default or from the partition: let rewrite_data_files "
                    f"write it again, with 'rewrite-all', or {KEY_ADVICE}"
                )

    def _touch_files(self, files: Sequence[_PlannedFile]) -> list[_TouchedFile]:
        loader, build = self._build_vector_loader(), _VectorBuilder(self.gateway)
        touched = (_touch_file(file, build(self.positions[file.path]), loader) for file in files)
        return [file for file in touched if file is not None]

    def _open(self, path: str, size: int) -> Any:
        """Return Iceberg's `InputFile` of a data or delete file, whose size need not be asked for."""
        return self.table.io().newInputFile(path, size)

    def _build_vector_loader(self) -> Any:
        """Return a loader that reads a file of vectors once, not once for each of them."""
        opened: dict[str, Any] = {}

        def open_file(file: Any) -> Any:
            path = str(file.location())
            if path not in opened:
                opened[path] = self.caches.vectors.tryCache(self._open(path, int(file.fileSizeInBytes())))
            return opened[path]

        return self.gateway.jvm.org.apache.iceberg.data.BaseDeleteLoader(_Function(open_file))

    def _write_vectors(self, touched: Sequence[_TouchedFile]) -> Any:
        self.written_files += 1  # new ones for each try: the last one's may be in the table after all
        iceberg = self.gateway.jvm.org.apache.iceberg
        factory = iceberg.io.OutputFileFactory.builderFor(self.table, 0, 0)
        factory = (
            factory.operationId(f"{self.attempt}-{self.written_files}")
            .format(iceberg.FileFormat.PUFFIN)
            .build()
        )
        previous = {file.path: file.previous for file in touched}
        writer = iceberg.deletes.BaseDVFileWriter(factory, _Function(previous.get))
        specs = self.table.specs()
        for file in touched:
            spec = specs.get(file.data_file.specId())
            writer.delete(file.path, file.vector, spec, file.data_file.partition())
        writer.close()
        previous.clear()  # the JVM keeps the function until it collects its writer
        written = writer.result()
        self.vectors[-1].append(str(written.deleteFiles().get(0).location()))
        return written


class _VectorBuilder:
    def __init__(self, gateway: Any) -> None:
        root, iceberg = gateway.jvm, gateway.jvm.org.apache.iceberg
        self._lists = key_lookup.PositionLists(gateway)
        self._nothing = root.java.io.StringReader("")
        self._combine = iceberg.io.CloseableIterable.combine
        self._to_vector = iceberg.deletes.Deletes.toPositionIndex

    def __call__(self, positions: Positions) -> Any:
        return self._to_vector(self._combine(self._lists.convert(positions), self._nothing))


def _measure_vector(file: _PlannedFile) -> int:
    """Return the memory that a file's vector takes at most, about: a bit for each row."""
    return FILE_OVERHEAD_BYTES + file.rows // 8


def _touch_file(file: _PlannedFile, vector: Any, loader: Any) -> _TouchedFile | None:
    """Return a file with its new vector, None if all of its rows were deleted before."""
    deletes = file.task.deletes()
    previous = None if deletes.isEmpty() else loader.loadPositionDeletes(deletes, file.path)
    if previous is not None:
        vector.merge(previous)
        if vector.cardinality() == previous.cardinality():
            return None
    return _TouchedFile(file.path, file.data_file, vector, previous)


# Iceberg calls it back from the JVM.
class _Function:
    class Java:
        implements: Final = ["java.util.function.Function"]

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def apply(self, argument: Any) -> Any:
        return self._function(argument)
