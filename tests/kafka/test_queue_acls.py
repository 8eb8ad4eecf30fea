"""The least ACLs of queues: they suffice, and each missing one is reported."""

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

from secured import Right, Secured
from trimtab.common.clock import SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import MissingAclError
from trimtab.consumer_sdk.queues import open_queue, topics
from trimtab.consumer_sdk.queues.kmq import marker_retention
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

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
AS_IT_IS: tuple[Right, ...] = (*SHARE[:2], ("group", "shared", "describe_configs"))
"""Rights for a share group that an administrator has configured."""

WORKERS = {"kmq": WORKER, "ordered": ORDERED, "share": SHARE}
LACKING = re.compile("(?i)allowed|authoriz|grant|cannot be created|not exist|has 0 partitions")

Told = Callable[[], object]


@pytest.fixture(scope="module")
def broker(guarded_broker: Secured) -> Secured:
    """A broker whose user may do nothing but what a test grants."""
    guarded_broker.make_topics(("jobs", *CONTROL))
    return guarded_broker


@pytest.fixture
def granted(broker: Secured) -> Iterator[Any]:
    """Replace the granted rights."""
    given: list[Right] = []

    def grant(rights: tuple[Right, ...], without: Right | None = None) -> None:
        while given:
            broker.take(given.pop())
        given.extend(right for right in rights if right != without)
        broker.grant(given)

    yield grant
    for right in given:
        broker.take(right)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Shorten the intervals of marker deletion and of waiting for topics."""
    monkeypatch.setattr(marker_retention, "MARKER_DELETION_INTERVAL_S", 0.2)
    monkeypatch.setattr(topics, "TOPIC_ADMIN_TIMEOUT_S", 5.0)
    caplog.set_level(logging.WARNING)


def config(broker: Secured, kind: str = "kmq") -> dict[str, Any]:
    if kind == "share-as-it-is":
        return {**broker.client(), "group.id": "shared"}
    if kind == "share":
        return {**broker.client(), "group.id": "shared", "auto.offset.reset": "earliest"}
    least = {"trimtab.queue.timeout": "1 s", "trimtab.queue.max.deliveries": 2}
    return {**broker.client(), "group.id": "queued", **least}


def written(broker: Secured, *values: bytes, topic: str = "jobs") -> None:
    producer = Producer({"bootstrap.servers": broker.broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def there(broker: Secured, *names: str) -> None:
    """Make topics of the queue as an administrator would, unless they are there."""
    found = broker.admin.list_topics(timeout=10).topics
    for name in set(names) - found.keys():
        made = dict(topics.MARKERS_TOPIC_CONFIG) if name == MARKERS else {}
        broker.admin.create_topics([NewTopic(name, 1, 1, config=made)])[name].result(30)


def worked(
    kind: str, config: dict[str, Any], until: Callable[[dict[bytes, int]], object]
) -> dict[bytes, int]:
    """Work until a condition of the deliveries by value holds, 30 s at most; return them.

    "bad" is rejected, "good" of `kmq` acknowledged at its second delivery, the rest at once.
    """
    clock, found = SystemClock(), dict[bytes, int]()
    deadline = clock.monotonic() + 30
    with open_queue(kind, "jobs", config) as queue:
        while not until(found) and clock.monotonic() < deadline:
            for message in queue.receive(10, 0.2):
                value = message.value or b""
                found[value] = message.delivery
                if value == b"bad":
                    message.reject("bad")
                elif (kind, value, message.delivery) != ("kmq", b"good", 1):
                    message.ack()
        assert queue.flush()
    return found


class Until:
    """Stops a tracker when a condition holds, or after 30 s."""

    def __init__(self, condition: Told) -> None:
        self._condition = condition
        self._clock = SystemClock()
        self._deadline = self._clock.monotonic() + 30

    def is_set(self) -> bool:
        return bool(self._condition()) or self._clock.monotonic() > self._deadline


def tracked(broker: Secured, until: Callable[[RedeliveryTracker], object]) -> RedeliveryTracker:
    """Run a tracker until a condition holds."""
    tracker = RedeliveryTracker(parse_queue_settings("jobs", config(broker)))
    stop: Any = Until(lambda: until(tracker))
    tracker.run(stop)
    return tracker


def trimmed(broker: Secured) -> int:
    """Return the first offset of the markers."""
    (asked,) = broker.admin.list_offsets({RawPartition(MARKERS, 0): OffsetSpec.earliest()}).values()
    return int(asked.result(20).offset)


def test_a_kmq_queue_needs_these_rights(broker: Secured, granted: Any, caplog: Any) -> None:
    """A tracker redelivers an unsettled message, dead-letters one and deletes markers."""
    broker.delete_topics((MARKERS, DEAD))
    written(broker, b"good", b"bad")
    granted(WORKER)
    assert worked("kmq", config(broker), lambda found: len(found) == 2) == {b"good": 1, b"bad": 1}
    granted(TRACKER)
    begun = trimmed(broker)
    done = tracked(
        broker, lambda t: t.counts.redelivered and t.counts.dead_lettered and trimmed(broker) > begun
    )
    assert (done.counts.redelivered, done.counts.dead_lettered) == (1, 1)
    assert trimmed(broker) > begun
    granted(WORKER)
    assert worked("kmq", config(broker), lambda found: found) == {b"good": 2}
    assert not LACKING.search(caplog.text)


def both(found: dict[bytes, int]) -> bool:
    """Tell whether a message to acknowledge and one to reject have come."""
    return {b"fine", b"bad"} <= found.keys()


def test_an_ordered_queue_needs_these_rights(broker: Secured, granted: Any, caplog: Any) -> None:
    """A worker acknowledges one message and rejects another, which is kept; all is committed."""
    broker.delete_topics((DEAD,))
    written(broker, b"fine", b"bad")
    granted(ORDERED)
    assert {b"fine", b"bad"} <= worked("ordered", config(broker), both).keys()
    assert not LACKING.search(caplog.text)


def test_a_share_group_needs_these_rights(broker: Secured, granted: Any, caplog: Any) -> None:
    """AlterConfigs to set the group's settings, else DescribeConfigs."""
    written(broker, b"fine", b"bad")
    granted(SHARE)
    assert {b"fine", b"bad"} <= worked("share", config(broker, "share"), both).keys()
    written(broker, b"finer")
    granted(AS_IT_IS)
    left = config(broker, "share-as-it-is")
    assert b"finer" in worked("share", left, lambda found: b"finer" in found)
    assert not LACKING.search(caplog.text)


def test_a_share_group_that_may_not_be_read_is_named(broker: Secured, granted: Any) -> None:
    """At once, and not as an unreachable broker."""
    granted(SHARE, ("group", "shared", "read"))
    with (
        pytest.raises(MissingAclError, match="grant Read on group shared"),
        open_queue("share", "jobs", config(broker, "share")),
    ):
        pass


def lacking(caplog: pytest.LogCaptureFixture, work: Callable[[Told], object]) -> str:
    """Work until a missing right is reported; return the error or the log."""
    try:
        work(lambda: LACKING.search(caplog.text))
    except (TrimtabError, KafkaException) as error:
        return str(error)
    return caplog.text


def prepared(broker: Secured, without: Right) -> None:
    """Make the topics that may not be made; let those be away that shall be."""
    if without[2] == "create":
        broker.delete_topics([without[1]])
    else:
        there(broker, MARKERS, DEAD)


@pytest.mark.parametrize(
    ("kind", "without"),
    [(kind, right) for kind, rights in WORKERS.items() for right in rights],
    ids=lambda part: part if isinstance(part, str) else f"{part[2]} {part[1]}",
)
def test_a_worker_needs_each(broker: Secured, granted: Any, caplog: Any, kind: str, without: Right) -> None:
    """Without one of its rights a worker reports it."""
    rights, given = WORKERS[kind], config(broker, kind)
    if kind == "share":  # a group that has been set up needs less: each case has its own
        own = f"shared-{uuid4().hex[:6]}"
        given["group.id"] = own
        at = rights.index(without)
        rights = tuple((what, name.replace("shared", own), right) for what, name, right in rights)
        without = rights[at]
    else:
        prepared(broker, without)
    written(broker, b"bad")
    granted(rights, without)
    said = lacking(caplog, lambda told: worked(kind, given, lambda _: told()))
    assert LACKING.search(said), said


@pytest.mark.parametrize("without", TRACKER, ids=lambda right: f"{right[2]} {right[1]}")
def test_a_tracker_needs_each(broker: Secured, granted: Any, caplog: Any, without: Right) -> None:
    """Without one of its rights a tracker reports it."""
    prepared(broker, without)
    if without[2] != "create":
        written(broker, b"again", b"dead")
        (asked,) = broker.admin.list_offsets({RawPartition("jobs", 0): OffsetSpec.latest()}).values()
        end = asked.result(20).offset
        for back, delivery in ((2, 1), (1, 2)):  # the last one has been delivered often enough
            start = Marker(MarkerKind.START, ((end - back, end - back),), 1, delivery)
            written(broker, start.encode(), topic=MARKERS)
    granted(TRACKER, without)
    said = lacking(caplog, lambda told: tracked(broker, lambda _: told()))
    assert LACKING.search(said), said
