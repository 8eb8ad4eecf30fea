"""Rows of a table's version are read in the background while an older version is in memory."""

from collections.abc import Callable, Iterable
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import LakeUnavailableError
from trimtab.consumer_sdk.lake.bridge import arrow_rows
from trimtab.consumer_sdk.lake.bridge.table_snapshot import TableSnapshot
from trimtab.consumer_sdk.lake.bridge.version_keeper import VersionKeeper
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)


class FakeReader:
    """A table with one row per offset, whose scans wait for `scans_may_end`."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] | None = {P: 1}
        self.scans_may_end = Event()
        self.scans_may_end.set()
        self.error: Exception | None = None
        self.scanned = list[int]()
        self.keeps_rows = True

    def read_snapshot(
        self, group: str, _partitions: Iterable[TopicPartition], *, newest: bool = False
    ) -> TableSnapshot:
        assert newest
        if self.offsets is None:
            return TableSnapshot()
        version = sum(self.offsets.values())
        may_end = self.scans_may_end

        def scan() -> Any:
            assert may_end.wait(20)
            self.scanned.append(version)
            if self.error is not None:
                raise self.error
            return pa.table({"id": range(version)})

        return TableSnapshot(version, CommittedOffsets({group: dict(self.offsets)}), scan, version)

    def to_frame(self, records: Any) -> Any:
        return records

    def join_rows(self, rows: Any, behind: Any) -> Any:
        return arrow_rows.join_rows("lake.orders", rows, behind)


@pytest.fixture
def table() -> FakeReader:
    return FakeReader()


@pytest.fixture
def keeper(table: FakeReader) -> VersionKeeper:
    """One that keeps version 1."""
    keeper = VersionKeeper(table)
    assert count_rows(keeper) == 1
    return keeper


@pytest.fixture
def find_loading_threads() -> Callable[[], list[Thread]]:
    """Find the threads that load a version since the test began: another test's may end late."""
    before = set(enumerate_threads())
    return lambda: [
        thread
        for thread in enumerate_threads()
        if thread not in before and thread.name.startswith("trimtab-table-reader")
    ]


def count_rows(keeper: VersionKeeper, *, newest: bool = False) -> int:
    snapshot = keeper.read_snapshot("g", [P, Q], newest=newest)
    assert snapshot.scan is not None
    rows = int(snapshot.scan().num_rows)
    assert snapshot.version == rows == sum(snapshot.offsets.groups["g"].values())
    return rows


def wait_until_loaded(keeper: VersionKeeper) -> None:
    assert keeper._loading is not None
    keeper._loading.exception(20)


def test_reads_go_on_with_the_kept_version_until_the_next_one_is_there(
    table: FakeReader, keeper: VersionKeeper
) -> None:
    """Offsets and rows of a read belong together, and each version is read once."""
    table.scans_may_end.clear()
    table.offsets = {P: 2}
    assert [count_rows(keeper) for _ in range(3)] == [1, 1, 1]
    table.scans_may_end.set()
    wait_until_loaded(keeper)
    assert [count_rows(keeper) for _ in range(3)] == [2, 2, 2]
    assert table.scanned == [1, 2]


def test_a_reader_that_needs_the_newest_version_gets_it(table: FakeReader, keeper: VersionKeeper) -> None:
    """The records behind the kept one have been deleted; what was being loaded comes too late."""
    table.scans_may_end.clear()
    table.offsets = {P: 2}
    assert count_rows(keeper) == 1
    table.offsets = {P: 3}
    table.scans_may_end.set()
    assert count_rows(keeper, newest=True) == 3
    assert count_rows(keeper) == 3


def test_a_partition_that_only_the_newest_version_knows_is_read_at_once(
    table: FakeReader, keeper: VersionKeeper
) -> None:
    """Its start is taken from the group, which is already behind the rows."""
    table.offsets = {P: 1, Q: 1}
    assert count_rows(keeper) == 2


def test_an_error_of_the_background_is_raised_by_the_next_read(
    table: FakeReader, keeper: VersionKeeper
) -> None:
    """Otherwise the kept version would grow old."""
    table.offsets, table.error = {P: 2}, LakeUnavailableError("gone")
    assert count_rows(keeper) == 1
    wait_until_loaded(keeper)
    with pytest.raises(LakeUnavailableError, match="gone"):
        count_rows(keeper)
    table.error = None
    assert count_rows(keeper) == 2


def test_a_version_whose_rows_are_not_in_memory_is_not_kept(table: FakeReader) -> None:
    """Spark evaluates a frame when it is used; only rows that were asked for as Arrow are kept."""
    table.keeps_rows = False
    keeper = VersionKeeper(table)
    for number in (1, 2):
        table.offsets = {P: number}
        assert count_rows(keeper) == number
    assert keeper._loading is None
    table.keeps_rows = True
    assert count_rows(keeper) == 2
    table.offsets = {P: 3}
    assert count_rows(keeper) == 2


def test_a_dropped_table_has_no_rows(table: FakeReader, keeper: VersionKeeper) -> None:
    """And a new one of the same name has its own."""
    table.offsets = None
    assert keeper.read_snapshot("g", [P]).scan is None
    table.offsets = {P: 4}
    assert count_rows(keeper) == 4


def test_a_closed_keeper_ends_its_thread(
    table: FakeReader, keeper: VersionKeeper, find_loading_threads: Callable[[], list[Thread]]
) -> None:
    """After the version that it is reading; none of its own keeps the process or the rows."""
    table.scans_may_end.clear()
    table.offsets = {P: 2}
    assert count_rows(keeper) == 1
    threads = find_loading_threads()
    assert threads
    keeper.close()
    table.scans_may_end.set()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_hanging_storage_does_not_keep_the_process(
    table: FakeReader, keeper: VersionKeeper, find_loading_threads: Callable[[], list[Thread]]
) -> None:
    """The interpreter waits at its exit for threads that are no daemons."""
    table.scans_may_end.clear()
    table.offsets = {P: 2}
    assert count_rows(keeper) == 1
    threads = find_loading_threads()
    table.scans_may_end.set()
    assert [thread.daemon for thread in threads] == [True]


def test_versions_are_loaded_one_at_a_time(
    table: FakeReader, keeper: VersionKeeper, find_loading_threads: Callable[[], list[Thread]]
) -> None:
    """A load that is no longer wanted cannot be stopped, and holds its rows until it ends."""
    table.scans_may_end.clear()
    table.offsets = {P: 2}
    assert count_rows(keeper) == 1
    hanging, table.scans_may_end = table.scans_may_end, Event()
    table.scans_may_end.set()
    table.offsets = {P: 3}
    assert count_rows(keeper, newest=True) == 3
    table.offsets = {P: 4}
    assert count_rows(keeper) == 3
    assert len(find_loading_threads()) == 1
    hanging.set()
    wait_until_loaded(keeper)
    assert count_rows(keeper) == 3, "and its rows are dropped"
    wait_until_loaded(keeper)
    assert count_rows(keeper) == 4
