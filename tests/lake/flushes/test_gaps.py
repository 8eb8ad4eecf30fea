"""Records deleted before they were read, on a real broker, into real tables."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import NewTopic

from support.lake.slow_on_delta import slow_on_delta
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.errors import OffsetRegressionError, OffsetsExpiredError
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.offset_gaps import MissingOffsets, OffsetGap
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

FORMATS = pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
SLOW_ON_DELTA = slow_on_delta("iceberg", "delta")
pytestmark = [pytest.mark.spark, pytest.mark.broker]


@dataclass
class Rig:
    """A topic, its group, and the topic's table `own`."""

    bootstrap: str
    group: str
    topic: str
    lake: SparkLake
    namespace: str
    warehouse: Path
    admin: Any
    open: list[tuple[Consumer, LakeWriter]] = field(default_factory=list)
    meters: LakeMetrics = field(default_factory=LakeMetrics)

    def produce(self, count: int, partition: int = 0, size: int = 10) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "batch.num.messages": 20, "enable.idempotence": True}
        )
        for _ in range(count):
            producer.produce(self.topic, b"x" * size, partition=partition)
        assert producer.flush(30) == 0

    def expire(self, before: int, partition: int = 0) -> None:
        """Delete the records below an offset, like retention."""
        where = RawPartition(self.topic, partition, before)
        self.admin.delete_records([where])[where].result(30)

    def start(self, **changes: Any) -> tuple[Consumer, LakeWriter]:
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 100,
            **{k: v for k, v in changes.items() if not k.startswith(("lake.", "batch."))},
        }
        sink = {
            "lake.warehouse": str(self.warehouse),
            "lake.tables": {self.topic: self.table()},
            "batch.max.age": 0,
            "lake.flush.timeout": "120 s",  # a shared machine may be slow
            **{k: v for k, v in changes.items() if k.startswith(("lake.", "batch."))},
        }
        consumer = Consumer(config)
        writer = LakeWriter(consumer, {**config, **sink}, lake=self.lake, metrics=self.meters)
        self.open.append((consumer, writer))
        consumer.subscribe([self.topic], writer.on_assign, writer.on_revoke, writer.on_lost)
        return consumer, writer

    def stop(self) -> None:
        """Close the last writer and consumer, like an application."""
        consumer, writer = self.open.pop()
        try:
            writer.close()
        finally:
            consumer.close()

    def ingest(self, offset: int, partition: int = 0, **changes: Any) -> None:
        """Run until the table has a partition up to an offset."""
        consumer, writer = self.start(**changes)
        self.run_until(consumer, writer, lambda: self.next_offset(partition) == offset)
        self.stop()

    def run_until(
        self, consumer: Consumer, writer: LakeWriter, done: Callable[[], object], most: int = 500
    ) -> None:
        """Run the application's loop until a condition holds, for at most 300 rounds."""
        for _ in range(300):
            writer.write(consumer.consume(most, timeout=0.2))
            if done():
                return
        pytest.fail("the condition did not hold within 300 rounds")

    def table(self, name: str = "own") -> str:
        return f"{self.namespace}.{name}"

    def next_offset(self, partition: int = 0, name: str = "own") -> int | None:
        found = self.lake.open_table(self.table(name))
        return (
            None
            if found is None
            else found.read_offsets().offsets.next_offset(self.group, self.at(partition))
        )

    def missing(self, partition: int = 0, name: str = "own") -> MissingOffsets:
        found = self.lake.open_table(self.table(name))
        assert found is not None
        return found.read_gaps().missing_offsets(self.group, self.at(partition))

    def rows(self, partition: int = 0, name: str = "own") -> list[int]:
        found = self.lake.spark.table(self.table(name)).where(f"partition = {partition}")
        return sorted(row.offset for row in found.select("offset").collect())

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def lost(self, partition: int = 0) -> float | None:
        labels = {"topic": self.topic, "partition": str(partition)}
        return self.meters.registry.get_sample_value("trimtab_lost_offsets_total", labels)


@pytest.fixture
def rig(request: pytest.FixtureRequest, lake: SparkLake) -> Iterator[Rig]:
    bootstrap, group, namespace, warehouse, admin = map(
        request.getfixturevalue, ["bootstrap", "group", "namespace", "warehouse", "admin"]
    )
    topic = request.getfixturevalue("topic")(partitions=2)
    made = Rig(bootstrap, group, topic, lake, namespace, warehouse, admin)
    yield made
    for consumer, writer in made.open:
        writer.__exit__(RuntimeError, None, None)
        consumer.close()


@FORMATS
def test_records_expired_while_the_group_was_away_are_a_gap(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The gap is in the table's property, the counter and one log line; the other records are written."""
    rig.produce(10)
    rig.ingest(10)
    rig.produce(20)
    rig.expire(25)
    rig.ingest(30)
    assert rig.rows() == [*range(10), *range(25, 30)]
    assert rig.missing() == MissingOffsets((OffsetGap(10, 25),))
    assert rig.lost() == 15
    (line,) = [line for line in caplog.messages if "are gone" in line]
    assert "offsets 10 to 24 are gone: retention deleted up to 15 records" in line
    rig.produce(10)
    rig.expire(38)
    rig.ingest(40)
    assert rig.missing() == MissingOffsets((OffsetGap(10, 25), OffsetGap(30, 38)))
    assert rig.lost() == 23


@FORMATS
def test_records_and_the_gap_before_them_are_one_commit(rig: Rig) -> None:
    """Every version whose offset is beyond a gap has the gap."""
    rig.produce(10)
    rig.ingest(10)
    before = _versions(rig)
    rig.produce(10)
    rig.expire(15)
    rig.ingest(20)
    assert _versions(rig) == before + 1
    assert rig.missing() == MissingOffsets((OffsetGap(10, 15),))


def test_records_below_the_tables_offset_may_expire(rig: Rig) -> None:
    """The table has those records: there is no gap."""
    rig.produce(10)
    rig.ingest(10)
    rig.expire(9)
    rig.produce(5)
    rig.expire(10)
    rig.ingest(15)
    assert rig.rows() == list(range(15))
    assert rig.missing() == MissingOffsets()
    assert rig.lost() is None


@SLOW_ON_DELTA
def test_latest_skips_the_remaining_records_and_records_the_gap(rig: Rig) -> None:
    """The gap ends where the log ended when the consumer continued."""
    rig.produce(10)
    rig.ingest(10)
    rig.produce(20)
    rig.expire(25)
    consumer, writer = rig.start(**{"auto.offset.reset": "latest"})
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("trimtab.consumer_sdk").addHandler(handler)
    try:
        rig.run_until(consumer, writer, lambda: any("going on at offset 30" in line for line in messages))
    finally:
        logging.getLogger("trimtab.consumer_sdk").removeHandler(handler)
    rig.produce(5)
    rig.run_until(consumer, writer, lambda: rig.next_offset() == 35)
    rig.stop()
    assert rig.rows() == [*range(10), *range(30, 35)]
    assert rig.missing() == MissingOffsets((OffsetGap(10, 30),))


def test_error_halts_only_the_expired_partition(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Its offset stays, others continue; the error is logged at once and raised by close()."""
    rig.produce(10)
    rig.produce(2, partition=1)
    consumer, writer = rig.start()
    rig.run_until(consumer, writer, lambda: (rig.next_offset(0), rig.next_offset(1)) == (10, 2))
    rig.stop()
    rig.produce(20)
    rig.expire(25)
    rig.produce(5, partition=1)
    consumer, writer = rig.start(**{"auto.offset.reset": "error"})
    rig.run_until(consumer, writer, lambda: rig.next_offset(1) == 7 and "10 to 24 are gone" in caplog.text)
    with pytest.raises(OffsetsExpiredError, match="write earliest"):
        rig.stop()
    assert (rig.next_offset(0), rig.rows(0)) == (10, list(range(10)))
    assert rig.missing() == MissingOffsets()


@SLOW_ON_DELTA
def test_records_expired_under_a_slow_consumer_are_a_gap(rig: Rig) -> None:
    """Retention overtakes the reader: only the deleted records are missing."""
    rig.produce(600, size=1000)
    slow = {
        "queued.min.messages": 1,
        "queued.max.messages.kbytes": 1,
        "fetch.message.max.bytes": 20_000,
        "fetch.max.bytes": 20_000,
        "message.max.bytes": 10_000,
    }
    consumer, writer = rig.start(**slow)
    rig.run_until(consumer, writer, lambda: rig.next_offset() is not None, most=10)
    assert (rig.next_offset() or 0) < 500
    rig.expire(550)
    rig.run_until(consumer, writer, lambda: rig.next_offset() == 600)
    rig.stop()
    (gap,) = rig.missing().ranges
    assert gap.next == 550
    assert rig.rows() == [*range(gap.first), *range(550, 600)]
    assert rig.lost() == gap.offset_count


def test_transaction_markers_and_aborted_records_are_no_gap(rig: Rig) -> None:
    """Consumers never see their offsets."""
    producer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": rig.topic})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(rig.topic, b"x", partition=0)
        producer.flush(30)
        end(30)
    rig.ingest(11, **{"isolation.level": "read_committed"})
    assert rig.rows() == [0, 1, 2, 8, 9, 10]
    assert rig.missing() == MissingOffsets()


@SLOW_ON_DELTA
def test_every_table_of_a_topic_records_the_gap(rig: Rig) -> None:
    """Including a table without rows from the batch behind the gap; the counter counts it once."""

    def split(frame: Any) -> dict[str, Any]:
        return {"own": frame, "low": frame.where("offset < 10"), "none": frame.where("offset < 0")}

    rig.produce(10)
    rig.ingest(10, **{"lake.transform": split})
    rig.produce(10)
    rig.expire(15)
    rig.ingest(20, **{"lake.transform": split})
    assert rig.missing(name="own") == rig.missing(name="low") == MissingOffsets((OffsetGap(10, 15),))
    assert (rig.next_offset(name="low"), rig.rows(name="low")) == (20, list(range(10)))
    assert rig.lake.open_table(rig.table("none")) is None
    assert rig.lost() == 5


@SLOW_ON_DELTA
def test_a_recreated_topic_halts_its_partitions_only(
    rig: Rig, eventually: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is overwritten, another topic's records are written, and close() raises the error."""
    rig.produce(10)
    rig.ingest(10)
    rig.admin.delete_topics([rig.topic])[rig.topic].result(30)
    eventually(lambda: rig.topic not in rig.admin.list_topics(timeout=10).topics)
    rig.admin.create_topics([NewTopic(rig.topic, 2, 1)])[rig.topic].result(30)
    rig.produce(3)
    rig.produce(4, partition=1)
    consumer, writer = rig.start()
    rig.run_until(
        consumer,
        writer,
        lambda: rig.next_offset(1) == 4 and "Nothing was written, and this partition" in caplog.text,
    )
    with pytest.raises(OffsetRegressionError, match="the log ends at 3"):
        rig.stop()
    assert (rig.next_offset(0), rig.rows(0), rig.rows(1)) == (10, list(range(10)), [0, 1, 2, 3])
    assert rig.missing() == MissingOffsets()


def _versions(rig: Rig) -> int:
    found = rig.lake.open_table(rig.table())
    assert found is not None
    return found.count_snapshots()
