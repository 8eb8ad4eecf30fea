"""The minimal ACLs: they suffice, and each missing one is reported."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from support.foreign_clients import create_librdkafka_client
from support.secured import PASSWORD, Right, Secured
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import TopicWriteRates
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.errors import MissingAclError
from trimtab.consumer_sdk.lake.writer.consumer_events import drop_error_events
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.group_lead import lead_member
from trimtab.sidecar.group_lead.group_lead import GroupLead
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.kafka.partition_logs import PartitionLogs
from trimtab.sidecar.model.observation import GroupState
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.records.decision_record import DecisionRecord
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker

CONTROL_TOPICS = ("trimtab.plans", "trimtab.write-rates", "trimtab.decisions")
CONSUMER_ACLS: tuple[Right, ...] = (
    ("topic", "data", "read"),
    ("group", "g", "read"),
    ("topic", "trimtab.plans", "read"),
    ("topic", "trimtab.write-rates", "read"),
)
SIDECAR_ACLS: tuple[Right, ...] = (
    ("topic", "data", "read"),
    ("group", "g", "describe"),
    *((("topic", name, right)) for name in CONTROL_TOPICS for right in ("create", "read", "write")),
)
LOG_DIRS_ACLS: tuple[Right, ...] = (("topic", "data", "describe"), ("cluster", "kafka-cluster", "describe"))
PRODUCER_ACLS: tuple[Right, ...] = (("topic", "data", "write"),)


@pytest.fixture(scope="module")
def broker(guarded_broker: Secured) -> Secured:
    """A broker whose user has only the rights that a test grants."""
    guarded_broker.make_topic("data")
    return guarded_broker


@pytest.fixture
def grant(broker: Secured) -> Iterator[Any]:
    """Grant ACLs, except `without`, until the test ends."""
    active: list[Right] = []

    def add(acls: tuple[Right, ...], without: Right | None = None) -> None:
        new = [right for right in acls if right != without]
        active.extend(new)
        broker.grant(new)

    yield add
    for right in active:
        broker.revoke(right)


def write_records(broker: Secured, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": broker.broker.bootstrap})
    for _ in range(count):
        producer.produce("data", b"hello", partition=0)
    assert producer.flush(20) == 0


def consume_one_record(broker: Secured, seconds: float = 20.0) -> list[Any]:
    """Join, read one record and commit it, as a sink does; propagates errors."""
    write_records(broker)
    config = {**broker.client(), "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(config) as consumer:
        consumer.subscribe(["data"])
        deadline = SystemClock().monotonic() + seconds
        while SystemClock().monotonic() < deadline:
            records = list(drop_error_events(consumer.consume(10, 0.2)))
            if records:
                return consumer.commit(asynchronous=False) or []
    return []


def test_consumer_needs_read_only(broker: Secured, grant: Any, caplog: pytest.LogCaptureFixture) -> None:
    """With Read on its topics, its group and two control topics, a consumer logs no missing ACL."""
    broker.make_topics(CONTROL_TOPICS)
    grant(CONSUMER_ACLS)
    assert consume_one_record(broker)
    assert "grant" not in caplog.text


@pytest.mark.parametrize(
    ("without", "message"),
    [
        (CONSUMER_ACLS[0], "no permission to read topic data; grant Read on topic data"),
        (CONSUMER_ACLS[1], "no permission to join; grant Read on group g"),
    ],
)
def test_consumer_raises_missing_acls(broker: Secured, grant: Any, without: Right, message: str) -> None:
    """MissingAclError names the operation and the resource."""
    grant(CONSUMER_ACLS, without)
    with pytest.raises(MissingAclError, match=message):
        consume_one_record(broker)


def test_a_sink_with_describe_only_goes_on_after_the_grant(
    broker: Secured, grant: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A pattern may find such a topic, which must not end the sink: it names the missing Read and waits."""
    grant((("topic", "data", "describe"), *CONSUMER_ACLS[1:]))
    write_records(broker)
    with Consumer({**broker.client(), "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["data"])
        records: list[Any] = []
        for granted, seconds in ((False, 8), (True, 30)):
            if granted:
                grant(CONSUMER_ACLS[:1])
            deadline = SystemClock().monotonic() + seconds
            while not records and SystemClock().monotonic() < deadline:
                records = list(drop_error_events(consumer.consume(10, 0.2)))
            assert bool(records) is granted
    assert caplog.text.count("data-0 waits for the right to read: grant Read on topic data") == 1


@pytest.mark.parametrize("without", CONSUMER_ACLS[2:], ids=lambda right: right[1])
def test_consumer_works_without_control_topics(
    broker: Secured, grant: Any, without: Right, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer without access to a control topic reads, and logs the missing ACL once."""
    grant(CONSUMER_ACLS, without)
    with caplog.at_level(logging.WARNING, "trimtab.consumer_sdk"):
        assert consume_one_record(broker)
    assert caplog.text.count(f"grant Read on topic {without[1]}") == 1


def sidecar_settings(broker: Secured, **extra: Any) -> Any:
    client = broker.client()
    acls = {"bootstrap": client.pop("bootstrap.servers"), "group": "g", "capacity": "1 MB/s",
             "topics": "data", "timeout": "2 s", "kafka": client, **extra}  # fmt: skip
    return load_settings(None, acls)


def run_sidecar_requests(broker: Secured) -> tuple[list[str], Any]:
    """Make all Kafka requests of a sidecar; return the errors and the last measurement."""
    settings, errors, now = sidecar_settings(broker), list[str](), SystemClock().wall()
    monitor = GroupMonitor(settings, SystemClock())
    store = ControlTopicStore(settings, monitor.brokers.admin)
    plan = GroupPlan("g", 1, now, 0, "steady", 1e6)
    hold = (ScalingAction.HOLD, ("0 is right",), DecisionMetrics(), 1e6, 0.9)
    try:
        for _ in range(2):
            measurement = monitor.measure()
        errors += measurement.errors
        for step in (
            lambda: store.publish([plan, TopicWriteRates("g", "data", now, 30.0, "test", {})]),
            lambda: store.write_decision(DecisionRecord("g", 0, now, now, 1, 10.0, 1, *hold)),
            store.read_plan,
            store.read_write_rates,
            store.read_decisions,
        ):
            try:
                step()
            except TrimtabError as error:
                errors.append(str(error))
        return errors, measurement
    finally:
        monitor.close()


def test_sidecar_works_with_minimal_acls(broker: Secured, grant: Any, eventually: Any) -> None:
    """A sidecar measures, creates, writes and reads its topics; no check of the doctor fails."""
    broker.delete_topics(CONTROL_TOPICS)
    grant(SIDECAR_ACLS)
    errors, measurement = run_sidecar_requests(broker)
    assert errors == []
    assert measurement.group.state is GroupState.EMPTY
    eventually(lambda: not _failed_remedies(broker), 20)


def _failed_remedies(broker: Secured) -> dict[str, str]:
    records = run_broker_checks(sidecar_settings(broker), SystemClock())
    return {f.check: f.remedy for f in records if f.level is FindingLevel.FAILED and f.check != "sidecar"}


OPERATION_NAMES = {"create": "Create", "read": "Read", "write": "Write", "describe": "Describe"}


@pytest.mark.parametrize("without", SIDECAR_ACLS, ids=lambda right: f"{right[2]} {right[1]}")
def test_sidecar_reports_missing_acls(broker: Secured, grant: Any, without: Right) -> None:
    """The sidecar and the doctor report the operation and the resource."""
    kind, name, operation = without
    if operation == "create":
        broker.delete_topics([name])
    else:
        broker.make_topics(CONTROL_TOPICS)
    grant(SIDECAR_ACLS, without)
    errors, measurement = run_sidecar_requests(broker)
    right = "Describe" if name == "data" else OPERATION_NAMES[operation]
    assert any(f"grant {right} on {kind} {name}" in text for text in errors), errors
    assert PASSWORD not in " ".join(errors)
    if kind == "group":
        assert measurement.group.state is GroupState.UNKNOWN
    assert f"grant {right} on {kind} {name}" in _failed_remedies(broker).values()


def test_record_sizes_need_read(broker: Secured, grant: Any) -> None:
    """Without Read on the topic the sidecar reports that it cannot sample record sizes."""
    broker.make_topics(CONTROL_TOPICS)
    grant((("topic", "data", "describe"), *SIDECAR_ACLS[1:]))
    errors, _ = run_sidecar_requests(broker)
    assert any("grant Read on topic data, or use source=log-dirs" in text for text in errors)


def test_log_dirs_need_describe_on_the_cluster(broker: Secured, grant: Any) -> None:
    """source=log-dirs reports a missing Describe on the cluster, and works with it."""
    grant(LOG_DIRS_ACLS[:1])
    settings = sidecar_settings(broker, source="log-dirs")
    monitor, sizes = (GroupMonitor(settings, SystemClock()), PartitionLogs(settings, SystemClock()))
    try:
        leaders = monitor.brokers.fetch_cluster_metadata().leaders
        sizes.fetch_replica_sizes(leaders)
        (message,) = sizes.fetch_replica_sizes(leaders).errors
        assert "grant Describe on cluster" in message
        grant(LOG_DIRS_ACLS[1:])
        assert sizes.fetch_replica_sizes(leaders).values
    finally:
        monitor.close()
        sizes.close()


def test_a_lead_needs_read_on_the_group(broker: Secured, grant: Any, eventually: Any) -> None:
    """By TLS and SASL, with the rights of the group's members; without Read on the group it says so."""
    grant(SIDECAR_ACLS[:2])
    lead = GroupLead(sidecar_settings(broker, lead=True), SystemClock())
    try:
        eventually(lambda: "grant Read on group g" in lead.carry_out(None, {}).text)
        grant((("group", "g", "read"),))
        eventually(lambda: lead.carry_out(None, {}).is_steering)
        consumer = create_librdkafka_client()(
            {**broker.client(), "group.id": "g", "trimtab.instance": "a", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["data"])
        eventually(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) > 1)
        consumer.close()
    finally:
        lead.close()


def test_a_lead_names_topics_that_it_may_not_describe(
    broker: Secured, grant: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its members may, and read nothing in a new group, until the sidecar is granted it, too."""
    monkeypatch.setattr(lead_member, "TOPIC_CHECK_INTERVAL_S", 1.0)
    grant((("group", "g", "read"),))
    lead = GroupLead(sidecar_settings(broker, lead=True), SystemClock())
    plain = {"bootstrap.servers": broker.broker.bootstrap, "group.id": "g", "trimtab.instance": "a"}
    consumer = create_librdkafka_client()(plain)
    consumer.subscribe(["data"])
    try:
        wanted = ("grant Describe on topic data",)
        eventually(lambda: consumer.poll(0.1) is None and lead.carry_out(None, {}).errors == wanted)
        assert not consumer.assignment()
        grant((("topic", "data", "describe"),))
        eventually(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) > 1)
        eventually(lambda: not lead.carry_out(None, {}).errors)
    finally:
        consumer.close()
        lead.close()


def test_idempotent_producer_needs_write_only(broker: Secured, grant: Any) -> None:
    """An idempotent producer writes with Write on the topic, and fails without it."""
    grant(PRODUCER_ACLS)
    failed: list[Any] = []
    producer = Producer({**broker.client(), "enable.idempotence": True})
    producer.produce("data", b"hello", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0
    assert failed == [None]
    broker.revoke(PRODUCER_ACLS[0])
    with pytest.raises(KafkaException, match="Topic authorization failed"):
        raise KafkaException(_delivery_error(producer))


def _delivery_error(producer: Producer) -> Any:
    failed: list[Any] = []
    producer.produce("data", b"hello", on_delivery=lambda error, _: failed.append(error))
    producer.flush(20)
    return failed[0]
