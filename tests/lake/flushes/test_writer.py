"""The writer on a real Spark session and real tables: the fence, rebalances, limits, in each format."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from support.lake.slow_on_delta import slow_on_delta
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.offset_reset import OffsetReset
from trimtab.consumer_sdk.errors import OffsetRegressionError, OffsetsExpiredError, TableNameCollisionError
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
LONG = 180.0
# each format, each file writer; all four in tests/contract/test_lake_table.py
LAKES = ["iceberg", "delta_arrow"]
FORMATS = pytest.mark.parametrize("lake", LAKES, indirect=True)
SLOW_ON_DELTA = slow_on_delta("iceberg", "delta_arrow")
pytestmark = pytest.mark.spark

Make = Callable[..., Any]
Read = Callable[[str], list[Any]]


def values(count: int, size: int = 20) -> list[bytes | None]:
    return [b"%0*d" % (size, n) for n in range(count)]


class Gate:
    """A step hook that holds a writer at a step until it is opened."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, step: str) -> None:
        if step == self.step:
            self.reached.set()
            assert self.open.wait(LONG)


def offset_of(lake: SparkLake, table: str, partition: TopicPartition, group: str = "g") -> int | None:
    found = lake.open_table(table)
    assert found is not None
    return found.read_offsets().offsets.next_offset(group, partition)


@FORMATS
def test_records_and_offsets_are_one_commit(
    writers: Make, lake: SparkLake, rows: Read, namespace: str
) -> None:
    """Every record is in the table once, the table has the next offsets, and Kafka's follow."""
    consumer, writer = writers({P0: [b"a", b"b"], P1: [b"c"]})
    consumer.assign(writer, P0, P1)
    writer.write(consumer.consume(10))
    writer.flush()
    table = f"{namespace}.orders"
    assert rows(table) == [("orders", 0, 0), ("orders", 0, 1), ("orders", 1, 0)]
    assert (offset_of(lake, table, P0), offset_of(lake, table, P1)) == (2, 1)
    assert consumer.committed == {P0: 2, P1: 1}


def test_the_record_columns_equal_the_record(writers: Make, fakes: Any, spark: Any, namespace: str) -> None:
    """Topic, partition, offset, time, key, value and headers, nulls included."""
    consumer, writer = writers({P0: []})
    consumer.assign(writer, P0)
    writer.write(
        [
            fakes.Message(P0, 0, b"\x00\xff", b"k", [("h", b"1"), ("h", b"2"), ("n", None)]),
            fakes.Message(P0, 1, None, None),
        ]
    )
    writer.flush()
    first, second = spark.table(f"{namespace}.orders").orderBy("offset").collect()
    assert first.asDict() == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": first.timestamp,
        "key": b"k",
        "value": b"\x00\xff",
        "headers": {"h": b"2", "n": None},
    }
    assert first.timestamp.timestamp() == 1_700_000_000
    assert (second.key, second.value, second.headers) == (None, None, None)


@SLOW_ON_DELTA
def test_a_new_owner_starts_at_the_tables_offset(writers: Make, rows: Read, namespace: str) -> None:
    """The table's offset takes precedence over Kafka's."""
    log = {P0: values(10)}
    consumer, writer = writers(log)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(6))
    writer.flush()
    later, second = writers(log)
    later.committed = {P0: 2}
    later.assign(second, P0)
    assert later.positions == {P0: 6}
    second.write(later.consume(100))
    second.close()
    assert rows(f"{namespace}.orders") == [("orders", 0, n) for n in range(10)]


@FORMATS
def test_a_zombie_with_staged_files_is_refused(
    writers: Make, rows: Read, namespace: str, warehouse: Any
) -> None:
    """A stale owner that resumes after the new one's commit adds nothing and leaves no files."""
    log = {P0: values(100), P1: values(100)}
    gate = Gate("staged")
    sleeper, old = writers(log, crash=gate)
    sleeper.assign(old, P0, P1)
    old.write(sleeper.consume(150))
    assert gate.reached.wait(LONG)
    consumer, new = writers(log)
    consumer.assign(new, P0)
    for _ in range(2):
        new.write(consumer.consume(50))
        new.flush()
    gate.open.set()
    old.flush()
    table = f"{namespace}.orders"
    assert rows(table) == [("orders", 0, n) for n in range(100)]
    assert len(list(warehouse.glob(f"{namespace}/orders/**/*.parquet"))) == 2
    assert sleeper.positions == {P0: 100, P1: 0}  # on from the table's offset, and from the start
    old.on_lost(sleeper, [_raw(P0)])
    del sleeper.positions[P0]
    old.write(sleeper.consume(1000))
    old.flush()
    assert rows(table) == [(*p, n) for p in (P0, P1) for n in range(100)]


@FORMATS
def test_two_writers_with_different_partitions_both_succeed(
    writers: Make, lake: SparkLake, rows: Read, namespace: str
) -> None:
    """Writers that race for one table's commits lose no row and no offset."""
    rounds = 6
    log = {P0: values(10 * rounds), P1: values(10 * rounds)}
    meet = threading.Barrier(2)

    def together(step: str) -> None:
        if step == "side-tables-committed":
            meet.wait(LONG)

    pairs = [(*writers(log, crash=together), p) for p in (P0, P1)]
    for consumer, writer, partition in pairs:
        consumer.assign(writer, partition)
    for _ in range(rounds):
        for consumer, writer, _partition in pairs:
            writer.write(consumer.consume(10))
        for _consumer, writer, _partition in pairs:
            writer.flush()
    table = f"{namespace}.orders"
    assert rows(table) == [(*p, n) for p in (P0, P1) for n in range(10 * rounds)]
    assert [offset_of(lake, table, p) for p in (P0, P1)] == [10 * rounds] * 2


@SLOW_ON_DELTA
def test_records_read_before_they_expired_are_written(
    writers: Make, lake: SparkLake, rows: Read, namespace: str
) -> None:
    """The log no longer has them: the buffer holds the only copy."""
    consumer, writer = writers({P0: values(10)}, batch_max_age=LONG)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(10))
    consumer.resets = [OffsetReset(P0, 10, 15, 20, None)]
    writer.write([])
    assert P0 not in consumer.positions
    with pytest.raises(OffsetsExpiredError, match="offsets 10 to 14 are gone"):
        writer.close()
    table = f"{namespace}.orders"
    assert (rows(table), offset_of(lake, table, P0)) == ([(*P0, n) for n in range(10)], 10)


@SLOW_ON_DELTA
def test_groups_keep_separate_offsets_in_one_table(
    writers: Make, lake: SparkLake, spark: Any, namespace: str
) -> None:
    """A commit carries the other group's offsets forward, also behind an INSERT by hand."""
    table = f"{namespace}.orders"
    for group, count in (("g", 3), ("h", 2), ("g", 4)):
        consumer, writer = writers({P0: values(count)}, group_id=group)
        consumer.assign(writer, P0)
        writer.write(consumer.consume(100))
        writer.close()
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")  # noqa: S608 - this test's table
    consumer, writer = writers({P0: values(5)})
    consumer.assign(writer, P0)
    assert consumer.positions == {P0: 4}
    writer.write(consumer.consume(100))
    writer.close()
    assert (offset_of(lake, table, P0, "g"), offset_of(lake, table, P0, "h")) == (5, 2)


def test_a_revocation_drops_a_batch_that_has_just_begun(
    writers: Make, lake: SparkLake, rows: Read, namespace: str
) -> None:
    """The handover does not wait for it; the next owner reads the records again."""
    consumer, writer = writers({P0: values(10), P1: values(10)}, batch_max_age=LONG)
    consumer.assign(writer, P0, P1)
    writer.write(consumer.consume(20))
    consumer.revoke(writer, P0)
    assert lake.open_table(f"{namespace}.orders") is None
    writer.flush()
    assert rows(f"{namespace}.orders") == [("orders", 1, n) for n in range(10)]


def test_a_revocation_flushes_a_nearly_full_batch(writers: Make, rows: Read, namespace: str) -> None:
    """A batch at four fifths or more is flushed and committed to Kafka before the partition is revoked."""
    log = {P0: values(1000, 100)}
    consumer, writer = writers(log, batch_max_age=LONG, batch_bytes=160_000)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(1000))
    consumer.revoke(writer, P0)
    assert rows(f"{namespace}.orders") == [("orders", 0, n) for n in range(1000)]
    assert consumer.committed == {P0: 1000}


def test_a_revocation_waits_for_the_batch_in_flight(writers: Make, rows: Read, namespace: str) -> None:
    """The batch is in the table before the partition is revoked."""
    gate = Gate("staged")
    consumer, writer = writers({P0: values(10)}, crash=gate)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(10))
    assert gate.reached.wait(LONG)
    threading.Timer(0.2, gate.open.set).start()
    consumer.revoke(writer, P0)
    assert rows(f"{namespace}.orders") == [("orders", 0, n) for n in range(10)]
    assert consumer.committed == {P0: 10}


def test_losing_a_partition_cancels_its_flush(writers: Make, lake: SparkLake, namespace: str) -> None:
    """The batch in flight is not committed if it can still be cancelled."""
    gate = Gate("staged")
    consumer, writer = writers({P0: values(10)}, crash=gate)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(10))
    assert gate.reached.wait(LONG)
    del consumer.positions[P0]
    writer.on_lost(consumer, [_raw(P0)])
    gate.open.set()
    writer.flush()
    assert offset_of(lake, f"{namespace}.orders", P0) is None
    assert consumer.committed == {}


def test_slow_storage_limits_memory_and_serves_callbacks(writers: Make, rows: Read, namespace: str) -> None:
    """While a flush hangs, only the next batch is buffered, and rebalances are served."""
    gate = Gate("staged")
    consumer, writer = writers({P0: values(2000, 100)}, crash=gate, batch_bytes=100_000)
    consumer.assign(writer, P0)
    consumer.callbacks.append(gate.open.set)  # runs only when write() serves callbacks
    for _ in range(4):
        callbacks, consumer.callbacks = consumer.callbacks, type(consumer.callbacks)()
        messages = consumer.consume(500)
        consumer.callbacks = callbacks
        writer.write(messages)
        assert writer._buffer.buffered_bytes < 2 * 100_000
    assert gate.open.is_set()
    writer.close()
    assert rows(f"{namespace}.orders") == [("orders", 0, n) for n in range(2000)]


def test_a_recreated_topic_halts_its_partition(writers: Make, rows: Read, namespace: str) -> None:
    """Offsets below the table's halt the partition; other partitions' records are written."""
    consumer, writer = writers({P0: values(10)})
    consumer.assign(writer, P0)
    writer.write(consumer.consume(10))
    writer.close()
    consumer, writer = writers({P0: values(3), P1: values(2)})
    consumer.assign(writer, P0, P1)
    consumer.positions[P0] = 0  # like a consumer that continues silently
    writer.write(consumer.consume(10))
    assert consumer.positions == {P1: 2}
    with pytest.raises(OffsetRegressionError, match="created again"):
        writer.close()
    assert rows(f"{namespace}.orders") == [
        *(("orders", 0, n) for n in range(10)),
        *((*P1, n) for n in range(2)),
    ]


def test_a_topic_whose_table_is_another_topics_is_halted_alone(
    writers: Make, rows: Callable[[str], list[Any]], namespace: str
) -> None:
    """A pattern may find such a topic at any time; the table's offsets tell whose it is."""
    dot, dash, letters = (TopicPartition(topic, 0) for topic in ("a.b", "a-b", "a.b-dead-letter"))
    consumer, writer = writers({dot: values(1)})
    consumer.assign(writer, dot)
    writer.write(consumer.consume(1))
    writer.close()
    consumer, writer = writers({dot: values(3), dash: values(2), letters: values(2), P0: values(2)})
    consumer.assign(writer, dash, letters, P0)
    consumer.assign(writer, dot)
    for _ in range(3):
        writer.write(consumer.consume(9))
    with pytest.raises(TableNameCollisionError, match=r"lake\.tables"):
        writer.close()
    assert rows(f"{namespace}.a_b") == [(*dot, n) for n in range(3)]
    assert rows(f"{namespace}.orders") == [(*P0, n) for n in range(2)]


def test_each_flush_is_one_log_line(writers: Make, caplog: pytest.LogCaptureFixture) -> None:
    """It has the table, rows, bytes and seconds."""
    consumer, writer = writers({P0: values(5)})
    consumer.assign(writer, P0)
    with caplog.at_level(logging.INFO, logger="trimtab.lake"):
        writer.write(consumer.consume(5))
        writer.close()
    assert any("orders: 5 rows, " in line and " s" in line for line in caplog.messages)


def _raw(partition: TopicPartition) -> Any:
    from confluent_kafka import TopicPartition as Raw  # noqa: PLC0415 - the same name

    return Raw(*partition)
