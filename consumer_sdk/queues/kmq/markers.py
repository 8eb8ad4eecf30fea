"""Markers: records of workers and trackers about the state of messages, as versioned JSON.

A marker covers offsets of one partition, and is in the partition of the markers topic with the same
number. Its times are durations from the broker's append time, so that no clocks are compared. Its
key names its queue, since two queues may have one markers topic by mistake. Decoding ignores unknown
fields and refuses other versions, and whatever no worker or tracker writes.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from trimtab.common.errors import InvalidPayloadError
from trimtab.common.lag import MAX_OFFSET
from trimtab.consumer_sdk.queues.durable_producer import ProducerRecord
from trimtab.consumer_sdk.queues.settings import QueueSettings

MARKER_VERSION: Final = 1
MAX_STARTED_MESSAGES: Final = 1_000_000  # of a start marker: a tracker keeps each until its end marker
MAX_DELAY_MS: Final = 10**15  # 30,000 years: `retry` takes any finite time
MAX_REASON_CHARS: Final = 1000  # a longer reason may make each dead letter too large for its topic

OffsetRanges: TypeAlias = tuple[tuple[int, int], ...]  # first and last offset; disjoint and ascending


class MarkerKind(StrEnum):
    """State change of a marker's messages."""

    START = "start"  # delivered
    EXTEND = "extend"  # in flight, with a new deadline
    RETRY = "retry"  # to be redelivered
    REJECT = "reject"  # to be dead-lettered
    END = "end"  # settled
    TICK = "tick"  # none: reads the broker's time


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker."""

    kind: MarkerKind
    ranges: OffsetRanges = ()
    delay_ms: int = 0  # from its append to the messages' deadline
    delivery: int = 0
    reason: str = ""
    tracker_token: str = ""  # of the tracker that wrote a tick

    def encode(self) -> bytes:
        """Return the record's value, without empty fields."""
        # Short names: start markers are written for every batch.
        body: dict[str, Any] = {"v": MARKER_VERSION, "k": self.kind.value, "r": self.ranges}
        optional = {"ms": self.delay_ms, "n": self.delivery, "why": self.reason, "by": self.tracker_token}
        body.update({name: value for name, value in optional.items() if value})
        return json.dumps(body, separators=(",", ":")).encode()


def build_marker_record(settings: QueueSettings, partition: int, marker: Marker) -> ProducerRecord:
    """Return the record of a queue's marker."""
    return ProducerRecord(settings.markers_topic, partition, marker.encode(), settings.marker_key)


def decode_marker(value: bytes) -> Marker:
    """Return the marker in a record's value. Raises InvalidPayloadError."""
    try:
        body = json.loads(value)
        if body["v"] != MARKER_VERSION:
            version = str(body["v"])[:80]
            raise InvalidPayloadError(f"marker of version {version}; this program supports {MARKER_VERSION}")
        kind = MarkerKind(body["k"])
        return Marker(
            kind,
            _check_ranges(kind, body["r"]),
            min(_check_number(body.get("ms", 0)), MAX_DELAY_MS),
            _check_number(body.get("n", 0), MAX_OFFSET),
            _check_text(body.get("why", "")),
            _check_text(body.get("by", "")),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:  # json recurses into "[[[[..."
        raise InvalidPayloadError(f"not a marker: {value[:80]!r}") from error


def _check_ranges(kind: MarkerKind, pairs: Iterable[tuple[Any, Any]]) -> OffsetRanges:
    checked = [(_check_number(first), _check_number(last, MAX_OFFSET)) for first, last in pairs]
    ranges = merge_ranges(checked)
    # The other kinds change open messages only, so their ranges may be of any size.
    too_many = kind is MarkerKind.START and count_offsets(ranges) > MAX_STARTED_MESSAGES
    if too_many or any(first > last for first, last in checked):
        raise ValueError(pairs)
    return ranges


def _check_number(value: Any, largest: float = math.inf) -> int:
    if type(value) is not int or not 0 <= value <= largest:  # bool is an int to isinstance
        raise ValueError(value)
    return value


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value[:MAX_REASON_CHARS].encode(errors="replace").decode()  # JSON can hold lone surrogates


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> OffsetRanges:
    """Return ranges, in any order and possibly overlapping, merged."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def to_ranges(offsets: Iterable[int]) -> OffsetRanges:
    """Return distinct offsets, in any order, as ranges."""
    ordered = sorted(offsets)
    # Thousands of offsets are nearly always one range.
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:
        return ((ordered[0], ordered[-1]),)
    return merge_ranges((offset, offset) for offset in ordered)


def split_ranges(ranges: OffsetRanges, max_offsets: int) -> Iterator[OffsetRanges]:
    """Yield ranges in parts of `max_offsets` offsets; the last part has the rest."""
    part: list[tuple[int, int]] = []
    missing = max_offsets
    for begin, end in ranges:
        first = begin
        while first <= end:
            last = min(end, first + missing - 1)
            part.append((first, last))
            missing -= last - first + 1
            first = last + 1
            if not missing:
                yield tuple(part)
                part, missing = [], max_offsets
    if part:
        yield tuple(part)


def count_offsets(ranges: Sequence[tuple[int, int]]) -> int:
    """Return the number of offsets in ranges."""
    return sum(last - first + 1 for first, last in ranges)
