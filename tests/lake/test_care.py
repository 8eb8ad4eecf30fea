"""Table care beside writers: rows stay once each, marks stay, whatever is rewritten or expires."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommitRaced
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.lake import SparkLake
from trimtab.consumer_sdk.lake.maintenance import (
    Ages,
    Compacted,
    Files,
    Keeper,
    compact,
    expire,
)
from trimtab.consumer_sdk.lake.maintenance_factory import keeper
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks
from trimtab.consumer_sdk.lake.ports import Staged
from trimtab.consumer_sdk.lake.retry import Pace
from trimtab.consumer_sdk.lake.schema.record_columns import SCHEMA

P0, P3 = TopicPartition("orders", 0), TopicPartition("orders", 3)
DAY = 86_400.0
LONG = 120.0
FLUSHES = 10
AT_ONCE = 20
PACE = Pace(random.Random(7))  # noqa: S311 - jitter
pytestmark = pytest.mark.spark
FORMATS = pytest.mark.parametrize("lake", ["iceberg_arrow", "delta_arrow"], indirect=True)

Make = Callable[..., Any]
Read = Callable[[str], list[Any]]


@pytest.fixture
def care(lake: SparkLake) -> Keeper:
    return keeper(lake)


@pytest.fixture
def grown(writers: Make) -> Callable[..., tuple[Any, Any]]:
    """Flush some records of P0 at a time into a table that P3 has left long before."""

    def make(flushes: int) -> tuple[Any, Any]:
        consumer, writer = writers(
            {P0: [b"v" * 50] * flushes * AT_ONCE, P3: [b"v"] * 2}, lake_patience=LONG
        )
        consumer.join(writer, P3)
        writer.write(consumer.consume(AT_ONCE))
        writer.flush()
        consumer.leave(writer, P3)
        consumer.join(writer, P0)
        for _ in range(flushes):
            writer.write(consumer.consume(AT_ONCE))
            writer.flush()
        return consumer, writer

    return make


def whole(flushes: int) -> list[tuple[str, int, int]]:
    """What `grown` has written."""
    return [(*P0, n) for n in range(flushes * AT_ONCE)] + [(*P3, n) for n in range(2)]


def marks(lake: SparkLake, name: str) -> Marks:
    found = lake.open(name)
    assert found is not None
    return found.look().marks


def files(lake: SparkLake, name: str) -> int:
    found = lake.open(name)
    assert found is not None
    return found.totals()["files"]


@FORMATS
def test_small_files_become_few_and_all_else_stays(
    lake: SparkLake, care: Keeper, grown: Make, rows: Read, namespace: str
) -> None:
    """The plan says what is rewritten; rows and marks are as before; nothing is left to do."""
    grown(4)
    name = f"{namespace}.orders"
    before = marks(lake, name)
    assert care.small(name, None).files == 5
    done = compact(care, name, None, PACE)
    assert (done.old_files, done.new_files, done.raced) == (5, 1, 0)
    assert (files(lake, name), rows(name), marks(lake, name)) == (1, whole(4), before)
    assert care.small(name, None) == Files()
    assert compact(care, name, None, PACE) == Compacted(name)


@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
def test_a_writer_flushes_while_its_table_is_compacted(
    lake: SparkLake, care: Keeper, writers: Make, rows: Read, namespace: str
) -> None:
    """Neither fails for good: every row is there once, and the marks are where the rows end."""
    consumer, writer = writers({P0: [b"v" * 50] * FLUSHES * AT_ONCE}, lake_patience=LONG)
    consumer.join(writer, P0)
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
        compact(care, name, None, PACE)
    flushing.join(LONG)
    compact(care, name, None, PACE)
    assert failed == []
    assert rows(name) == [(*P0, n) for n in range(FLUSHES * AT_ONCE)]
    assert marks(lake, name) == Marks({"g": {P0: FLUSHES * AT_ONCE}})


@FORMATS
def test_the_fence_holds_behind_a_compaction(
    lake: SparkLake, care: Keeper, grown: Make, namespace: str
) -> None:
    """A compaction refuses nobody, and still refuses whoever is late."""
    grown(4)
    name = f"{namespace}.orders"
    table = lake.open(name)
    assert table is not None
    seen = table.look()
    compact(care, name, None, PACE)
    assert table.look().marks == seen.marks
    table.commit(Staged("first"), Marks({"g": {**seen.marks.groups["g"], P0: 999}}), seen)
    with pytest.raises(CommitRaced):
        table.commit(Staged("late"), Marks({"g": {**seen.marks.groups["g"], P0: 888}}), seen)
    assert marks(lake, name).of("g", P0) == 999


@FORMATS
def test_an_idle_partition_keeps_its_offset_when_its_snapshot_expires(
    lake: SparkLake,
    care: Keeper,
    grown: Make,
    writers: Make,
    spark: Any,
    namespace: str,
) -> None:
    """Also where the newest versions are a compaction's and a stranger's: its owner goes on."""
    grown(4)
    name = f"{namespace}.orders"
    compact(care, name, None, PACE)
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE false")  # noqa: S608 - this test's
    before = marks(lake, name)
    expire(care, name, Ages(0, 3 * DAY), time.time(), PACE)
    assert marks(lake, name) == before
    consumer, writer = writers({P0: [], P3: [b"v"] * 5})
    consumer.join(writer, P3)
    assert consumer.positions[P3] == 2


@pytest.mark.parametrize("lake", ["iceberg_arrow"], indirect=True)
def test_marks_that_were_rolled_back_do_not_stand_for_those_that_expire(
    lake: IcebergLake, care: Keeper, grown: Make, spark: Any, namespace: str
) -> None:
    """Young snapshots off the current one's line have marks too, but they are not the table's."""
    grown(1)
    name = f"{namespace}.orders"
    table = lake.open(name)
    assert table is not None
    before, good = table.look().marks, table.table.currentSnapshot().snapshotId()
    since = time.time()
    table.commit(Staged("rolled-back"), Marks({"g": {P0: 999}}), table.look())
    spark.sql(f"CALL {lake.catalog_name}.system.rollback_to_snapshot('{name}', {good})")
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE false")  # noqa: S608 - this test's
    assert expire(care, name, Ages(0, 3 * DAY), since, PACE).versions > 0
    assert marks(lake, name) == before


@pytest.mark.parametrize("lake", ["iceberg_arrow"], indirect=True)
def test_old_snapshots_and_their_files_go(
    care: Keeper, grown: Make, rows: Read, namespace: str
) -> None:
    """What only they named is deleted; what is younger stays, and so many as shall be kept."""
    grown(4)
    name = f"{namespace}.orders"
    compact(care, name, None, PACE)
    assert expire(care, name, Ages(DAY, 3 * DAY), time.time(), PACE).versions == 0
    assert expire(care, name, Ages(0, 3 * DAY, 4), time.time(), PACE).versions == 4
    done = expire(care, name, Ages(0, 3 * DAY), time.time(), PACE)
    assert done.files >= 5
    assert rows(name) == whole(4)


@FORMATS
def test_what_a_crash_left_goes_and_what_is_under_way_stays(
    lake: SparkLake,
    care: Keeper,
    grown: Make,
    rows: Read,
    warehouse: Path,
    namespace: str,
) -> None:
    """Files that were staged days ago and never committed are deleted; young ones are not."""
    grown(1)
    name = f"{namespace}.orders"
    table = lake.open(name)
    assert table is not None
    known = set(parquet(warehouse, namespace))
    frame = lake.frame(pa.Table.from_pylist([{**P0._asdict(), "offset": 99}], schema=SCHEMA))
    table.stage(frame, "crashed")
    crashed = set(parquet(warehouse, namespace)) - known
    for file in crashed:
        old = time.time() - 4 * DAY
        os.utime(file, (old, old))
    seen = table.look()
    under_way = table.stage(frame, "under-way")
    expire(care, name, Ages(3600, 3 * DAY), time.time(), PACE)
    assert not any(file.exists() for file in crashed)
    table.commit(under_way, seen.marks, table.look())
    assert rows(name) == sorted([*whole(1), (*P0, 99)])


@FORMATS
def test_a_young_commit_is_still_found_after_an_expiry(
    lake: SparkLake, care: Keeper, grown: Make, namespace: str
) -> None:
    """A writer that was not answered asks the history; an hour of it is always kept."""
    grown(1)
    name = f"{namespace}.orders"
    table = lake.open(name)
    assert table is not None
    table.commit(Staged("not-answered"), Marks({"g": {P0: 500}}), table.look())
    table.commit(Staged("later"), Marks({"g": {P0: 501}}), table.look())
    expire(care, name, Ages(3600, 3 * DAY), time.time(), PACE)
    assert [table.landed(attempt) for attempt in ("not-answered", "never")] == [True, False]


def parquet(warehouse: Path, namespace: str) -> Iterator[Path]:
    return warehouse.glob(f"{namespace}/**/*.parquet")
