"""Requests to the object store that a flush costs."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from object_store.flushes import flush_batches, make_records, open_small_lake
from object_store.proxy import Exchange, Request
from object_store.rig import ObjectStoreRig
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.commits.fenced_commit import CommitSucceeded, commit_fenced
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan

pytestmark = [pytest.mark.object_store, pytest.mark.usefixtures("credentials")]

BATCHES = 3
FILES = 20
REQUESTS_OF_AN_APPEND = {"iceberg": 12, "delta": 16}
# Files of the flush before that the next one reads: its data file, and of Iceberg its deletion vectors.
NEW_FILES = {"iceberg": 2, "delta": 1}
REQUESTS_OF_A_FLUSH = 30  # of changes, with those of a catalog: not two for each file


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_a_flush_needs_fewer_requests_than_sparks_own_append(
    object_store: ObjectStoreRig, table_format: str
) -> None:
    """Those of the process and of the catalog, which keeps the metadata of Iceberg's table there."""

    def count_requests(write: Callable[[], Any]) -> int:
        before = object_store.store.requests.total()
        write()
        return object_store.store.requests.total() - before

    table = f"requests_{table_format}.t"
    with open_lake_of(object_store, table_format) as lake:
        flush_batches(lake, table, 0, 2)  # the first one creates the table
        ours = count_requests(lambda: flush_batches(lake, table, 20, BATCHES))
        frame = lake.to_spark_frame(make_records(0))
        frame.writeTo(table).append()
        sparks = count_requests(lambda: [frame.writeTo(table).append() for _ in range(BATCHES)])
    assert ours <= REQUESTS_OF_AN_APPEND[table_format] * BATCHES
    assert ours < sparks


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_a_flush_of_changes_sends_as_many_requests_whatever_the_number_of_files(
    object_store: ObjectStoreRig, table_format: str
) -> None:
    """The keys and the deletion vectors of files, which never change, are not asked for again."""
    name = f"requests_{table_format}.changes"
    with open_lake_of(object_store, table_format) as lake:
        empty = make_changes(range(0))
        table = lake.create_table(name, empty)
        for number in range(FILES):  # a data file each
            commit_changes(table, make_changes(range(number * 10, number * 10 + 10)), number)
        table = lake.create_table(name, empty)
        everywhere = make_changes(range(0, FILES * 10, 10))
        commit_changes(table, everywhere, FILES)
        before = object_store.store.requests.total()
        with object_store.store.spoiling(table_format, reads_rows, Exchange.forward):  # counts them
            for number in range(FILES + 1, FILES + 1 + BATCHES):
                commit_changes(table, everywhere, number)
        assert object_store.store.requests.total() - before <= BATCHES * REQUESTS_OF_A_FLUSH
        assert 0 < object_store.store.spoiled[table_format] <= BATCHES * NEW_FILES[table_format]
        rows = lake.spark.table(name).collect()
        assert sorted(row.id for row in rows) == list(range(FILES * 10))


def open_lake_of(object_store: ObjectStoreRig, table_format: str) -> AbstractContextManager[SparkLake]:
    """Return a lake of this format on the store."""
    return open_small_lake({**object_store.settings(table_format), "lake.format": table_format})


def reads_rows(request: Request) -> bool:
    """Return whether a request reads a data file or deletion vectors."""
    path = request.path.partition("?")[0]
    return request.method == "GET" and path.endswith((".parquet", ".puffin", ".bin"))


def make_changes(ids: range) -> KeyedChanges:
    """Return rows to insert or update."""
    texts = pa.array([f"row {n}" for n in ids], pa.string())
    rows = pa.table({"id": pa.array(ids, pa.int64()), "text": texts})
    return KeyedChanges(rows, rows.select(["id"]), ("id",))


def commit_changes(table: LakeTable, changes: KeyedChanges, number: int) -> None:
    """Commit a batch as the sink does."""
    where = TopicPartition("t", 0)
    span = OffsetSpan(number or None, number, number + 1)
    staged = replace(table.stage_rows(changes, f"changes-{number}"), begun_at=SystemClock.monotonic())
    backoff = RetryBackoff(random.Random(0))  # noqa: S311 - jitter
    outcome = commit_fenced(table, staged, "g", {where: span}, backoff, SystemClock.monotonic)
    assert isinstance(outcome, CommitSucceeded)
