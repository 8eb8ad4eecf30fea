"""Pilots with TLS, SASL and ACLs, and on brokers without the plugin."""

from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer

from support.secured import Right, Secured
from trimtab.cli.broker.broker_config import ASSIGNOR_PROPERTIES
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.kafka.brokers import connect_brokers
from trimtab.sidecar.pilot.installed_assignors import ASSIGNORS_CONFIG, read_installed_assignors
from trimtab.sidecar.pilot.pilot import PlanPilot
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

TOPIC, GROUP = "steered", "steered"
RIGHTS: tuple[Right, ...] = (
    ("topic", TOPIC, "read"),
    ("group", GROUP, "read"),
    ("topic", "trimtab.plans.pilot-1", "describe"),
    ("topic", "trimtab.plans.pilot-2", "describe"),
    ("group", GROUP, "alter_configs"),
)
READ_SETTINGS: Right = ("cluster", "kafka-cluster", "describe_configs")
PLAN = GroupPlan(GROUP, 1, 0.0, 1, "mbf", 1e6, target=PlanTarget(1, ("a",), 0, {TOPIC: (1, 1)}))


@pytest.fixture
def broker(guarded_broker: Secured) -> Iterator[Secured]:
    """A broker with the plugin and a topic."""
    guarded_broker.make_topics([TOPIC])
    yield guarded_broker
    for right in (*RIGHTS, READ_SETTINGS):
        guarded_broker.revoke(right)


@pytest.fixture
def start_pilot() -> Iterator[Callable[..., PlanPilot]]:
    """Start pilots of the group; all end with the test."""
    pilots: list[PlanPilot] = []

    def start(bootstrap: str, **more: Any) -> PlanPilot:
        given = {"bootstrap": bootstrap, "group": GROUP, "topics": TOPIC, "capacity": 1e6}
        pilots.append(PlanPilot(load_settings(None, given | more), SystemClock(), lambda: "trimtab"))
        return pilots[-1]

    yield start
    for pilot in pilots:
        pilot.close()


@pytest.fixture
def join_group() -> Iterator[Callable[..., None]]:
    """Let an unmodified consumer join the group and poll until the test ends."""
    stop, threads = Event(), list[Thread]()

    def join(bootstrap: str, topic: str = TOPIC) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": GROUP, "client.id": "a"}
        consumer = Consumer({**config, "group.protocol": "consumer"})
        consumer.subscribe([topic])
        threads.append(Thread(target=poll, args=(consumer,)))
        threads[-1].start()

    def poll(consumer: Consumer) -> None:
        while not stop.is_set():
            consumer.poll(0.1)
        consumer.close()

    yield join
    stop.set()
    for thread in threads:
        thread.join(30)


def read_status(pilot: PlanPilot) -> str:
    return str(pilot.carry_out(PLAN, {}))


def without_address(client: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in client.items() if name != "bootstrap.servers"}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "TLS"])
def test_a_pilot_needs_few_rights(
    broker: Secured, start_pilot: Any, join_group: Any, eventually: Any, mechanism: str
) -> None:
    """With exactly these it carries a plan, over TLS and with SASL or a certificate."""
    broker.grant(RIGHTS)
    join_group(broker.broker.bootstrap)
    client = broker.client(mechanism)
    pilot = start_pilot(client["bootstrap.servers"], kafka=without_address(client))
    eventually(lambda: "text='the broker assigns as planned'" in read_status(pilot))


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        (RIGHTS[1], f"grant Read on group {GROUP}"),
        (RIGHTS[2], "grant Describe on topics trimtab.plans.pilot-1 and trimtab.plans.pilot-2"),
        (RIGHTS[4], f"grant AlterConfigs on group {GROUP}"),
    ],
)
def test_a_missing_right_is_named(
    broker: Secured, start_pilot: Any, join_group: Any, eventually: Any, missing: Right, text: str
) -> None:
    """Without AlterConfigs, which implies DescribeConfigs, a plan is carried all the same."""
    broker.grant(right for right in RIGHTS if right != missing)
    join_group(broker.broker.bootstrap)
    client = broker.client()
    pilot = start_pilot(client["bootstrap.servers"], kafka=without_address(client))
    eventually(lambda: text in read_status(pilot))
    assert ("is_steering=True" in read_status(pilot)) == missing[2].endswith("configs")


def test_the_brokers_assignors_take_a_right_to_read(broker: Secured, eventually: Any) -> None:
    """They tell whether `uniform` is the plugin; without the right that is unknown."""
    broker.grant(RIGHTS)
    client = broker.client()
    given = {"bootstrap": client["bootstrap.servers"], "group": GROUP, "topics": TOPIC, "capacity": 1e6}
    settings = load_settings(None, {**given, "kafka": without_address(client)})
    brokers = connect_brokers(settings, SystemClock())

    def read() -> str | None:
        return brokers.retry(lambda: read_installed_assignors(brokers, GROUP))

    with closing(brokers):
        assert read() is None
        broker.grant([READ_SETTINGS])
        eventually(lambda: read() == ASSIGNOR_PROPERTIES[ASSIGNORS_CONFIG])


def test_a_broker_without_the_plugin_says_so(
    bootstrap: str, topic: Any, start_pilot: Any, join_group: Any, eventually: Any
) -> None:
    """`auto` leaves such a group alone; `protocol: consumer` asks for the assignor, and is refused."""
    join_group(bootstrap, topic(partitions=2))
    auto, forced = start_pilot(bootstrap), start_pilot(bootstrap, protocol="consumer")
    eventually(lambda: "the broker assigns by 'uniform'" in read_status(auto))
    eventually(lambda: "names no assignor 'trimtab'" in read_status(forced))
