"""`lake.write: upsert` from a broker: the table equals a replay of the changes in plain Python."""

import logging
import random
from collections.abc import Callable
from io import SEEK_END, BytesIO
from pathlib import Path
from threading import Event
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable

from support.lake.change_records import (
    ROW_SCHEMA,
    ChangeRecord,
    Row,
    change,
    draw_changes,
    replay,
    to_bytes,
    wrap,
)
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.change_rows import POSITION_COLUMNS
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.projection.topic_projections import TopicProjections
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

pytestmark = [pytest.mark.spark, pytest.mark.broker]

NO_KEY = "no key: id (lake.key) is null or missing, in the value and in the record key"
PARTITIONS = 2
KEYS = 40
CHANGES = 300  # of a batch, without tombstones

Settings = dict[str, Any]


class CrashError(BaseException):
    """The writer's process dies."""


@pytest.fixture
def settings(ingest_settings: Settings) -> Settings:
    return {
        **ingest_settings,
        "lake.decoder": "json",
        "lake.schema": "id BIGINT, name STRING, n BIGINT",
        "lake.write": "upsert",
        "lake.key": "id",
        "batch.max.age": "300 ms",
    }


@pytest.fixture
def produce(bootstrap: str, settings: Settings) -> Callable[[list[ChangeRecord]], None]:
    """Write changes to the partition of their key."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})

    def send(records: list[ChangeRecord]) -> None:
        for record in records:
            key, value = to_bytes(record.key), to_bytes(record.value)
            producer.produce(settings["topics"][0], value, key, partition=record.key["id"] % PARTITIONS)
        assert producer.flush(60) == 0

    return send


class Ingest:
    """Runs an ingest on the shared Spark session until the table has all records."""

    def __init__(self, settings: Settings, lake: SparkLake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings, self.lake, self.monkeypatch = settings, lake, monkeypatch
        (self.table,) = settings["lake.tables"].values()

    def run(self, records: int, crash_at: str = "") -> None:
        """Read until the table's offsets are these records; CrashError at a step."""
        stop = Event()

        def reach_step(step: str) -> None:
            if step == crash_at:
                raise CrashError(step)
            if step == "offsets-committed" and self.count_offsets() == records:
                stop.set()

        writer = type("SteppedWriter", (LakeWriter,), {"_reach_step": staticmethod(reach_step)})
        self.monkeypatch.setattr(ingest, "LakeWriter", writer)
        ingest.run_ingest(ingest.parse_ingest_settings(self.settings), self.lake, stop)

    def run_until_warned(self, text: str) -> None:
        """Read until the log has a warning or error with this text."""
        stop, watch = Event(), logging.Handler(logging.WARNING)
        watch.emit = lambda record: stop.set() if text in record.getMessage() else None  # type: ignore[method-assign]
        logging.getLogger("trimtab").addHandler(watch)
        try:
            ingest.run_ingest(ingest.parse_ingest_settings(self.settings), self.lake, stop)
        finally:
            logging.getLogger("trimtab").removeHandler(watch)

    def count_offsets(self) -> int:
        table = self.lake.open_table(self.table)
        assert table is not None
        return sum(table.read_offsets().offsets.groups[self.settings["group.id"]].values())

    def read_rows(self) -> Any:
        """Return the rows, read without Spark."""
        table: Any = self.lake.open_table(self.table)
        if isinstance(self.lake, DeltaLake):
            folder = Path(self.settings["lake.warehouse"], *self.table.split("."))
            query = QueryBuilder().register("t", DeltaTable(folder))  # applies deletion vectors
            return pa.table(query.execute("SELECT * FROM t").read_all())
        location = table.java_table.operations().current().metadataFileLocation()
        return StaticTable.from_metadata(str(location)).scan().to_arrow()


@pytest.fixture
def sink(settings: Settings, lake: SparkLake, monkeypatch: pytest.MonkeyPatch) -> Ingest:
    return Ingest(settings, lake, monkeypatch)


def rows_by_id(rows: Any, *further: str) -> dict[tuple[int], Row]:
    """Return the rows' columns by id, each of which has one."""
    found = rows.select(["id", "name", "n", *further]).to_pylist()
    by_id = {(row["id"],): row for row in found}
    assert len(by_id) == len(found)
    return by_id


@pytest.mark.parametrize(
    "lake", [pytest.param("iceberg", marks=pytest.mark.slow), "iceberg_arrow", "delta_arrow"], indirect=True
)
def test_the_table_equals_a_replay_after_crashes(
    sink: Ingest, produce: Callable[[list[ChangeRecord]], None]
) -> None:
    """A batch that is written again changes nothing, whether its first commit landed or not."""
    chance = random.Random(5)  # noqa: S311 - test data
    records: list[ChangeRecord] = []
    for crash_at in ("staged", "committed", ""):
        batch = list(draw_changes(chance, CHANGES, KEYS))
        records += batch
        produce(batch)
        if crash_at:
            with pytest.raises(CrashError):
                sink.run(len(records), crash_at)
        # After a commit of both partitions nothing is left to read.
        if crash_at != "committed" or sink.count_offsets() < len(records):
            sink.run(len(records))
        assert rows_by_id(sink.read_rows()) == replay(records)


@pytest.mark.parametrize("lake", ["iceberg_arrow", "delta_arrow"], indirect=True)
def test_soft_deletes_keep_the_rows(sink: Ingest, produce: Callable[[list[ChangeRecord]], None]) -> None:
    """Marked, with the values of `before`, until a change brings the key back; in later batches, too."""
    sink.settings["lake.delete"] = "soft"
    chance = random.Random(7)  # noqa: S311 - test data
    records: list[ChangeRecord] = []
    for _ in range(2):
        drawn = draw_changes(chance, CHANGES, KEYS)
        batch = [record for record in drawn if record.value is not None]  # tombstones.on.delete: false
        records += batch
        produce(batch)
        sink.run(len(records))
        rows = rows_by_id(sink.read_rows(), "__deleted")
        assert rows == replay_soft_deletes(records)
        assert {row["__deleted"] for row in rows.values()} == {False, True}


def replay_soft_deletes(records: list[ChangeRecord]) -> dict[tuple[int], Row]:
    """Return the rows by id after Debezium's changes, in plain Python, those of deletes marked."""
    rows: dict[tuple[int], Row] = {}
    for _, value, _ in records:
        row = value["after"] or value["before"]
        rows[row["id"],] = row | {"__deleted": value["after"] is None}
    return rows


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"lake.key": "nr"}, "lake.key: lake.schema .* has no column 'nr'"),
        ({"lake.key": "price"}, "lake.key: column price is double, which cannot be a key"),
        ({"lake.schema": "id BIGINT, v VARIANT"}, "column v is variant, which JSON is not read into"),
        ({"lake.schema": {"a": "id BIGINT"}, "lake.key": {"b": "id"}}, "lake.key names no columns .*'a'"),
        ({"lake.schema": {"a": "id BIGINT"}, "lake.key": {"b": "id", "*": "id"}}, "lake.schema .*'b'"),
    ],
)
def test_rows_that_cannot_have_the_key_are_refused(
    lake: SparkLake, config: Callable[..., Any], changed: Settings, text: str
) -> None:
    """Before the group is joined; keys by topic need no key of all others."""
    assert lake.spark
    schema = {"lake.schema": "id BIGINT, price DOUBLE", "lake.decoder": "json"}
    upsert = {**schema, "lake.write": "upsert", "lake.key": "id"}
    TopicProjections(config(**upsert | {"lake.key": {"orders": "id"}}))
    with pytest.raises(SettingError, match=text):
        TopicProjections(config(**upsert | changed))


@pytest.mark.parametrize(
    ("lake", "text", "properties"),
    [
        ("iceberg_arrow", "has format version 2, and lake.write=upsert needs", "'format-version' = '3'"),
        ("delta_arrow", "has no deletion vectors, which", "'delta.enableDeletionVectors' = 'true'"),
    ],
    indirect=["lake"],
)
def test_a_table_without_deletion_vectors_loses_nothing(
    text: str, properties: str, sink: Ingest, produce: Callable[[list[ChangeRecord]], None]
) -> None:
    """It halts with a named error, and no offset moves; once it takes them, every change is there."""
    columns = pa.schema([field for field in RECORD_SCHEMA if field.name in POSITION_COLUMNS])
    table = sink.lake.create_table(sink.table, pa.schema([*columns, *ROW_SCHEMA]).empty_table())
    records = [change("c", None, {"id": at, "name": "a", "n": at}) for at in range(20)]
    produce(records)
    with pytest.raises(TableSchemaMismatchError, match=text):
        sink.run_until_warned(text)
    assert table.read_offsets().offsets.groups == {}
    sink.lake.spark.sql(f"ALTER TABLE {sink.table} SET TBLPROPERTIES ({properties})")
    sink.run(len(records))
    assert rows_by_id(sink.read_rows()) == replay(records)


@pytest.mark.parametrize("key", [{"id": None}, {"other": 1}, None])
def test_a_change_without_a_key_is_a_dead_letter(
    key: Any, sink: Ingest, bootstrap: str, produce: Callable[[list[ChangeRecord]], None]
) -> None:
    """Null or missing, in value and record key; the changes beside it count, and it can be read there."""
    records = [change("c", None, {"id": at, "name": "a", "n": at}) for at in range(4)]
    produce(records)
    value = to_bytes({"op": "u", "before": None, "after": {"id": None, "name": "lost", "n": 1}})
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(sink.settings["topics"][0], value, to_bytes(key), partition=0)
    assert producer.flush(60) == 0
    sink.run(len(records) + 1)
    assert rows_by_id(sink.read_rows()) == replay(records)
    (letter,) = sink.lake.spark.table(f"{sink.table}_dead_letter").collect()
    assert (bytes(letter.value), letter.error) == (value, NO_KEY)


def test_bad_changes_are_dead_letters_beside_the_rows(
    sink: Ingest, produce: Callable[[list[ChangeRecord]], None]
) -> None:
    """Also after a crash between the commits of both tables; the dead letters are there once."""
    good = [change("c", None, {"id": at, "name": "a", "n": at}) for at in range(4)]
    bad = [ChangeRecord({"id": 0}, wrap({"id": 0})), ChangeRecord({"id": 1}, {"op": "t"})]
    produce([*good, *bad, ChangeRecord({"id": 3}, None)])
    with pytest.raises(CrashError):
        sink.run(7, "side-tables-committed")
    sink.run(7)
    assert rows_by_id(sink.read_rows()) == replay(good[:3])
    letters = sink.lake.spark.table(f"{sink.table}_dead_letter").select("offset", "error").collect()
    assert sorted(row.error[:5] for row in letters) == ["no op", "op t "]


@pytest.mark.parametrize("lake", ["iceberg_arrow", "delta_arrow"], indirect=True)
def test_a_batch_without_readable_changes_may_be_the_first(
    sink: Ingest, registry: Any, bootstrap: str
) -> None:
    """It makes the table, whose columns only a registry's schema tells: the next batch brings them."""
    del sink.settings["lake.schema"]
    sink.settings |= {"lake.decoder": "avro", "lake.changes": "keyed", "schema.registry.url": registry.url}
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    row = BytesIO(b"\0" + registry.add("orders", schema).to_bytes(4))
    row.seek(0, SEEK_END)
    fastavro.schemaless_writer(row, fastavro.parse_schema(schema), {"id": 1, "name": "ann"})
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for records, value in enumerate((b"junk", row.getvalue()), 1):
        producer.produce(sink.settings["topics"][0], value, partition=0)
        assert producer.flush(60) == 0
        sink.run(records)
    assert sink.read_rows().select(["id", "name"]).to_pylist() == [{"id": 1, "name": "ann"}]
