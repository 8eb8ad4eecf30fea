"""A due message is delivered again with the next number, or becomes a dead letter that says why."""

from dataclasses import replace

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from trimtab.consumer_sdk.queues.durable_producer import TOO_LARGE_REASON, ProducerRecord
from trimtab.consumer_sdk.queues.kmq.markers import MarkerKind
from trimtab.consumer_sdk.queues.kmq.redelivery_decision import (
    WITHOUT_VALUE_REASON,
    build_lost_letter,
    build_redelivery,
    dead_letter_reason,
    strip_value,
    too_large_reason,
)
from trimtab.consumer_sdk.queues.kmq.redelivery_state import DueMessage
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

SETTINGS = replace(
    parse_queue_settings("orders", {"bootstrap.servers": "b:1", "group.id": "q"}), max_deliveries=3
)
DUE = DueMessage(offset=7, delivery=2, kind=MarkerKind.START, reason="timeout", deadline_ms=900)
LAST = replace(DUE, delivery=3)
REJECTED = replace(DUE, kind=MarkerKind.REJECT, reason="invalid")
RAW = Message(
    topic="orders",
    partition=4,
    offset=7,
    key=b"k",
    value=b"v",
    headers=[("trace", b"1"), ("trimtab.note", b"ours")],
    timestamp=(TIMESTAMP_CREATE_TIME, 500),
)
ORIGIN = {"trimtab.origin": b"orders/4/7", "trimtab.group": b"q"}
FORWARDED = {"trace": b"1", "trimtab.written": b"500", **ORIGIN}


def test_a_due_message_is_delivered_again_under_the_next_number() -> None:
    """With key, value, the application's headers, its origin and the deadline that has passed."""
    record = build_redelivery(DUE, RAW, 4, SETTINGS)
    assert (record.topic, record.partition, record.value, record.key) == ("orders", 4, b"v", b"k")
    assert dict(record.headers) == {**FORWARDED, "trimtab.delivery": b"3", "trimtab.due": b"900"}


def test_a_count_above_a_lowered_limit_is_a_dead_letter() -> None:
    """A message delivered more often than `max.deliveries` now allows has no further delivery."""
    assert dead_letter_reason(replace(DUE, delivery=5), SETTINGS.max_deliveries)


@pytest.mark.parametrize(
    ("due", "delivery", "reason"),
    [(LAST, b"3", b"delivered 3 times, the last delivery ended by timeout"), (REJECTED, b"2", b"invalid")],
    ids=["last delivery", "rejected"],
)
def test_a_message_without_another_delivery_is_a_dead_letter(
    due: DueMessage, delivery: bytes, reason: bytes
) -> None:
    """With the number of its last delivery, and the reason."""
    record = build_redelivery(due, RAW, 4, SETTINGS)
    place = (record.topic, record.partition, record.value, record.key)
    assert place == (SETTINGS.dead_letter_topic, 4, b"v", b"k")
    assert dict(record.headers) == {**FORWARDED, "trimtab.delivery": delivery, "trimtab.reason": reason}


def test_only_the_last_delivery_and_a_rejection_end_a_message() -> None:
    """`max_deliveries` counts deliveries, not redeliveries."""
    assert [dead_letter_reason(replace(DUE, delivery=n), 3) is None for n in (1, 2, 3, 4)] == [
        *(True, True, False, False)
    ]
    assert dead_letter_reason(REJECTED, 3) == "invalid"


def test_a_letter_that_is_too_large_keeps_what_locates_its_value() -> None:
    """Neither key nor value nor the application's headers, which may be what is large."""
    letter = strip_value(build_redelivery(REJECTED, RAW, 4, SETTINGS), RAW)
    assert (letter.topic, letter.partition) == (SETTINGS.dead_letter_topic, 4)
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers) == {
        **ORIGIN,
        "trimtab.written": b"500",
        "trimtab.delivery": b"2",
        "trimtab.reason": f"invalid; {WITHOUT_VALUE_REASON}".encode(),
    }


def test_a_letter_without_its_value_is_located_by_the_messages_own_place() -> None:
    """Not by the origin that it names: whoever writes a message can name any other one."""
    forged = Message(
        topic="orders",
        partition=4,
        offset=9,
        headers=[("trimtab.origin", b"orders/4/2"), ("trimtab.group", b"q")],
    )
    whole = build_redelivery(REJECTED, forged, 4, SETTINGS)
    assert dict(whole.headers)["trimtab.origin"] == b"orders/4/2"
    assert dict(strip_value(whole, forged).headers)["trimtab.origin"] == b"orders/4/9"


def test_an_empty_header_survives() -> None:
    """A header without a value is one of a dead letter, too."""
    letter = ProducerRecord("d", 0, b"v", None, [("trimtab.reason", b"r"), ("trimtab.written", None)])
    assert dict(strip_value(letter, RAW).headers)["trimtab.written"] == b""


def test_a_message_that_is_too_large_says_so() -> None:
    """The dead letter's reason, or that the next delivery did not fit."""
    assert too_large_reason(DUE, SETTINGS) == (
        f"cannot be delivered again: with its headers it is {TOO_LARGE_REASON}"
    )
    assert too_large_reason(REJECTED, SETTINGS) == f"invalid; {WITHOUT_VALUE_REASON}"


def test_the_letter_of_a_lost_message_locates_it() -> None:
    """It has neither key nor value; its headers say which message, whose, and why."""
    letter = build_lost_letter(DUE, 4, SETTINGS, "expired")
    assert (letter.topic, letter.partition) == (SETTINGS.dead_letter_topic, 4)
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers) == {**ORIGIN, "trimtab.delivery": b"2", "trimtab.reason": b"expired"}
