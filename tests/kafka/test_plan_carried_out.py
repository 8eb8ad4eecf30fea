"""What a plan's target says is what the group does, on a real broker."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic, time
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from scripted_group import ScriptedMember, run_round
from sidecar_bench import CAPACITY, SidecarBench
from sidecar_bench import PARTITIONS as WORKED_PARTITIONS

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.consumer_sdk.consumer.settings import parse_consumer_settings
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

MEMBERS = 1_000
PARTITIONS = 100_000
TOPIC = "orders"
FOLLOWED_WITHIN_S = 8.0  # a plan by the group; longer than both rounds take on a busy machine
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


class PlacementWatch:
    """Compares the placements of a group with its plan's target."""

    def __init__(self, bench: SidecarBench) -> None:
        self.carried_out: set[tuple[int, int]] = set()  # epoch and revision
        self.wrong: list[Placement] = []
        self._bench = bench
        self._last: Placement | None = None
        self._since = monotonic()

    def sees_target(self) -> bool:
        """Return whether the planned workers own what the target gives them; keep what differs for long."""
        placement = self._read_placement()
        if placement != self._last:
            self._last, self._since = placement, monotonic()
        if placement is None:
            return False
        is_target = placement.equals_target()
        if is_target:
            self.carried_out.add((placement.plan.epoch, placement.plan.target.revision))
        elif monotonic() - self._since > FOLLOWED_WITHIN_S and placement not in self.wrong:
            self.wrong.append(placement)
        return is_target

    def _read_placement(self) -> "Placement | None":
        """Return the placement of a settled group, None while it changes."""
        if not self._bench.state.exists() or not self._bench.pids() or not self._bench.is_settled():
            return None
        plan = self._bench.plan()
        group = self._bench.monitor.describe_group()
        return Placement(plan, {m.instance: frozenset(m.owned_partitions) for m in group.members})


@dataclass(frozen=True)
class Placement:
    """Partitions by instance under a plan."""

    plan: GroupPlan
    owned: Mapping[str, frozenset[TopicPartition]]

    def equals_target(self) -> bool:
        """Return whether named consumers own their shares, and one other member each of the other shares."""
        target = self.plan.target
        if target is None:
            return False
        shares = [
            frozenset(
                TopicPartition(topic, partition)
                for topic, numbers in target.partitions.items()
                for partition, number in enumerate(numbers)
                if number == consumer
            )
            for consumer in range(1, target.size + 1)
        ]
        named = {n: share for n, share in zip(target.consumers, shares, strict=False) if n in self.owned}
        others = [owned for name, owned in self.owned.items() if owned and name not in named]
        left = [share for share in shares if share and share not in named.values()]
        return named.items() <= self.owned.items() and set(others) == set(left)


def test_every_placement_is_its_plans_target(bench: SidecarBench, eventually: Any) -> None:
    """Scale-up, a killed worker, restarts of the sidecar and of its workers, scale-down by drains."""
    watch = PlacementWatch(bench)
    bench.flow.order = tuple(n for n in range(WORKED_PARTITIONS) for _ in range(n + 1))  # unequal loads
    bench.flow.rate = 2.4 * CAPACITY
    bench.start()
    eventually(lambda: watch.sees_target() and len(bench.pids()) >= 3, 120)
    os.kill(next(iter(bench.pids().values())), signal.SIGKILL)
    before = bench.pids()
    eventually(lambda: bench.pids() != before and watch.sees_target(), 60)
    bench.stop(signal.SIGKILL)
    bench.start()
    eventually(lambda: bench.log.read_text().count("is in force") == 1 and watch.sees_target(), 60)
    workers = set(bench.pids().values())
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "restart", "--state-dir", str(bench.state)]
    subprocess.run(command, check=True, capture_output=True)
    eventually(lambda: watch.sees_target() and not workers & set(bench.pids().values()), 150)
    bench.flow.rate = 0.4 * CAPACITY
    eventually(lambda: watch.sees_target() and bench.plan().replicas == 1, 120)
    assert watch.wrong == []
    assert len(watch.carried_out) >= 3, watch.carried_out
