"""`trimtab doctor` on a broker with ACLs: each right that is missing is named, with what to do."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import TopicWriteRates
from trimtab.consumer_sdk.queues import open_queue
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings as queue_settings
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.diagnostics.doctor.checks import PLAN_FOLLOWED_CHECK, Finding, FindingLevel
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.reporting.decision_record import DecisionRecord
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

PASSWORD = "secret"  # noqa: S105 - it is nobody's
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # whoever comes by the plain listener
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.named.plain.sasl.jaas.config": f'{LOGIN} required user_limited="{PASSWORD}";',
}
RIGHTS = (
    (ResourceType.TOPIC, "data", AclOperation.READ),
    (ResourceType.GROUP, "g", AclOperation.DESCRIBE),
    *(
        (ResourceType.TOPIC, topic, operation)
        for topic in ("trimtab.plans", "trimtab.write-rates", "trimtab.decisions")
        for operation in (
            AclOperation.CREATE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DESCRIBE_CONFIGS,
        )
    ),
)


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    """A broker that knows a user with few rights, on a listener of its own."""
    with EmbeddedBroker(listeners={"NAMED": "SASL_PLAINTEXT"}, properties=PROPERTIES) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic("data", 2, 1)]).values():
            made.result(30)
        yield broker


@pytest.fixture
def limited(guarded: EmbeddedBroker) -> SidecarSettings:
    """Settings of a sidecar that logs in as that user."""
    kafka = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "limited", "sasl.password": PASSWORD,
    }  # fmt: skip
    given = {"group": "g", "capacity": "1 MB/s", "topics": "data", "kafka": kafka}
    return load_settings(None, {"bootstrap": guarded.listener_address("NAMED"), **given})


@pytest.fixture
def grant(guarded: EmbeddedBroker) -> Callable[[tuple[Any, ...]], None]:
    """Allow the user one operation."""
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})

    def allow(right: tuple[Any, ...]) -> None:
        kind, name, operation = right
        binding = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:limited", "*", operation,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        for made in admin.create_acls([binding]).values():
            made.result(30)

    return allow


def given_of(bootstrap: str, group: str, topic: str) -> dict[str, Any]:
    return {"bootstrap": bootstrap, "group": group, "capacity": "1 MB/s", "topics": topic}


def wrong(found: list[Finding]) -> dict[str, str]:
    return {f.check: f.remedy for f in found if f.level is FindingLevel.FAILED}


def test_missing_rights_are_named_until_none_is_missing(
    guarded: EmbeddedBroker, limited: SidecarSettings, grant: Any, eventually: Any
) -> None:
    """Without ACLs everything is refused and said to be; with those it names, all is well."""
    refused = wrong(run_broker_checks(limited, SystemClock()))
    assert refused["group g"] == "grant Describe on group g"
    assert refused["creation of trimtab.decisions"] == "grant Create on topic trimtab.decisions"
    assert "topics" in refused
    for right in RIGHTS:
        grant(right)
    eventually(lambda: not wrong(run_broker_checks(limited, SystemClock())), 60)
    _committed(guarded.bootstrap)
    _published(limited)
    eventually(lambda: _levels(limited)["control topic trimtab.decisions"] is FindingLevel.OK, 60)
    levels = _levels(limited)
    assert levels["rights on topic data"] is FindingLevel.OK
    assert levels["sidecar clock"] is FindingLevel.OK
    assert FindingLevel.FAILED not in levels.values()


def _levels(settings: SidecarSettings) -> dict[str, FindingLevel]:
    return {f.check: f.level for f in run_broker_checks(settings, SystemClock())}


def _committed(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.commit(offsets=[RawPartition("data", 0, 0)], asynchronous=False)
    consumer.close()


def _published(settings: SidecarSettings) -> None:
    now = SystemClock().wall()
    board = ControlTopicStore(settings, AdminClient(settings.client_config))
    plan = GroupPlan("g", 1, now, 0, "steady", 1e6)
    board.publish([plan, TopicWriteRates("g", "data", now, 30.0, "test", {})])
    hold = (ScalingAction.HOLD, ("0 is right",), DecisionMetrics(), 1e6, 0.9)
    board.write_decision(DecisionRecord("g", 0, now, now, 1, 10.0, 1, *hold))


def test_a_topic_that_deletes_is_told(bootstrap: str, group: str, topic: Any) -> None:
    """A control topic that somebody made without compaction is wrong, and the way out is said."""
    name = topic(partitions=1, cleanup_policy="delete")
    given = {**given_of(bootstrap, group, name), "plan-topic": name}
    found = run_broker_checks(load_settings(None, given), SystemClock())
    assert "cleanup.policy=compact" in wrong(found)[f"control topic {name}"]


def test_a_share_group_is_looked_at_as_one(
    bootstrap: str, group: str, topic: Any, eventually: Callable[..., None]
) -> None:
    """Its workers are counted, and no plan is missed; without queue=share it is named for it."""
    name = topic(partitions=1)
    given = given_of(bootstrap, group, name)
    shared = load_settings(None, {**given, "queue": "share"})
    kafka = {"bootstrap.servers": bootstrap, "group.id": group}

    def said(settings: SidecarSettings) -> str:
        parts = (f"group {group}", PLAN_FOLLOWED_CHECK)
        found = run_broker_checks(settings, SystemClock())
        return "; ".join(f.message for f in found if f.check in parts)

    with open_queue("share", name, kafka) as queue:
        eventually(lambda: queue.receive(1, 0.2) or ", 1 members" in said(shared))
        assert "no members" not in said(shared)
        assert "is a share group: write queue=share" in said(load_settings(None, given))


def test_of_a_kmq_queue_markers_and_trackers_are_looked_at(
    bootstrap: str, group: str, topic: Any, eventually: Callable[..., None]
) -> None:
    """No tracker is wrong, and what to start is said; with one all is well."""
    name = topic(partitions=2)
    settings = load_settings(None, {**given_of(bootstrap, group, name), "queue": "kmq"})
    kafka = {"bootstrap.servers": bootstrap, "group.id": group}
    before = run_broker_checks(settings, SystemClock())
    assert any(f.message == "missing; the first worker creates it" for f in before)
    assert f"trimtab redeliver --topic {name} --group {group}" in wrong(before)["trackers"]
    stop = Event()
    tracker = Thread(target=RedeliveryTracker(queue_settings(name, kafka)).run, args=(stop,))
    tracker.start()
    try:
        eventually(lambda: "trackers" not in wrong(run_broker_checks(settings, SystemClock())))
        after = {f.check: f for f in run_broker_checks(settings, SystemClock())}
        assert after[f"markers topic {name}.{group}.markers"].message == "2 partitions"
    finally:
        stop.set()
        tracker.join()


def test_markers_of_another_shape_are_named(bootstrap: str, group: str, topic: Any) -> None:
    """Whoever added partitions to the messages alone is told what to add to the markers."""
    name = topic(partitions=3)
    markers = topic(partitions=2)
    given = {**given_of(bootstrap, group, name), "queue": "kmq", "queue-markers": markers}
    found = wrong(run_broker_checks(load_settings(None, given), SystemClock()))
    assert f"--topic {markers} --partitions 3" in found[f"markers topic {markers}"]


def test_nobody_there_is_one_finding(group: str) -> None:
    """Without a broker the process says so, skips the rest and ends with 1."""
    command = [sys.executable, "-m", "trimtab.cli", "doctor", "--bootstrap", "127.0.0.1:1"]
    ran = subprocess.run(
        [*command, "--group", group], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert "FAILED   brokers: no broker responds at 127.0.0.1:1" in ran.stdout
    assert "skipped  other checks" in ran.stdout
    assert "Traceback" not in ran.stderr
