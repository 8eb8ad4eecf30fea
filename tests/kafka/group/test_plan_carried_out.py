"""A plan of 100,000 partitions for 1,000 members is what the group does, on a real broker."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from time import time
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.scripted_group import ScriptedMember, run_round
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

pytestmark = pytest.mark.broker

MEMBERS = 1_000
PARTITIONS = 100_000
TOPIC = "orders"
INSTANCES = tuple(f"consumer-{number:04d}" for number in range(MEMBERS))


@pytest.fixture
def settings(bootstrap: str, topic: Callable[..., str], group: str) -> SidecarSettings:
    """Settings with control topics of their own."""
    topics = {name: topic(1) for name in ("plan_topic", "write_rate_topic", "decision_topic")}
    flags = {"bootstrap": bootstrap, "group": group, "capacity": 1e6, "target": "none", **topics}
    return load_settings(None, flags)


@pytest.fixture
def reader(settings: SidecarSettings) -> Iterator[ControlTopicReader]:
    """The consumers' side of the control topics."""
    config = {
        "bootstrap.servers": settings.bootstrap,
        "group.id": settings.group,
        "trimtab.plan.topic": settings.plan_topic,
        "trimtab.write.rate.topic": settings.write_rate_topic,
    }
    reader = ControlTopicReader(parse_consumer_settings(config), SystemClock())
    reader.start()
    yield reader
    reader.stop()


@pytest.fixture
def count_members(admin: AdminClient, group: str) -> Callable[[], int]:
    """Count the group's members; -1 while its coordinator starts."""

    def count() -> int:
        try:
            return len(admin.describe_consumer_groups([group])[group].result(30).members)
        except KafkaException:
            return -1

    return count


@pytest.fixture
def large_groups(admin: AdminClient, count_members: Callable[[], int], eventually: Any) -> Iterator[None]:
    """Let the coordinator store groups of 10 MB, as the doctor advises for this size."""

    def set_limit(value: str) -> None:
        entry = ConfigEntry("max.message.bytes", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "__consumer_offsets", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    eventually(lambda: count_members() == 0)  # its first use creates the topic
    set_limit("10485760")
    yield
    set_limit("1048588")


@pytest.fixture
def members(
    settings: SidecarSettings,
    reader: ControlTopicReader,
    count_members: Callable[[], int],
    eventually: Any,
    large_groups: None,
) -> Iterator[list[ScriptedMember]]:
    """Members of one group that have sent their joins."""
    del large_groups
    where = (settings.bootstrap, settings.group)
    with ExitStack() as stack:
        members = [ScriptedMember(*where, name, TOPIC, reader.build_leader_view) for name in INSTANCES]
        for member in members:
            stack.callback(member.close)
        members[0].send_join()
        members[0].receive_join()  # alone; the broker holds the others' joins until it joins again
        for member in members[1:]:
            member.send_join()
        eventually(lambda: count_members() == MEMBERS, 120)
        members[0].send_join()
        yield members


def build_plan(group: str, epoch: int, numbers: Sequence[int]) -> GroupPlan:
    target = PlanTarget(epoch, INSTANCES, 0, {TOPIC: tuple(numbers)})
    return GroupPlan(group, epoch, time(), MEMBERS, "steady", 2000.0, 0.9, target=target)


def list_owners(members: Sequence[ScriptedMember]) -> list[int]:
    """Return the consumer number of each partition's owner, 0 without; no partition has two."""
    owners = {p.partition: number for number, m in enumerate(members, 1) for p in m.owned}
    assert len(owners) == sum(len(m.owned) for m in members)
    return [owners.get(partition, 0) for partition in range(PARTITIONS)]


def test_a_plan_of_100000_partitions_and_1000_members_is_carried_out(
    settings: SidecarSettings,
    reader: ControlTopicReader,
    members: list[ScriptedMember],
    admin: AdminClient,
    eventually: Any,
) -> None:
    """Published, read, carried out to the last partition; the next plan moves what it changes only."""
    store = ControlTopicStore(settings, admin)
    rates = {n: PartitionLoad(10.0) for n in range(PARTITIONS)}
    store.publish([TopicWriteRates(settings.group, TOPIC, time(), 300.0, "test", rates)])
    first = [1 + n % MEMBERS for n in range(PARTITIONS)]
    random.Random(7).shuffle(first)  # noqa: S311 - repeatable
    second = [n % MEMBERS + 1 if i % 10 == 0 else n for i, n in enumerate(first)]
    for epoch, numbers in ((1, first), (2, second)):
        plan = build_plan(settings.group, epoch, numbers)
        store.publish([plan])
        eventually(lambda p=plan: reader.plan == p, 60)
        for member in members if epoch > 1 else ():
            member.send_join()
        run_round(members, PARTITIONS)
        if epoch > 1:  # its owners have released what moves; all others read on
            kept = [n if n == old else 0 for n, old in zip(numbers, first, strict=True)]
            assert list_owners(members) == kept
            assert all(member.awaits_round for member in members)
            for member in members:
                member.send_join()
            run_round(members, PARTITIONS)
        assert list_owners(members) == numbers
        assert not any(member.awaits_round or member.fault for member in members)
