"""Markers: records of workers and trackers about the state of messages, as versioned JSON.

A marker covers offsets of one partition, and is in the partition of the markers topic with the same
number. Its times are durations from the broker's append time, so that no clocks are compared.
Decoding ignores unknown fields and refuses other versions.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from trimtab.common.errors import InvalidPayloadError

MARKER_VERSION: Final = 1

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


def decode_marker(value: bytes) -> Marker:
    """Return the marker in a record's value. Raises InvalidPayloadError."""
    try:
        body = json.loads(value)
        if body["v"] != MARKER_VERSION:
            raise InvalidPayloadError(
                f"marker of version {body['v']}; this program supports {MARKER_VERSION}"
            )
        return Marker(
            MarkerKind(body["k"]),
            merge_ranges([_check_range(int(first), int(last)) for first, last in body["r"]]),
            int(body.get("ms", 0)),
            int(body.get("n", 0)),
            str(body.get("why", "")),
            str(body.get("by", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidPayloadError(f"not a marker: {value[:80]!r}") from error


def _check_range(first: int, last: int) -> tuple[int, int]:
    if not 0 <= first <= last:
        raise ValueError((first, last))
    return first, last


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


def count_offsets(ranges: Sequence[tuple[int, int]]) -> int:
    """Return the number of offsets in ranges."""
    return sum(last - first + 1 for first, last in ranges)
