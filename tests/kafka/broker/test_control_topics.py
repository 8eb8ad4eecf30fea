"""Control topics on a broker: values of any size are read, bad records are skipped alone."""

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from time import time
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.consumer_sdk import Consumer as GroupConsumer
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

pytestmark = pytest.mark.broker

MEMBERS = 1_000
PARTITIONS = 100_000


def measured_rates(group: str, partitions: int) -> TopicWriteRates:
    figure = random.Random(partitions).random  # noqa: S311 - repeatable; full digits compress worst
    loads = {n: PartitionLoad(figure(), figure(), figure(), n, figure(), figure()) for n in range(partitions)}
    return TopicWriteRates(group, "orders", time(), 300.0, "offsets", loads)


def make_settings(bootstrap: str, group: str, topics: list[str]) -> SidecarSettings:
    names = dict(zip(("plan_topic", "write_rate_topic", "decision_topic"), topics, strict=True))
    flags = {"bootstrap": bootstrap, "group": group, "capacity": 1e6, "target": "none", **names}
    return load_settings(None, flags)


def make_reader(settings: SidecarSettings) -> ControlTopicReader:
    config = {
        "bootstrap.servers": settings.bootstrap,
        "group.id": settings.group,
        "trimtab.plan.topic": settings.plan_topic,
        "trimtab.write.rate.topic": settings.write_rate_topic,
    }
    return ControlTopicReader(parse_consumer_settings(config), SystemClock())


@pytest.mark.parametrize("control_partitions", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_values_of_100000_partitions_and_1000_members_are_read(
    bootstrap: str, admin: AdminClient, topic: Callable[..., str], group: str, control_partitions: int
) -> None:
    """A consumer reads what the sidecar wrote, twice; a new sidecar continues with it."""
    settings = make_settings(bootstrap, group, [topic(control_partitions) for _ in range(3)])
    store = ControlTopicStore(settings, admin)
    instances = tuple(f"orders-consumer-{n:04d}" for n in range(MEMBERS))
    plan = GroupPlan(
        group, 7, time(), MEMBERS, "steady", 1e6, draining=instances, capacities=dict.fromkeys(instances, 9e5)
    )
    rates = measured_rates(group, PARTITIONS)
    reader = make_reader(settings)
    store.publish([plan, measured_rates(group, 20_000), rates])
    reader.start()
    try:
        assert reader.wait_until_read(60)
        assert reader.plan == plan
        assert len(reader.build_leader_view().load.write_rates) == PARTITIONS
    finally:
        reader.stop()
    newcomer = ControlTopicStore(settings, admin)
    assert newcomer.read_plan() == plan
    assert newcomer.read_write_rates() == {"orders": rates}


def test_bad_records_are_skipped_alone(
    bootstrap: str,
    admin: AdminClient,
    topic: Callable[..., str],
    group: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Garbage in every control topic is reported once a record; the values behind it are read."""
    settings = make_settings(bootstrap, group, [topic(1) for _ in range(3)])
    names = (settings.plan_topic, settings.write_rate_topic, settings.decision_topic)
    garbage = (b"\xff", b"[" * 100_000, b"x" * 900_000, b'{"v":1,"group":"g","time":1' + b"0" * 400 + b"}")
    producer = Producer({"bootstrap.servers": bootstrap})
    for name in names:
        for bad in garbage:
            producer.produce(name, bad, b"k")
    assert producer.flush(30) == 0
    store = ControlTopicStore(settings, admin)
    plan, rates = GroupPlan(group, 1, time(), 1, "steady", 1e6), measured_rates(group, 10)
    store.publish([plan, rates])
    for _ in range(2):
        assert store.read_plan() == plan
        assert store.read_write_rates() == {"orders": rates}
        assert store.read_decisions() == ()
        assert store.read_new_decisions() == ()
    assert sum("skipped" in text for text in caplog.messages) == len(names) * len(garbage)
    reader = make_reader(settings)
    reader.start()
    try:
        assert reader.wait_until_read(30)
        assert reader.plan == plan
        assert len(reader.build_leader_view().load.write_rates) == 10
    finally:
        reader.stop()


def test_a_small_record_limit_is_named(
    bootstrap: str, admin: AdminClient, topic: Callable[..., str], group: str
) -> None:
    """The sidecar names the topic's setting, and works on."""
    limited = topic(1, max_message_bytes="100000")
    settings = make_settings(bootstrap, group, [topic(1), limited, topic(1)])
    store = ControlTopicStore(settings, admin)
    with pytest.raises(
        BrokerTimeoutError, match=f"set max.message.bytes of topic {limited}.* at least 950000"
    ):
        store.publish([measured_rates(group, 4_000)])
    store.publish([measured_rates(group, 10)])
    assert len(store.read_write_rates()["orders"].partitions) == 10


def test_a_small_limit_of_the_client_is_named(
    bootstrap: str, admin: AdminClient, topic: Callable[..., str], group: str
) -> None:
    """librdkafka refuses such a record itself, at once; the sidecar names its setting."""
    settings = make_settings(bootstrap, group, [topic(1) for _ in range(3)])
    limited = replace(settings, kafka={**settings.kafka, "message.max.bytes": "2000"})
    store = ControlTopicStore(limited, admin)
    with pytest.raises(BrokerTimeoutError, match=r"message\.max\.bytes of the sidecar's client"):
        store.publish([measured_rates(group, 100)])


def test_doctor_reports_sizes(bootstrap: str, topic: Callable[..., str], group: str, eventually: Any) -> None:
    """It compares the group's record with the coordinator's limit, and names a topic's small limit."""
    names = [topic(1), topic(1, max_message_bytes="100000"), topic(1)]
    settings = make_settings(bootstrap, group, names)
    config = {"bootstrap.servers": bootstrap, "group.id": group, "trimtab.plan.topic": names[0]}
    with closing(GroupConsumer(config)) as consumer:
        consumer.subscribe([topic(4)])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment())
        findings = {f.check: f for f in run_broker_checks(settings, SystemClock())}
    assert findings["group size"].level is FindingLevel.OK
    assert "__consumer_offsets takes 1.0 MB" in findings["group size"].message
    limited = findings[f"record size of {names[1]}"]
    assert limited.level is FindingLevel.WARNING
    assert "max.message.bytes=950000" in limited.remedy
