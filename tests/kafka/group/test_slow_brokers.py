"""One sidecar with groups of three brokers, one of which hangs: it delays its own groups only."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Protocol
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.many_groups import ManyGroupsSidecar
from trimtab.cli.broker.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 12
INTERVAL = 0.5
TIMEOUT = 3.0
CONTROL_TOPICS = {f"{name}-topic": f"slow.{name}" for name in ("plan", "write-rate", "decision")}
COMMON = {
    **CONTROL_TOPICS,
    "capacity": "1 MB/s",
    "interval": INTERVAL,
    "window": "2 s",
    "timeout": TIMEOUT,
    "offset-reset": "earliest",
}


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@dataclass
class ThreeBrokers:
    """Brokers 1, the only controller, 2 and 3."""

    brokers: dict[int, EmbeddedBroker]

    @property
    def bootstrap(self) -> str:
        return self.brokers[1].bootstrap

    @cached_property  # one that is dropped cancels its requests
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def make_topic(self, node: int) -> str:
        """Create a topic of one partition, with records, that this broker alone has."""
        name = f"slow-{node}-{uuid4().hex[:6]}"
        self.admin.create_topics([NewTopic(name, 1, replica_assignment=[[node]])])[name].result(60)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(10):
            producer.produce(name, b"x" * 100)
        assert producer.flush(30) == 0
        return name

    def make_group(self, node: int, topic: str) -> str:
        """Return a group with a commit, whose coordinator is this broker."""
        self._commit("first", topic)  # makes the topic of the commits
        found = self.admin.list_topics(OFFSETS_TOPIC, timeout=30).topics[OFFSETS_TOPIC].partitions
        names = (f"group-{node}-{uuid4().hex[:6]}" for _ in range(1000))
        group = next(n for n in names if found[hash_as_kafka(n) % len(found)].leader == node)
        self._commit(group, topic)
        return group

    def _commit(self, group: str, topic: str) -> None:
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        reader.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        reader.close()


def hash_as_kafka(text: str) -> int:
    """Return Java's hash of a text, as Kafka makes a positive number of it."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeBrokers]:
    few = {"offsets.topic.num.partitions": str(OFFSETS_PARTITIONS)}
    with ExitStack() as stack:
        first = stack.enter_context(EmbeddedBroker(properties=few))
        # the controller would take the leaders of a silent broker away after 9 s
        patient = {**few, "broker.session.timeout.ms": "300000"}
        peers = {node: first.create_peer({**patient, "node.id": str(node)}) for node in (2, 3)}
        for peer in peers.values():
            stack.enter_context(peer)
        three = ThreeBrokers({1: first, **peers})
        while len(three.admin.list_topics(timeout=30).brokers) < 3:
            Event().wait(0.1)
        for name in CONTROL_TOPICS.values():  # not on the broker that hangs: all groups need them
            three.admin.create_topics([NewTopic(name, 1, replica_assignment=[[1]])])[name].result(60)
        yield three


def test_slow_brokers_of_one_group_touch_no_other(
    three: ThreeBrokers, tmp_path: Path, eventually: Eventually
) -> None:
    """While broker 3 hangs, groups of the others have an iteration per interval, and its own are told why."""
    topics = {node: three.make_topic(node) for node in (1, 2, 3)}
    groups = {node: three.make_group(node, topics[node]) for node in (1, 2, 3)}
    # coordinated by a healthy broker, with its partition on the one that hangs
    mixed = three.make_group(1, topics[3])
    entries = [{"group": groups[node], "topics": topics[node]} for node in (1, 2, 3)]
    entries.append({"group": mixed, "topics": topics[3]})
    sidecar = ManyGroupsSidecar(
        tmp_path / "sidecar", {**COMMON, "bootstrap": three.bootstrap, "groups": entries}
    )
    try:
        eventually(lambda: list(sidecar.states().values()) == ["managed"] * 4, 60)
        eventually(lambda: all(sidecar.count_iterations(g) >= 4 for g in (*groups.values(), mixed)), 60)
        os.kill(three.brokers[3].pid, signal.SIGSTOP)
        try:
            assert_only_its_groups_fail(sidecar, groups, mixed, eventually)
        finally:
            os.kill(three.brokers[3].pid, signal.SIGCONT)
        for group in (groups[3], mixed):  # and all is well again
            begin = sidecar.count_iterations(group)
            eventually(lambda g=group, n=begin: sidecar.count_iterations(g) >= n + 6, 60)
            eventually(lambda g=group: not has_errors(sidecar, g), 60)
    finally:
        sidecar.close()


def has_errors(sidecar: ManyGroupsSidecar, group: str) -> bool:
    types = {one["type"] for one in sidecar.groups()[group].get("conditions", ())}
    return not types.isdisjoint({"GroupUnknown", "RequestsFailed"})


def assert_only_its_groups_fail(
    sidecar: ManyGroupsSidecar, groups: dict[int, str], mixed: str, eventually: Eventually
) -> None:
    healthy, slow = (groups[1], groups[2]), (groups[3], mixed)
    # the first such round finds it out
    eventually(lambda: any(has_errors(sidecar, group) for group in slow), 60)
    begin = {group: sidecar.count_iterations(group) for group in healthy}
    eventually(lambda: all(sidecar.count_iterations(g) - begin[g] >= 20 for g in healthy), 60)
    for group in healthy:
        assert not has_errors(sidecar, group), group
    for group in slow:
        assert has_errors(sidecar, group), group
