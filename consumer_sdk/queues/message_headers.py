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

MAX_DIGITS: Final = 18  # of an offset or a count: below 2^63


def read_redelivery_headers(raw: Message) -> dict[str, str]:
    """Return the Trimtab headers of a redelivery, decoded; none of any other message.

    Any producer can write such headers, and tools copy those of dead letters. A redelivery has its
    origin at a lower offset of its own partition, and no reason.
    """
    own = {name: value for name, value in _headers(raw) if name.startswith(HEADER_PREFIX) and value}
    headers = {name: value.decode("utf-8", "replace") for name, value in own.items()}
    partition, _, offset = headers.get(ORIGIN_HEADER, "").rpartition("/")
    origin = _parse_number(offset)
    if partition != f"{raw.topic()}/{raw.partition()}" or origin is None or REASON_HEADER in headers:
        return {}
    return headers if origin < (raw.offset() or 0) else {}


def application_headers(raw: Message) -> MessageHeaders:
    """Return the headers of a message that Trimtab did not write."""
    return [(name, value) for name, value in _headers(raw) if not name.startswith(HEADER_PREFIX)]


def _headers(raw: Message) -> MessageHeaders:
    return cast("MessageHeaders", raw.headers() or ())


def parse_delivery_count(redelivery_headers: Mapping[str, str]) -> int:
    """Return the delivery number of a message; 1 without a valid header."""
    return _parse_number(redelivery_headers.get(DELIVERY_HEADER, "")) or 1


def _parse_number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None


def build_forwarded_headers(raw: Message, more: Mapping[str, str | int]) -> MessageHeaders:
    """Return the headers of a message's next copy: the application's, ours and `more`."""
    _, timestamp_ms = raw.timestamp()
    first = read_redelivery_headers(raw)
    origin = first.get(ORIGIN_HEADER) or f"{raw.topic()}/{raw.partition()}/{raw.offset()}"
    written_at = _parse_number(first.get(WRITTEN_AT_HEADER, "")) or timestamp_ms
    own = {ORIGIN_HEADER: origin, WRITTEN_AT_HEADER: written_at, **more}
    return [*application_headers(raw), *((name, str(value).encode()) for name, value in own.items())]
