"""A deleted topic holds up nothing else: each test runs on ours and on confluent-kafka or aiokafka."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from threading import Event, Thread
from time import monotonic
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

import trimtab.consumer_sdk

pytestmark = pytest.mark.broker

KINDS = {
    "theirs": (confluent_kafka.Consumer, {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100}),
    "ours": (trimtab.consumer_sdk.Consumer, {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100}),
    "ours, new protocol": (trimtab.consumer_sdk.Consumer, {"group.protocol": "consumer"}),
}
COUNT = 20
LONGEST_PAUSE_S = 2.5  # a commit was repeated for 30 s, that of a release for 5 s


@pytest.fixture(params=KINDS)
def chosen(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(chosen: str, bootstrap: str, group: str) -> Iterator[Callable[..., Any]]:
    """Create consumers of one kind; close all at the end."""
    create, protocol = KINDS[chosen]
    made: list[Any] = []

    def make(**settings: Any) -> Any:
        shared = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        named = {k if k == "on_commit" else k.replace("_", "."): v for k, v in settings.items()}
        made.append(create({**shared, **protocol, **named}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture
def fill(bootstrap: str) -> Callable[[str], None]:
    """Write 20 records to the first partition of a topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def fill(topic: str) -> None:
        for _ in range(COUNT):
            producer.produce(topic, b".", partition=0)
        producer.flush()

    return fill


@pytest.fixture
def delete(admin: Any) -> Callable[[str], None]:
    """Delete a topic and wait until the broker knows it no more."""

    def delete(topic: str) -> None:
        admin.delete_topics([topic])[topic].result(30)

    return delete


def read(consumer: Any, count: int) -> list[Any]:
    """Read until there are `count` records."""
    records: list[Any] = []
    deadline = monotonic() + 60
    while len(records) < count and monotonic() < deadline:
        records += [m for m in consumer.consume(count - len(records), timeout=0.5) if m.error() is None]
    return records


def test_a_commit_of_a_deleted_topic_fails_at_once_and_names_it(
    make: Any, topic: Any, fill: Any, delete: Any, chosen: str
) -> None:
    """A commit of both topics fails by the deleted one, and the broker has the living one's offset."""
    live, gone = topic(partitions=1), topic(partitions=1)
    fill(live)
    fill(gone)
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([live, gone])
    read(consumer, 2 * COUNT)
    delete(gone)
    begun = monotonic()
    with pytest.raises(
        KafkaException, match="Unknown topic" if chosen == "theirs" else f"{gone}-0"
    ) as raised:
        consumer.commit(offsets=[TopicPartition(live, 0, 7), TopicPartition(gone, 0, 7)], asynchronous=False)
    assert monotonic() - begun < LONGEST_PAUSE_S
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert consumer.committed([TopicPartition(live, 0)], timeout=10)[0].offset == 7


class Reader:
    """Reads in a thread and commits each batch; records when records of each topic came, and errors."""

    def __init__(self, consumer: Any, topics: list[str]) -> None:
        self.came: defaultdict[str, list[float]] = defaultdict(list)
        self.errors: set[int] = set()
        self._consumer = consumer
        self._stop = Event()
        self._thread = Thread(target=self._run, args=(topics,))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics)
        while not self._stop.is_set():
            records = [m for m in self._consumer.consume(100, 0.1) if m.error() is None]
            for topic in {record.topic() for record in records}:
                self.came[topic].append(monotonic())
            try:
                if records:
                    self._consumer.commit(asynchronous=False)
            except KafkaException as error:
                self.errors.add(error.args[0].code())


@pytest.mark.parametrize("chosen", ["theirs", "ours"])  # a move of the new protocol takes a heartbeat of 5 s
def test_a_deleted_topic_interrupts_no_other(make: Any, topic: Any, delete: Any, bootstrap: str) -> None:
    """Two members read three topics and commit each batch; one topic is deleted, which is rebalanced."""
    topics = [topic(partitions=2) for _ in range(3)]
    readers = [Reader(make(enable_auto_commit=False, metadata_max_age_ms=1000), topics) for _ in range(2)]
    producer, begun = Producer({"bootstrap.servers": bootstrap}), monotonic()

    def write_until(seconds: float, written: list[str]) -> None:
        while monotonic() - begun < seconds:
            for name in written:
                for partition in range(2):
                    producer.produce(name, b".", partition=partition)
            producer.flush(0.05)
            Event().wait(0.05)

    write_until(8, topics)
    delete(topics[2])
    write_until(16, topics[:2])
    for reader in readers:
        reader.stop()
    for name in topics[:2]:
        came = sorted(at for reader in readers for at in reader.came[name] if at > begun + 6)
        assert max(b - a for a, b in pairwise([*came, begun + 16])) < 2 * LONGEST_PAUSE_S  # with a rebalance
    assert set().union(*(reader.errors for reader in readers)) <= {KafkaError.UNKNOWN_TOPIC_OR_PART}


def test_a_release_does_not_wait_for_a_deleted_topic(make: Any, topic: Any, fill: Any, delete: Any) -> None:
    """With automatic commits close() has read, but not committed, offsets of the deleted topic."""
    live, gone = topic(partitions=1), topic(partitions=1)
    fill(live)
    fill(gone)
    consumer = make(auto_commit_interval_ms=100_000)
    consumer.subscribe([live, gone])
    read(consumer, 2 * COUNT)
    delete(gone)
    begun = monotonic()
    consumer.close()
    assert monotonic() - begun < LONGEST_PAUSE_S
    watcher = make()
    assert watcher.committed([TopicPartition(live, 0)], timeout=10)[0].offset == COUNT


@pytest.mark.parametrize("kind", [aiokafka.AIOKafkaConsumer, trimtab.consumer_sdk.AsyncConsumer])
def test_records_come_during_an_async_commit_of_a_deleted_topic(
    kind: Any, topic: Any, fill: Any, delete: Any, bootstrap: str, group: str
) -> None:
    """One task commits the deleted topic, another one reads."""
    live, gone = topic(partitions=1), topic(partitions=1)

    async def play() -> None:
        consumer = kind(
            live,
            gone,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        async with consumer:
            fill(gone)
            for _ in range(COUNT):
                await consumer.getone()
            delete(gone)
            commit = asyncio.ensure_future(consumer.commit({aiokafka.TopicPartition(gone, 0): COUNT}))
            await asyncio.sleep(0.1)
            fill(live)
            async with asyncio.timeout(LONGEST_PAUSE_S):
                for _ in range(COUNT):
                    assert (await consumer.getone()).topic == live
            commit.cancel()
            await asyncio.gather(commit, return_exceptions=True)

    asyncio.run(play())
