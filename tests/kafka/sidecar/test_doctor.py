"""`trimtab doctor` against a real broker: findings and their remedies."""

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
from trimtab.sidecar.records.decision_record import DecisionRecord
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

pytestmark = pytest.mark.broker

PASSWORD = "secret"  # noqa: S105 - a test value
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # every client of the plain listener
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
def acl_broker() -> Iterator[EmbeddedBroker]:
    """A broker with ACLs and a second listener, on which the user `limited` logs in."""
    with EmbeddedBroker(listeners={"NAMED": "SASL_PLAINTEXT"}, properties=PROPERTIES) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic("data", 2, 1)]).values():
            created.result(30)
        yield broker


@pytest.fixture
def limited(acl_broker: EmbeddedBroker) -> SidecarSettings:
    """Settings of a sidecar that logs in as `limited`."""
    kafka = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "limited", "sasl.password": PASSWORD,
    }  # fmt: skip
    values = {"group": "g", "capacity": "1 MB/s", "topics": "data", "kafka": kafka}
    return load_settings(None, {"bootstrap": acl_broker.listener_address("NAMED"), **values})


@pytest.fixture
def grant(acl_broker: EmbeddedBroker) -> Callable[[tuple[Any, ...]], None]:
    """Grant one operation to `limited`."""
    admin = AdminClient({"bootstrap.servers": acl_broker.bootstrap})

    def create_acl(right: tuple[Any, ...]) -> None:
        kind, name, operation = right
        binding = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:limited", "*", operation,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        for created in admin.create_acls([binding]).values():
            created.result(30)

    return create_acl


def sidecar_settings(bootstrap: str, group: str, topic: str) -> dict[str, Any]:
    return {"bootstrap": bootstrap, "group": group, "capacity": "1 MB/s", "topics": topic}


def failed_checks(findings: list[Finding]) -> dict[str, str]:
    return {f.check: f.remedy for f in findings if f.level is FindingLevel.FAILED}


def test_doctor_names_each_missing_acl(
    acl_broker: EmbeddedBroker, limited: SidecarSettings, grant: Any, eventually: Any
) -> None:
    """Without ACLs the remedies name those to grant; once granted, no check fails."""
    refused = failed_checks(run_broker_checks(limited, SystemClock()))
    assert refused["group g"] == "grant Describe on group g"
    assert refused["creation of trimtab.decisions"] == "grant Create on topic trimtab.decisions"
    assert "topics" in refused
    for right in RIGHTS:
        grant(right)
    eventually(lambda: not failed_checks(run_broker_checks(limited, SystemClock())), 60)
    _commit_offset(acl_broker.bootstrap)
    _publish_control_values(limited)
    eventually(lambda: _finding_levels(limited)["control topic trimtab.decisions"] is FindingLevel.OK, 60)
    levels = _finding_levels(limited)
    assert levels["rights on topic data"] is FindingLevel.OK
    assert levels["sidecar clock"] is FindingLevel.OK
    assert FindingLevel.FAILED not in levels.values()


def _finding_levels(settings: SidecarSettings) -> dict[str, FindingLevel]:
    return {f.check: f.level for f in run_broker_checks(settings, SystemClock())}


def _commit_offset(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.commit(offsets=[RawPartition("data", 0, 0)], asynchronous=False)
    consumer.close()


def _publish_control_values(settings: SidecarSettings) -> None:
    now = SystemClock().wall()
    store = ControlTopicStore(settings, AdminClient(settings.client_config))
    plan = GroupPlan("g", 1, now, 0, "steady", 1e6)
    store.publish([plan, TopicWriteRates("g", "data", now, 30.0, "test", {})])
    hold = (ScalingAction.HOLD, ("0 is right",), DecisionMetrics(), 1e6, 0.9)
    store.write_decision(DecisionRecord("g", 0, now, now, 1, 10.0, 1, *hold))


def await_failure(eventually: Callable[..., None], settings: SidecarSettings, check: str, text: str) -> None:
    """Wait for a failed check: a broker describes a new topic a moment after its controller."""
    eventually(lambda: text in failed_checks(run_broker_checks(settings, SystemClock())).get(check, ""))


def test_control_topic_without_compaction_fails(
    bootstrap: str, group: str, topic: Any, eventually: Callable[..., None]
) -> None:
    """A control topic with cleanup.policy=delete fails its check; the remedy is compaction."""
    name = topic(partitions=1, cleanup_policy="delete")
    values = {**sidecar_settings(bootstrap, group, name), "plan-topic": name}
    await_failure(eventually, load_settings(None, values), f"control topic {name}", "cleanup.policy=compact")


def test_share_group_is_checked_as_such(
    bootstrap: str, group: str, topic: Any, eventually: Callable[..., None]
) -> None:
    """With queue=share the doctor counts members; without it, it reports the group type."""
    name = topic(partitions=1)
    values = sidecar_settings(bootstrap, group, name)
    shared = load_settings(None, {**values, "queue": "share"})
    kafka = {"bootstrap.servers": bootstrap, "group.id": group}

    def group_messages(settings: SidecarSettings) -> str:
        checks = (f"group {group}", PLAN_FOLLOWED_CHECK)
        findings = run_broker_checks(settings, SystemClock())
        return "; ".join(f.message for f in findings if f.check in checks)

    with open_queue("share", name, kafka) as queue:
        eventually(lambda: queue.receive(1, 0.2) or ", 1 member," in group_messages(shared))
        assert "no members" not in group_messages(shared)
        assert "is a share group: write queue=share" in group_messages(load_settings(None, values))


def test_kmq_queue_needs_a_tracker(
    bootstrap: str, group: str, topic: Any, eventually: Callable[..., None]
) -> None:
    """The tracker check fails, with the command to start one, until a tracker runs."""
    name = topic(partitions=2)
    settings = load_settings(None, {**sidecar_settings(bootstrap, group, name), "queue": "kmq"})
    kafka = {"bootstrap.servers": bootstrap, "group.id": group}
    before = run_broker_checks(settings, SystemClock())
    assert any(f.message == "missing; the first worker creates it" for f in before)
    assert f"trimtab redeliver --topic {name} --group {group}" in failed_checks(before)["trackers"]
    stop = Event()
    tracker = Thread(target=RedeliveryTracker(queue_settings(name, kafka)).run, args=(stop,))
    tracker.start()
    try:
        eventually(lambda: "trackers" not in failed_checks(run_broker_checks(settings, SystemClock())))
        after = {f.check: f for f in run_broker_checks(settings, SystemClock())}
        assert after[f"markers topic {name}.{group}.markers"].message == "2 partitions"
    finally:
        stop.set()
        tracker.join()


def test_marker_topic_with_fewer_partitions_fails(
    bootstrap: str, group: str, topic: Any, eventually: Callable[..., None]
) -> None:
    """If the markers topic has fewer partitions than the messages, the remedy is to add them."""
    name = topic(partitions=3)
    markers = topic(partitions=2)
    values = {**sidecar_settings(bootstrap, group, name), "queue": "kmq", "queue-markers": markers}
    remedy = f"--topic {markers} --partitions 3"
    await_failure(eventually, load_settings(None, values), f"markers topic {markers}", remedy)


def test_compacted_marker_topic_fails(bootstrap: str, group: str, topic: Any, eventually: Any) -> None:
    """Compaction deletes markers; the remedy is retention, and workers refuse the topic."""
    name = topic(partitions=1)
    markers = topic(partitions=1, cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    values = {**sidecar_settings(bootstrap, group, name), "queue": "kmq", "queue-markers": markers}
    remedy = f"--topic {markers} --add-config cleanup.policy=delete"
    await_failure(eventually, load_settings(None, values), f"markers topic {markers}", remedy)


def test_unreachable_broker_is_one_finding(group: str) -> None:
    """Without a broker the command reports it, skips all other checks and exits with 1."""
    command = [sys.executable, "-m", "trimtab.cli", "doctor", "--bootstrap", "127.0.0.1:1"]
    completed = subprocess.run(
        [*command, "--group", group], capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.returncode == 1
    assert "FAILED   brokers: no broker responds at 127.0.0.1:1" in completed.stdout
    assert "skipped  other checks" in completed.stdout
    assert "Traceback" not in completed.stderr
