"""Bridge reads of tables on an object store: one consistent cut, while `trimtab ingest` flushes."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from object_store.flushes import open_small_lake
from object_store.ingest import CHANGE_SETTINGS, PARTITIONS, Ingest, make_settings, produce_changes
from object_store.readers import read_delta
from object_store.rig import ObjectStoreRig
from support.lake.change_records import ChangeRecord, Row, draw_changes, replay
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake import LakeReader

pytestmark = [pytest.mark.object_store, pytest.mark.broker, pytest.mark.usefixtures("credentials")]

EACH_READ = 100  # records produced before it
VERSIONS = 3  # of the table, which the reads see at least
MOST_READS = 1000  # of a machine that is too quick
COLUMNS = ["id", "name", "n"]
SETTINGS = {"append": {n: v for n, v in CHANGE_SETTINGS.items() if n in ("lake.decoder", "lake.schema")}}
SETTINGS["upsert"] = dict(CHANGE_SETTINGS)


@pytest.fixture
def json_ingest(topic: Callable[..., str], bootstrap: str, group: str, tmp_path: Path) -> Iterator[Ingest]:
    """`trimtab ingest` on an empty topic, not started yet."""
    name = topic(partitions=PARTITIONS)
    made = Ingest(name, tmp_path, make_settings(bootstrap, group, name))
    yield made
    made.close()


def produce_rows(bootstrap: str, topic: str, rows: list[Row]) -> None:
    """Write rows as JSON, round robin."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for row in rows:
        producer.produce(topic, json.dumps(row), partition=row["id"] % PARTITIONS)
    assert producer.flush(60) == 0


def make_rows(first: int) -> list[Row]:
    return [{"id": n, "name": f"n{n}", "n": n} for n in range(first, first + EACH_READ)]


class Written:
    """What the topic has: rows, or changes of them."""

    def __init__(self, bootstrap: str, topic: str, write: str) -> None:
        self._where = (bootstrap, topic)
        self._write = write
        self._chance = random.Random(3)  # noqa: S311 - test data
        self._rows: list[Row] = []
        self._changes: list[ChangeRecord] = []

    def add(self) -> None:
        """Write some more."""
        if self._write == "upsert":
            more = list(draw_changes(self._chance, EACH_READ, EACH_READ))
            produce_changes(*self._where, more)
            self._changes += more
        else:
            rows = make_rows(len(self._rows))
            produce_rows(*self._where, rows)
            self._rows += rows

    @property
    def rows(self) -> list[Row]:
        """The rows that a read must have, by id."""
        due = self._rows or list(replay(self._changes).values())
        return sorted(due, key=lambda row: row["id"])


def sort_rows(table: Any) -> list[Row]:
    return sorted(table.select(COLUMNS).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("write", ["append", "upsert"])
def test_each_read_has_every_record_once(
    write: str, object_store: ObjectStoreRig, json_ingest: Ingest, bootstrap: str
) -> None:
    """By Spark from the REST catalog, with JSON decoded, as Arrow and as a frame; Arrow alone cannot."""
    settings = {**json_ingest.common, **object_store.settings("iceberg"), **SETTINGS[write]}
    settings |= json_ingest.to_namespace(f"bridge_{write}")
    name = f"bridge_{write}.{json_ingest.table}"
    with pytest.raises(SettingError, match="engine=arrow: lake"):
        LakeReader(name, settings, engine="arrow")
    written, versions = Written(bootstrap, json_ingest.topic, write), set[int | None]()
    process = json_ingest.start(settings)
    with (
        open_small_lake(object_store.settings("iceberg")) as lake,
        LakeReader(name, settings, lake=lake) as reader,
    ):
        for _ in range(MOST_READS):
            written.add()
            rows = reader.read()
            versions.add(rows.table_version)
            assert sort_rows(rows.to_arrow()) == written.rows
            if len(versions) >= VERSIONS:
                break
            assert process.poll() is None, json_ingest.read_log()
        assert sort_rows(rows.to_spark().toArrow()) == written.rows
    assert len(versions) >= VERSIONS, "the table did not advance during the reads"


def test_the_command_reads_a_delta_table(
    object_store: ObjectStoreRig, json_ingest: Ingest, bootstrap: str, eventually: Any, tmp_path: Path
) -> None:
    """The rows that the table has, and those that it does not have yet."""
    settings = {**json_ingest.common, **object_store.settings("delta"), **SETTINGS["append"]}
    settings |= {**json_ingest.to_namespace("bridge_delta"), "lake.format": "delta"}
    name = f"bridge_delta.{json_ingest.table}"
    written = Written(bootstrap, json_ingest.topic, "append")
    written.add()
    process = json_ingest.start(settings)
    eventually(lambda: len(read_delta(object_store, name)) == EACH_READ or process.poll() is not None, 90)
    process.kill()
    written.add()
    file = tmp_path / "read.yaml"
    file.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "trimtab.cli", "tables", "read", name, "--config", str(file)]
    found = subprocess.run(
        [*command, "--format", "json"], stdout=subprocess.PIPE, check=True, text=True, env=os.environ
    )
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    rows = [{name: row[name] for name in COLUMNS} for row in lines]
    assert sorted(rows, key=lambda row: row["id"]) == written.rows
