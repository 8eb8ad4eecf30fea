"""Records that a producer should not have written stop no queue, on a real broker."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from kafka import KafkaProducer

from support.hostile_records import BAD_MARKERS, BinaryName
from support.queued import decode_headers, receive_messages
from trimtab.consumer_sdk.queues import KmqQueue, MessageQueue, SettlementResult
from trimtab.consumer_sdk.queues.kmq import redelivery_tracker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings
from trimtab.consumer_sdk.readable_headers import keep_readable_headers

pytestmark = pytest.mark.broker

Open = Callable[..., MessageQueue]
KINDS = ["kmq", "ordered", "share"]


@pytest.fixture
def write_headers(bootstrap: str) -> Callable[..., None]:
    """Write a message with headers to partition 0."""

    def write(topic: str, value: bytes, *headers: tuple[str, bytes]) -> None:
        producer: Any = KafkaProducer(bootstrap_servers=bootstrap)
        producer.send(topic, value, headers=list(headers), partition=0).get(20)
        producer.close()

    return write


@pytest.fixture
def write_markers(bootstrap: str, config: dict[str, Any]) -> Callable[..., None]:
    """Write values to a partition of a queue's markers topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def write(topic: str, partition: int, *values: bytes | None) -> None:
        for value in values:
            producer.produce(parse_queue_settings(topic, config).markers_topic, value, partition=partition)
        producer.flush()

    return write


@pytest.fixture
def read_letter(read_records: Any, config: dict[str, Any], eventually: Any) -> Callable[[str], Message]:
    """Wait for a queue's first dead letter."""

    def read(topic: str) -> Message:
        letters: list[Message] = []
        name = parse_queue_settings(topic, config).dead_letter_topic
        eventually(lambda: letters.extend(read_records(name)) or letters)
        return letters[0]

    return read


@pytest.mark.parametrize("kind", KINDS)
def test_a_header_name_that_is_not_utf8_is_left_out(
    open_queue: Open, topic: Any, write: Any, write_headers: Any, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The message and its neighbours are delivered, with the headers that can be read."""
    for _ in range(1000):  # the interpreter specializes a call that is made often
        keep_readable_headers([Message()])
    name = topic(partitions=1)
    write(name, "before")
    write_headers(name, b"odd", ("a", b"1"), (BinaryName("x"), b"2"), ("b", b"3"))
    write(name, "after")
    messages = receive_messages(open_queue(kind, name), 3)
    assert [message.value for message in messages] == [b"before", b"odd", b"after"]
    assert [message.raw.headers() for message in messages] == [None, [("a", b"1"), ("b", b"3")], None]
    assert f"{name}-0, offset 1" in caplog.text
    for message in messages:
        message.ack()


def test_a_message_with_an_unreadable_header_is_redelivered_and_dead_lettered(
    open_queue: Open, start_tracker: Any, topic: Any, write: Any, write_headers: Any, read_letter: Any
) -> None:
    """The tracker reads it from its topic again; its copies keep the readable headers."""
    name = topic(partitions=1)
    write_headers(name, b"odd", ("a", b"1"), (BinaryName("x"), b"2"))
    write(name, "neighbour")
    start_tracker(name, timeout="2 s")
    queue = open_queue("kmq", name, timeout="2 s")
    receive_messages(queue, 2)
    by_value = {m.value: m for m in receive_messages(queue, 2)}
    assert [by_value[value].delivery for value in (b"odd", b"neighbour")] == [2, 2]
    by_value[b"neighbour"].ack()
    by_value[b"odd"].reject("odd")
    letter = read_letter(name)
    assert (letter.value(), decode_headers(letter)["a"]) == (b"odd", "1")


def test_forged_delivery_headers_cost_their_own_message_only(
    open_queue: Open, start_tracker: Any, topic: Any, write: Any, write_headers: Any, read_letter: Any
) -> None:
    """Retries, or this group's delivery: a dead letter has all of it, and no neighbour's count changes."""
    name = topic(partitions=1)
    write(name, "before")
    forged = (("trimtab.origin", f"{name}/0/0".encode()), ("trimtab.delivery", b"9" * 18))
    write_headers(name, b"failing", *forged, ("a", b"1"))
    write_headers(name, b"good", *forged)
    write_headers(name, b"for another group", *forged, ("trimtab.group", b"another"))
    write(name, "after")
    tracker = start_tracker(name, timeout="30 s")
    queue = open_queue("kmq", name, timeout="30 s")
    messages = {message.value: message for message in receive_messages(queue, 4)}
    counts = {value: message.delivery for value, message in messages.items()}
    assert counts == {b"before": 1, b"failing": 10**18 - 1, b"good": 10**18 - 1, b"after": 1}
    messages.pop(b"good").ack()
    for message in messages.values():
        message.retry()
    again = receive_messages(queue, 2)
    assert {m.value: m.delivery for m in again} == {b"before": 2, b"after": 2}
    assert [m.ack() for m in again] == [SettlementResult.DONE] * 2
    letter = read_letter(name)
    assert (letter.value(), decode_headers(letter)["a"]) == (b"failing", "1")
    assert decode_headers(letter)["trimtab.reason"].startswith(f"delivered {'9' * 18} times")
    assert (tracker.counts.redelivered, tracker.counts.dead_lettered) == (2, 1)
    assert receive_messages(queue, 1, seconds=1) == []


def test_bad_markers_stop_no_tracker(  # noqa: PLR0913 - fixtures
    open_queue: Open,
    start_tracker: Any,
    topic: Any,
    write: Any,
    write_markers: Any,
    *,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are skipped; a marker of messages that do not exist, or a reason of any size, delays no other."""
    monkeypatch.setattr(redelivery_tracker, "MARKER_POLL_TIMEOUT_S", 1.0)  # 99 parts, of which none waits
    name = topic(partitions=2)
    write(name, "held", "refused")
    queue = open_queue("kmq", name, timeout="2 s")
    messages = {message.value: message for message in receive_messages(queue, 2)}
    missing = b'{"v":1,"k":"start","r":[[5,99000]],"n":1}'
    reason = b'{"v":1,"k":"reject","r":[[1,1]],"why":"%b\\ud800"}' % (b"x" * 900_000)
    write_markers(name, 0, *BAD_MARKERS, missing, reason)
    write_markers(name, 1, *BAD_MARKERS, missing)
    tracker = start_tracker(name, timeout="2 s")
    (redelivered,) = receive_messages(queue, 1)
    assert (redelivered.value, redelivered.delivery) == (b"held", 2)
    redelivered.ack()
    # on a busy machine the acknowledgement may come after its timeout, too, and `held` once more
    eventually(lambda: tracker.counts.redelivered >= 1 and tracker.counts.dead_lettered == 1)
    assert messages[b"refused"].ack() is SettlementResult.LATE


def test_markers_of_another_queue_settle_nothing(
    open_queue: Open, start_tracker: Any, topic: Any, write: Any, config: dict[str, Any]
) -> None:
    """Of two queues with one markers topic, by mistake, neither loses a message."""
    name = topic(partitions=1)
    write(name, "one")
    markers = f"{name}.markers"
    shared = {"timeout": "1.5 s", "markers": markers}
    start_tracker(name, **shared)
    queue = open_queue("kmq", name, **shared)
    (held,) = receive_messages(queue, 1)
    other_config = {
        **config,
        "group.id": f"{config['group.id']}-2",
        "trimtab.queue.markers": f"{name}.markers",
    }
    with KmqQueue(name, other_config) as other:
        receive_messages(other, 1)[0].ack()
        assert other.flush()
    (redelivered,) = receive_messages(queue, 1)
    assert (redelivered.value, redelivered.delivery, held.settled) == (b"one", 2, False)
    redelivered.ack()


def test_ordered_dead_letters_a_message_with_an_unreadable_header(
    open_queue: Open, topic: Any, write: Any, write_headers: Any, read_letter: Any
) -> None:
    """Its rejection does not end the worker, and the next message is delivered."""
    name = topic(partitions=1)
    write_headers(name, b"odd", (BinaryName("x"), b"2"))
    write(name, "after")
    queue = open_queue("ordered", name)
    receive_messages(queue, 2)[0].reject("odd")
    assert queue.flush()
    assert read_letter(name).value() == b"odd"
