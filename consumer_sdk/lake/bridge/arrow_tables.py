"""Tables of a local folder, read without Spark: Iceberg with pyiceberg, Delta with delta-rs."""

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import LakeUnavailableError, MissingExtraError
from trimtab.consumer_sdk.lake.bridge import arrow_rows
from trimtab.consumer_sdk.lake.bridge.table_snapshot import TableSnapshot
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.formats.delta.offset_transactions import (
    TXN_RETENTION_PROPERTY,
    reject_txn_retention,
    transaction_app_id,
)
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.offsets.table_offsets import (
    OFFSETS_PROPERTY,
    CommittedOffsets,
    find_newest_offsets,
)
from trimtab.consumer_sdk.lake.tables.warehouse import CATALOG_LOCK_TIMEOUT_S

READ_EXTRA: Final = "read"
_UNSUPPORTED: Final = re.compile("[Uu]nsupported|not supported")
_FIND_TABLES: Final = "SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'"
_FIND_TABLE: Final = (
    "SELECT metadata_location FROM iceberg_tables "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


class ArrowTableReader(ABC):
    """Reads versions of one table; the rows of the last one are kept for the next read."""

    keeps_rows = True

    def __init__(self, table: str, library: str) -> None:
        self._table = table
        self._library = import_library(library)
        self._scanned: tuple[object, Records] | None = None  # the version and its rows

    @abstractmethod
    def read_snapshot(
        self, group: str, partitions: Iterable[TopicPartition], *, newest: bool = False
    ) -> TableSnapshot:
        """Return the newest version, with the group's offsets of these partitions."""

    def to_frame(self, records: Records) -> Records:
        """Return the records themselves."""
        return records

    def join_rows(self, rows: Records | None, behind: Records | KeyedChanges | None) -> Records:
        """Return both. Raises TableSchemaMismatchError."""
        return arrow_rows.join_rows(self._table, rows, behind)

    def _scan_once(self, version: object, scan: Callable[[], Records]) -> Records:
        # a local variable: a load in the background, which cannot be stopped, may store its rows meanwhile
        scanned = self._scanned
        if scanned is None or scanned[0] != version:
            with self._translate_errors():
                scanned = self._scanned = version, scan()
        return scanned[1]

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except (NotImplementedError, ValueError) as error:
            raise SettingError(
                f"table {self._table}: {self._library.__name__} cannot read it ({error}); read it with "
                "engine='spark'"
            ) from error
        except (OSError, sqlite3.OperationalError) as error:  # e.g. files of an expired version
            raise LakeUnavailableError(f"table {self._table}: {error}") from error


def import_library(name: str) -> Any:
    """Return a module of the extra `read`. Raises MissingExtraError."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(name.partition(".")[0], READ_EXTRA) from error


class IcebergTableReader(ArrowTableReader):
    """Reads a table of the embedded catalog, an SQLite file."""

    def __init__(self, table: str, catalog_file: Path, catalog_name: str) -> None:
        super().__init__(table, "pyiceberg.table")
        self._catalog_file = catalog_file
        self._catalog_name = catalog_name
        self._opened: tuple[str, Any] | None = None  # by the location of its metadata

    def read_snapshot(
        self, group: str, partitions: Iterable[TopicPartition], *, newest: bool = False
    ) -> TableSnapshot:
        """Return the newest version, with the offsets of all groups. Raises CommittedOffsetsLostError."""
        del group, partitions, newest
        with self._translate_errors():
            table = self._open_table()
        if table is None:
            return TableSnapshot()
        metadata = table.metadata
        current = metadata.current_snapshot()
        version = None if current is None else int(current.snapshot_id)
        history = ((_offsets_in(s), s.parent_snapshot_id is not None) for s in _walk_ancestors(metadata))
        text = find_newest_offsets(self._table, history, metadata.properties.get(OFFSETS_PROPERTY))
        offsets = CommittedOffsets() if text is None else CommittedOffsets.decode(text, self._table)
        scan = partial(self._scan_once, version, lambda: table.scan(snapshot_id=version).to_arrow())
        return TableSnapshot(version, offsets, scan, version)

    def _open_table(self) -> Any:
        location = self._find_metadata()
        if location is None:
            return None
        if self._opened is None or self._opened[0] != location:
            self._opened = location, self._library.StaticTable.from_metadata(location)
        return self._opened[1]

    def _find_metadata(self) -> str | None:
        if not self._catalog_file.exists():
            return None
        namespace, _, name = self._table.rpartition(".")
        address = f"{self._catalog_file.as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, CATALOG_LOCK_TIMEOUT_S, uri=True)) as catalog:
            if not catalog.execute(_FIND_TABLES).fetchone():  # a writer is creating the catalog
                return None
            found = catalog.execute(_FIND_TABLE, (self._catalog_name, namespace, name)).fetchone()
        return None if found is None else str(found[0])


class DeltaTableReader(ArrowTableReader):
    """Reads a table that is a local folder."""

    def __init__(self, table: str, warehouse: Path) -> None:
        super().__init__(table, "deltalake")
        self._delta_error = import_library("deltalake.exceptions").DeltaError
        self._folder = warehouse.joinpath(*table.split("."))

    def read_snapshot(
        self, group: str, partitions: Iterable[TopicPartition], *, newest: bool = False
    ) -> TableSnapshot:
        """Return the newest version, with the group's offsets of these partitions."""
        del newest
        with self._translate_errors():
            if not self._library.DeltaTable.is_deltatable(str(self._folder)):
                return TableSnapshot()
            table = self._library.DeltaTable(str(self._folder))
            if TXN_RETENTION_PROPERTY in table.metadata().configuration:
                raise reject_txn_retention(self._table)
            known = {p: table.transaction_version(transaction_app_id(group, p)) for p in partitions}
        offsets = {p: int(offset) for p, offset in known.items() if offset is not None}
        version = int(table.version())
        # versions of a table that was created again begin at 0, too
        identity = table.metadata().id, version
        scan = partial(self._scan_once, identity, lambda: self._read_rows(table))
        return TableSnapshot(version, CommittedOffsets({group: offsets}), scan, identity)

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        with super()._translate_errors():
            try:
                yield
            except Exception as error:
                # a query raises Exception itself, such as for a file that VACUUM has deleted
                if not (type(error) is Exception or isinstance(error, self._delta_error)):
                    raise
                kind = NotImplementedError if _UNSUPPORTED.search(str(error)) else OSError
                raise kind(str(error)) from error

    def _read_rows(self, table: Any) -> Records:
        query = self._library.QueryBuilder().register("rows", table)  # reads deletion vectors, too
        rows = pa.table(query.execute("SELECT * FROM rows").read_all())
        return rows.cast(pa.schema(table.schema().to_arrow()))  # from views to plain text and binary


def _walk_ancestors(metadata: Any) -> Generator[Any]:
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)


def _offsets_in(snapshot: Any) -> str | None:
    summary = snapshot.summary
    return None if summary is None else summary.additional_properties.get(OFFSETS_PROPERTY)
