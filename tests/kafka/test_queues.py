"""The three kinds of queue on a real broker: what is settled is over, what is not comes back."""

from collections.abc import Callable, Iterator, Mapping
from threading import Event, Thread
from time import monotonic, time
from typing import Any

import pytest
from confluent_kafka import Consumer as Plain
from confluent_kafka import Message, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.common.clock import Clock, SystemClock
from trimtab.consumer_sdk.errors import QueueTopicMismatchError, UnsupportedQueueOperationError
from trimtab.consumer_sdk.queues import KmqQueue, MessageQueue, OrderedQueue, QueueMessage, SettlementResult
from trimtab.consumer_sdk.queues import open_queue as open_kind
from trimtab.consumer_sdk.queues.kmq import marker_retention
from trimtab.consumer_sdk.queues.kmq.marker_writer import MARKER_LINGER_S
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]
Open = Callable[..., MessageQueue]


@pytest.fixture
def write(bootstrap: str) -> Callable[..., None]:
    """Write values into a partition of a topic."""
    producer = Producer({"bootstrap.servers": bootstrap})

    def write(topic: str, *values: str, partition: int = 0, key: str | None = None) -> None:
        for value in values:
            producer.produce(topic, value.encode(), key, partition)
        producer.flush()

    return write


@pytest.fixture
def opened(config: dict[str, Any]) -> Iterator[Open]:
    """Open queues; all are closed at the end."""
    queues: list[MessageQueue] = []

    def open_one(kind: str, topic: str, **more: Any) -> MessageQueue:
        named = {f"trimtab.queue.{key.replace('_', '.')}": value for key, value in more.items()}
        queues.append(open_kind(kind, topic, {**config, **named}))
        return queues[-1]

    yield open_one
    for queue in queues:
        queue.close()


@pytest.fixture
def track(config: dict[str, Any]) -> Iterator[Callable[..., RedeliveryTracker]]:
    """Run trackers on threads of their own."""
    stop, threads = Event(), list[Thread]()

    def start(topic: str, clock: Clock | None = None, **more: Any) -> RedeliveryTracker:
        named = {f"trimtab.queue.{key.replace('_', '.')}": value for key, value in more.items()}
        tracker = RedeliveryTracker(parse_queue_settings(topic, {**config, **named}), clock=clock)
        threads.append(Thread(target=tracker.run, args=(stop,)))
        threads[-1].start()
        return tracker

    yield start
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def records(bootstrap: str) -> Callable[[str], list[Message]]:
    """Read all that a topic holds now."""

    def read(topic: str) -> list[Message]:
        consumer = Plain({"bootstrap.servers": bootstrap, "group.id": "looks-only"})
        found: list[Message] = []
        for number in consumer.list_topics(topic, 10).topics[topic].partitions:
            where = RawPartition(topic, number, 0)
            low, high = consumer.get_watermark_offsets(where, 10)
            consumer.assign([RawPartition(topic, number, low)])
            while low < high:
                for message in consumer.consume(100, 0.2):
                    low = message.offset() + 1
                    found.append(message)
        consumer.close()
        return found

    return read


def take(queue: MessageQueue, count: int, seconds: float = 40) -> list[QueueMessage]:
    """Receive so many messages, fewer when the time is over."""
    found, deadline = list[QueueMessage](), monotonic() + seconds
    while len(found) < count and monotonic() < deadline:
        found += queue.receive(count - len(found), 0.2)
    return found


def texts(messages: list[QueueMessage]) -> list[str]:
    return sorted((m.value or b"").decode() for m in messages)


def said(message: Message) -> Mapping[str, str]:
    return {name: value.decode() for name, value in message.headers() or []}


def test_what_is_acknowledged_is_over_and_the_rest_comes_back(
    opened: Open, track: Any, topic: Any, write: Any
) -> None:
    """An unsettled message is delivered again after its timeout, with its count, key and origin."""
    name = topic(partitions=2)
    write(name, "good", "bad", key="k", partition=1)
    tracker = track(name, timeout="1 s")
    queue = opened("kmq", name, timeout="1 s")
    first = take(queue, 2)
    assert [m.ack() for m in first if m.value == b"good"] == [SettlementResult.DONE]
    (again,) = take(queue, 1)
    assert (again.value, again.key, again.delivery) == (b"bad", b"k", 2)
    assert said(again.raw)["trimtab.origin"] == f"{name}/1/1"
    assert again.ack() is SettlementResult.DONE
    assert take(queue, 1, seconds=2.5) == []
    assert (tracker.counts.redelivered, tracker.counts.dead_lettered) == (1, 0)


def test_a_poison_message_ends_in_the_dead_letters_with_the_reason(
    opened: Open, track: Any, topic: Any, write: Any, records: Any, eventually: Eventually
) -> None:
    """What is never settled is delivered max.deliveries times, what is rejected only once."""
    name = topic(partitions=1)
    write(name, "poison", "refused")
    tracker = track(name, timeout="0.5 s", max_deliveries=2)
    queue = opened("kmq", name, timeout="0.5 s", max_deliveries=2)
    for message in take(queue, 2):
        if message.value == b"refused":
            message.reject("no such customer")
    assert [m.delivery for m in take(queue, 1)] == [2]
    eventually(lambda: tracker.counts.dead_lettered == 2)
    dead = {
        m.value(): said(m) for m in records(parse_queue_settings(name, queue_config(queue)).dead_letter_topic)
    }
    assert dead[b"refused"]["trimtab.reason"] == "no such customer"
    reason = "delivered 2 times, the last delivery ended by timeout"
    assert dead[b"poison"]["trimtab.reason"] == reason
    assert dead[b"poison"]["trimtab.origin"] == f"{name}/0/0"


def queue_config(queue: Any) -> dict[str, Any]:
    return dict(queue._settings.consumer_config)


def test_a_retry_waits_and_an_extension_holds(opened: Open, track: Any, topic: Any, write: Any) -> None:
    """A message that is given back comes after its delay; an extended one does not come back."""
    name = topic(partitions=1)
    write(name, "later", "longer")
    track(name, timeout="1 s")
    queue = opened("kmq", name, timeout="1 s")
    by_text = {m.value: m for m in take(queue, 2)}
    assert by_text[b"longer"].extend(60) is SettlementResult.DONE
    began = monotonic()
    assert by_text[b"later"].retry(delay=2) is SettlementResult.DONE
    (again,) = take(queue, 1)
    assert (again.value, again.delivery) == (b"later", 2)
    assert monotonic() - began >= 1.9
    again.ack()
    assert take(queue, 1, seconds=1) == []
    assert by_text[b"longer"].ack() is SettlementResult.DONE


def test_settling_late_or_twice_is_told_and_harmless(
    opened: Open, topic: Any, write: Any, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """An ack after the deadline says so and is logged; a second one changes nothing."""
    name = topic(partitions=1)
    write(name, "one", "two")
    queue = opened("kmq", name, timeout="0.2 s")
    late, other = take(queue, 2)
    eventually(lambda: monotonic() > (late.deadline or 0))
    assert late.extend(5) is SettlementResult.LATE
    assert late.ack() is SettlementResult.LATE
    assert late.reject() is SettlementResult.REPEATED
    assert other.retry() is SettlementResult.LATE
    assert queue.flush()
    eventually(lambda: "settled after their deadline" in caplog.text)


def test_a_late_ack_does_not_settle_what_has_been_delivered_again(
    opened: Open, track: Any, topic: Any, write: Any
) -> None:
    """The redelivered message is one of its own: it is in work until it is settled itself."""
    name = topic(partitions=1)
    write(name, "slow")
    tracker = track(name, timeout="1 s")
    queue = opened("kmq", name, timeout="1 s")
    (first,) = take(queue, 1)
    (second,) = take(queue, 1)
    assert first.ack() is SettlementResult.LATE
    assert queue.flush()
    (third,) = take(queue, 1)
    assert (second.delivery, third.delivery) == (2, 3)
    assert third.ack() is SettlementResult.DONE
    assert tracker.counts.dead_lettered == 0


class Skewed(SystemClock):
    """A clock that is wrong by so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def monotonic(self) -> float:  # type: ignore[override]
        return monotonic() + self._seconds

    def wall(self) -> float:
        return time() + self._seconds


@pytest.mark.parametrize("skew", [(600, -300), (-600, 300)])
def test_clocks_that_are_minutes_wrong_move_no_deadline(
    config: dict[str, Any], topic: Any, write: Any, track: Any, records: Any, skew: Any
) -> None:
    """A message is due its timeout after the broker had its marker, whatever others' clocks say."""
    name, timed = topic(partitions=1), {**config, "trimtab.queue.timeout": "2 s"}
    write(name, "held", "done")
    track(name, Skewed(skew[1]), timeout="2 s")
    with KmqQueue(name, timed, clock=Skewed(skew[0])) as queue:
        for message in take(queue, 2):
            assert message.value == b"held" or message.ack() is SettlementResult.DONE
        (again,) = take(queue, 1)
        again.ack()
        assert (again.value, again.delivery) == (b"held", 2)
    due, (_, written) = int(said(again.raw)["trimtab.due"]), again.raw.timestamp()
    starts = [m.timestamp()[1] for m in records(parse_queue_settings(name, timed).markers_topic)]
    assert due - round((2 + MARKER_LINGER_S) * 1000) in starts
    assert written >= due


@pytest.mark.parametrize("minutes", [-10, 10])
def test_what_a_worker_writes_as_the_time_of_a_marker_does_not_count(
    config: dict[str, Any], opened: Open, topic: Any, write: Any, track: Any, minutes: int
) -> None:
    """A start marker with a time of its own gets the broker's; its message is due by that."""
    name = topic(partitions=1)
    write(name, "one")
    queue = opened("kmq", name, timeout="1 s")
    (one,) = take(queue, 1)
    one.ack()
    assert queue.flush()
    producer = Producer({"bootstrap.servers": config["bootstrap.servers"]})
    begin = round(time() * 1000)
    marker = Marker(MarkerKind.START, ((0, 0),), 1000, 1).encode()
    markers = parse_queue_settings(name, config).markers_topic
    producer.produce(markers, marker, partition=0, timestamp=begin + minutes * 60_000)
    producer.flush()
    end = round(time() * 1000)
    track(name, timeout="1 s")
    (again,) = take(queue, 1)
    assert begin <= int(said(again.raw)["trimtab.due"]) - 1000 <= end
    again.ack()


def test_a_slow_message_holds_nothing_up(opened: Open, track: Any, topic: Any, write: Any) -> None:
    """While one is in work, the others of its partition are handed out and acknowledged."""
    name = topic(partitions=1)
    track(name, timeout="30 s")
    queue = opened("kmq", name, timeout="30 s")
    write(name, "slow")
    (slow,) = take(queue, 1)
    write(name, *map(str, range(200)))
    for message in take(queue, 200):
        message.ack()
    assert slow.ack() is SettlementResult.DONE


def test_what_another_worker_received_stays_its_own(
    config: dict[str, Any], topic: Any, write: Any, track: Any
) -> None:
    """A worker that joins takes partitions; messages in work are settled where they are."""
    name = topic(partitions=2)
    tracker = track(name, timeout="30 s")
    for partition in (0, 1):
        write(name, "a", "b", partition=partition)
    with KmqQueue(name, config) as one:
        held = take(one, 4)
        with KmqQueue(name, config) as two:
            write(name, *map(str, range(10)), partition=0)
            write(name, *map(str, range(10, 20)), partition=1)
            found = list[QueueMessage]()
            deadline = monotonic() + 40
            while len(found) < 20 and monotonic() < deadline:
                found += [*one.receive(100, 0.1), *two.receive(100, 0.1)]
            assert texts(found) == sorted(map(str, range(20)))
            assert {m.ack() for m in [*held, *found]} == {SettlementResult.DONE}
            assert one.flush()
            assert two.flush()
    assert tracker.counts.redelivered == 0


def test_old_markers_are_deleted(
    opened: Open, track: Any, topic: Any, write: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of markers begins at the oldest open message, and is empty when all is over."""
    monkeypatch.setattr(marker_retention, "MARKER_DELETION_INTERVAL_S", 0.2)
    name = topic(partitions=1)
    track(name, timeout="30 s")
    queue = opened("kmq", name, timeout="30 s")
    write(name, *map(str, range(50)))
    *most, last = take(queue, 50)
    for message in most:
        message.ack()
    markers = parse_queue_settings(name, queue_config(queue)).markers_topic
    servers = queue_config(queue)["bootstrap.servers"]
    looks = Plain({"bootstrap.servers": servers, "group.id": "looks-only"})

    def ends() -> tuple[int, int]:
        low, high = looks.get_watermark_offsets(RawPartition(markers, 0), 10)
        return low, high

    queue.flush()
    eventually(lambda: ends()[1] > 1)
    assert ends()[0] <= 1
    last.ack()
    eventually(lambda: ends()[0] == ends()[1])
    looks.close()


def test_a_message_that_retention_deleted_is_told_of(
    opened: Open, track: Any, topic: Any, write: Any, records: Any, eventually: Eventually
) -> None:
    """What can no longer be delivered again leaves a dead letter without a value."""
    name = topic(partitions=1)
    queue = opened("kmq", name, timeout="0.5 s")
    write(name, "short-lived")
    take(queue, 1)
    admin = AdminClient({"bootstrap.servers": queue_config(queue)["bootstrap.servers"]})
    for deleted in admin.delete_records([RawPartition(name, 0, 1)]).values():
        deleted.result(20)
    tracker = track(name, timeout="0.5 s")
    eventually(lambda: tracker.counts.dead_lettered == 1)
    (letter,) = records(parse_queue_settings(name, queue_config(queue)).dead_letter_topic)
    assert letter.value() is None
    assert "retention" in said(letter)["trimtab.reason"]


@pytest.fixture
def wide(group: str, admin: AdminClient, bootstrap: str) -> str:
    """Return a topic that takes three megabytes a message, with one of two in it."""
    name, config = f"{group}-wide", {"max.message.bytes": "3000000"}
    for made in admin.create_topics([NewTopic(name, 1, 1, config=config)]).values():
        made.result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000})
    producer.produce(name, b"x" * 2_000_000, partition=0)
    producer.flush()
    return name


def test_a_large_message_is_delivered_again_and_given_up_without_its_value(
    opened: Open, track: Any, wide: str, records: Any, eventually: Eventually
) -> None:
    """Two megabytes come back; dead letters that take one megabyte get the reason alone."""
    tracker = track(wide, timeout="30 s")
    queue = opened("kmq", wide, timeout="30 s")
    take(queue, 1)[0].retry()
    (again,) = take(queue, 1)
    assert (len(again.value or b""), again.delivery) == (2_000_000, 2)
    again.reject("no such customer")
    eventually(lambda: tracker.counts.dead_lettered == 1)
    (letter,) = records(parse_queue_settings(wide, queue_config(queue)).dead_letter_topic)
    assert (letter.value(), said(letter)["trimtab.origin"]) == (None, f"{wide}/0/1")
    assert said(letter)["trimtab.reason"].startswith("no such customer; without its value")


def test_ordered_gives_a_large_message_up_without_its_value(
    opened: Open, wide: str, write: Any, records: Any
) -> None:
    """It is not tried for ever: what is behind it is committed."""
    queue = opened("ordered", wide)
    take(queue, 1)[0].reject("no such customer")
    assert queue.flush()
    (letter,) = records(parse_queue_settings(wide, queue_config(queue)).dead_letter_topic)
    assert (letter.value(), said(letter)["trimtab.origin"]) == (None, f"{wide}/0/0")
    assert said(letter)["trimtab.reason"].startswith("no such customer; without its value")
    queue.close()
    write(wide, "next")
    assert texts(take(opened("ordered", wide), 1)) == ["next"]


def test_a_group_skips_what_is_delivered_again_to_another(
    opened: Open, track: Any, topic: Any, write: Any, config: dict[str, Any], group: str
) -> None:
    """Two groups have queues on one topic; each gets its own redeliveries only."""
    name = topic(partitions=1)
    write(name, "one")
    track(name, timeout="0.5 s")
    queue = opened("kmq", name, timeout="0.5 s")
    with KmqQueue(name, {**config, "group.id": f"{group}-2"}) as other:
        (message,) = take(other, 1)
        message.ack()
        assert [m.delivery for m in take(queue, 1)] == [1]
        (again,) = take(queue, 1)
        assert again.delivery == 2
        assert take(other, 1, seconds=1.5) == []
        again.ack()


def test_topics_that_do_not_fit_are_named(opened: Open, topic: Any, admin: AdminClient, group: str) -> None:
    """No topic, markers with other partitions or with the writers' time: said before anything."""
    with pytest.raises(QueueTopicMismatchError, match="does not exist"):
        opened("kmq", f"{group}-none")
    name = topic(partitions=2)
    narrow, timed = f"{name}-narrow", f"{name}-timed"
    made = admin.create_topics([NewTopic(narrow, 1, 1), NewTopic(timed, 2, 1)])
    for one in made.values():
        one.result(20)
    with pytest.raises(QueueTopicMismatchError, match=r"has 1 partitions and .* has 2"):
        opened("kmq", name, markers=narrow)
    with pytest.raises(QueueTopicMismatchError, match="LogAppendTime"):
        opened("kmq", name, markers=timed)


def test_ordered_goes_on_from_the_first_unfinished_message(
    config: dict[str, Any], topic: Any, write: Any
) -> None:
    """What was finished behind an unfinished message is delivered again after a restart."""
    name = topic(partitions=1)
    write(name, *map(str, range(5)))
    with OrderedQueue(name, config) as queue:
        for message in take(queue, 5):
            if message.value != b"2":
                message.ack()
        assert queue.flush()
    with OrderedQueue(name, config) as queue:
        again = take(queue, 3)
        assert texts(again) == ["2", "3", "4"]
        for message in again:
            message.ack()
    with OrderedQueue(name, config) as queue:
        assert take(queue, 1, seconds=3) == []


def test_ordered_runs_keys_side_by_side_and_each_in_order(opened: Open, topic: Any, write: Any) -> None:
    """The next message of a key is handed out when the one before is over, and not sooner."""
    name = topic(partitions=1)
    write(name, "a1", "a2", key="a")
    write(name, "b1", key="b")
    queue = opened("ordered", name)
    first = take(queue, 2)
    assert texts(first) == ["a1", "b1"]
    assert take(queue, 1, seconds=0.5) == []
    first[0].retry(delay=0.3)
    (again,) = take(queue, 1)
    assert (again.value, again.delivery) == (b"a1", 2)
    again.ack()
    assert texts(take(queue, 1)) == ["a2"]


def test_ordered_gives_up_into_the_dead_letters(opened: Open, topic: Any, write: Any, records: Any) -> None:
    """A rejected message, and one that failed too often, are kept there and hold nothing up."""
    name = topic(partitions=1)
    write(name, "bad", "worse", "good", key="k")
    queue = opened("ordered", name, max_deliveries=2)
    for _ in range(2):
        take(queue, 1)[0].retry()
    take(queue, 1)[0].reject("worse than bad")
    (good,) = take(queue, 1)
    assert good.value == b"good"
    good.ack()
    queue.flush()
    dead = records(parse_queue_settings(name, queue_config(queue)).dead_letter_topic)
    assert [m.value() for m in dead] == [b"bad", b"worse"]
    assert said(dead[1])["trimtab.reason"] == "worse than bad"


def test_at_most_once_never_hands_out_twice(config: dict[str, Any], topic: Any, write: Any) -> None:
    """Messages in work when a worker ends are not delivered again; those not handed out are."""
    name = topic(partitions=1)
    write(name, *map(str, range(5)))
    settings_ = {**config, "trimtab.queue.guarantee": "at-most-once"}
    with OrderedQueue(name, settings_) as queue:
        assert texts(take(queue, 3)) == ["0", "1", "2"]
    with OrderedQueue(name, settings_) as queue:
        assert texts(take(queue, 2)) == ["3", "4"]


def test_share_groups_count_release_and_reject(opened: Open, topic: Any, write: Any) -> None:
    """The broker counts deliveries of what is released; what is rejected does not come back."""
    name = topic(partitions=1)
    write(name, "good", "again", "bad")
    queue = opened("share", name)
    by_text = {m.value: m for m in take(queue, 3)}
    with pytest.raises(UnsupportedQueueOperationError, match="kmq"):
        by_text[b"again"].extend(5)
    with pytest.raises(UnsupportedQueueOperationError, match="delay"):
        by_text[b"again"].retry(delay=5)
    by_text[b"good"].ack()
    by_text[b"bad"].reject()
    assert queue.receive(1, 0.1) == []  # librdkafka wants all of a batch settled first
    assert by_text[b"again"].retry() is SettlementResult.DONE
    (again,) = take(queue, 1)
    assert (again.value, again.delivery) == (b"again", 2)
    again.ack()
    assert queue.flush()
    assert take(queue, 1, seconds=1) == []


def test_the_broker_writes_what_a_share_group_gives_up_into_its_dead_letters(
    opened: Open, topic: Any, write: Any, config: dict[str, Any], eventually: Eventually
) -> None:
    """Rejected or delivered too often: key, value and origin are there, in the same partition."""
    name = topic(partitions=2)
    write(name, "bad", "unlucky", partition=1, key="k")
    queue = opened("share", name, max_deliveries=2)
    found = {m.value: m for m in take(queue, 2)}
    found[b"bad"].reject()
    found[b"unlucky"].retry()
    (again,) = take(queue, 1)
    assert (again.value, again.delivery) == (b"unlucky", 2)
    again.retry()
    assert queue.flush()
    dead = f"dlq.{name}.{config['group.id']}.dead"
    reader = Plain({**config, "group.id": f"{name}-reader", "auto.offset.reset": "earliest"})
    letters: dict[Any, Message] = {}

    def read() -> bool:
        raw = reader.poll(0.2)
        if raw is not None and raw.error() is None:
            letters[raw.value()] = raw
        return len(letters) == 2

    try:
        reader.assign([RawPartition(dead, 1, 0)])
        eventually(read)
    finally:
        reader.close()
    assert {raw.key() for raw in letters.values()} == {b"k"}
    counts = {value: dict(raw.headers() or ()) for value, raw in letters.items()}
    assert counts[b"bad"]["__dlq.errors.offset"] == b"0"
    assert counts[b"unlucky"]["__dlq.errors.delivery.count"] == b"2"


def test_a_dead_letter_topic_that_admits_no_share_group_is_named(
    config: dict[str, Any], admin: AdminClient, topic: Any
) -> None:
    """The broker would write nothing into it, and would not say so."""
    name = topic(partitions=1)
    admin.create_topics([NewTopic(f"dlq.{name}", 1, 1)])[f"dlq.{name}"].result(30)
    with pytest.raises(QueueTopicMismatchError, match=r"group\.enable=true"):
        open_kind("share", name, {**config, "trimtab.queue.dead.letter": f"dlq.{name}"})
