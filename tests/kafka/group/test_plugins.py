"""The assignor as a plugin of plain consumers, on a real broker."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from threading import Event, Thread
from time import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from trimtab.assignor.clients.aiokafka import EagerTrimtabAssignor as EagerAssignor
from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.consumer_sdk import GroupView

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]


class Holdings(ConsumerRebalanceListener):
    """Records the owners of each partition and every double ownership."""

    def __init__(self, name: str, held: "defaultdict[TopicPartition, set[str]]", wrong: list[Any]) -> None:
        self._name, self._held, self._wrong = name, held, wrong

    def on_partitions_assigned(self, assigned: Any) -> None:
        for tp in assigned:
            holders = self._held[TopicPartition(tp.topic, tp.partition)]
            holders.add(self._name)
            if len(holders) > 1:
                self._wrong.append((tp, set(holders)))

    def on_partitions_revoked(self, revoked: Any) -> None:
        for tp in revoked:
            self._held[TopicPartition(tp.topic, tp.partition)].discard(self._name)

    on_partitions_lost = on_partitions_revoked


class Plain:
    """A KafkaConsumer that polls in a thread."""

    def __init__(self, consumer: KafkaConsumer, topic: str, listener: Holdings) -> None:
        self.consumer = consumer
        self._stop = Event()
        consumer.subscribe([topic], listener=listener)
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            # kafka-python forgets a join that outlasts a poll (see poll_coordinator): poll longer
            self.consumer.poll(timeout_ms=1000)
        self.consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()


@pytest.fixture
def held() -> "defaultdict[TopicPartition, set[str]]":
    return defaultdict(set)


@pytest.fixture
def plain(bootstrap: str, group: str, held: Any) -> Iterator[Callable[..., Plain]]:
    """Start plain consumers; assert at the end that no partition ever had two owners."""
    started: list[Plain] = []
    wrong: list[Any] = []

    def start(name: str, topic: str, strategy: list[Any]) -> Plain:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name,
            partition_assignment_strategy=strategy,
            heartbeat_interval_ms=100,
            session_timeout_ms=6000,
            auto_offset_reset="earliest",
        )
        started.append(Plain(consumer, topic, Holdings(name, held, wrong)))
        return started[-1]

    yield start
    for one in started:
        one.stop()
    assert wrong == []


def counts(held: Any) -> list[int]:
    by_name: defaultdict[str, int] = defaultdict(int)
    for holders in tuple(held.values()):  # members change it meanwhile
        for name in tuple(holders):
            by_name[name] += 1
    return sorted(by_name.values())


def test_plugin_works_in_plain_kafka_python(
    topic: Any, plain: Any, held: Any, eventually: Eventually
) -> None:
    """As a class or an instance, the assignor is sticky and moves partitions in two rounds."""
    name = topic(partitions=6)
    plain("one", name, [TrimtabAssignor])
    eventually(lambda: counts(held) == [6])
    second = plain("two", name, [TrimtabAssignor("mwf", "2 MB/s")])
    eventually(lambda: counts(held) == [3, 3])
    second.stop()
    eventually(lambda: counts(held) == [6])


def test_rolling_upgrade_from_cooperative_sticky(
    topic: Any, plain: Any, held: Any, eventually: Eventually
) -> None:
    """Members switch protocols one at a time; no partition has two owners."""
    name = topic(partitions=9)
    both = [TrimtabAssignor, CooperativeStickyAssignor]
    members = [plain(f"old-{n}", name, [CooperativeStickyAssignor]) for n in range(3)]
    eventually(lambda: counts(held) == [3, 3, 3])
    for stage, strategy in (("both", both), ("new", [TrimtabAssignor])):
        for n, member in enumerate(members):
            member.stop()
            members[n] = plain(f"{stage}-{n}", name, strategy)
            eventually(lambda: sum(counts(held)) == 9 and len(counts(held)) == 3)
    protocol = members[0].consumer._coordinator._generation.protocol
    assert protocol == "trimtab"


@pytest.fixture
def aio_consumer(bootstrap: str, group: str) -> Callable[..., Awaitable[AIOKafkaConsumer]]:
    """Start an aiokafka consumer with this assignor; it does not commit."""

    async def start(topic: str, assignor: type[EagerAssignor]) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            heartbeat_interval_ms=100,
            enable_auto_commit=False,
            partition_assignment_strategy=(assignor,),
        )
        await consumer.start()
        return consumer

    return start


def test_eager_plugin_works_in_aiokafka(topic: Any, aio_consumer: Any) -> None:
    """Two aiokafka consumers share a topic; a join moves only half of the partitions."""
    name = topic(partitions=6)

    async def scenario() -> tuple[set[int], set[int], set[int]]:
        one = await aio_consumer(name, EagerAssignor.with_settings(instance="one"))
        alone = {tp.partition for tp in one.assignment()}
        two = await aio_consumer(name, EagerAssignor.with_settings(instance="two"))
        while len(one.assignment()) != 3 or len(two.assignment()) != 3:
            await one.getmany(timeout_ms=50)
            await two.getmany(timeout_ms=50)
        parts = [{tp.partition for tp in c.assignment()} for c in (one, two)]
        await two.stop()
        await one.stop()
        return alone, parts[0], parts[1]

    alone, first, second = asyncio.run(asyncio.wait_for(scenario(), timeout=60))
    assert alone == set(range(6))
    assert first | second == set(range(6))
    assert not first & second


@pytest.fixture
def rate_topic(group: str) -> str:
    """Name of a write-rate topic of this test alone, which does not exist."""
    return f"{group}.rates"


@pytest.fixture
def publish(admin: AdminClient, group: str, rate_topic: str, write: Any) -> Callable[..., None]:
    """Create the write-rate topic and publish as a sidecar does."""

    def publish(topic: str, *loads: PartitionLoad) -> None:
        new = NewTopic(rate_topic, 1, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([new])[rate_topic].result()
        rates = TopicWriteRates(group, topic, time(), 30.0, "offsets", dict(enumerate(loads)))
        write(rate_topic, rates.encode().decode(), key=rates.key)

    return publish


@pytest.fixture
def view(bootstrap: str, group: str, rate_topic: str) -> Iterator[Callable[[], GroupView]]:
    """Open views of the group; all are closed after the test."""
    views: list[GroupView] = []

    def start() -> GroupView:
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "trimtab.plan.topic": "",
            "trimtab.write.rate.topic": rate_topic,
        }
        views.append(GroupView(config))
        views[-1].start()
        return views[-1]

    yield start
    for one in views:
        one.close()


def parts(held: Any) -> list[list[int]]:
    """Return the partition numbers of each consumer, sorted."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for tp, names in tuple(held.items()):
        for name in tuple(names):  # the consumers' threads change both
            by_name[name].append(tp.partition)
    return sorted(sorted(numbers) for numbers in by_name.values())


@pytest.fixture
def expect_pair(plain: Any, held: Any, view: Any, eventually: Eventually) -> Callable[..., None]:
    """Start two plain consumers and wait until they read these partition numbers, or as many."""

    def expect(topic: str, heuristic: str, *expected: list[int] | int, blind: bool = False) -> None:
        for consumer in ("one", "two"):
            plain(consumer, topic, [TrimtabAssignor(heuristic, view=None if blind else view())])
        eventually(lambda: list(expected) in (parts(held), list(map(len, parts(held)))))

    return expect


LAGS = (1000, 600, 500)  # of KAFKA-5337's example, ÷ 100


@pytest.fixture
def behind(topic: Any, feed: Any) -> str:
    """Name of a topic with these lags."""
    name: str = topic(partitions=len(LAGS))
    for partition, count in enumerate(LAGS):
        feed.fill(name, partition, count)
    return name


def test_plugin_places_by_published_write_rates(topic: Any, expect_pair: Any, publish: Any) -> None:
    """One busy partition weighs as much as three others."""
    name = topic(partitions=4)
    publish(name, *(PartitionLoad(bytes_per_s=rate) for rate in (300.0, 100.0, 100.0, 100.0)))
    expect_pair(name, "mwf", [0], [1, 2, 3])


def test_plugin_places_by_the_lag_that_its_leader_asks_for(
    behind: str, expect_pair: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """KAFKA-5337's example, without a sidecar's topic."""
    expect_pair(behind, "lag-aware", [0], [1, 2])
    assert not [text for text in caplog.messages if "is known" in text]


def test_the_leader_alone_asks_for_lags(
    behind: str, plain: Any, held: Any, view: Any, eventually: Eventually
) -> None:
    """The first of three members leads all rebalances; the others ask the brokers for nothing."""
    asked: list[str] = []

    def watch(name: str, opened: GroupView) -> Callable[[], LeaderView]:
        def read() -> LeaderView:
            seen = opened()

            def load_lags(index: PartitionIndex) -> Mapping[TopicPartition, float | None]:
                asked.append(name)
                assert seen.load_lags is not None
                return seen.load_lags(index)

            return replace(seen, load_lags=load_lags)

        return read

    for name in ("one", "two", "three"):
        plain(name, behind, [TrimtabAssignor("lag-aware", view=watch(name, view()))])
        eventually(lambda name=name: any(name in names for names in tuple(held.values())))
    eventually(lambda: parts(held) == [[0], [1], [2]])
    assert len(asked) >= 3
    assert set(asked) == {"one"}


def test_plugin_places_by_published_lag(topic: Any, expect_pair: Any, publish: Any) -> None:
    """The lags in a sidecar's topic need no request; here they differ from the brokers'."""
    name = topic(partitions=3)
    publish(name, *(PartitionLoad(backlog_records=lag) for lag in reversed(LAGS)))
    expect_pair(name, "lag-aware", [0, 1], [2])


@pytest.mark.parametrize(
    ("heuristic", "note"),
    [
        ("mwf", "no write rate is known: every partition weighs the same"),
        ("lag-aware", "no lag is known: partitions are spread by count"),
    ],
)
def test_log_tells_what_the_plugin_lacks(
    heuristic: str, note: str, topic: Any, expect_pair: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a view partitions are even by count, and the log says why."""
    caplog.set_level(logging.INFO, "trimtab")
    expect_pair(topic(partitions=4), heuristic, 2, 2, blind=True)
    assert {text for text in caplog.messages if "is known" in text} == {note}


@pytest.mark.parametrize(("heuristic", "expected"), [("mwf", [[0, 1], [2]]), ("lag-aware", [[0], [1, 2]])])
def test_eager_plugin_places_by_load_and_by_lag(
    heuristic: str, expected: list[list[int]], behind: str, aio_consumer: Any, view: Any, publish: Any
) -> None:
    """aiokafka: write rates from the sidecar's topic, lags from the brokers."""
    publish(behind, *(PartitionLoad(bytes_per_s=rate) for rate in (100.0, 100.0, 200.0)))

    async def scenario() -> list[list[int]]:
        both = [
            await aio_consumer(behind, EagerAssignor.with_settings(heuristic, view=view())) for _ in range(2)
        ]
        while sorted(len(c.assignment()) for c in both) != [1, 2]:
            for consumer in both:
                await consumer.getmany(timeout_ms=50)
        owned = [sorted(tp.partition for tp in c.assignment()) for c in both]
        for consumer in both:
            await consumer.stop()
        return sorted(owned)

    assert asyncio.run(asyncio.wait_for(scenario(), timeout=60)) == expected
