"""Bridge reads on a real broker: each record once, while writers flush, hand over and compact."""

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient

from support.lake.slow_on_delta import slow_on_delta
from trimtab.assignor.model import TopicPartition
from trimtab.cli.main import main
from trimtab.consumer_sdk.errors import OffsetsExpiredError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.bridge.lake_reader import LakeReader, read
from trimtab.consumer_sdk.lake.changes.change_rows import POSITION_COLUMNS
from trimtab.consumer_sdk.lake.commits import maintenance
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.schema import record_columns
from trimtab.consumer_sdk.lake.session.factory import create_maintenance
from trimtab.consumer_sdk.lake.writer import ingest

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PARTITIONS = 2
READS = 16  # in each format
EACH_READ = 40  # records produced before it
BOTH = pytest.mark.parametrize("lake", ["iceberg_arrow", "delta_arrow"], indirect=True)
SLOW_ON_DELTA = slow_on_delta("iceberg_arrow", "delta_arrow")

Settings = dict[str, Any]


@pytest.fixture
def settings(ingest_settings: Settings) -> Settings:
    return {**ingest_settings, "lake.file.writer": "arrow"}


@pytest.fixture
def table(settings: Settings) -> str:
    (name,) = settings["lake.tables"].values()
    return str(name)


@pytest.fixture
def produce(bootstrap: str, settings: Settings) -> Callable[..., None]:
    """Produce records and wait until the broker has them."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True})

    def send(count: int, value: bytes = b"v") -> None:
        for n in range(count):
            producer.produce(settings["topics"][0], value, partition=n % PARTITIONS)
        assert producer.flush(60) == 0

    return send


@contextmanager
def running_ingest(settings: Settings, lake: SparkLake) -> Generator[None]:
    stop = Event()
    thread = Thread(target=ingest.run_ingest, args=(ingest.parse_ingest_settings(settings), lake, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def count_offsets(rows: pa.Table) -> Counter[TopicPartition]:
    """Return the number of rows by partition; no offset is missing or doubled."""
    found: dict[TopicPartition, list[int]] = {}
    columns = (rows.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    for topic, partition, offset in zip(*columns, strict=True):
        found.setdefault(TopicPartition(topic, partition), []).append(offset)
    for where, offsets in found.items():
        assert sorted(offsets) == list(range(len(offsets))), where
    return Counter({where: len(offsets) for where, offsets in found.items()})


@SLOW_ON_DELTA
def test_each_read_has_every_record_once(
    lake: SparkLake, settings: Settings, table: str, produce: Callable[..., None]
) -> None:
    """With and without Spark, during flushes, a compaction and a handover."""
    where = [TopicPartition(settings["topics"][0], number) for number in range(PARTITIONS)]
    versions = set[int | None]()
    with (
        LakeReader(table, settings, engine="arrow") as plain,
        LakeReader(table, settings, lake=lake) as spark,
        running_ingest(settings, lake),
    ):
        for number in range(1, READS + 1):
            if number == READS // 2:
                backoff = RetryBackoff(random.Random(0))  # noqa: S311 - jitter
                maintenance.compact_table(create_maintenance(lake), table, None, backoff)
            produce(EACH_READ)
            rows = (spark if number % 4 == 0 else plain).read()
            versions.add(rows.table_version)
            assert count_offsets(rows.to_arrow()) == dict.fromkeys(where, number * EACH_READ // PARTITIONS)
        with running_ingest(settings, lake):  # partitions move while both readers stay
            for _ in range(READS // 4):
                assert count_offsets(plain.read().to_arrow()).total() == READS * EACH_READ
    assert len(versions) > 2, "the table did not advance during the reads"


def test_a_read_ends_at_an_open_transaction(
    settings: Settings, table: str, bootstrap: str, lake: SparkLake, group: str, admin: AdminClient
) -> None:
    """And it leaves out aborted records; the log's end may be a marker. The group is not joined."""
    topic = settings["topics"][0]
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, finish in [(b"kept", "commit"), (b"aborted", "abort"), (b"more", "commit"), (b"open", None)]:
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        if finish:
            getattr(producer, f"{finish}_transaction")(30)
    with LakeReader(table, settings, engine="arrow") as reader:
        values = reader.read().to_arrow().column("value").to_pylist()
        assert values == [b"kept"] * 3 + [b"more"] * 3
        producer.commit_transaction(30)
        assert reader.read().to_arrow().column("value").to_pylist() == values + [b"open"] * 3
    assert lake.open_table(table) is None
    assert group not in {one.group_id for one in admin.list_consumer_groups().result(30).valid}


@SLOW_ON_DELTA
def test_records_deleted_before_the_table_has_them_are_an_error(
    lake: SparkLake,
    settings: Settings,
    table: str,
    produce: Callable[..., None],
    admin: AdminClient,
    eventually: Callable[..., None],
) -> None:
    """A read that left them out would look whole. Deleted after the table has them, they are no error."""
    topic = settings["topics"][0]
    where = TopicPartition(topic, 0)
    produce(20)
    with LakeReader(table, settings, engine="arrow") as reader, running_ingest(settings, lake):
        eventually(lambda: reader.read().topic_ranges[where].first == 10)
    produce(20)
    _delete_records(admin, RawPartition(topic, 0, 10))
    assert count_offsets(read(table, settings).to_arrow()).total() == 40
    _delete_records(admin, RawPartition(topic, 0, 15))
    with pytest.raises(OffsetsExpiredError, match=f"{where}: the log no longer has offset 10"):
        read(table, settings)


def _delete_records(admin: AdminClient, before: RawPartition) -> None:
    admin.delete_records([before])[before].result(30)


@pytest.mark.parametrize("file_writer", ["spark", "auto"])
def test_json_is_decoded_as_the_sink_decodes_it(
    settings: Settings, table: str, lake: SparkLake, produce: Callable[..., None], file_writer: str
) -> None:
    """By either writer; a value that does not fit is a dead letter and no row. Rows go to other libraries."""
    settings |= {"lake.decoder": "json", "lake.schema": "id BIGINT, name STRING"}
    settings["lake.file.writer"] = file_writer
    produce(4, b'{"id": 7, "name": "ann"}')
    produce(1, b'{"id": "seven"}')
    with LakeReader(table, settings, lake=lake) as reader:
        rows = reader.read()
        assert rows.to_spark().where("id = 7 AND name = 'ann'").count() == 4
        assert rows.to_pandas()["id"].tolist() == [7] * 4
        assert rows.to_duckdb().aggregate("count(*), min(name)").fetchall() == [(4, "ann")]
        produce(2, b'{"id": 8, "name": "bob"}')
        rows = reader.read()  # the rows are kept as Arrow now, and a frame is still to be had
        ids = [found.column("id").to_pylist() for found in (rows.to_arrow(), rows.to_spark().toArrow())]
        assert ids == [[7] * 2 + [8] + [7] * 2 + [8]] * 2


@BOTH
def test_changes_behind_the_table_are_applied_to_its_rows(
    lake: SparkLake,
    settings: Settings,
    table: str,
    registry: Any,
    produce_changes: Callable[..., None],
    eventually: Callable[..., None],
) -> None:
    """With and without Spark, on rows that deletion vectors hide; the result is that of all changes."""
    settings |= {"lake.decoder": "avro", "schema.registry.url": registry.url}
    settings |= {"lake.write": "upsert", "lake.key": "id", "lake.changes": "keyed"}
    with LakeReader(table, settings) as plain, LakeReader(table, settings, lake=lake) as spark:
        with running_ingest(settings, lake):
            for batch in (dict.fromkeys(range(6), "new"), {1: "paid", 2: None}):
                produce_changes(batch)
                eventually(lambda: all(first == end for first, end in plain.read().topic_ranges.values()))
        produce_changes({0: "sent", 1: "sent", 3: None, 7: "new"})
        for reader in (plain, spark):
            rows = reader.read().to_arrow().select(["id", "status"]).to_pylist()
            found = sorted((row["id"], row["status"]) for row in rows)
            assert found == [(0, "sent"), (1, "sent"), (4, "new"), (5, "new"), (7, "new")]


@BOTH
@pytest.mark.parametrize(
    "columns", [{}, {"ID": pa.int64(), "Status": pa.string()}], ids=["positions-only", "other-case"]
)
def test_changes_are_applied_whatever_columns_the_table_has(
    columns: dict[str, Any],
    lake: SparkLake,
    settings: Settings,
    table: str,
    registry: Any,
    produce_changes: Callable[..., None],
) -> None:
    """A table made for dead letters alone has none of a row, and names in a table may differ in case."""
    settings |= {"lake.decoder": "avro", "schema.registry.url": registry.url}
    settings |= {"lake.write": "upsert", "lake.key": "id", "lake.changes": "keyed"}
    create_table(lake, table, columns)
    if columns:
        row = f"('{settings['topics'][0]}', 0, 0, now(), 1, 'old')"
        lake.spark.sql(f"INSERT INTO {table} VALUES {row}")  # noqa: S608 - the test's own
    produce_changes({3: None})
    with LakeReader(table, settings) as plain, LakeReader(table, settings, lake=lake) as spark:
        assert [reader.read().to_arrow().num_rows for reader in (plain, spark)] == [bool(columns)] * 2
        produce_changes({1: "new", 2: "new"})
        for reader in (plain, spark):
            rows = reader.read().to_arrow()
            names = [name for name in rows.column_names if name.lower() in {"id", "status"}]
            found = sorted(tuple(row.values()) for row in rows.select(names).to_pylist())
            assert found == [(1, "new"), (2, "new")]


@BOTH
def test_a_table_without_the_key_column_is_named(
    lake: SparkLake, settings: Settings, table: str, registry: Any, produce_changes: Callable[..., None]
) -> None:
    """As by the sink, which would write nothing to it."""
    settings |= {"lake.decoder": "avro", "schema.registry.url": registry.url}
    settings |= {"lake.write": "upsert", "lake.key": "id", "lake.changes": "keyed"}
    create_table(lake, table, {"Status": pa.string()})
    produce_changes({1: "new"})
    for engine in ({}, {"lake": lake}):
        with pytest.raises(TableSchemaMismatchError, match="the key column id is missing"):
            read(table, settings, **engine)


def create_table(lake: SparkLake, table: str, columns: dict[str, Any]) -> None:
    """Create a table with the columns of positions and these."""
    positions = [record_columns.RECORD_SCHEMA.field(name) for name in POSITION_COLUMNS]
    lake.create_table(table, pa.schema([*positions, *columns.items()]).empty_table())


@pytest.fixture
def produce_changes(bootstrap: str, settings: Settings, registry: Any) -> Callable[..., None]:
    """Produce the status of each key, None: a delete; keys and values in Avro."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def encode(*fields: str, **row: Any) -> bytes:
        columns = [{"name": name, "type": kind} for name, kind in zip(row, fields, strict=True)]
        schema = {"type": "record", "name": "Order", "fields": columns}
        data = io.BytesIO(b"\0" + registry.add("orders", schema).to_bytes(4, "big"))
        data.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(data, schema, row)
        return data.getvalue()

    def send(changes: dict[int, str | None]) -> None:
        for key, status in changes.items():
            value = None if status is None else encode("long", "string", id=key, status=status)
            producer.produce(settings["topics"][0], value, encode("long", id=key), partition=key % PARTITIONS)
        assert producer.flush(60) == 0

    return send


@pytest.fixture
def config_file(settings: Settings, tmp_path: Path) -> str:
    file = tmp_path / "ingest.yaml"
    file.write_text(yaml.safe_dump(settings))
    return str(file)


def test_the_command_prints_rows(
    config_file: str, table: str, produce: Callable[..., None], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """In four formats, limited, or as the result of a query."""
    produce(3, b"\xffx")

    def run(*options: str) -> bytes:
        assert main(["tables", "read", table, "--config", config_file, *options]) == 0
        return capfdbinary.readouterr().out

    lines = [json.loads(line) for line in run("--format", "json").decode().splitlines()]
    assert [(line["partition"], line["offset"], line["value"]) for line in lines] == [
        (0, 0, r"\xffx"),
        (0, 1, r"\xffx"),
        (1, 0, r"\xffx"),
    ]
    (row,) = csv.DictReader(io.StringIO(run("--format", "csv", "--limit", "1").decode()))
    assert (row["offset"], row["headers"]) == ("0", "")
    assert pa.ipc.open_stream(run("--format", "arrow")).read_all().num_rows == 3
    assert b"count" in run("--sql", "SELECT count(*) FROM orders")
    assert main(["tables", "read", table, "--config", config_file, "--sql", "SELEC 1"]) == 2
    assert b"--sql: Parser Error" in capfdbinary.readouterr().err
