"""`lake.write: upsert` into an object store: the table equals a replay of the topic in plain Python."""

from typing import Any

import pytest

from object_store.ingest import END_SECONDS, ChangedTable, Ingest
from object_store.readers import read_keyed_rows
from object_store.rig import ObjectStoreRig

pytestmark = [pytest.mark.object_store, pytest.mark.broker]


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_the_table_equals_a_replay_of_its_topic(
    table_format: str, object_store: ObjectStoreRig, changes: Ingest, eventually: Any
) -> None:
    """Two processes write it; one is killed, and the other one goes on with all partitions."""
    settings = {"lake.format": table_format, **changes.to_namespace("upserts")}
    killed, left = (changes.start(settings | object_store.settings(table_format)) for _ in range(2))
    table = ChangedTable(
        changes, lambda: read_keyed_rows(object_store, table_format, f"upserts.{changes.table}"), seed=11
    )
    table.write_half(left, eventually)
    killed.kill()  # the second half changes rows of both
    table.write_half(left, eventually)
    left.terminate()
    assert left.wait(END_SECONDS) == 0, changes.read_log()
    assert table.equals_replay()
