"""Plans carried to a broker with the assignor plugin, on groups of unmodified clients."""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from support.foreign_clients import create_librdkafka_client
from trimtab.assignor.model import TopicPartition
from trimtab.cli.broker.broker_config import ASSIGNOR_PROPERTIES
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.kafka_protocol.apis import CONSUMER_GROUP_DESCRIBE
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.group_lead.group_lead import GroupLead
from trimtab.sidecar.kafka.brokers import connect_brokers, describe_group
from trimtab.sidecar.model.observation import GroupState
from trimtab.sidecar.pilot.pilot import PlanPilot
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker

ADMIN: Any = kafka_admin  # its types for settings are documented, but not in the package's __all__
PARTITIONS = 6
CLASSIC_SETTINGS = ("session.timeout.ms", "heartbeat.interval.ms")  # of the broker in the new protocol
SHORT_TIMES = {  # in the place of 5 s, and of a minimum of 45 s
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
}
Owners = dict[str, tuple[int, ...]]


def create_client(config: dict[str, Any]) -> ConfluentConsumer:
    """An unmodified consumer of the new protocol, named by its client id."""
    own = {k: v for k, v in config.items() if not k.startswith("trimtab.") and k not in CLASSIC_SETTINGS}
    named = {"client.id": config["trimtab.instance"], "group.protocol": "consumer"}
    return ConfluentConsumer({**own, **named})


@dataclass
class Steered:
    """One group on a broker, and the sidecars that carry plans to it."""

    bootstrap: str
    group: str
    topic: str
    pilots: list[PlanPilot] = field(default_factory=list)
    monitors: list[GroupMonitor] = field(default_factory=list)
    leads: list[GroupLead] = field(default_factory=list)

    def settings(self, **more: Any) -> Any:
        given = {"bootstrap": self.bootstrap, "group": self.group, "topics": self.topic, "capacity": 1e6}
        return load_settings(None, {**given, **more})

    def start_pilot(self, **more: Any) -> PlanPilot:
        self.pilots.append(PlanPilot(self.settings(**more), SystemClock(), lambda: "trimtab"))
        return self.pilots[-1]

    def open_monitor(self) -> GroupMonitor:
        self.monitors.append(GroupMonitor(self.settings(), SystemClock()))
        return self.monitors[-1]

    def plan(
        self, epoch: int, names: str, numbers: str, *, places: int = 0, draining: tuple[str, ...] = ()
    ) -> GroupPlan:
        """A plan for consumers of one letter; `numbers` has that of each partition's consumer."""
        target = PlanTarget(epoch, tuple(names), places, {self.topic: tuple(map(int, numbers))})
        return GroupPlan(self.group, epoch, 0.0, target.size, "mbf", 1e6, draining=draining, target=target)


def is_carried_out(pilot: PlanPilot, plan: GroupPlan) -> Callable[[], bool]:
    def ask() -> bool:
        status = pilot.carry_out(plan, {})
        return status is not None and status.is_steering and "as planned" in status.text

    return ask


def holds(worker: Any, *numbers: int) -> bool:
    return {p.partition for p in set(worker.owned)}.issuperset(numbers)


def count_tenures(log: Any, eventually: Any) -> int:
    """Return the number of tenures once each partition has an owner: a worker logs after it owns."""
    eventually(lambda: sum(t.end == inf for t in log.tenures) == PARTITIONS)
    return len(log.tenures)


def owners(*workers: Any) -> Owners:
    return {w.name: tuple(sorted(p.partition for p in set(w.owned))) for w in workers}


class PluginBroker:
    """A broker with the assignor plugin, which may be killed and started again."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._broker = self._start(0)

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def restart(self) -> None:
        os.kill(self._broker.pid, signal.SIGKILL)
        self.stop()
        self._broker = self._start(self._broker.port)

    def stop(self) -> None:
        self._broker.stop()

    def _start(self, port: int) -> EmbeddedBroker:
        broker = EmbeddedBroker(port, data=self._data, properties={**ASSIGNOR_PROPERTIES, **SHORT_TIMES})
        broker.start()
        return broker


def describe(steered: Steered) -> Any:
    admin = AdminClient({"bootstrap.servers": steered.bootstrap})
    return admin.describe_consumer_groups([steered.group])[steered.group].result(30)


def is_quiet(steered: Steered, iterate: Callable[[], object]) -> bool:
    """Return whether no assignment starts within three iterations of a control loop, a second apart."""
    clock, epochs = SystemClock(), set[int]()
    with closing(connect_brokers(steered.settings(), clock)) as brokers:
        for pause in (0.0, 1.0, 1.0, 1.0):
            clock.sleep(pause)
            iterate()
            described = describe_group(brokers, steered.group, CONSUMER_GROUP_DESCRIBE)
            epochs.add(described.group_epoch)
    return len(epochs) == 1


def read_group_config(steered: Steered) -> dict[str, Any]:
    resource = ADMIN.ConfigResource(ADMIN.ResourceType.GROUP, steered.group)
    admin = AdminClient({"bootstrap.servers": steered.bootstrap})
    return dict(admin.describe_configs([resource])[resource].result(30))


def set_group_config(steered: Steered, name: str, value: str) -> None:
    resource = ADMIN.ConfigResource(ADMIN.ResourceType.GROUP, steered.group)
    entry = ADMIN.ConfigEntry(name, value, incremental_operation=ADMIN.AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    admin = AdminClient({"bootstrap.servers": steered.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.fixture(scope="module")
def plugin_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginBroker]:
    broker = PluginBroker(tmp_path_factory.mktemp("plugin"))
    yield broker
    broker.stop()


@pytest.fixture
def config(plugin_broker: PluginBroker, group: str) -> dict[str, Any]:
    address = {"bootstrap.servers": plugin_broker.bootstrap, "group.id": group}
    return {**address, "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 500, "log_level": 0}


@pytest.fixture
def steered(plugin_broker: PluginBroker, group: str) -> Iterator[Steered]:
    admin = AdminClient({"bootstrap.servers": plugin_broker.bootstrap})
    admin.create_topics([NewTopic(f"{group}-topic", PARTITIONS, 1)])[f"{group}-topic"].result(30)
    steered = Steered(plugin_broker.bootstrap, group, f"{group}-topic")
    with ExitStack() as stack:
        yield steered
        for one in (*steered.pilots, *steered.monitors, *steered.leads):
            stack.callback(one.close)


@pytest.fixture
def join(steered: Steered, start: Any) -> Callable[[str], Any]:
    """Start an unmodified consumer by its name."""
    return lambda name: start(name, [steered.topic], client=create_client)


def test_unmodified_clients_carry_out_each_plan(
    steered: Steered, join: Any, log: Any, eventually: Any
) -> None:
    """Each partition goes where the plan says, and nothing else moves."""
    pilot = steered.start_pilot()
    a, b = join("a"), join("b")
    first = steered.plan(1, "ab", "111222")
    eventually(lambda: is_carried_out(pilot, first)() and owners(a, b) == {"a": (0, 1, 2), "b": (3, 4, 5)})
    before = count_tenures(log, eventually)
    second = steered.plan(2, "ab", "112221")
    eventually(lambda: is_carried_out(pilot, second)() and owners(a, b) == {"a": (0, 1, 5), "b": (2, 3, 4)})
    assert {t.partition.partition for t in log.tenures[before:]} == {2, 5}


def test_the_sidecar_sees_the_group_without_its_pilot(steered: Steered, join: Any, eventually: Any) -> None:
    """Members, topics, present and target partitions; the pilot is no member for decisions."""
    monitor, pilot = steered.open_monitor(), steered.start_pilot()
    assert monitor.describe_group().state is GroupState.EMPTY
    assert monitor.get_assignor() is None
    a = join("a")
    plan = steered.plan(1, "a", "111111")
    eventually(is_carried_out(pilot, plan))
    eventually(lambda: len(a.owned) == PARTITIONS and monitor.describe_group().state is GroupState.STABLE)
    (member,) = monitor.describe_group().members
    everything = frozenset(TopicPartition(steered.topic, n) for n in range(PARTITIONS))
    assert (member.instance, member.topics) == ("a", frozenset({steered.topic}))
    assert member.owned_partitions == member.target_partitions == everything
    assert monitor.get_assignor() == "trimtab"
    found = {f.check: f.message for f in run_broker_checks(steered.settings(), SystemClock())}
    assert found[f"group {steered.group}"].startswith("stable, 1 member,")
    assert "carries out plans" in found["assignor"]


def test_a_joiner_takes_its_place_and_a_drained_member_gives_all(
    steered: Steered, join: Any, log: Any, eventually: Any
) -> None:
    """Scale-out and scale-in move only what they have to."""
    pilot = steered.start_pilot()
    a, b = join("a"), join("b")
    eventually(lambda: len(a.owned) == len(b.owned) == PARTITIONS / 2)  # by count, without a plan
    wider = steered.plan(1, "ab", "113223", places=1)
    eventually(lambda: is_carried_out(pilot, wider)() and holds(a, 0, 1) and holds(b, 3, 4))
    before = count_tenures(log, eventually)
    c = join("c")
    eventually(lambda: owners(a, b, c) == {"a": (0, 1), "b": (3, 4), "c": (2, 5)})
    assert {t.partition.partition for t in log.tenures[before:]} == {2, 5}
    narrower = steered.plan(2, "bc", "121122", draining=("a",))
    drained = {"a": (), "b": (0, 2, 3), "c": (1, 4, 5)}
    eventually(lambda: is_carried_out(pilot, narrower)() and owners(a, b, c) == drained)
    before = count_tenures(log, eventually)
    a.stop()
    eventually(lambda: len(describe(steered).members) == 3 and is_carried_out(pilot, narrower)())
    assert log.tenures[before:] == []


def test_a_restarted_member_gets_its_partitions_back(
    steered: Steered, join: Any, log: Any, eventually: Any
) -> None:
    """Its name is known again, under another member id."""
    pilot = steered.start_pilot()
    a, b = join("a"), join("b")
    plan = steered.plan(1, "ab", "111222")
    eventually(lambda: is_carried_out(pilot, plan)() and owners(a, b) == {"a": (0, 1, 2), "b": (3, 4, 5)})
    b.stop()
    eventually(lambda: len(a.owned) == PARTITIONS)
    before = count_tenures(log, eventually)
    b = join("b")
    eventually(lambda: is_carried_out(pilot, plan)() and owners(a, b) == {"a": (0, 1, 2), "b": (3, 4, 5)})
    assert {t.partition.partition for t in log.tenures[before:]} == {3, 4, 5}


def test_added_partitions_are_placed(
    steered: Steered, join: Any, log: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The pilot learns of them by its epoch, and decides where the plan knows none; nothing else moves."""
    caplog.set_level(logging.INFO, "trimtab.sidecar")
    pilot, plan = steered.start_pilot(), steered.plan(1, "ab", "111222")
    a, b = join("a"), join("b")
    eventually(lambda: is_carried_out(pilot, plan)() and owners(a, b) == {"a": (0, 1, 2), "b": (3, 4, 5)})
    before, decisions = count_tenures(log, eventually), caplog.text.count("plan 1 carried out")
    admin = AdminClient({"bootstrap.servers": steered.bootstrap})
    admin.create_partitions([NewPartitions(steered.topic, PARTITIONS + 2)])[steered.topic].result(30)
    eventually(lambda: len(a.owned) == len(b.owned) == 4)
    eventually(lambda: caplog.text.count("plan 1 carried out") > decisions and is_carried_out(pilot, plan)())
    assert {t.partition.partition for t in log.tenures[before:]} == {6, 7}


def test_nothing_moves_when_the_pilot_ends(steered: Steered, join: Any, log: Any, eventually: Any) -> None:
    """Neither when it is silent, nor after its session; a stranger then gets a fair count."""
    set_group_config(steered, "consumer.session.timeout.ms", "4000")
    pilot = steered.start_pilot()
    a, b = join("a"), join("b")
    plan = steered.plan(1, "ab", "111112")
    eventually(lambda: is_carried_out(pilot, plan)() and owners(a, b) == {"a": (0, 1, 2, 3, 4), "b": (5,)})
    before = count_tenures(log, eventually)
    pilot.close()
    eventually(lambda: len(describe(steered).members) == 2)
    assert log.tenures[before:] == []
    c = join("c")
    eventually(lambda: len(c.owned) == 2)
    assert len(a.owned | b.owned | c.owned) == PARTITIONS


def test_another_sidecar_takes_over(steered: Steered, join: Any, log: Any, eventually: Any) -> None:
    """Its pilot replaces the other one's, whether that is alive or dead: no member is added."""
    one, two = steered.start_pilot(), steered.start_pilot()
    a, b = join("a"), join("b")
    first = steered.plan(1, "ab", "111222")
    eventually(lambda: is_carried_out(one, first)() and owners(a, b) == {"a": (0, 1, 2), "b": (3, 4, 5)})
    before = count_tenures(log, eventually)
    one.stand_by()
    eventually(is_carried_out(two, first))
    assert log.tenures[before:] == []
    second = steered.plan(2, "ab", "111122")
    eventually(lambda: is_carried_out(two, second)() and owners(a, b) == {"a": (0, 1, 2, 3), "b": (4, 5)})
    assert len(describe(steered).members) == 3
    two.stand_by()
    third = steered.plan(3, "ab", "111112")
    eventually(lambda: is_carried_out(one, third)() and owners(a, b) == {"a": (0, 1, 2, 3, 4), "b": (5,)})


def test_the_groups_heartbeats_are_shortened(steered: Steered, join: Any, eventually: Any) -> None:
    """So that members learn of a plan in half a second; an interval that the group has is left alone."""
    pilot, plan = steered.start_pilot(), steered.plan(1, "a", "111111")
    join("a")
    eventually(is_carried_out(pilot, plan))
    assert read_group_config(steered)["consumer.heartbeat.interval.ms"].value == "500"
    set_group_config(steered, "consumer.heartbeat.interval.ms", "700")
    other = steered.start_pilot()
    eventually(lambda: "heartbeats 700 ms apart: set for the group" in other.carry_out(plan, {}).text)  # type: ignore[union-attr]


def test_a_classic_group_stays_classic(steered: Steered, start: Any, eventually: Any) -> None:
    """A heartbeat of the new protocol would convert it: none is sent."""

    def create_classic(config: dict[str, Any]) -> ConfluentConsumer:
        return ConfluentConsumer({k: v for k, v in config.items() if not k.startswith("trimtab.")})

    a = start("a", [steered.topic], client=create_classic)
    eventually(lambda: len(a.owned) == PARTITIONS)
    pilot = steered.start_pilot(protocol="consumer")
    plan = steered.plan(1, "a", "111111")
    eventually(lambda: "no group of the new protocol" in getattr(pilot.carry_out(plan, {}), "text", ""))
    assert len(describe(steered).members) == 1


def test_a_tie_with_the_clients_wish_does_not_keep_the_group_busy(
    steered: Steered, start: Any, join: Any, eventually: Any
) -> None:
    """One consumer names Kafka's assignor, and one pilot the plugin: the pilot takes its vote back."""
    a = start("a", [steered.topic], client=create_client, group_remote_assignor="uniform")
    b = join("b")
    eventually(lambda: len(a.owned) == len(b.owned) == PARTITIONS / 2)
    pilot, plan = steered.start_pilot(protocol="consumer"), steered.plan(1, "ab", "111112")
    eventually(lambda: "by the assignor 'uniform'" in getattr(pilot.carry_out(plan, {}), "text", ""))
    eventually(lambda: is_quiet(steered, lambda: pilot.carry_out(plan, {})))
    eventually(lambda: len(a.owned) == len(b.owned) == PARTITIONS / 2)


def test_a_led_group_changes_to_the_new_protocol(
    steered: Steered, start: Any, join: Any, eventually: Any
) -> None:
    """One consumer at a time; the lead says what to do, and a sidecar without it steers on."""
    settings = steered.settings(**{"lead": True, "lead-session-timeout": 6})
    lead = GroupLead(settings, SystemClock())
    steered.leads.append(lead)
    first, second = steered.plan(1, "ab", "111222"), steered.plan(2, "ab", "111122")
    eventually(lambda: lead.carry_out(first, {}).is_steering)
    a, b = (start(name, [steered.topic], client=create_librdkafka_client()) for name in "ab")
    eventually(lambda: owners(a, b) == {"a": (0, 1, 2), "b": (3, 4, 5)})
    b.stop()
    b = join("b")
    eventually(lambda: "uses group.protocol=consumer" in lead.carry_out(first, {}).text)
    eventually(lambda: len(a.owned | b.owned) == PARTITIONS)
    a.stop()
    a = join("a")
    lead.close()
    pilot = steered.start_pilot()
    eventually(lambda: is_carried_out(pilot, second)() and owners(a, b) == {"a": (0, 1, 2, 3), "b": (4, 5)})


@pytest.mark.slow
def test_a_broker_restart_loses_no_plan(
    steered: Steered, plugin_broker: PluginBroker, join: Any, log: Any, eventually: Any
) -> None:
    """The group's own log has the plan: nothing moves, and the pilot carries the next one."""
    pilot = steered.start_pilot()
    a, b = join("a"), join("b")
    first = steered.plan(1, "ab", "111112")
    eventually(lambda: is_carried_out(pilot, first)() and owners(a, b) == {"a": (0, 1, 2, 3, 4), "b": (5,)})
    before = count_tenures(log, eventually)
    plugin_broker.restart()
    eventually(lambda: not pilot.carry_out(first, {}).errors and is_carried_out(pilot, first)(), timeout=60)  # type: ignore[union-attr]
    second = steered.plan(2, "ab", "111122")
    eventually(lambda: is_carried_out(pilot, second)() and owners(a, b) == {"a": (0, 1, 2, 3), "b": (4, 5)})
    assert {t.partition.partition for t in log.tenures[before:]} == {4}
