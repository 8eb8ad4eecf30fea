"""Records of a queue's topics: markers and headers, as any client with Write can produce them."""

from contextlib import suppress
from itertools import zip_longest
from typing import Final

from confluent_kafka import Message

from trimtab.common.errors import InvalidPayloadError
from trimtab.consumer_sdk.queues.durable_producer import ProducerRecord
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind, count_offsets, decode_marker
from trimtab.consumer_sdk.queues.kmq.message_lookup import split_by_log_range, split_into_runs
from trimtab.consumer_sdk.queues.kmq.redelivery_decision import (
    build_lost_letter,
    build_redelivery,
    strip_value,
    too_large_reason,
)
from trimtab.consumer_sdk.queues.kmq.redelivery_state import MAX_GROUP_MESSAGES, DueMessage, RedeliveryState
from trimtab.consumer_sdk.queues.message_headers import parse_delivery_count, read_redelivery_headers
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

SETTINGS: Final = parse_queue_settings("t", {"bootstrap.servers": "x:1", "group.id": "g"})
MESSAGE: Final = Message(topic="t", partition=0, offset=7, value=b"x", key=b"k", headers=[("a", None)])
MAX_DUE: Final = 1000
START: Final = Marker(MarkerKind.START, ((0, 4), (7, 7)), 30_000, 1).encode()
REJECT: Final = Marker(MarkerKind.REJECT, ((1, 2),), reason="no such customer").encode()
TICK: Final = Marker(MarkerKind.TICK, (), 0, 0, "", "a1b2").encode()
END: Final = Marker(MarkerKind.END, ((0, 0), (3, 4))).encode()
ORIGIN: Final = b"trimtab.origin\0t/0/3\0trimtab.group\0g"
SEEDS: Final = {
    "apply_markers": [b"\n".join([START, REJECT, TICK, END]), START, REJECT, TICK, END],
    "read_headers": [
        ORIGIN + b"\0trimtab.delivery\0" + b"2\0a\0" + b"1",
        ORIGIN + b"\0trimtab.written\0" + b"1700000000000\0trimtab.due\0" + b"1700000030000",
        ORIGIN + b"\0trimtab.reason\0no such customer\0trimtab.delivery\0" + b"5",
    ],
}


def apply_markers(data: bytes) -> None:
    """Read the lines as a partition of the markers topic, and write what is due."""
    state = RedeliveryState()
    for offset, line in enumerate(data.split(b"\n")):
        with suppress(InvalidPayloadError):
            marker = decode_marker(line)
            assert decode_marker(marker.encode()) == marker
            state.apply_marker(offset, offset, marker)
            assert len(state) >= state.returned_count >= 0
            assert 0 <= state.safe_offset <= state.next_offset
    deadline = state.next_deadline_ms
    state.apply_marker(state.next_offset, deadline or 0, Marker(MarkerKind.TICK))
    due = state.pop_due(MAX_DUE)
    assert len(due) <= MAX_DUE + MAX_GROUP_MESSAGES
    assert (deadline is None) == (not due), "the next deadline has no message"
    state.postpone_due(due, 1000)
    ((state.next_deadline_ms or 0) - state.broker_time_ms) / 1000  # how long a tracker waits
    _write_due(due)


def read_headers(data: bytes) -> None:
    """Read name, value, name, value, …, separated by zero bytes, as a message's headers."""
    parts = data.split(b"\0")
    names = [name.decode("utf-8", "replace") for name in parts[::2]]
    headers = list(zip_longest(names, parts[1::2]))
    message = Message(topic="t", partition=0, offset=7, value=b"x", headers=headers)
    redelivery = read_redelivery_headers(message)
    delivery = parse_delivery_count(redelivery)
    assert delivery >= 1, "a message with delivery 0 is skipped"
    for kind in (MarkerKind.START, MarkerKind.REJECT):
        due = DueMessage(7, delivery, kind, "why", 0)
        record = build_redelivery(due, message, 0, SETTINGS)
        _check_record(record)
        if record.topic == SETTINGS.dead_letter_topic:
            _check_record(strip_value(record, message))


def _write_due(due: list[DueMessage]) -> None:
    offsets = sorted(message.offset for message in due)
    parts = split_by_log_range(offsets, 3, 1000)
    assert sum(map(len, parts)) == len(offsets) == count_offsets([(o, o) for o in offsets])
    assert sum(map(len, split_into_runs(parts[1]))) == len(parts[1])
    for message in due[:5]:
        _check_record(build_redelivery(message, MESSAGE, 0, SETTINGS))
        _check_record(build_lost_letter(message, 0, SETTINGS, too_large_reason(message, SETTINGS)))


def _check_record(record: ProducerRecord) -> None:
    for name, value in record.headers:
        name.encode()
        assert value is None or isinstance(value, bytes)
    own = sum(len(value or b"") for name, value in record.headers if name.startswith("trimtab."))
    assert own < 20_000, "a dead letter must fit into its topic"
