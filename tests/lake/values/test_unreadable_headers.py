"""A record whose header name is not UTF-8 is a dead letter; the records beside it are written."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from kafka import KafkaProducer

from support.hostile_records import BinaryName
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.writer.ingest import parse_ingest_settings, run_ingest
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

pytestmark = [pytest.mark.spark, pytest.mark.broker]

VALUES = (b'{"id": 0}', b'{"id": 1}', b"not JSON", b'{"id": 3}')
UNREADABLE = 1


@pytest.fixture
def filled(topic: Callable[..., str], bootstrap: str) -> str:
    """A topic of one partition with four records: one with unreadable headers, one that is not JSON."""
    name = topic(partitions=1)
    producer: Any = KafkaProducer(bootstrap_servers=bootstrap)
    for offset, value in enumerate(VALUES):
        headers: list[Any] = [("a", b"%d" % offset)]
        more = [(BinaryName("x"), b"?")] if offset == UNREADABLE else []
        producer.send(name, value, key=b"k", headers=headers + more, partition=0).get(20)
    producer.close()
    return name


@pytest.fixture
def connection(bootstrap: str, group: str) -> dict[str, Any]:
    """Settings of the consumer."""
    return {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}


@pytest.mark.parametrize(
    ("lake", "schema", "letters"),
    [
        ("iceberg", "id BIGINT", {1, 2}),
        ("delta", None, {1}),
        ("iceberg_arrow", "id BIGINT", {1, 2}),
        ("iceberg_arrow", "id BIGINT, m MAP<STRING, INT>", {1, 2}),  # Spark parses it
    ],
    indirect=["lake"],
)
def test_it_is_a_dead_letter(
    lake: SparkLake, config: Any, connection: Any, filled: str, schema: str | None, letters: set[int]
) -> None:
    """With what is known of it: key, value and the readable headers; the batch is committed."""
    settings = {} if schema is None else {"lake.schema": schema, "lake.decoder": "json"}
    lake_config = config(**{"group.id": connection["group.id"], **settings})
    table = lake_config.table_names.table_for(filled)
    with (
        Consumer({**connection, "enable.auto.commit": False}) as consumer,
        LakeWriter(consumer, lake_config, lake=lake) as writer,
    ):
        consumer.subscribe([filled], writer.on_assign, writer.on_revoke, writer.on_lost)
        messages = [m for _ in VALUES for m in consumer.consume(1, timeout=20)]
        writer.write(messages)
        writer.flush()
    rows = lake.spark.table(table).collect()
    assert {row["offset"] for row in rows} == set(range(len(VALUES))) - letters
    found = {row["offset"]: row for row in lake.spark.table(f"{table}_dead_letter").collect()}
    assert set(found) == letters
    bad = found[UNREADABLE]
    assert (bad["key"], bad["value"], bad["headers"]) == (b"k", VALUES[UNREADABLE], {"a": b"1"})
    assert "header names are not UTF-8" in bad["error"]


def test_ingest_goes_on_until_it_is_stopped(
    lake: SparkLake, config: Any, connection: Any, filled: str, eventually: Any
) -> None:
    """It writes the records behind that one, and ends without an error (test_ingest ends the process)."""
    table = config().table_names.table_for(filled)
    settings = {
        **connection,
        "topics": [filled],
        "lake.warehouse": config().session.warehouse,
        "lake.tables": {filled: table},
        "lake.decoder": "json",
        "lake.schema": "id BIGINT",
        "batch.max.age": "100 ms",
    }
    stop = Event()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(run_ingest, parse_ingest_settings(settings), lake, stop)
        try:
            eventually(lambda: running.done() or lake.open_table(table), timeout=120)
        finally:
            stop.set()
    assert running.result() is None
    assert {row["offset"] for row in lake.spark.table(table).collect()} == {0, 3}
