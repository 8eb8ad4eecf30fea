"""Table maintenance beside writers: rewriting and expiring keep each row once, and all offsets."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.lake.slow_on_delta import slow_on_delta
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitConflictError
from trimtab.consumer_sdk.lake.commits.maintenance import (
    CompactionResult,
    ExpiryPolicy,
    FileTotals,
    TableMaintenance,
    compact_table,
    expire_table,
)
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import StagedFiles
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.session.factory import create_maintenance

P0, P3 = TopicPartition("orders", 0), TopicPartition("orders", 3)
DAY = 86_400.0
LONG = 120.0
FLUSHES = 10
AT_ONCE = 20
PACE = RetryBackoff(random.Random(7))  # noqa: S311 - jitter
pytestmark = pytest.mark.spark
FORMATS = pytest.mark.parametrize("lake", ["iceberg_arrow", "delta_arrow"], indirect=True)
SLOW_ON_DELTA = slow_on_delta("iceberg_arrow", "delta_arrow")

Make = Callable[..., Any]
Read = Callable[[str], list[Any]]


@pytest.fixture
def maintenance(lake: SparkLake) -> TableMaintenance:
    return create_maintenance(lake)


@pytest.fixture
def grow_table(writers: Make) -> Callable[..., tuple[Any, Any]]:
    """Flush a few records of P0 at a time into a table that P3 left long before."""

    def make(flushes: int) -> tuple[Any, Any]:
        consumer, writer = writers(
            {P0: [b"v" * 50] * flushes * AT_ONCE, P3: [b"v"] * 2}, lake_flush_timeout=LONG
        )
        consumer.assign(writer, P3)
        writer.write(consumer.consume(AT_ONCE))
        writer.flush()
        consumer.revoke(writer, P3)
        consumer.assign(writer, P0)
        for _ in range(flushes):
            writer.write(consumer.consume(AT_ONCE))
            writer.flush()
        return consumer, writer

    return make


def all_rows(flushes: int) -> list[tuple[str, int, int]]:
    """Return the rows that `grow_table` has written."""
    return [(*P0, n) for n in range(flushes * AT_ONCE)] + [(*P3, n) for n in range(2)]


def offsets_of(lake: SparkLake, name: str) -> CommittedOffsets:
    found = lake.open_table(name)
    assert found is not None
    return found.read_offsets().offsets


def files(lake: SparkLake, name: str) -> int:
    found = lake.open_table(name)
    assert found is not None
    return found.read_totals()["files"]


@FORMATS
def test_compaction_rewrites_small_files_and_keeps_rows_and_offsets(
    lake: SparkLake, maintenance: TableMaintenance, grow_table: Make, rows: Read, namespace: str
) -> None:
    """The plan equals what is rewritten, and a second compaction finds nothing."""
    grow_table(4)
    name = f"{namespace}.orders"
    before = offsets_of(lake, name)
    assert maintenance.plan_compaction(name, None).files == 5
    done = compact_table(maintenance, name, None, PACE)
    assert (done.old_files, done.new_files, done.lost_races) == (5, 1, 0)
    assert (files(lake, name), rows(name), offsets_of(lake, name)) == (1, all_rows(4), before)
    assert maintenance.plan_compaction(name, None) == FileTotals()
    assert compact_table(maintenance, name, None, PACE) == CompactionResult(name)


@pytest.mark.parametrize("lake", ["iceberg", pytest.param("delta", marks=pytest.mark.slow)], indirect=True)
def test_a_writer_flushes_while_its_table_is_compacted(
    lake: SparkLake, maintenance: TableMaintenance, writers: Make, rows: Read, namespace: str
) -> None:
    """Both succeed: every row is there once, and the offsets are at the end of the rows."""
    consumer, writer = writers({P0: [b"v" * 50] * FLUSHES * AT_ONCE}, lake_flush_timeout=LONG)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(AT_ONCE))
    writer.flush()
    failed: list[BaseException] = []

    def go_on() -> None:
        try:
            for _ in range(FLUSHES - 1):
                writer.write(consumer.consume(AT_ONCE))
                writer.flush()
        except BaseException as error:  # noqa: BLE001 - looked at below
            failed.append(error)

    name = f"{namespace}.orders"
    flushing = threading.Thread(target=go_on)
    flushing.start()
    while flushing.is_alive():
        compact_table(maintenance, name, None, PACE)
    flushing.join(LONG)
    compact_table(maintenance, name, None, PACE)
    assert failed == []
    assert rows(name) == [(*P0, n) for n in range(FLUSHES * AT_ONCE)]
    assert offsets_of(lake, name) == CommittedOffsets({"g": {P0: FLUSHES * AT_ONCE}})


@FORMATS
def test_a_compaction_does_not_weaken_the_fence(
    lake: SparkLake, maintenance: TableMaintenance, grow_table: Make, namespace: str
) -> None:
    """A current writer's commit succeeds after a compaction, a stale writer's is refused."""
    grow_table(4)
    name = f"{namespace}.orders"
    table = lake.open_table(name)
    assert table is not None
    current = table.read_offsets()
    compact_table(maintenance, name, None, PACE)
    assert table.read_offsets().offsets == current.offsets
    table.commit(
        StagedFiles("first"), CommittedOffsets({"g": {**current.offsets.groups["g"], P0: 999}}), current
    )
    with pytest.raises(CommitConflictError):
        table.commit(
            StagedFiles("late"), CommittedOffsets({"g": {**current.offsets.groups["g"], P0: 888}}), current
        )
    assert offsets_of(lake, name).next_offset("g", P0) == 999


@SLOW_ON_DELTA
def test_an_idle_partition_keeps_its_offset_when_its_snapshot_expires(
    lake: SparkLake,
    maintenance: TableMaintenance,
    grow_table: Make,
    writers: Make,
    spark: Any,
    namespace: str,
) -> None:
    """The next owner continues at its offset, even if the newest snapshots have none."""
    grow_table(4)
    name = f"{namespace}.orders"
    compact_table(maintenance, name, None, PACE)
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE false")  # noqa: S608 - this test's
    before = offsets_of(lake, name)
    expire_table(maintenance, name, ExpiryPolicy(0, 3 * DAY), time.time(), PACE)
    assert offsets_of(lake, name) == before
    consumer, writer = writers({P0: [], P3: [b"v"] * 5})
    consumer.assign(writer, P3)
    assert consumer.positions[P3] == 2


@pytest.mark.parametrize("lake", ["iceberg_arrow"], indirect=True)
def test_rolled_back_offsets_do_not_replace_expiring_ones(
    lake: IcebergLake, maintenance: TableMaintenance, grow_table: Make, spark: Any, namespace: str
) -> None:
    """Young snapshots beside the current line have offsets, too, but not the table's."""
    grow_table(1)
    name = f"{namespace}.orders"
    table = lake.open_table(name)
    assert table is not None
    before, good = table.read_offsets().offsets, table.java_table.currentSnapshot().snapshotId()
    since = time.time()
    table.commit(StagedFiles("rolled-back"), CommittedOffsets({"g": {P0: 999}}), table.read_offsets())
    spark.sql(f"CALL {lake.catalog_name}.system.rollback_to_snapshot('{name}', {good})")
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE false")  # noqa: S608 - this test's
    assert expire_table(maintenance, name, ExpiryPolicy(0, 3 * DAY), since, PACE).versions > 0
    assert offsets_of(lake, name) == before


@pytest.mark.parametrize("lake", ["iceberg_arrow"], indirect=True)
def test_old_snapshots_and_their_files_expire(
    maintenance: TableMaintenance, grow_table: Make, rows: Read, namespace: str
) -> None:
    """Younger snapshots stay, and at least the number to keep."""
    grow_table(4)
    name = f"{namespace}.orders"
    compact_table(maintenance, name, None, PACE)
    assert expire_table(maintenance, name, ExpiryPolicy(DAY, 3 * DAY), time.time(), PACE).versions == 0
    assert expire_table(maintenance, name, ExpiryPolicy(0, 3 * DAY, 4), time.time(), PACE).versions == 4
    done = expire_table(maintenance, name, ExpiryPolicy(0, 3 * DAY), time.time(), PACE)
    assert done.files >= 5
    assert rows(name) == all_rows(4)


@SLOW_ON_DELTA
def test_old_orphan_files_are_deleted_and_young_ones_stay(
    lake: SparkLake,
    maintenance: TableMaintenance,
    grow_table: Make,
    rows: Read,
    warehouse: Path,
    namespace: str,
) -> None:
    """Files staged days ago and never committed are deleted; an attempt in progress has staged young ones."""
    grow_table(1)
    name = f"{namespace}.orders"
    table = lake.open_table(name)
    assert table is not None
    known = set(parquet(warehouse, namespace))
    frame = lake.to_frame(pa.Table.from_pylist([{**P0._asdict(), "offset": 99}], schema=RECORD_SCHEMA))
    table.stage_rows(frame, "crashed")
    crashed = set(parquet(warehouse, namespace)) - known
    for file in crashed:
        old = time.time() - 4 * DAY
        os.utime(file, (old, old))
    current = table.read_offsets()
    in_progress = table.stage_rows(frame, "under-way")
    expire_table(maintenance, name, ExpiryPolicy(3600, 3 * DAY), time.time(), PACE)
    assert not any(file.exists() for file in crashed)
    table.commit(in_progress, current.offsets, table.read_offsets())
    assert rows(name) == sorted([*all_rows(1), (*P0, 99)])


@SLOW_ON_DELTA
def test_expiry_keeps_young_commits_in_the_history(
    lake: SparkLake, maintenance: TableMaintenance, grow_table: Make, namespace: str
) -> None:
    """A writer looks up a commit of unknown outcome; the history keeps at least an hour."""
    grow_table(1)
    name = f"{namespace}.orders"
    table = lake.open_table(name)
    assert table is not None
    table.commit(StagedFiles("not-answered"), CommittedOffsets({"g": {P0: 500}}), table.read_offsets())
    table.commit(StagedFiles("later"), CommittedOffsets({"g": {P0: 501}}), table.read_offsets())
    expire_table(maintenance, name, ExpiryPolicy(3600, 3 * DAY), time.time(), PACE)
    assert [table.has_committed(attempt) for attempt in ("not-answered", "never")] == [True, False]


def parquet(warehouse: Path, namespace: str) -> Iterator[Path]:
    return warehouse.glob(f"{namespace}/**/*.parquet")
