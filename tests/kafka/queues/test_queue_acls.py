"""The minimal ACLs of queues: they suffice, and each missing one is reported."""

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from support.secured import Right, Secured
from trimtab.common.clock import SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import MissingAclError
from trimtab.consumer_sdk.queues import open_queue, topics
from trimtab.consumer_sdk.queues.kmq import marker_retention
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

pytestmark = pytest.mark.broker

CONTROL = ("trimtab.plans", "trimtab.write-rates")
MARKERS, DEAD = "jobs.queued.markers", "jobs.queued.dead"
READER: tuple[Right, ...] = tuple(("topic", name, "read") for name in ("jobs", *CONTROL))
BOTH: tuple[Right, ...] = (
    *READER,
    *(("topic", name, "create") for name in (MARKERS, DEAD)),
    ("topic", MARKERS, "write"),
    ("topic", MARKERS, "describe_configs"),
)
WORKER: tuple[Right, ...] = (*BOTH, ("group", "queued", "read"))
TRACKER: tuple[Right, ...] = (
    *BOTH,
    ("group", "queued-redeliver", "read"),
    ("topic", MARKERS, "read"),
    ("topic", MARKERS, "delete"),
    ("topic", "jobs", "write"),
    ("topic", DEAD, "write"),
)
ORDERED: tuple[Right, ...] = (
    *READER,
    ("group", "queued", "read"),
    ("topic", DEAD, "create"),
    ("topic", DEAD, "write"),
)
SHARE: tuple[Right, ...] = (
    ("topic", "jobs", "read"),
    ("group", "shared", "read"),
    ("group", "shared", "alter_configs"),
    ("topic", "dlq.jobs.shared.dead", "create"),
    ("topic", "dlq.jobs.shared.dead", "describe_configs"),
    ("cluster", "kafka-cluster", "describe_configs"),
)
SHARE_AS_CONFIGURED: tuple[Right, ...] = (*SHARE[:2], ("group", "shared", "describe_configs"))
"""ACLs of a share group whose settings an administrator has configured."""

WORKERS = {"kmq": WORKER, "ordered": ORDERED, "share": SHARE}
MISSING_ACL = re.compile("(?i)allowed|authoriz|grant|cannot be created|not exist|has 0 partitions")

Condition = Callable[[], object]


@pytest.fixture(scope="module")
def broker(guarded_broker: Secured) -> Secured:
    """A broker whose user has only the rights that a test grants."""
    guarded_broker.make_topics(("jobs", *CONTROL))
    return guarded_broker


@pytest.fixture
def grant(broker: Secured) -> Iterator[Any]:
    """Replace the user's ACLs; they are revoked after the test."""
    active: list[Right] = []

    def grant(rights: tuple[Right, ...], without: Right | None = None) -> None:
        while active:
            broker.revoke(active.pop())
        active.extend(right for right in rights if right != without)
        broker.grant(active)

    yield grant
    for right in active:
        broker.revoke(right)


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Shorten the marker deletion interval and the topic timeout."""
    monkeypatch.setattr(marker_retention, "MARKER_DELETION_INTERVAL_S", 0.2)
    monkeypatch.setattr(topics, "TOPIC_ADMIN_TIMEOUT_S", 5.0)
    caplog.set_level(logging.WARNING)


def config(broker: Secured, kind: str = "kmq") -> dict[str, Any]:
    if kind == "share-as-it-is":
        return {**broker.client(), "group.id": "shared"}
    if kind == "share":
        return {**broker.client(), "group.id": "shared", "auto.offset.reset": "earliest"}
    limits = {"trimtab.queue.timeout": "1 s", "trimtab.queue.max.deliveries": 2}
    return {**broker.client(), "group.id": "queued", **limits}


def write_messages(broker: Secured, *values: bytes, topic: str = "jobs") -> None:
    producer = Producer({"bootstrap.servers": broker.broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def ensure_topics(broker: Secured, *names: str) -> None:
    """Create missing queue topics, as an administrator would."""
    existing = broker.admin.list_topics(timeout=10).topics
    for name in set(names) - existing.keys():
        topic_config = dict(topics.MARKERS_TOPIC_CONFIG) if name == MARKERS else {}
        broker.admin.create_topics([NewTopic(name, 1, 1, config=topic_config)])[name].result(30)


def run_worker(
    kind: str, config: dict[str, Any], until: Callable[[dict[bytes, int]], object]
) -> dict[bytes, int]:
    """Run a worker until a condition on its deliveries by value holds, at most 30 s; return them.

    It rejects "bad", acknowledges "good" of `kmq` at its second delivery, and the rest at once.
    """
    clock, deliveries = SystemClock(), dict[bytes, int]()
    deadline = clock.monotonic() + 30
    with open_queue(kind, "jobs", config) as queue:
        while not until(deliveries) and clock.monotonic() < deadline:
            for message in queue.receive(10, 0.2):
                value = message.value or b""
                deliveries[value] = message.delivery
                if value == b"bad":
                    message.reject("bad")
                elif (kind, value, message.delivery) != ("kmq", b"good", 1):
                    message.ack()
        assert queue.flush()
    return deliveries


class StopCondition:
    """Stop event of a tracker: set once a condition holds, or after 30 s."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._clock = SystemClock()
        self._deadline = self._clock.monotonic() + 30

    def is_set(self) -> bool:
        return bool(self._condition()) or self._clock.monotonic() > self._deadline


def run_tracker(broker: Secured, until: Callable[[RedeliveryTracker], object]) -> RedeliveryTracker:
    """Run a tracker until a condition holds."""
    tracker = RedeliveryTracker(parse_queue_settings("jobs", config(broker)))
    stop: Any = StopCondition(lambda: until(tracker))
    tracker.run(stop)
    return tracker


def first_marker_offset(broker: Secured) -> int:
    """Return the first offset of the markers topic."""
    (listed,) = broker.admin.list_offsets({RawPartition(MARKERS, 0): OffsetSpec.earliest()}).values()
    return int(listed.result(20).offset)


def test_kmq_queue_works_with_minimal_acls(broker: Secured, grant: Any, caplog: Any) -> None:
    """A tracker redelivers an unsettled message, dead-letters one and deletes markers."""
    broker.delete_topics((MARKERS, DEAD))
    write_messages(broker, b"good", b"bad")
    grant(WORKER)
    assert run_worker("kmq", config(broker), lambda deliveries: len(deliveries) == 2) == {
        b"good": 1,
        b"bad": 1,
    }
    grant(TRACKER)
    first_offset = first_marker_offset(broker)
    tracker = run_tracker(
        broker,
        lambda t: (
            t.counts.redelivered and t.counts.dead_lettered and first_marker_offset(broker) > first_offset
        ),
    )
    assert (tracker.counts.redelivered, tracker.counts.dead_lettered) == (1, 1)
    assert first_marker_offset(broker) > first_offset
    grant(WORKER)
    assert run_worker("kmq", config(broker), lambda deliveries: deliveries) == {b"good": 2}
    assert not MISSING_ACL.search(caplog.text)


def has_both(deliveries: dict[bytes, int]) -> bool:
    """Return whether an acknowledged and a rejected message were delivered."""
    return {b"fine", b"bad"} <= deliveries.keys()


def test_ordered_queue_works_with_minimal_acls(broker: Secured, grant: Any, caplog: Any) -> None:
    """A worker acknowledges one message, dead-letters another and commits both."""
    broker.delete_topics((DEAD,))
    write_messages(broker, b"fine", b"bad")
    grant(ORDERED)
    assert {b"fine", b"bad"} <= run_worker("ordered", config(broker), has_both).keys()
    assert not MISSING_ACL.search(caplog.text)


def test_share_queue_works_with_minimal_acls(broker: Secured, grant: Any, caplog: Any) -> None:
    """A share queue needs AlterConfigs to set the group's settings, otherwise DescribeConfigs."""
    write_messages(broker, b"fine", b"bad")
    grant(SHARE)
    assert {b"fine", b"bad"} <= run_worker("share", config(broker, "share"), has_both).keys()
    write_messages(broker, b"finer")
    grant(SHARE_AS_CONFIGURED)
    settings = config(broker, "share-as-it-is")
    assert b"finer" in run_worker("share", settings, lambda deliveries: b"finer" in deliveries)
    assert not MISSING_ACL.search(caplog.text)


def test_share_queue_without_read_raises(broker: Secured, grant: Any) -> None:
    """A missing Read on the share group raises MissingAclError instead of a timeout."""
    grant(SHARE, ("group", "shared", "read"))
    with (
        pytest.raises(MissingAclError, match="grant Read on group shared"),
        open_queue("share", "jobs", config(broker, "share")),
    ):
        pass


def missing_acl_report(caplog: pytest.LogCaptureFixture, work: Callable[[Condition], object]) -> str:
    """Run `work` until a missing ACL is reported; return the error or the log."""
    try:
        work(lambda: MISSING_ACL.search(caplog.text))
    except (TrimtabError, KafkaException) as error:
        return str(error)
    return caplog.text


def prepare_topics(broker: Secured, without: Right) -> None:
    """Delete the topic whose Create is missing; else create the topics."""
    if without[2] == "create":
        broker.delete_topics([without[1]])
    else:
        ensure_topics(broker, MARKERS, DEAD)


@pytest.mark.parametrize(
    ("kind", "without"),
    [(kind, right) for kind, rights in WORKERS.items() for right in rights],
    ids=lambda part: part if isinstance(part, str) else f"{part[2]} {part[1]}",
)
def test_worker_reports_each_missing_acl(
    broker: Secured, grant: Any, caplog: Any, kind: str, without: Right
) -> None:
    """A worker without one of its ACLs reports it."""
    rights, settings = WORKERS[kind], config(broker, kind)
    if kind == "share":  # a configured group needs fewer ACLs, so each case has its own
        own_group = f"shared-{uuid4().hex[:6]}"
        settings["group.id"] = own_group
        index = rights.index(without)
        rights = tuple(
            (resource, name.replace("shared", own_group), right) for resource, name, right in rights
        )
        without = rights[index]
    else:
        prepare_topics(broker, without)
    write_messages(broker, b"bad")
    grant(rights, without)
    report = missing_acl_report(
        caplog, lambda is_reported: run_worker(kind, settings, lambda _: is_reported())
    )
    assert MISSING_ACL.search(report), report


@pytest.mark.parametrize("without", TRACKER, ids=lambda right: f"{right[2]} {right[1]}")
def test_tracker_reports_each_missing_acl(broker: Secured, grant: Any, caplog: Any, without: Right) -> None:
    """A tracker without one of its ACLs reports it."""
    prepare_topics(broker, without)
    if without[2] != "create":
        write_messages(broker, b"again", b"dead")
        (listed,) = broker.admin.list_offsets({RawPartition("jobs", 0): OffsetSpec.latest()}).values()
        end = listed.result(20).offset
        for distance, delivery in ((2, 1), (1, 2)):  # the last one has reached max.deliveries
            start = Marker(MarkerKind.START, ((end - distance, end - distance),), 1, delivery)
            write_messages(broker, start.encode(), topic=MARKERS)
    grant(TRACKER, without)
    report = missing_acl_report(caplog, lambda is_reported: run_tracker(broker, lambda _: is_reported()))
    assert MISSING_ACL.search(report), report
