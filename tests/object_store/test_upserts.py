"""`lake.write: upsert` into an object store: the table equals a replay of the topic in plain Python."""

import random
from typing import Any

import pytest

from object_store.ingest import END_SECONDS, Ingest, produce_changes
from object_store.readers import read_keyed_rows, sort_rows
from object_store.rig import ObjectStoreRig
from tests.change_records import ChangeRecord, Row, draw_changes, replay

pytestmark = [pytest.mark.object_store, pytest.mark.broker]

KEYS = 60
CHANGES = 400  # of each half


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_the_table_equals_a_replay_of_its_topic(
    table_format: str, object_store: ObjectStoreRig, changes: Ingest, bootstrap: str, eventually: Any
) -> None:
    """Two processes write it; one is killed, and the other one goes on with all partitions."""
    settings = {"lake.format": table_format, **changes.to_namespace("upserts")}
    killed, left = (changes.start(settings | object_store.settings(table_format)) for _ in range(2))
    chance, written = random.Random(11), list[ChangeRecord]()  # noqa: S311 - test data

    def read_table() -> list[Row]:
        return sort_rows(read_keyed_rows(object_store, table_format, f"upserts.{changes.table}"))

    def replay_topic() -> list[Row]:
        return sort_rows(replay(written).values())

    for _ in range(2):
        half = list(draw_changes(chance, CHANGES, KEYS))
        written += half
        produce_changes(bootstrap, changes.topic, half)
        eventually(lambda: read_table() == replay_topic() or left.poll() is not None, timeout=90)
        assert read_table() == replay_topic(), changes.read_log()
        killed.kill()  # the second half changes rows of both
    left.terminate()
    assert left.wait(END_SECONDS) == 0, changes.read_log()
    assert read_table() == replay_topic()
