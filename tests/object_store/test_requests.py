"""Requests to the object store that a flush costs."""

from collections.abc import Callable
from typing import Any

import pytest

from object_store.flushes import flush_batches, make_records, open_small_lake
from object_store.rig import ObjectStoreRig

pytestmark = [pytest.mark.object_store, pytest.mark.usefixtures("credentials")]

TABLE = "requests.t"
BATCHES = 3


def test_a_flush_needs_fewer_requests_than_sparks_own_append(object_store: ObjectStoreRig) -> None:
    """Those of the process and of the catalog, which keeps the table's metadata there."""

    def count_requests(write: Callable[[], Any]) -> int:
        before = object_store.store.requests.total()
        write()
        return object_store.store.requests.total() - before

    lake = open_small_lake(object_store.settings("iceberg"))
    try:
        flush_batches(lake, TABLE, 0, 2)  # the first one creates the table
        ours = count_requests(lambda: flush_batches(lake, TABLE, 20, BATCHES))
        frame = lake.to_spark_frame(make_records(0))
        frame.writeTo(TABLE).append()
        sparks = count_requests(lambda: [frame.writeTo(TABLE).append() for _ in range(BATCHES)])
    finally:
        lake.close()
    assert ours <= 12 * BATCHES
    assert ours < sparks
