"""Headers that Trimtab adds to redelivered messages and dead letters."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

from confluent_kafka import Message

MessageHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]

HEADER_PREFIX: Final = "trimtab."
GROUP_HEADER: Final = "trimtab.group"  # the queues of other groups on the topic skip the message
DELIVERY_HEADER: Final = "trimtab.delivery"  # number of this delivery, or a dead letter's last, from 1
ORIGIN_HEADER: Final = "trimtab.origin"  # topic/partition/offset of the first delivery
WRITTEN_AT_HEADER: Final = "trimtab.written"  # timestamp of the first delivery, in ms
DUE_AT_HEADER: Final = "trimtab.due"  # deadline of the previous delivery in the broker's time, in ms
REASON_HEADER: Final = "trimtab.reason"  # on dead letters only


def read_trimtab_headers(raw: Message) -> dict[str, str]:
    """Return the Trimtab headers of a message, decoded."""
    own = [(name, value) for name, value in _headers(raw) if name.startswith(HEADER_PREFIX) and value]
    return {name: value.decode("utf-8", "replace") for name, value in own}


def application_headers(raw: Message) -> MessageHeaders:
    """Return the headers of a message that Trimtab did not write."""
    return [(name, value) for name, value in _headers(raw) if not name.startswith(HEADER_PREFIX)]


def _headers(raw: Message) -> MessageHeaders:
    return cast("MessageHeaders", raw.headers() or ())


def parse_delivery_count(trimtab_headers: dict[str, str]) -> int:
    """Return the delivery number of a message; 1 without a valid header."""
    count = trimtab_headers.get(DELIVERY_HEADER, "1")
    return int(count) if count.isdecimal() else 1


def message_origin(raw: Message) -> str:
    """Return topic/partition/offset of a message's first delivery."""
    return read_trimtab_headers(raw).get(ORIGIN_HEADER) or f"{raw.topic()}/{raw.partition()}/{raw.offset()}"


def build_forwarded_headers(raw: Message, more: Mapping[str, str | int]) -> MessageHeaders:
    """Return the headers of a message's next copy: the application's, ours and `more`."""
    _, timestamp_ms = raw.timestamp()
    written_at = read_trimtab_headers(raw).get(WRITTEN_AT_HEADER) or timestamp_ms
    own = {ORIGIN_HEADER: message_origin(raw), WRITTEN_AT_HEADER: written_at, **more}
    return [*application_headers(raw), *((name, str(value).encode()) for name, value in own.items())]
