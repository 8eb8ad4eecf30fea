"""What Trimtab writes into the headers of a message that it delivers again, or gives up."""

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from confluent_kafka import Message as Raw

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

OURS: Final = "trimtab."
GROUP: Final = "trimtab.group"  # whose message it is: other groups on the topic skip it
DELIVERY: Final = (
    "trimtab.delivery"  # which delivery this is; of a dead letter: how many there were
)
ORIGIN: Final = "trimtab.origin"  # topic/partition/offset of the first
WRITTEN: Final = "trimtab.written"  # timestamp of the first, in ms
DUE: Final = "trimtab.due"  # the broker's time at which it was to come back, in ms
REASON: Final = "trimtab.reason"  # why it was given up


def read(raw: Raw) -> dict[str, str]:
    """Return our headers of a message."""
    return {n: v.decode("utf-8", "replace") for n, v in _every(raw) if n.startswith(OURS) and v}


def kept(raw: Raw) -> Headers:
    """Return everybody else's headers of a message."""
    return [(name, value) for name, value in _every(raw) if not name.startswith(OURS)]


def _every(raw: Raw) -> Headers:
    return cast("Headers", raw.headers() or ())


def delivery(found: dict[str, str]) -> int:
    """Return which delivery a message is at."""
    count = found.get(DELIVERY, "1")
    return int(count) if count.isdecimal() else 1


def origin(raw: Raw) -> str:
    """Return where a message was first."""
    return read(raw).get(ORIGIN) or f"{raw.topic()}/{raw.partition()}/{raw.offset()}"


def passed_on(raw: Raw, more: dict[str, str | int]) -> Headers:
    """Return the headers of a message that is written once more."""
    _, written = raw.timestamp()
    ours: dict[str, str | int] = {
        ORIGIN: origin(raw),
        WRITTEN: read(raw).get(WRITTEN) or written,
        **more,
    }
    return [*kept(raw), *((name, str(value).encode()) for name, value in ours.items())]
