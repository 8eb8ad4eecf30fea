"""What Trimtab writes into the headers of a message that it delivers again, or gives up."""

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from confluent_kafka import Message as Raw

MessageHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]

HEADER_PREFIX: Final = "trimtab."
GROUP_HEADER: Final = "trimtab.group"  # whose message it is: other groups on the topic skip it
DELIVERY_HEADER: Final = (
    "trimtab.delivery"  # which delivery this is; of a dead letter: how many there were
)
ORIGIN_HEADER: Final = "trimtab.origin"  # topic/partition/offset of the first
WRITTEN_AT_HEADER: Final = "trimtab.written"  # timestamp of the first, in ms
DUE_AT_HEADER: Final = "trimtab.due"  # the broker's time at which it was to come back, in ms
REASON_HEADER: Final = "trimtab.reason"  # why it was given up


def read_trimtab_headers(raw: Raw) -> dict[str, str]:
    """Return our headers of a message."""
    return {
        n: v.decode("utf-8", "replace")
        for n, v in _all_headers(raw)
        if n.startswith(HEADER_PREFIX) and v
    }


def application_headers(raw: Raw) -> MessageHeaders:
    """Return everybody else's headers of a message."""
    return [
        (name, value) for name, value in _all_headers(raw) if not name.startswith(HEADER_PREFIX)
    ]


def _all_headers(raw: Raw) -> MessageHeaders:
    return cast("MessageHeaders", raw.headers() or ())


def parse_delivery_count(trimtab_headers: dict[str, str]) -> int:
    """Return which delivery a message is at."""
    count = trimtab_headers.get(DELIVERY_HEADER, "1")
    return int(count) if count.isdecimal() else 1


def message_origin(raw: Raw) -> str:
    """Return where a message was first."""
    return (
        read_trimtab_headers(raw).get(ORIGIN_HEADER)
        or f"{raw.topic()}/{raw.partition()}/{raw.offset()}"
    )


def build_forwarded_headers(raw: Raw, more: dict[str, str | int]) -> MessageHeaders:
    """Return the headers of a message that is written once more."""
    _, written = raw.timestamp()
    ours: dict[str, str | int] = {
        ORIGIN_HEADER: message_origin(raw),
        WRITTEN_AT_HEADER: read_trimtab_headers(raw).get(WRITTEN_AT_HEADER) or written,
        **more,
    }
    return [
        *application_headers(raw),
        *((name, str(value).encode()) for name, value in ours.items()),
    ]
