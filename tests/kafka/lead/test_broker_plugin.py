"""The assignor plugin in a real broker, with unmodified librdkafka consumers (KIP-848)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from confluent_kafka import Consumer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from support.older_broker import fetch_version
from trimtab.cli.broker import embedded_broker
from trimtab.cli.broker.broker_config import ASSIGNOR_PROPERTIES
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.pilot.plan_format import encode_plan

Eventually: TypeAlias = Callable[[Callable[[], object]], None]

PARTITIONS = 12
PROPERTIES = {
    **ASSIGNOR_PROPERTIES,
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
UNIFORM_FIRST = {**PROPERTIES, "group.consumer.assignors": "uniform,io.trimtab.PlannedAssignor"}
BOTH_NAMES = {
    **PROPERTIES,
    "group.consumer.assignors": "io.trimtab.PlannedAssignor,io.trimtab.PlannedUniformAssignor",
}


class Group:
    """Consumers of one group and their pilots, all polled by the test's thread."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap, self.name = bootstrap, name
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.members: dict[str, Consumer] = {}
        self.admin.create_topics([NewTopic(name, PARTITIONS)])[name].result()

    def join(self, name: str, topic: str = "", **options: str) -> None:
        """Add a consumer whose client id is `name`."""
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.name, "group.protocol": "consumer"}
        options = {key.replace("_", "."): value for key, value in options.items()}
        self.members[name] = Consumer({**config, "client.id": name, **options})
        self.members[name].subscribe([topic or self.name])

    def steer(self, pilot: str, slots: Sequence[int], epoch: int = 1, **options: str) -> None:
        """Join as a pilot; slot n is the n-th member's by name."""
        described = self.admin.describe_consumer_groups([self.name])[self.name].result()
        ids = {member.client_id: member.member_id for member in described.members}
        topics = self.admin.describe_topics(TopicCollection([self.name]))
        target = PlanTarget(1, tuple(sorted(ids)), 0, {"t": tuple(slots)})
        (rack,) = encode_plan(epoch, target, {"t": str(topics[self.name].result().topic_id)}, ids)
        self.join(pilot, "trimtab.pilot", client_rack=rack, **options)

    def leave(self, name: str) -> None:
        """Close a consumer."""
        self.members.pop(name).close()

    def poll(self) -> dict[str, list[int]]:
        """Return the partitions of each consumer that has any."""
        for consumer in self.members.values():
            consumer.poll(0.02)
        owned = {name: consumer.assignment() for name, consumer in self.members.items()}
        return {name: sorted(p.partition for p in has) for name, has in owned.items() if has}

    def count(self) -> list[int]:
        """Return the number of partitions of each consumer that has any, sorted."""
        return sorted(map(len, self.poll().values()))


@contextmanager
def _open_group(broker: EmbeddedBroker, eventually: Eventually, **options: str) -> Iterator[Group]:
    """A group of three consumers that have four partitions each."""
    group = Group(broker.bootstrap, "g")
    try:
        for member in "abc":
            group.join(member, **options)
        eventually(lambda: group.count() == [4, 4, 4])
        yield group
    finally:
        for consumer in group.members.values():
            consumer.close()


def _invert(slots: Sequence[int]) -> Mapping[str, list[int]]:
    names = {name: [n for n, slot in enumerate(slots) if slot == i] for i, name in enumerate("abc", 1)}
    return {name: numbers for name, numbers in names.items() if numbers}


def test_a_plan_steers_unmodified_consumers(tmp_path: Path, eventually: Eventually) -> None:
    """Each plan is carried out exactly and outlives the broker; joiners level; garbage moves nothing."""
    with (
        EmbeddedBroker(data=tmp_path, properties=PROPERTIES) as broker,
        _open_group(broker, eventually) as group,
    ):
        first, second = (1,) * 9 + (2, 2, 3), (3, 1) * 6
        group.steer("p", first)
        eventually(lambda: group.poll() == _invert(first))
        group.steer("q", second, epoch=2)
        eventually(lambda: group.poll() == _invert(second))
        broker.stop()
        with EmbeddedBroker(broker.port, data=tmp_path, properties=PROPERTIES):
            group.join("d")
            # "b" has a slot without partitions, as if it were drained; the plan does not know "d"
            eventually(lambda: group.count() == [4, 4, 4])
            assert "b" not in group.poll()
            group.join("garbage", "trimtab.pilot", client_rack="trimtab1:" + "9" * 60)
            group.leave("p")
            placed = group.poll()
            group.join("e")
            eventually(lambda: "e" in group.poll())
            assert all(set(group.poll()[name]) <= set(numbers) for name, numbers in placed.items())


def test_the_plugin_need_not_be_the_first_assignor(tmp_path: Path, eventually: Eventually) -> None:
    """A pilot that names it switches the group over while it is a member; another one does nothing."""
    slots = (1,) * 9 + (2, 2, 3)
    with (
        EmbeddedBroker(data=tmp_path, properties=UNIFORM_FIRST) as broker,
        _open_group(broker, eventually) as group,
    ):
        group.steer("unnamed", slots, epoch=2)
        group.steer("p", slots, group_remote_assignor="trimtab")
        eventually(lambda: group.poll() == _invert(slots))
        group.leave("p")
        eventually(lambda: group.count() == [4, 4, 4])


def test_clients_that_always_name_uniform_are_steered(tmp_path: Path, eventually: Eventually) -> None:
    """The plugin's second class takes the place of Kafka's "uniform"; the pilot is outvoted by name only."""
    slots = (1,) * 9 + (2, 2, 3)
    with (
        EmbeddedBroker(data=tmp_path, properties=BOTH_NAMES) as broker,
        _open_group(broker, eventually, group_remote_assignor="uniform") as group,
    ):
        group.steer("p", slots, group_remote_assignor="trimtab")
        eventually(lambda: group.poll() == _invert(slots))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.0.1", "4.1.1", "4.2.0", "4.3.0"])
def test_the_plugin_works_in_older_brokers(
    version: str, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interface is the same since 4.0."""
    monkeypatch.setattr(embedded_broker, "fetch_jars", partial(fetch_version, version))
    test_a_plan_steers_unmodified_consumers(tmp_path, eventually)
