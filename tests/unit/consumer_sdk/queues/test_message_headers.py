"""Trimtab's headers count only on a message that a tracker wrote; any producer can write such names."""

from unittest.mock import Mock

import pytest
from confluent_kafka import Message

from trimtab.consumer_sdk.queues.kmq import kmq_queue
from trimtab.consumer_sdk.queues.kmq.kmq_queue import KmqQueue
from trimtab.consumer_sdk.queues.message_headers import build_forwarded_headers
from trimtab.consumer_sdk.queues.settings import parse_queue_settings
from trimtab.consumer_sdk.readable_headers import keep_readable_headers

QUEUE = parse_queue_settings("orders", {"bootstrap.servers": "localhost:1", "group.id": "g"})
REDELIVERY = {"trimtab.origin": "orders/3/7", "trimtab.group": "g", "trimtab.delivery": "2"}


def build_message(headers: dict[str, str], offset: int = 9) -> Message:
    pairs = [(name, value.encode()) for name, value in headers.items()]
    return Message(topic="orders", partition=3, offset=offset, value=b"x", headers=pairs)


def count_delivery(monkeypatch: pytest.MonkeyPatch, message: Message) -> int:
    """Return the delivery number that a worker gives to a message, 0 if it skips it."""
    monkeypatch.setattr(kmq_queue, "parse_queue_settings", Mock(return_value=QUEUE))
    for name in ("topics", "Consumer", "DurableProducer", "MarkerWriter"):
        monkeypatch.setattr(kmq_queue, name, Mock())
    (count,) = KmqQueue("orders", {})._count_deliveries([message])
    return count


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 2),
        ({"trimtab.group": "other"}, 0),
        ({"trimtab.delivery": "9" * 5000}, 1),
        ({"trimtab.delivery": "0"}, 1),
        ({"trimtab.delivery": "-4"}, 1),
        ({"trimtab.delivery": "²"}, 1),
        ({"trimtab.delivery": ""}, 1),
        ({"trimtab.origin": ""}, 1),
        ({"trimtab.origin": "orders/3/9", "trimtab.group": "other"}, 1),
        ({"trimtab.origin": "orders/2/7", "trimtab.delivery": "1000"}, 1),
        ({"trimtab.origin": "payments/3/7", "trimtab.group": "other"}, 1),
        ({"trimtab.origin": "orders/3/" + "1" * 5000}, 1),
        ({"trimtab.reason": "delivered 5 times", "trimtab.delivery": "5"}, 1),
        ({"trimtab.reason": "no such customer", "trimtab.group": "other"}, 1),
    ],
)
def test_only_a_trackers_headers_count(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], count: int
) -> None:
    """Without a valid origin in the same partition a message is new, and no group skips it."""
    assert count_delivery(monkeypatch, build_message({**REDELIVERY, **changed})) == count


def test_headers_of_a_message_that_is_no_redelivery_are_not_forwarded() -> None:
    """A copied dead letter gets its own position as origin; application headers stay."""
    copied = build_message({"a": "1", "trimtab.origin": "payments/0/1", "trimtab.reason": "why"})
    assert dict(build_forwarded_headers(copied, {})) == {
        "a": b"1",
        "trimtab.origin": b"orders/3/9",
        "trimtab.written": b"0",
    }
    assert dict(build_forwarded_headers(build_message(REDELIVERY), {}))["trimtab.origin"] == b"orders/3/7"


def test_a_readable_message_keeps_its_headers() -> None:
    """Repeated names and headers without a value stay as they are."""
    pairs = [("a", b"1"), ("a", None), ("", b"")]
    message = Message(topic="orders", headers=pairs)
    assert not keep_readable_headers([message, Message()])
    assert message.headers() == pairs
