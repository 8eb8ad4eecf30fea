"""The lake table equals the table of a database under load, through Debezium and a topic."""

# ruff: noqa: S608 - statements of the test's own

import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import StaticTable

from debezium.source import SourceDatabase, running_engine
from trimtab.consumer_sdk.lake import ingest
from trimtab.consumer_sdk.lake.spark_lake import SparkLake

pytestmark = [pytest.mark.debezium, pytest.mark.spark, pytest.mark.broker]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
CREATE = """CREATE TABLE orders
(id bigint PRIMARY KEY, name text, n int, price numeric(10,2), day date, at timestamptz)"""
SELECT = """SELECT id, name, n, price, day,
to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS at FROM orders ORDER BY id"""
ROUNDS = 4
KEYS = 60


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SourceDatabase]:
    with SourceDatabase(tmp_path / "postgres.log") as started:
        yield started


@pytest.fixture
def settings(
    skipped: str, admin: AdminClient, bootstrap: str, group: str, namespace: str, warehouse: Path
) -> dict[str, Any]:
    """The configuration of an ingest of everything that the engine produces; TRUNCATEs need one partition."""
    truncates = skipped == "none"
    partitions = 1 if truncates else 2
    topics = [f"{namespace}.public.orders", f"{namespace}.transaction", f"__debezium-heartbeat.{namespace}"]
    for created in admin.create_topics([NewTopic(name, partitions) for name in topics]).values():
        created.result(30)
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "topics": topics,
        "lake.file.writer": "arrow",
        "lake.warehouse": str(warehouse),
        "lake.table": namespace + ".{topic}",
        "lake.tables": {topics[0]: f"{namespace}.orders"},
        "lake.decoder": "json",
        "lake.schema": "id BIGINT, name STRING, n INT, price DECIMAL(10,2), day DATE, at TIMESTAMP",
        "lake.write": "upsert",
        "lake.key": "id",
        "batch.max.age": "500 ms",
        **({"lake.truncate": "apply"} if truncates else {}),
    }


@contextmanager
def running_ingest(settings: dict[str, Any], lake: SparkLake) -> Generator[None]:
    stop = Event()
    thread = Thread(target=ingest.run_ingest, args=(ingest.parse_ingest_settings(settings), lake, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(120)


def make_statements(chance: random.Random, skipped: str) -> list[str]:
    """Return the statements of a transaction, some with a TRUNCATE among them."""
    statements = [make_statement(chance) for _ in range(chance.randrange(9))]
    if skipped == "none" and chance.random() < 0.5:
        statements.insert(chance.randint(0, len(statements)), "TRUNCATE orders")
    return statements


def make_statement(chance: random.Random) -> str:
    """Return a statement; it may change no row, and one in five changes keys."""
    key, other = chance.randrange(KEYS), chance.randrange(KEYS)
    name = chance.choice(["NULL", "'é \"x\" {y}'", "'n'"])
    free = f"NOT EXISTS (SELECT 1 FROM orders WHERE id = {key + KEYS})"
    values = f"{name}, {other}, {other}.5, date '2026-01-01' + {other}, now()"
    return chance.choice(
        [
            f"INSERT INTO orders VALUES ({key}, {values}) ON CONFLICT DO NOTHING",
            f"INSERT INTO orders VALUES ({key}, {values}) ON CONFLICT DO NOTHING",
            f"UPDATE orders SET name = {name}, n = n + 1, at = now() WHERE id % 7 = {key % 7}",
            f"UPDATE orders SET id = id + {KEYS} WHERE id = {key} AND {free}",
            f"DELETE FROM orders WHERE id IN ({key}, {other + KEYS})",
        ]
    )


@pytest.mark.parametrize(("identity", "skipped"), [("DEFAULT", "t"), ("FULL", "t"), ("DEFAULT", "none")])
def test_the_lake_table_equals_the_databases(  # noqa: PLR0913, PLR0917 - fixtures
    identity: str,
    skipped: str,
    database: SourceDatabase,
    settings: dict[str, Any],
    iceberg_arrow: SparkLake,
    namespace: str,
    bootstrap: str,
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """From a snapshot on, through restarts of the engine and the sink, which also get what is no change."""
    chance = random.Random(7)  # noqa: S311 - test data
    database.execute(CREATE, f"ALTER TABLE orders REPLICA IDENTITY {identity}")
    database.execute(*(f"INSERT INTO orders VALUES ({at}, 'old', 1, 0.10, NULL, now())" for at in range(9)))
    more = {
        "topic.prefix": namespace,
        "provide.transaction.metadata": "true",
        "heartbeat.interval.ms": "300",
        "converter.schemas.enable": str(identity == "FULL").lower(),
        "skipped.operations": skipped,
    }

    def is_lake_equal(expected: list[dict[str, Any]]) -> bool:
        table: Any = iceberg_arrow.open_table(f"{namespace}.orders")
        if table is None:
            return False
        location = str(table.java_table.operations().current().metadataFileLocation())
        rows = StaticTable.from_metadata(location).scan(selected_fields=tuple(SCHEMA.names)).to_arrow()
        return bool(rows.select(SCHEMA.names).sort_by("id").to_pylist() == expected)

    done = list[str]()
    for _ in range(ROUNDS):
        with running_ingest(settings, iceberg_arrow), running_engine(database, bootstrap, tmp_path, **more):
            for _ in range(4):
                done += (statements := make_statements(chance, skipped))
                database.execute("BEGIN", *statements, "COMMIT")
            expected = database.read_rows(SELECT, SCHEMA)
            eventually(partial(is_lake_equal, expected), 60)
    assert (skipped == "none") == ("TRUNCATE orders" in done)
    letters = [name for name in iceberg_arrow.list_tables() if name.endswith("_dead_letter")]
    assert [name for name in letters if name.startswith(f"{namespace}.")] == []
