"""The assignor as a plugin of plain consumers, on a real broker."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from trimtab.assignor.clients.aiokafka import EagerTrimtabAssignor as EagerAssignor
from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.model import TopicPartition

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
    for holders in held.values():
        for name in holders:
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


def test_eager_plugin_works_in_aiokafka(topic: Any, bootstrap: str, group: str) -> None:
    """Two aiokafka consumers share a topic; a join moves only half of the partitions."""
    name = topic(partitions=6)

    async def start_consumer(instance: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            name,
            bootstrap_servers=bootstrap,
            group_id=group,
            heartbeat_interval_ms=100,
            partition_assignment_strategy=(EagerAssignor.with_settings(instance=instance),),
        )
        await consumer.start()
        return consumer

    async def scenario() -> tuple[set[int], set[int], set[int]]:
        one = await start_consumer("one")
        alone = {tp.partition for tp in one.assignment()}
        two = await start_consumer("two")
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
