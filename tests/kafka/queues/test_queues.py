"""The three queue kinds on a real broker: settlement, redelivery and dead letters."""

from collections.abc import Callable
from time import monotonic, time
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Message, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.queued import decode_headers, receive_messages, sorted_values
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.errors import QueueTopicMismatchError, UnsupportedQueueOperationError
from trimtab.consumer_sdk.queues import KmqQueue, MessageQueue, OrderedQueue, QueueMessage, SettlementResult
from trimtab.consumer_sdk.queues import open_queue as open_queue_of_kind
from trimtab.consumer_sdk.queues.kmq import marker_retention
from trimtab.consumer_sdk.queues.kmq.marker_writer import MARKER_LINGER_S
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]
Open = Callable[..., MessageQueue]


@pytest.fixture(params=["classic"])
def config(config: dict[str, Any], use_protocol: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of the classic group protocol, in some tests of both."""
    chosen: dict[str, Any] = use_protocol(config, request.param)
    return chosen


in_both_protocols = pytest.mark.parametrize("config", ["classic", "consumer"], indirect=True)


@in_both_protocols
def test_unacknowledged_messages_are_redelivered(
    open_queue: Open, start_tracker: Any, topic: Any, write: Any
) -> None:
    """An unsettled message is redelivered after its timeout with delivery count, key and origin."""
    name = topic(partitions=2)
    write(name, "good", "bad", key="k", partition=1)
    tracker = start_tracker(name, timeout="3 s")
    queue = open_queue("kmq", name, timeout="3 s")
    first = receive_messages(queue, 2)
    assert [m.ack() for m in first if m.value == b"good"] == [SettlementResult.DONE]
    (redelivered,) = receive_messages(queue, 1)
    assert (redelivered.value, redelivered.key, redelivered.delivery) == (b"bad", b"k", 2)
    assert decode_headers(redelivered.raw)["trimtab.origin"] == f"{name}/1/1"
    assert redelivered.ack() is SettlementResult.DONE
    assert receive_messages(queue, 1, seconds=5) == []
    assert (tracker.counts.redelivered, tracker.counts.dead_lettered) == (1, 0)


def test_poison_messages_are_dead_lettered_with_a_reason(
    open_queue: Open, start_tracker: Any, topic: Any, write: Any, read_records: Any, eventually: Eventually
) -> None:
    """Unsettled messages are dead-lettered after max.deliveries, rejected ones at once."""
    name = topic(partitions=1)
    write(name, "poison", "refused")
    tracker = start_tracker(name, timeout="2 s", max_deliveries=2)
    queue = open_queue("kmq", name, timeout="2 s", max_deliveries=2)
    for message in receive_messages(queue, 2):
        if message.value == b"refused":
            message.reject("no such customer")
    assert [m.delivery for m in receive_messages(queue, 1)] == [2]
    eventually(lambda: tracker.counts.dead_lettered == 2)
    dead = {
        m.value(): decode_headers(m)
        for m in read_records(parse_queue_settings(name, queue_config(queue)).dead_letter_topic)
    }
    assert dead[b"refused"]["trimtab.reason"] == "no such customer"
    reason = "delivered 2 times, the last delivery ended by timeout"
    assert dead[b"poison"]["trimtab.reason"] == reason
    assert dead[b"poison"]["trimtab.origin"] == f"{name}/0/0"


def queue_config(queue: Any) -> dict[str, Any]:
    return dict(queue._settings.consumer_config)


def test_retry_delays_and_extend_postpones_redelivery(
    open_queue: Open, start_tracker: Any, topic: Any, write: Any
) -> None:
    """A retried message is redelivered after its delay; an extended one is not redelivered."""
    name = topic(partitions=1)
    write(name, "later", "longer")
    start_tracker(name, timeout="3 s")
    queue = open_queue("kmq", name, timeout="3 s")
    by_text = {m.value: m for m in receive_messages(queue, 2)}
    assert by_text[b"longer"].extend(60) is SettlementResult.DONE
    start = monotonic()
    assert by_text[b"later"].retry(delay=5) is SettlementResult.DONE
    (redelivered,) = receive_messages(queue, 1)
    assert (redelivered.value, redelivered.delivery) == (b"later", 2)
    assert monotonic() - start >= 4.9  # not by its timeout
    redelivered.ack()
    assert receive_messages(queue, 1, seconds=1) == []
    assert by_text[b"longer"].ack() is SettlementResult.DONE


def test_late_and_repeated_settlements_are_reported(
    open_queue: Open, topic: Any, write: Any, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Settlements return LATE after the deadline and REPEATED the second time; late ones are logged."""
    name = topic(partitions=1)
    write(name, "one", "two")
    queue = open_queue("kmq", name, timeout="0.2 s")
    late, other = receive_messages(queue, 2)
    eventually(lambda: monotonic() > (late.deadline or 0))
    assert late.extend(5) is SettlementResult.LATE
    assert late.ack() is SettlementResult.LATE
    assert late.reject() is SettlementResult.REPEATED
    assert other.retry() is SettlementResult.LATE
    assert queue.flush()
    eventually(lambda: "settled after their deadline" in caplog.text)


def test_late_ack_does_not_settle_a_redelivered_message(
    open_queue: Open, start_tracker: Any, topic: Any, write: Any
) -> None:
    """A redelivered message stays in flight until its own settlement."""
    name = topic(partitions=1)
    write(name, "slow")
    tracker = start_tracker(name, timeout="2 s")
    queue = open_queue("kmq", name, timeout="2 s")
    (first,) = receive_messages(queue, 1)
    (second,) = receive_messages(queue, 1)
    assert first.ack() is SettlementResult.LATE
    assert queue.flush()
    (third,) = receive_messages(queue, 1)
    assert (second.delivery, third.delivery) == (2, 3)
    assert third.ack() is SettlementResult.DONE
    assert tracker.counts.dead_lettered == 0


class SkewedClock(SystemClock):
    """A clock with a constant error in seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def monotonic(self) -> float:  # type: ignore[override]
        return monotonic() + self._seconds

    def wall(self) -> float:
        return time() + self._seconds


@pytest.mark.parametrize("skews", [(600, -300), (-600, 300)])
def test_wrong_clocks_move_no_deadline(
    config: dict[str, Any], topic: Any, write: Any, start_tracker: Any, read_records: Any, skews: Any
) -> None:
    """A message is due `timeout` after its marker's broker time, whatever clocks workers have."""
    name, settings = topic(partitions=1), {**config, "trimtab.queue.timeout": "3 s"}
    write(name, "held", "done")
    start_tracker(name, SkewedClock(skews[1]), timeout="3 s")
    with KmqQueue(name, settings, clock=SkewedClock(skews[0])) as queue:
        for message in receive_messages(queue, 2):
            assert message.value == b"held" or message.ack() is SettlementResult.DONE
        (redelivered,) = receive_messages(queue, 1)
        redelivered.ack()
        assert (redelivered.value, redelivered.delivery) == (b"held", 2)
    due, (_, written) = int(decode_headers(redelivered.raw)["trimtab.due"]), redelivered.raw.timestamp()
    starts = [m.timestamp()[1] for m in read_records(parse_queue_settings(name, settings).markers_topic)]
    assert due - round((3 + MARKER_LINGER_S) * 1000) in starts
    assert written >= due


@pytest.mark.parametrize("minutes", [-10, 10])
def test_marker_timestamps_are_the_brokers(
    config: dict[str, Any], open_queue: Open, topic: Any, write: Any, start_tracker: Any, minutes: int
) -> None:
    """The broker replaces a start marker's timestamp, and the redelivery is due by the broker's time."""
    name = topic(partitions=1)
    write(name, "one")
    queue = open_queue("kmq", name, timeout="1 s")
    (one,) = receive_messages(queue, 1)
    one.ack()
    assert queue.flush()
    producer = Producer({"bootstrap.servers": config["bootstrap.servers"]})
    begin = round(time() * 1000)
    marker = Marker(MarkerKind.START, ((0, 0),), 1000, 1).encode()
    markers = parse_queue_settings(name, config).markers_topic
    producer.produce(markers, marker, partition=0, timestamp=begin + minutes * 60_000)
    producer.flush()
    end = round(time() * 1000)
    start_tracker(name, timeout="1 s")
    (redelivered,) = receive_messages(queue, 1)
    assert begin <= int(decode_headers(redelivered.raw)["trimtab.due"]) - 1000 <= end
    redelivered.ack()


def test_slow_message_blocks_no_other(open_queue: Open, start_tracker: Any, topic: Any, write: Any) -> None:
    """While one message is in flight, the others of its partition are received and acknowledged."""
    name = topic(partitions=1)
    start_tracker(name, timeout="30 s")
    queue = open_queue("kmq", name, timeout="30 s")
    write(name, "slow")
    (slow,) = receive_messages(queue, 1)
    write(name, *map(str, range(200)))
    for message in receive_messages(queue, 200):
        message.ack()
    assert slow.ack() is SettlementResult.DONE


@in_both_protocols
def test_rebalance_keeps_messages_in_flight(
    config: dict[str, Any], topic: Any, write: Any, start_tracker: Any
) -> None:
    """When a worker joins, messages in flight are settled by the worker that received them."""
    name = topic(partitions=2)
    tracker = start_tracker(name, timeout="30 s")
    for partition in (0, 1):
        write(name, "a", "b", partition=partition)
    with KmqQueue(name, config) as one:
        in_flight = receive_messages(one, 4)
        with KmqQueue(name, config) as two:
            write(name, *map(str, range(10)), partition=0)
            write(name, *map(str, range(10, 20)), partition=1)
            messages = list[QueueMessage]()
            deadline = monotonic() + 40
            while len(messages) < 20 and monotonic() < deadline:
                messages += [*one.receive(100, 0.1), *two.receive(100, 0.1)]
            assert sorted_values(messages) == sorted(map(str, range(20)))
            assert {m.ack() for m in [*in_flight, *messages]} == {SettlementResult.DONE}
            assert one.flush()
            assert two.flush()
    assert tracker.counts.redelivered == 0


def test_old_markers_are_deleted(
    open_queue: Open,
    start_tracker: Any,
    topic: Any,
    write: Any,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Markers are kept from the oldest open message on; without one the log is empty."""
    monkeypatch.setattr(marker_retention, "MARKER_DELETION_INTERVAL_S", 0.2)
    name = topic(partitions=1)
    start_tracker(name, timeout="30 s")
    queue = open_queue("kmq", name, timeout="30 s")
    write(name, *map(str, range(50)))
    *others, last = receive_messages(queue, 50)
    for message in others:
        message.ack()
    markers = parse_queue_settings(name, queue_config(queue)).markers_topic
    servers = queue_config(queue)["bootstrap.servers"]
    reader = ConfluentConsumer({"bootstrap.servers": servers, "group.id": "looks-only"})

    def log_bounds() -> tuple[int, int]:
        low, high = reader.get_watermark_offsets(RawPartition(markers, 0), 10)
        return low, high

    queue.flush()
    eventually(lambda: log_bounds()[1] > 1)
    assert log_bounds()[0] <= 1
    last.ack()
    eventually(lambda: log_bounds()[0] == log_bounds()[1])
    reader.close()


def test_message_deleted_by_retention_is_dead_lettered(
    open_queue: Open, start_tracker: Any, topic: Any, write: Any, read_records: Any, eventually: Eventually
) -> None:
    """A message that retention deleted before its redelivery leaves a dead letter without a value."""
    name = topic(partitions=1)
    queue = open_queue("kmq", name, timeout="0.5 s")
    write(name, "short-lived")
    receive_messages(queue, 1)
    admin = AdminClient({"bootstrap.servers": queue_config(queue)["bootstrap.servers"]})
    for deleted in admin.delete_records([RawPartition(name, 0, 1)]).values():
        deleted.result(20)
    tracker = start_tracker(name, timeout="0.5 s")
    eventually(lambda: tracker.counts.dead_lettered == 1)
    (letter,) = read_records(parse_queue_settings(name, queue_config(queue)).dead_letter_topic)
    assert letter.value() is None
    assert "retention" in decode_headers(letter)["trimtab.reason"]


@pytest.fixture
def large_topic(group: str, admin: AdminClient, bootstrap: str) -> str:
    """A topic with max.message.bytes of 3 MB and one message of 2 MB."""
    name, config = f"{group}-wide", {"max.message.bytes": "3000000"}
    for created in admin.create_topics([NewTopic(name, 1, 1, config=config)]).values():
        created.result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000})
    producer.produce(name, b"x" * 2_000_000, partition=0)
    producer.flush()
    return name


def test_large_message_is_redelivered_and_dead_lettered_without_value(
    open_queue: Open, start_tracker: Any, large_topic: str, read_records: Any, eventually: Eventually
) -> None:
    """A 2 MB message is redelivered; a dead-letter topic limited to 1 MB gets only its reason."""
    tracker = start_tracker(large_topic, timeout="30 s")
    queue = open_queue("kmq", large_topic, timeout="30 s")
    receive_messages(queue, 1)[0].retry()
    (redelivered,) = receive_messages(queue, 1)
    assert (len(redelivered.value or b""), redelivered.delivery) == (2_000_000, 2)
    redelivered.reject("no such customer")
    eventually(lambda: tracker.counts.dead_lettered == 1)
    (letter,) = read_records(parse_queue_settings(large_topic, queue_config(queue)).dead_letter_topic)
    assert (letter.value(), decode_headers(letter)["trimtab.origin"]) == (None, f"{large_topic}/0/1")
    assert decode_headers(letter)["trimtab.reason"].startswith("no such customer; without its value")


def test_ordered_dead_letters_a_large_message_without_value(
    open_queue: Open, large_topic: str, write: Any, read_records: Any
) -> None:
    """The message is given up after its rejection, and the next one is delivered."""
    queue = open_queue("ordered", large_topic)
    receive_messages(queue, 1)[0].reject("no such customer")
    assert queue.flush()
    (letter,) = read_records(parse_queue_settings(large_topic, queue_config(queue)).dead_letter_topic)
    assert (letter.value(), decode_headers(letter)["trimtab.origin"]) == (None, f"{large_topic}/0/0")
    assert decode_headers(letter)["trimtab.reason"].startswith("no such customer; without its value")
    queue.close()
    write(large_topic, "next")
    assert sorted_values(receive_messages(open_queue("ordered", large_topic), 1)) == ["next"]


def test_groups_receive_only_their_own_redeliveries(
    open_queue: Open, start_tracker: Any, topic: Any, write: Any, config: dict[str, Any], group: str
) -> None:
    """Of two groups with queues on one topic, each receives only its own redeliveries."""
    name = topic(partitions=1)
    write(name, "one")
    start_tracker(name, timeout="0.5 s")
    queue = open_queue("kmq", name, timeout="0.5 s")
    with KmqQueue(name, {**config, "group.id": f"{group}-2"}) as other:
        (message,) = receive_messages(other, 1)
        message.ack()
        assert [m.delivery for m in receive_messages(queue, 1)] == [1]
        (redelivered,) = receive_messages(queue, 1)
        assert redelivered.delivery == 2
        assert receive_messages(other, 1, seconds=1.5) == []
        redelivered.ack()


def test_mismatched_topics_are_refused(open_queue: Open, topic: Any, admin: AdminClient, group: str) -> None:
    """A missing topic, and markers with other partitions or without LogAppendTime, are refused."""
    with pytest.raises(QueueTopicMismatchError, match="does not exist"):
        open_queue("kmq", f"{group}-none")
    name = topic(partitions=2)
    narrow, settings = f"{name}-narrow", f"{name}-timed"
    created = admin.create_topics([NewTopic(narrow, 1, 1), NewTopic(settings, 2, 1)])
    for one in created.values():
        one.result(20)
    with pytest.raises(QueueTopicMismatchError, match=r"has 1 partition and .* has 2"):
        open_queue("kmq", name, markers=narrow)
    with pytest.raises(QueueTopicMismatchError, match="LogAppendTime"):
        open_queue("kmq", name, markers=settings)


@in_both_protocols
def test_ordered_resumes_at_the_first_unfinished_message(
    config: dict[str, Any], topic: Any, write: Any
) -> None:
    """After a restart, delivery resumes at the first unfinished message, with finished ones behind it."""
    name = topic(partitions=1)
    write(name, *map(str, range(5)))
    with OrderedQueue(name, config) as queue:
        for message in receive_messages(queue, 5):
            if message.value != b"2":
                message.ack()
        assert queue.flush()
    with OrderedQueue(name, config) as queue:
        redelivered = receive_messages(queue, 3)
        assert sorted_values(redelivered) == ["2", "3", "4"]
        for message in redelivered:
            message.ack()
    with OrderedQueue(name, config) as queue:
        assert receive_messages(queue, 1, seconds=3) == []


def test_ordered_keeps_the_order_of_each_key(open_queue: Open, topic: Any, write: Any) -> None:
    """Keys run in parallel; a key's next message is received only after the previous is settled."""
    name = topic(partitions=1)
    write(name, "a1", "a2", key="a")
    write(name, "b1", key="b")
    queue = open_queue("ordered", name)
    first = receive_messages(queue, 2)
    assert sorted_values(first) == ["a1", "b1"]
    assert receive_messages(queue, 1, seconds=0.5) == []
    first[0].retry(delay=0.3)
    (redelivered,) = receive_messages(queue, 1)
    assert (redelivered.value, redelivered.delivery) == (b"a1", 2)
    redelivered.ack()
    assert sorted_values(receive_messages(queue, 1)) == ["a2"]


def test_ordered_dead_letters_failed_messages(
    open_queue: Open, topic: Any, write: Any, read_records: Any
) -> None:
    """Rejected messages and those with too many deliveries are dead-lettered and block no other."""
    name = topic(partitions=1)
    write(name, "bad", "worse", "good", key="k")
    queue = open_queue("ordered", name, max_deliveries=2)
    for _ in range(2):
        receive_messages(queue, 1)[0].retry()
    receive_messages(queue, 1)[0].reject("worse than bad")
    (good,) = receive_messages(queue, 1)
    assert good.value == b"good"
    good.ack()
    queue.flush()
    dead = read_records(parse_queue_settings(name, queue_config(queue)).dead_letter_topic)
    assert [m.value() for m in dead] == [b"bad", b"worse"]
    assert decode_headers(dead[1])["trimtab.reason"] == "worse than bad"


def test_at_most_once_never_redelivers(config: dict[str, Any], topic: Any, write: Any) -> None:
    """Messages in flight when a worker ends are not redelivered; the others are delivered later."""
    name = topic(partitions=1)
    write(name, *map(str, range(5)))
    at_most_once = {**config, "trimtab.queue.guarantee": "at-most-once"}
    with OrderedQueue(name, at_most_once) as queue:
        assert sorted_values(receive_messages(queue, 3)) == ["0", "1", "2"]
    with OrderedQueue(name, at_most_once) as queue:
        assert sorted_values(receive_messages(queue, 2)) == ["3", "4"]


def test_share_queue_retries_and_rejects(open_queue: Open, topic: Any, write: Any) -> None:
    """The broker redelivers and counts a retried message; it does not redeliver a rejected one."""
    name = topic(partitions=1)
    write(name, "good", "again", "bad")
    queue = open_queue("share", name)
    by_text = {m.value: m for m in receive_messages(queue, 3)}
    with pytest.raises(UnsupportedQueueOperationError, match="kmq"):
        by_text[b"again"].extend(5)
    with pytest.raises(UnsupportedQueueOperationError, match="delay"):
        by_text[b"again"].retry(delay=5)
    by_text[b"good"].ack()
    by_text[b"bad"].reject()
    assert queue.receive(1, 0.1) == []  # librdkafka requires all messages of a batch to be settled first
    assert by_text[b"again"].retry() is SettlementResult.DONE
    (redelivered,) = receive_messages(queue, 1)
    assert (redelivered.value, redelivered.delivery) == (b"again", 2)
    redelivered.ack()
    assert queue.flush()
    assert receive_messages(queue, 1, seconds=1) == []


def test_broker_dead_letters_messages_of_a_share_group(
    open_queue: Open, topic: Any, write: Any, config: dict[str, Any], eventually: Eventually
) -> None:
    """The broker writes rejected and exhausted messages to the same partition, with key and origin."""
    name = topic(partitions=2)
    write(name, "bad", "unlucky", partition=1, key="k")
    queue = open_queue("share", name, max_deliveries=2)
    messages = {m.value: m for m in receive_messages(queue, 2)}
    messages[b"bad"].reject()
    messages[b"unlucky"].retry()
    (redelivered,) = receive_messages(queue, 1)
    assert (redelivered.value, redelivered.delivery) == (b"unlucky", 2)
    redelivered.retry()
    assert queue.flush()
    dead = f"dlq.{name}.{config['group.id']}.dead"
    reader = ConfluentConsumer({**config, "group.id": f"{name}-reader", "auto.offset.reset": "earliest"})
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


def test_dead_letter_topic_without_share_group_support_is_refused(
    config: dict[str, Any], admin: AdminClient, topic: Any
) -> None:
    """A dead-letter topic without group.enable=true is refused: the broker would drop its letters."""
    name = topic(partitions=1)
    admin.create_topics([NewTopic(f"dlq.{name}", 1, 1)])[f"dlq.{name}"].result(30)
    with pytest.raises(QueueTopicMismatchError, match=r"group\.enable=true"):
        open_queue_of_kind("share", name, {**config, "trimtab.queue.dead.letter": f"dlq.{name}"})
