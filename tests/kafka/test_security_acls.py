"""The least ACLs: with exactly these everything works; each one taken away is named."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from secured import PASSWORD, Right, Secured
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
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.kafka.log_dirs import LogDirsClient
from trimtab.sidecar.measurement.group_monitor import GroupMonitor
from trimtab.sidecar.measurement.observation import GroupState
from trimtab.sidecar.reporting.decision_record import DecisionRecord
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

CONTROL = ("trimtab.plans", "trimtab.write-rates", "trimtab.decisions")
CONSUMER: tuple[Right, ...] = (
    ("topic", "data", "read"),
    ("group", "g", "read"),
    ("topic", "trimtab.plans", "read"),
    ("topic", "trimtab.write-rates", "read"),
)
SIDECAR: tuple[Right, ...] = (
    ("topic", "data", "read"),
    ("group", "g", "describe"),
    *((("topic", name, right)) for name in CONTROL for right in ("create", "read", "write")),
)
LOG_DIRS: tuple[Right, ...] = (("topic", "data", "describe"), ("cluster", "kafka-cluster", "describe"))
PRODUCER: tuple[Right, ...] = (("topic", "data", "write"),)


@pytest.fixture(scope="module")
def broker(guarded_broker: Secured) -> Secured:
    """A broker whose user may do nothing but what a test grants."""
    guarded_broker.make_topic("data")
    return guarded_broker


@pytest.fixture
def granted(broker: Secured) -> Iterator[Any]:
    """Grant rights for the length of a test, except for one."""
    given: list[Right] = []

    def grant(rights: tuple[Right, ...], without: Right | None = None) -> None:
        new = [right for right in rights if right != without]
        given.extend(new)
        broker.grant(new)

    yield grant
    for right in given:
        broker.take(right)


def written(broker: Secured, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": broker.broker.bootstrap})
    for _ in range(count):
        producer.produce("data", b"hello", partition=0)
    assert producer.flush(20) == 0


def consumed(broker: Secured, seconds: float = 20.0) -> list[Any]:
    """Join, read one record and commit it, as a sink does; raises what is raised."""
    written(broker)
    config = {**broker.client(), "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(config) as consumer:
        consumer.subscribe(["data"])
        deadline = SystemClock().monotonic() + seconds
        while SystemClock().monotonic() < deadline:
            found = list(drop_error_events(consumer.consume(10, 0.2)))
            if found:
                return consumer.commit(asynchronous=False) or []
    return []


def test_a_consumer_needs_read_only(broker: Secured, granted: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Read on its topics, its group and the two control topics; nothing is complained about."""
    broker.make_topics(CONTROL)
    granted(CONSUMER)
    assert consumed(broker)
    assert "grant" not in caplog.text


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (CONSUMER[0], "no permission to read topic data; grant Read on topic data"),
        (CONSUMER[1], "no permission to join; grant Read on group g"),
    ],
)
def test_a_consumer_is_told_what_it_lacks(broker: Secured, granted: Any, without: Right, said: str) -> None:
    """An error that a program can catch, soon, with the right and the resource."""
    granted(CONSUMER, without)
    with pytest.raises(MissingAclError, match=said):
        consumed(broker)


def test_describe_alone_reads_nothing_and_says_so(broker: Secured, granted: Any) -> None:
    """A sink that may see a topic but not read it ends, instead of waiting for ever."""
    granted((("topic", "data", "describe"), *CONSUMER[1:]))
    with pytest.raises(MissingAclError, match="no read access to topic data; grant Read on topic data"):
        consumed(broker)


@pytest.mark.parametrize("without", CONSUMER[2:], ids=lambda right: right[1])
def test_a_consumer_without_control_topics_reads_and_says_so(
    broker: Secured, granted: Any, without: Right, caplog: pytest.LogCaptureFixture
) -> None:
    """It works by its own settings; which topic is missing is one line in the log."""
    granted(CONSUMER, without)
    with caplog.at_level(logging.WARNING, "trimtab.consumer_sdk"):
        assert consumed(broker)
    assert caplog.text.count(f"grant Read on topic {without[1]}") == 1


def sidecar(broker: Secured, **more: Any) -> Any:
    client = broker.client()
    given = {"bootstrap": client.pop("bootstrap.servers"), "group": "g", "capacity": "1 MB/s",
             "topics": "data", "timeout": "2 s", "kafka": client, **more}  # fmt: skip
    return load_settings(None, given)


def steered(broker: Secured) -> tuple[list[str], Any]:
    """Do all that a sidecar does of Kafka; return what it says, and the last look."""
    settings, told, now = sidecar(broker), list[str](), SystemClock().wall()
    monitor = GroupMonitor(settings, SystemClock())
    board = ControlTopicStore(settings, monitor.brokers.admin)
    plan = GroupPlan("g", 1, now, 0, "steady", 1e6)
    hold = (ScalingAction.HOLD, ("0 is right",), DecisionMetrics(), 1e6, 0.9)
    try:
        for _ in range(2):
            seen = monitor.measure()
        told += seen.trouble
        for step in (
            lambda: board.publish([plan, TopicWriteRates("g", "data", now, 30.0, "test", {})]),
            lambda: board.write_decision(DecisionRecord("g", 0, now, now, 1, 10.0, 1, *hold)),
            board.read_plan,
            board.read_write_rates,
            board.read_decisions,
        ):
            try:
                step()
            except TrimtabError as error:
                told.append(str(error))
        return told, seen
    finally:
        monitor.close()


def test_a_sidecar_needs_no_more(broker: Secured, granted: Any, eventually: Any) -> None:
    """It measures, makes its topics, writes and reads them, and the doctor finds nothing wrong."""
    broker.delete_topics(CONTROL)
    granted(SIDECAR)
    told, seen = steered(broker)
    assert told == []
    assert seen.group.state is GroupState.EMPTY
    eventually(lambda: not _wrong(broker), 20)


def _wrong(broker: Secured) -> dict[str, str]:
    found = run_broker_checks(sidecar(broker), SystemClock())
    return {f.check: f.remedy for f in found if f.level is FindingLevel.FAILED and f.check != "sidecar"}


NAMED = {"create": "Create", "read": "Read", "write": "Write", "describe": "Describe"}


@pytest.mark.parametrize("without", SIDECAR, ids=lambda right: f"{right[2]} {right[1]}")
def test_a_sidecar_names_what_it_lacks(broker: Secured, granted: Any, without: Right) -> None:
    """In its verdicts and its log, by right and resource; and the doctor says the same."""
    kind, name, operation = without
    if operation == "create":
        broker.delete_topics([name])
    else:
        broker.make_topics(CONTROL)
    granted(SIDECAR, without)
    told, seen = steered(broker)
    right = "Describe" if name == "data" else NAMED[operation]
    assert any(f"grant {right} on {kind} {name}" in text for text in told), told
    assert PASSWORD not in " ".join(told)
    if kind == "group":
        assert seen.group.state is GroupState.UNKNOWN
    assert f"grant {right} on {kind} {name}" in _wrong(broker).values()


def test_a_topic_that_may_be_seen_but_not_read_has_no_sizes(broker: Secured, granted: Any) -> None:
    """The sizes of records are read; where that is not allowed it is said."""
    broker.make_topics(CONTROL)
    granted((("topic", "data", "describe"), *SIDECAR[1:]))
    told, _ = steered(broker)
    assert any("grant Read on topic data, or use source=log-dirs" in text for text in told)


def test_log_dirs_need_the_cluster(broker: Secured, granted: Any) -> None:
    """Describe on the topics and the cluster; without the latter it is named."""
    granted(LOG_DIRS[:1])
    settings = sidecar(broker, source="log-dirs")
    monitor, sizes = (GroupMonitor(settings, SystemClock()), LogDirsClient(settings.client_config, 5.0))
    try:
        leaders = monitor.brokers.fetch_cluster_metadata().leaders
        sizes.fetch_replica_sizes(leaders)
        (said,) = sizes.fetch_replica_sizes(leaders).trouble
        assert "grant Describe on cluster" in said
        granted(LOG_DIRS[1:])
        assert sizes.fetch_replica_sizes(leaders).values
    finally:
        monitor.close()
        sizes.close()


def test_a_producer_needs_write_only(broker: Secured, granted: Any) -> None:
    """As the demo's producers write: idempotent."""
    granted(PRODUCER)
    failed: list[Any] = []
    producer = Producer({**broker.client(), "enable.idempotence": True})
    producer.produce("data", b"hello", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0
    assert failed == [None]
    broker.take(PRODUCER[0])
    with pytest.raises(KafkaException, match="Topic authorization failed"):
        raise KafkaException(_refused(producer))


def _refused(producer: Producer) -> Any:
    failed: list[Any] = []
    producer.produce("data", b"hello", on_delivery=lambda error, _: failed.append(error))
    producer.flush(20)
    return failed[0]
