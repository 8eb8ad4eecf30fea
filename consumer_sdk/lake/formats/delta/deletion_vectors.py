"""Upserts into a Delta table: positions of older rows, and deletion vectors.

Each try looks the keys up in the data files of its transaction's snapshot that are not yet searched:
data files never change, so a search holds for as long as its file is in the table. The transaction
has read the whole table: Delta refuses it if another one adds or removes rows, or compacts.

Like `OptimisticTransaction`, the classes of Delta used here are not its public API (`delta.table`).
"""

import itertools
import json
import logging
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats import key_lookup
from trimtab.consumer_sdk.lake.formats.delta import columns as delta_columns
from trimtab.consumer_sdk.lake.formats.delta.vector_cache import DeletionVector, read_vector_id
from trimtab.consumer_sdk.lake.formats.file_cache import FILE_OVERHEAD_BYTES
from trimtab.consumer_sdk.lake.formats.key_bounds import Bound, Bounds, KeyRanges
from trimtab.consumer_sdk.lake.formats.key_cache import FileCaches
from trimtab.consumer_sdk.lake.formats.key_lookup import (
    KEY_ADVICE,
    NO_POSITIONS,
    VECTOR_WINDOW_BYTES,
    KeySearch,
    PositionLists,
    Positions,
    SearchedFile,
)
from trimtab.consumer_sdk.lake.formats.parquet_writer import ArrowSchema
from trimtab.consumer_sdk.lake.formats.side_by_side import PARALLEL_READS, map_side_by_side
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.model.untyped_arrow import pc
from trimtab.consumer_sdk.lake.spark.gateway import py4j_gateway
from trimtab.consumer_sdk.lake.spark.jvm_errors import JVM_ERRORS, MaskedError

log = logging.getLogger("trimtab.lake")

VECTORS_PROPERTY: Final = "delta.enableDeletionVectors"
UPSERT_TABLE_DEFAULTS: Final = {VECTORS_PROPERTY: "true"}
_PHYSICAL_NAME_PROPERTY: Final = "delta.columnMapping.physicalName"  # of a column, in the data files
_OLD_TIE_BREAKER: Final = "\ufffd"  # after a long text that Delta has cut
_POSITION_BYTES: Final = 8  # of a row in a bitmap, at most, if rows are far apart
_KEY_TYPES: Final = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)


@dataclass(frozen=True, slots=True)
class _DeltaObjects:
    """What is used of Delta for each file: py4j asks the JVM for every part of a name, each time."""

    action: Any
    bitmap: Any
    to_seq: Any
    no_option: Any
    to_option: Any
    descriptor: Any
    stored_bitmap: Any
    vector_store: Any
    portable_format: Any
    path: Any
    positions: PositionLists

    @classmethod
    def resolve(cls, gateway: Any) -> "_DeltaObjects":
        root = gateway.jvm
        delta = root.org.apache.spark.sql.delta
        return cls(
            action=delta.actions.Action,
            bitmap=delta.deletionvectors.RoaringBitmapArray,
            to_seq=root.org.apache.spark.api.python.PythonUtils.toSeq,
            no_option=root.scala.Option.empty(),
            to_option=root.scala.Option.apply,
            descriptor=_find_scala_object(gateway, "actions.DeletionVectorDescriptor"),
            stored_bitmap=_find_scala_object(gateway, "deletionvectors.StoredBitmap"),
            vector_store=_find_scala_object(gateway, "storage.dv.DeletionVectorStore"),
            portable_format=_find_scala_object(
                gateway, "deletionvectors.RoaringBitmapArrayFormat"
            ).Portable(),
            path=root.org.apache.hadoop.fs.Path,
            positions=PositionLists(gateway),
        )


@dataclass(frozen=True, slots=True)
class _TouchedFile:
    add_action: Any
    bitmap: Any  # Delta's: the old rows and all rows deleted before
    former_vector: Hashable  # of the vector until now, None without one


@dataclass(slots=True)
class DeltaOldRows:
    """Rows of changed keys in one table, by data file; `delta_log` is Delta's own object."""

    name: str
    delta_log: Any
    keys: Records
    file_columns: tuple[str, ...]  # names of the key columns in data files
    gateway: Any  # py4j's
    delta: _DeltaObjects
    caches: FileCaches
    positions: dict[str, Positions] = field(default_factory=dict[str, Positions])
    vector_paths: list[list[Any]] = field(default_factory=list[list[Any]])  # of each try

    @classmethod
    def find(
        cls, name: str, delta_log: Any, changes: KeyedChanges, spark: SparkSession, caches: FileCaches
    ) -> "DeltaOldRows":
        """Return the unsearched rows of these changes. Raises TableSchemaMismatchError."""
        metadata = delta_log.unsafeVolatileSnapshot().metadata()
        if not _has_vectors(metadata):
            raise TableSchemaMismatchError(
                f"table {name} has no deletion vectors, which lake.write=upsert needs: ALTER TABLE {name} "
                f"SET TBLPROPERTIES ('{VECTORS_PROPERTY}' = 'true') once all of its readers know them, or "
                f"{KEY_ADVICE}"
            )
        schema = delta_columns.read_schema(metadata)
        columns = schema.columns
        candidates = StructType([column for column in columns if isinstance(column.dataType, _KEY_TYPES)])
        keys = key_lookup.fit_keys(name, changes, to_arrow_schema(candidates))
        _check_partition_keys(name, keys, schema.partition_columns)
        names = tuple(
            str(columns[column].metadata.get(_PHYSICAL_NAME_PROPERTY, column)) for column in keys.column_names
        )
        gateway = py4j_gateway(spark)
        return cls(name, delta_log, keys, names, gateway, _DeltaObjects.resolve(gateway), caches)

    def search(self) -> None:
        """Look the keys up in the newest version's files. Raises LakeUnavailableError."""
        none = self.delta.no_option
        self._search_files(self._list_files(self.delta_log.update(False, none, none)))  # noqa: FBT003 - Delta's signature

    def build_actions(self, transaction: Any) -> list[Any]:
        """Return the actions that delete the old rows within a transaction."""
        transaction.readWholeTable()
        files = self._list_files(transaction.snapshot())
        self._search_files(files)
        found = [add for add in files if len(self.positions[add["path"]])]
        self.vector_paths.append([])
        windows = key_lookup.split_by_size(found, self._measure_vector, VECTOR_WINDOW_BYTES)
        return [action for window in windows for action in self._delete_rows(window)]

    def delete_earlier_vectors(self) -> None:
        """Delete the files of all tries but the last; failures are logged only."""
        try:
            for path in itertools.chain.from_iterable(self.vector_paths[:-1]):
                self._file_system().delete(path, False)  # noqa: FBT003 - Hadoop's signature
        except JVM_ERRORS as error:
            log.warning(
                "table %s: vectors of a lost race stay until orphans are removed: %s",
                self.name,
                MaskedError(error),
            )

    def _list_files(self, snapshot: Any) -> list[dict[str, Any]]:
        """Return the `add` actions of a snapshot."""
        # The version's checksum file has them unless they are many; else Spark reads the whole log.
        checksum = snapshot.checksumOpt()
        known = checksum.get().allFiles() if checksum.isDefined() else checksum
        if known.isDefined():
            mapper = self.gateway.jvm.org.apache.spark.sql.delta.util.JsonUtils.mapper()
            adds: list[dict[str, Any]] = json.loads(mapper.writeValueAsString(known.get()))
            return adds
        rows = snapshot.allFiles().toJSON().collectAsList()
        text = str(self.gateway.jvm.java.lang.String.join("\n", rows))
        return [json.loads(line) for line in text.split("\n") if line]

    def _search_files(self, adds: Sequence[dict[str, Any]]) -> None:
        self.caches.keys.retain(self.name, {self._cache_key(add) for add in adds})
        self.caches.vectors.retain(self.name, {*map(read_vector_id, adds)})
        unknown = [add for add in adds if add["path"] not in self.positions]
        ranges, columns = KeyRanges(self.keys), (self.keys.schema, self.file_columns)
        searched = (add for add in unknown if ranges.may_be_in(read_bounds(add, *columns)))
        described = {add["path"]: self._describe_search(add) for add in searched}
        files = {path: file for path, file in described.items() if file.keys.num_rows}
        search = KeySearch(self.name, self.caches.keys, key_lookup.read_bytes_by(self.gateway))
        found = search.find_rows(list(files.values()))
        self.positions |= dict.fromkeys((add["path"] for add in unknown), NO_POSITIONS)
        self.positions |= zip(files, found, strict=True)

    def _cache_key(self, add: Mapping[str, Any]) -> tuple[str, ...]:
        return str(add["path"]), *self.file_columns

    def _describe_search(self, add: Mapping[str, Any]) -> SearchedFile:
        names = dict(zip(self.keys.column_names, self.file_columns, strict=True))
        # the protocol escapes paths as URIs; one of a cloned table is absolute
        place = self.delta.path(self.delta_log.dataPath(), self.delta.path(unquote(add["path"])))
        keys = select_partition_keys(self.keys, names, add["partitionValues"])
        held = [names[column] for column in keys.column_names]

        def name_keys(schema: ArrowSchema) -> Sequence[str] | None:
            return held if set(held) <= set(schema.names) else None

        size = int(add["size"])
        return SearchedFile(
            str(place), size, lambda: self._file_system().open(place), keys, name_keys, self._cache_key(add)
        )

    def _measure_vector(self, add: Mapping[str, Any]) -> int:
        """Return the memory that a file's new vector takes at most, about."""
        former = (add.get("deletionVector") or {}).get("sizeInBytes", 0)
        return FILE_OVERHEAD_BYTES + int(former) + _POSITION_BYTES * len(self.positions[add["path"]])

    def _delete_rows(self, adds: Sequence[dict[str, Any]]) -> list[Any]:
        vectors = zip(adds, self._load_vectors(adds), strict=True)
        touched = [file for pair in vectors if (file := self._touch_file(*pair)) is not None]
        return self._write_vectors(touched) if touched else []

    def _load_vectors(self, adds: Sequence[dict[str, Any]]) -> list[DeletionVector | None]:
        """Return the deletion vector of each file, None for none; those not kept are read side by side."""
        cache = self.caches.vectors
        marked = {key: add for add in adds if (key := read_vector_id(add)) is not None}
        vectors = {key: cache.find(self.name, key) for key in marked}
        missing = [key for key, vector in vectors.items() if vector is None]
        read = map_side_by_side(self._read_vector, [marked[key] for key in missing], PARALLEL_READS)
        for key, vector in zip(missing, read, strict=True):
            vectors[key] = vector
            cache.add(self.name, key, vector)
        return [vectors.get(read_vector_id(add)) for add in adds]

    def _read_vector(self, add: dict[str, Any]) -> DeletionVector:
        descriptor = self._parse_action(add).deletionVector()
        bitmap = self.delta.stored_bitmap.create(descriptor, self.delta_log.dataPath()).load(
            self._vector_store()
        )
        return DeletionVector(bitmap, int(descriptor.sizeInBytes()))

    def _touch_file(self, add: dict[str, Any], previous: DeletionVector | None) -> _TouchedFile | None:
        bitmap = self.delta.bitmap()
        longs = self.delta.positions.convert(self.positions[add["path"]])
        bitmap.addAll(self.delta.to_seq(longs))
        if previous is not None:
            bitmap.merge(previous.bitmap)
            if bitmap.cardinality() == previous.bitmap.cardinality():
                return None  # all of these rows were deleted before
        return _TouchedFile(self._parse_action(add), bitmap, read_vector_id(add))

    def _parse_action(self, add: dict[str, Any]) -> Any:
        return self.delta.action.fromJson(json.dumps({"add": add}))

    def _write_vectors(self, touched: Sequence[_TouchedFile]) -> list[Any]:
        store = self._vector_store()
        number = self.gateway.jvm.java.util.UUID.randomUUID()
        place = store.generateFileNameInTable(store.pathWithFileSystem(self.delta_log.dataPath()), number, "")
        self.vector_paths[-1].append(place.path())
        writer = store.createWriter(place)
        try:
            replaced = [self._replace_file(file, writer, number) for file in touched]
        finally:
            writer.close()
        self._keep_vectors(touched, [add for _, add in replaced])
        return [action for pair in replaced for action in pair]

    def _keep_vectors(self, touched: Sequence[_TouchedFile], adds: Sequence[Any]) -> None:
        """Keep what was written: the next flush merges it with its own."""
        # Former vectors would leave no room for their successors; after a lost race they are read again.
        self.caches.vectors.discard(self.name, {file.former_vector for file in touched})
        for file, action in zip(touched, adds, strict=True):
            add = json.loads(str(action.json()))["add"]
            vector = DeletionVector(file.bitmap, add["deletionVector"]["sizeInBytes"])
            self.caches.vectors.add(self.name, read_vector_id(add), vector)

    def _replace_file(self, file: _TouchedFile, writer: Any, number: Any) -> tuple[Any, Any]:
        """Return the `remove` and `add` actions that give a file its new vector."""
        file.bitmap.runOptimize()
        written = writer.write(file.bitmap.serializeAsByteArray(self.delta.portable_format))
        descriptor = self.delta.descriptor.onDiskWithRelativePath(
            number,
            "",
            written.length(),
            file.bitmap.cardinality(),
            self.delta.to_option(written.offset()),
            self.delta.no_option,
        )
        pair = file.add_action.removeRows(descriptor, True, True)  # noqa: FBT003 - Delta's signature
        return pair.productElement(1), pair.productElement(0)

    def _vector_store(self) -> Any:
        return self.delta.vector_store.createInstance(self.delta_log.newDeltaHadoopConf())

    def _file_system(self) -> Any:
        return self.delta_log.dataPath().getFileSystem(self.delta_log.newDeltaHadoopConf())


def _find_scala_object(gateway: Any, name: str) -> Any:
    # Reflection: py4j does not reach Scala's objects by name.
    found = gateway.jvm.py4j.reflection.ReflectionUtil.classForName(f"org.apache.spark.sql.delta.{name}$")
    return found.getField("MODULE$").get(None)


def read_bounds(add: Mapping[str, Any], keys: ArrowSchema, file_columns: Sequence[str]) -> Bounds:
    """Return the bounds of key columns in the statistics of an `add` action, by the names of the keys.

    None if the statistics, which any writer may have written, are no JSON objects.
    """
    try:
        statistics = dict(json.loads(add.get("stats") or "{}"))
        sides = [dict(statistics.get(side) or {}) for side in ("minValues", "maxValues")]
    except (ValueError, TypeError):
        return {}
    found: dict[str, tuple[Bound, Bound]] = {}
    for column, name in zip(keys, file_columns, strict=True):
        lower, upper = (_to_bound(column.type, side.get(name)) for side in sides)
        if lower is not None and upper is not None:
            found[column.name] = lower, upper
    return found


def _to_bound(kind: Any, value: object) -> Bound | None:
    """Return a value of the statistics, None if it cannot be compared; times are texts there."""
    if isinstance(value, str) and pa.types.is_string(kind):
        # characters beyond the basic plane are above it
        return None if value.endswith(_OLD_TIE_BREAKER) else _encode_text(value)
    return value if type(value) is int and pa.types.is_signed_integer(kind) else None


def _encode_text(value: str) -> bytes | None:
    try:
        return value.encode()
    except UnicodeEncodeError:  # half of a character
        return None


def select_partition_keys(
    keys: Records, file_columns: Mapping[str, str], partition_values: Mapping[str, str | None]
) -> Records:
    """Return the keys that a file's partition may have, without the columns of the partitioning.

    Data files may lack these: `partition_values` are texts of the log, by the name of the column in files.
    """
    for column in keys.column_names:
        if file_columns[column] not in partition_values:
            continue
        kind = keys.schema.field(column).type
        text = partition_values[file_columns[column]]
        mask = pc.equal(keys.column(column), pa.scalar(text, pa.string()).cast(kind))
        keys = keys.filter(mask).drop_columns([column])  # null equals nothing: such rows have no key
    return keys


def _check_partition_keys(name: str, keys: Records, partition_columns: Collection[str]) -> None:
    for column in keys.schema:
        if column.name in partition_columns and not _is_comparable_text(column.type):
            raise TableSchemaMismatchError(
                f"table {name} is partitioned by the key column {column.name} of type {column.type}, whose "
                f"values in Delta's log cannot be compared: partition it by another column, or {KEY_ADVICE}"
            )


def _is_comparable_text(kind: Any) -> bool:
    """Return whether the texts of partition values of this type can be compared with keys."""
    compared = (
        pa.types.is_integer,
        pa.types.is_string,
        pa.types.is_date,
        pa.types.is_boolean,
        pa.types.is_decimal,
    )
    return any(check(kind) for check in compared)


def _has_vectors(metadata: Any) -> bool:
    found = metadata.configuration().get(VECTORS_PROPERTY)
    return bool(found.isDefined()) and str(found.get()).lower() == "true"
