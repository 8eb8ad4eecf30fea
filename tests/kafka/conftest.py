"""Consumers in threads, with a log that proves that no partition had two owners at once."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Message, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from support.secured import Secured, secured
from support.sidecar_bench import PARTITIONS, SidecarBench
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.membership import release_watch
from trimtab.consumer_sdk.membership.classic import member
from trimtab.consumer_sdk.queues import MessageQueue
from trimtab.consumer_sdk.queues import open_queue as open_queue_of_kind
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

NAMES = {"enable_auto_commit": "enable.auto.commit"}


@dataclass
class Tenure:
    """A period in which a worker owned a partition."""

    partition: TopicPartition
    worker: str
    begin: float
    end: float = float("inf")


@dataclass
class Log:
    """Ownership and records of all workers of a test, in order of time."""

    tenures: list[Tenure] = field(default_factory=list)
    records: list[tuple[TopicPartition, int, str, float]] = field(default_factory=list)

    def owner_conflicts(self) -> list[tuple[Tenure, Tenure]]:
        by_partition = defaultdict(list)
        for tenure in sorted(self.tenures, key=lambda t: t.begin):
            by_partition[tenure.partition].append(tenure)
        return [
            (one, two)
            for tenures in by_partition.values()
            for one, two in pairwise(tenures)
            if two.begin < one.end
        ]

    def offsets(self) -> dict[TopicPartition, list[int]]:
        offsets: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        for partition, offset, _, _ in self.records:
            offsets[partition].append(offset)
        return dict(offsets)


class Worker:
    """A consumer that polls in a thread until it is stopped."""

    def __init__(
        self,
        name: str,
        topics: list[str],
        config: dict[str, Any],
        log: Log,
        client: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        self.name = name
        self.revocation_s = 0.0  # time that each later revocation takes, at most
        self.may_release = Event()  # ends it
        self.log = log
        self.owned: set[TopicPartition] = set()
        self.assigns = 0
        self.error: Exception | None = None
        self.consumer = client({**config, "trimtab.instance": name})
        self._topics = topics
        self._stop = Event()
        self._thread = Thread(target=self._run, name=name)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), f"{self.name} hangs"

    def _run(self) -> None:
        try:
            self.consumer.subscribe(self._topics, self._assigned, self._revoked, self._revoked)
            while not self._stop.is_set():
                for message in self.consumer.consume(500, timeout=0.05):
                    assert message.error() is None, message.error()
                    partition = TopicPartition(message.topic(), message.partition())
                    self.log.records.append((partition, message.offset(), self.name, monotonic()))
        except Exception as error:  # noqa: BLE001 - the test reads it
            self.error = error
        finally:
            self.consumer.close()

    def _assigned(self, _: Any, partitions: list[Any]) -> None:
        self.assigns += 1
        for p in partitions:
            partition = TopicPartition(p.topic, p.partition)
            self.owned.add(partition)
            self.log.tenures.append(Tenure(partition, self.name, monotonic()))

    def _revoked(self, _: Any, partitions: list[Any]) -> None:
        self.may_release.wait(self.revocation_s)
        for p in partitions:
            partition = TopicPartition(p.topic, p.partition)
            self.owned.discard(partition)
            mine = [t for t in self.log.tenures if t.worker == self.name and t.partition == partition]
            mine[-1].end = monotonic()


Start = Callable[..., Worker]


@pytest.fixture
def log() -> Iterator[Log]:
    """The log of the workers; after the test, asserts that no partition had two owners at once."""
    log = Log()
    yield log
    assert log.owner_conflicts() == []


@pytest.fixture
def patient_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that a busy machine confirms late is confirmed, too, and costs no second round."""
    monkeypatch.setattr(member, "MAX_RELEASE_S", 20.0)
    monkeypatch.setattr(release_watch, "CONFIRMATION_TIMEOUT_S", 60.0)


@pytest.fixture(scope="session")
def guarded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with TLS, SASL and ACLs; its user has only the rights that a test grants."""
    with secured(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture
def config(bootstrap: str, group: str) -> dict[str, Any]:
    """Consumer settings with the shortest session timeout that brokers allow by default."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 100,
        "metadata.max.age.ms": 1000,
    }


@pytest.fixture
def use_protocol(admin: AdminClient, group: str) -> Callable[[dict[str, Any], str], dict[str, Any]]:
    """Return settings of a group protocol, "classic" or "consumer", with timeouts as those of `config`."""

    def choose(config: dict[str, Any], protocol: str) -> dict[str, Any]:
        if protocol == "classic":
            return config
        session = str(config["session.timeout.ms"])
        timeouts = {"consumer.session.timeout.ms": session, "consumer.heartbeat.interval.ms": "100"}
        entries = [
            ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in timeouts.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(30)
        own = {name: value for name, value in config.items() if name != "heartbeat.interval.ms"}
        return {**own, "group.protocol": protocol}

    return choose


@pytest.fixture
def start(config: dict[str, Any], log: Log) -> Iterator[Start]:
    """Start workers by name; after the test, stops all and asserts that none has failed."""
    workers: list[Worker] = []

    def start(name: str, topics: list[str], *, client: Any = Consumer, **settings: Any) -> Worker:
        extra = {NAMES.get(key, key.replace("_", ".")): value for key, value in settings.items()}
        workers.append(Worker(name, topics, {**config, **extra}, log, client))
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()
    assert [w.error for w in workers if w.error] == []


class Feed:
    """Writes numbered records evenly over a topic's partitions."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.written: defaultdict[TopicPartition, int] = defaultdict(int)

    def write(self, topic: str, partitions: int, count: int, size: int = 20) -> None:
        for number in range(count):
            partition = TopicPartition(topic, number % partitions)
            value = str(self.written[partition]).encode().ljust(size, b".")
            self._producer.produce(topic, value, partition=partition.partition)
            self.written[partition] += 1
            self._producer.poll(0)
        self._producer.flush()

    def fill(self, topic: str, partition: int, count: int) -> None:
        for _ in range(count):
            self._producer.produce(topic, b".", partition=partition)
        self.written[TopicPartition(topic, partition)] += count
        self._producer.flush()


@pytest.fixture
def feed(bootstrap: str) -> Feed:
    """A producer of numbered records."""
    return Feed(bootstrap)


@pytest.fixture
def write(bootstrap: str) -> Callable[..., None]:
    """Write values to a partition of a topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def write(topic: str, *values: str, partition: int = 0, key: str | None = None) -> None:
        for value in values:
            producer.produce(topic, value.encode(), key, partition)
        producer.flush()

    return write


@pytest.fixture
def open_queue(config: dict[str, Any]) -> Iterator[Callable[..., MessageQueue]]:
    """Open queues; all are closed after the test."""
    queues: list[MessageQueue] = []

    def open_with_settings(kind: str, topic: str, **settings: Any) -> MessageQueue:
        options = {f"trimtab.queue.{key.replace('_', '.')}": value for key, value in settings.items()}
        queues.append(open_queue_of_kind(kind, topic, {**config, **options}))
        return queues[-1]

    yield open_with_settings
    for queue in queues:
        queue.close()


@pytest.fixture
def start_tracker(config: dict[str, Any]) -> Iterator[Callable[..., RedeliveryTracker]]:
    """Run redelivery trackers in threads until the test ends."""
    stop, threads = Event(), list[Thread]()

    def start(topic: str, clock: Clock | None = None, **settings: Any) -> RedeliveryTracker:
        options = {f"trimtab.queue.{key.replace('_', '.')}": value for key, value in settings.items()}
        tracker = RedeliveryTracker(parse_queue_settings(topic, {**config, **options}), clock=clock)
        threads.append(Thread(target=tracker.run, args=(stop,)))
        threads[-1].start()
        return tracker

    yield start
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def read_records(bootstrap: str) -> Callable[[str], list[Message]]:
    """Read all current records of a topic."""

    def read(topic: str) -> list[Message]:
        consumer = ConfluentConsumer({"bootstrap.servers": bootstrap, "group.id": "looks-only"})
        messages: list[Message] = []
        for number in consumer.list_topics(topic, 10).topics[topic].partitions:
            partition = RawPartition(topic, number, 0)
            low, high = consumer.get_watermark_offsets(partition, 10)
            consumer.assign([RawPartition(topic, number, low)])
            while low < high:
                for message in consumer.consume(100, 0.2):
                    low = message.offset() + 1
                    messages.append(message)
        consumer.close()
        return messages

    return read


class Control:
    """Writes to its own control topics."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.group = group
        self.topics = {"trimtab.plan.topic": f"{group}.plan", "trimtab.write.rate.topic": f"{group}.speed"}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [NewTopic(t, 1, 1, config={"cleanup.policy": "compact"}) for t in self.topics.values()]
        for future in admin.create_topics(new).values():
            future.result()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def plan(self, epoch: int, **fields: Any) -> None:
        settings = {"replicas": 1, "heuristic": "mbf", "capacity": 1000.0, **fields}
        plan = GroupPlan(self.group, epoch, time(), reasons=("a test",), **settings)
        self._write(self.topics["trimtab.plan.topic"], plan.key, plan.encode())

    def publish_rates(self, topic: str, *rates: float) -> None:
        partitions = {n: PartitionLoad(bytes_per_s=rate) for n, rate in enumerate(rates)}
        value = TopicWriteRates(self.group, topic, time(), 30.0, "test", partitions)
        self._write(self.topics["trimtab.write.rate.topic"], value.key, value.encode())

    def garbage(self) -> None:
        for topic in self.topics.values():
            self._write(topic, "?", b"\xff{")

    def _write(self, topic: str, key: str, value: bytes) -> None:
        self._producer.produce(topic, value, key)
        self._producer.flush()


@pytest.fixture
def control(bootstrap: str, group: str) -> Control:
    """Control topics for one group."""
    return Control(bootstrap, group)


@pytest.fixture
def bench(bootstrap: str, group: str, topic: Callable[..., str], tmp_path: Path) -> Iterator[SidecarBench]:
    bench = SidecarBench(bootstrap, group, topic(partitions=PARTITIONS), tmp_path)
    yield bench
    bench.close()
