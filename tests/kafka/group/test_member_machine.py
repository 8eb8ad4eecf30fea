"""The member machine and its thread on a real broker: rounds, a killed member, a static restart, a bounce."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.group_model import decide, describe
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.clock import SystemClock
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.machine.classic_member import ClassicMember
from trimtab.consumer_sdk.membership.machine.driver import MemberDriver
from trimtab.consumer_sdk.membership.machine.values import (
    Assigned,
    CommitAnswered,
    Ended,
    LeadRequested,
    Left,
    Lost,
    MemberOptions,
    Revoked,
)

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]


class Runner:
    """A member that runs, and releases at once."""

    def __init__(self, config: Mapping[str, Any], group: str, topic: str, **options: Any) -> None:
        self.topic = topic
        self.reads: frozenset[TopicPartition] = frozenset()
        self.events: list[Any] = []
        self.left = Event()
        clock = SystemClock()
        self.brokers = Brokers(dict(config), clock, client_id="machine", timeout=5.0)
        wanted = MemberOptions(
            group, "trimtab", **{"session_timeout": 6.0, "rebalance_timeout": 300.0} | options
        )
        self.member = ClassicMember(wanted, describe, Random(), clock.monotonic())  # noqa: S311 - of pauses
        self.driver = MemberDriver(self.member, self.brokers, clock, self.take)
        self.driver.call(lambda member, now: member.subscribe([topic], now))
        self.driver.start()

    def take(self, event: Any) -> None:
        self.events.append(event)
        if isinstance(event, LeadRequested):
            count = len(self.member.topics.partitions.get(self.topic, ()))
            given = {} if event.is_decided else decide(event.members, count, self.topic)
            self.driver.call(lambda member, now: member.assign(given, [self.topic], now))
        elif isinstance(event, Assigned):
            self.reads |= event.partitions
        elif isinstance(event, Lost):
            self.reads -= event.partitions
        elif isinstance(event, Revoked):
            self.reads -= event.partitions
            self.driver.call(lambda member, now: member.release(now))
        elif isinstance(event, Left | Ended):
            self.left.set()

    def close(self) -> None:
        self.driver.call(lambda member, now: member.leave("closing", now))
        self.left.wait(5)
        self.kill()

    def kill(self) -> None:
        """End without a word to the group."""
        self.driver.stop()
        assert self.driver.join(10)
        self.brokers.close()


@pytest.fixture
def run(bootstrap: str, group: str) -> Iterator[Callable[..., Runner]]:
    runners: list[Runner] = []

    def start(topic: str, config: Mapping[str, Any] | None = None, **options: Any) -> Runner:
        runners.append(Runner(config or {"bootstrap.servers": bootstrap}, group, topic, **options))
        return runners[-1]

    yield start
    for runner in runners:
        if runner.driver.error is None:
            runner.close()


def count(*runners: Runner) -> list[int]:
    owned = [p for one in runners for p in one.reads]
    assert len(owned) == len(set(owned))
    return sorted(len(one.reads) for one in runners)


def test_members_share_partitions_and_take_over_a_killed_ones(
    topic: Any, run: Any, eventually: Eventually
) -> None:
    """Two, then three; one dies without leaving, one leaves."""
    name = topic(partitions=6)
    first = run(name)
    eventually(lambda: len(first.reads) == 6)
    second = run(name)
    eventually(lambda: count(first, second) == [3, 3])
    third = run(name)
    eventually(lambda: count(first, second, third) == [2, 2, 2])
    second.kill()
    second.reads = frozenset()
    eventually(lambda: count(first, third) == [3, 3])
    third.close()
    eventually(lambda: len(first.reads) == 6)
    assert not first.member.owned - first.reads
    assert first.member.holds_lease(SystemClock().monotonic())


def test_commits_are_answered_in_order(
    topic: Any, run: Any, bootstrap: str, group: str, eventually: Eventually
) -> None:
    """The broker's offsets are those of the last commit; an unknown partition is refused alone."""
    name = topic(partitions=1)
    one = run(name)
    eventually(lambda: len(one.reads) == 1)
    partition = TopicPartition(name, 0)
    for offset in range(50):
        at = {partition: CommitPosition(offset, "note")}
        one.driver.call(lambda member, _now, at=at: member.commit(at))
    strange = {partition: CommitPosition(77), TopicPartition("no-such-topic", 0): CommitPosition(1)}
    one.driver.call(lambda member, _now: member.commit(strange))
    answers = lambda: [e for e in one.events if isinstance(e, CommitAnswered)]  # noqa: E731
    eventually(lambda: len(answers()) == 51)
    assert {e.code for e in answers()} == {0}
    assert answers()[-1].refused == {TopicPartition("no-such-topic", 0): 3}
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    assert reader.committed([LibrdkafkaPartition(name, 0)], timeout=10)[0].offset == 77
    reader.close()


def test_a_static_member_returns_without_a_round(topic: Any, run: Any, eventually: Eventually) -> None:
    """And fences the one whose name it takes."""
    name = topic(partitions=4)
    first, second = run(name, group_instance_id="a"), run(name, group_instance_id="b")
    eventually(lambda: count(first, second) == [2, 2])
    generation = first.member.generation
    kept = second.reads
    second.close()
    again = run(name, group_instance_id="b")
    eventually(lambda: again.reads == kept)
    assert first.member.generation == again.member.generation == generation
    run(name, group_instance_id="b")
    eventually(lambda: [e.code for e in again.events if isinstance(e, Ended)] == [82])
    assert again.reads == frozenset()


def test_a_bounced_coordinator_loses_no_membership(tmp_path: Path, eventually: Eventually) -> None:
    """The broker dies by SIGKILL and returns within the session."""
    with EmbeddedBroker(data=tmp_path) as broker:
        config = {"bootstrap.servers": broker.bootstrap}
        admin = AdminClient(config)
        admin.create_topics([NewTopic("bounced", 2, 1)])["bounced"].result(30)
        runners = [Runner(config, "bounced", "bounced", session_timeout=20.0) for _ in range(2)]
        eventually(lambda: count(*runners) == [1, 1])
        member_ids = [one.member.member_id for one in runners]
        os.kill(broker.pid, signal.SIGKILL)
    with EmbeddedBroker(broker.port, data=tmp_path):
        at = {next(iter(runners[0].reads)): CommitPosition(3)}

        def committed() -> bool:
            runners[0].driver.call(lambda member, _now: member.commit(at))
            return any(isinstance(e, CommitAnswered) and e.code == 0 for e in runners[0].events)

        eventually(committed, 60)
        assert [one.member.member_id for one in runners] == member_ids
        assert not any(isinstance(e, Lost) for one in runners for e in one.events)
        for one in runners:
            one.close()
