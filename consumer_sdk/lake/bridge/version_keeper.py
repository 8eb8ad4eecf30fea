"""Keeps the rows of one version of a table while those of a newer one are read in the background.

A bridge read with the kept version returns the same records: those that only the newer version has
are still in the topic. Rules:

1. A newer version replaces the kept one once its rows are in memory. Until then reads do not wait.
2. They wait if the newer version knows a partition that the kept one does not: the reader takes such
   a partition's start from the group, which may already be behind rows of the newer version.
3. They wait if the background failed, so that its error has a reader.
4. A version is kept if its rows are in memory; a frame of Spark's is not evaluated to keep it.
5. One version is loaded in the background at a time, since each takes memory: a load that is no longer
   wanted cannot be stopped, and the next one begins after it.
"""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from threading import Thread

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.lake.bridge.table_snapshot import SnapshotReader, TableSnapshot
from trimtab.consumer_sdk.lake.model.interfaces import Frame


class VersionKeeper:
    """Reads versions of one table by another reader; not thread-safe."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader
        self._kept: TableSnapshot | None = None
        self._loading: Future[TableSnapshot] | None = None
        self._is_load_outdated = False  # rule 5
        self.to_frame = reader.to_frame
        self.join_rows = reader.join_rows

    def read_snapshot(
        self, group: str, partitions: Iterable[TopicPartition], *, newest: bool = False
    ) -> TableSnapshot:
        """Return the newest version, or the kept one. Raises CommittedOffsetsLostError."""
        wanted = list(partitions)
        found = self._reader.read_snapshot(group, wanted, newest=True)
        loaded = self._pop_loaded()
        if newest or self._kept is None or _lacks_partition(self._kept, found, group, wanted):
            return self._read_at_once(found)
        if loaded is not None:
            if loaded.exception() is not None:
                return self._read_at_once(found)
            self._kept = loaded.result()
        if self._loading is None and found.identity != self._kept.identity:
            self._loading = _load_in_background(found)
        return self._kept

    def close(self) -> None:
        """Let go of all rows; a version that is being loaded is not waited for."""
        self._kept = self._loading = None

    def _pop_loaded(self) -> Future[TableSnapshot] | None:
        if self._loading is None or not self._loading.done():
            return None
        loaded, self._loading = self._loading, None
        is_outdated, self._is_load_outdated = self._is_load_outdated, False
        return None if is_outdated else loaded

    def _read_at_once(self, found: TableSnapshot) -> TableSnapshot:
        self._kept = None
        self._is_load_outdated = self._loading is not None
        if found.scan is None or not self._reader.keeps_rows:  # rule 4
            return found

        def scan() -> Frame:
            self._kept = _load_rows(found)
            assert self._kept.scan is not None
            return self._kept.scan()

        return replace(found, scan=scan)


def _load_in_background(snapshot: TableSnapshot) -> Future[TableSnapshot]:
    future: Future[TableSnapshot] = Future()

    def load() -> None:
        try:
            future.set_result(_load_rows(snapshot))
        except BaseException as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)

    # a daemon, unlike ThreadPoolExecutor's: hanging storage must not block the exit
    Thread(target=load, name="trimtab-table-reader", daemon=True).start()
    return future


def _load_rows(snapshot: TableSnapshot) -> TableSnapshot:
    assert snapshot.scan is not None
    rows = snapshot.scan()
    return replace(snapshot, scan=lambda: rows)


def _lacks_partition(
    kept: TableSnapshot, found: TableSnapshot, group: str, partitions: Iterable[TopicPartition]
) -> bool:
    """Return whether the kept version does not know a partition that the found one knows, or is gone."""
    return found.scan is None or any(
        kept.offsets.next_offset(group, p) is None and found.offsets.next_offset(group, p) is not None
        for p in partitions
    )
