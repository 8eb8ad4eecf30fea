"""Markers: what workers and trackers write about messages, as versioned JSON.

A marker stands in the partition of the markers topic that has the number of the messages'
partition, and speaks of some of its offsets. Times are durations, counted from the moment when the
broker appended the marker: nobody's clock is compared with anybody else's.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from trimtab.common.errors import InvalidPayloadError

MARKER_VERSION: Final = 1

OffsetRanges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last offset of each stretch, both included, ascending."""


class MarkerKind(StrEnum):
    """What a marker says of its messages."""

    START = "start"  # handed out
    EXTEND = "extend"  # in work for longer
    RETRY = "retry"  # to be delivered again
    REJECT = "reject"  # to be given up
    END = "end"  # over and done with
    TICK = "tick"  # nothing: a tracker asks for the time


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker; `delay_ms` counts from its append time to the redelivery, `tracker_token` is who ticked."""

    kind: MarkerKind
    ranges: OffsetRanges = ()
    delay_ms: int = 0
    delivery: int = 0
    reason: str = ""
    tracker_token: str = ""

    def encode(self) -> bytes:
        """Return the record's value; what is empty is left out."""
        said: dict[str, Any] = {"v": MARKER_VERSION, "k": self.kind.value, "r": self.ranges}
        more = {
            "ms": self.delay_ms,
            "n": self.delivery,
            "why": self.reason,
            "by": self.tracker_token,
        }
        said.update({name: value for name, value in more.items() if value})
        return json.dumps(said, separators=(",", ":")).encode()


def decode_marker(value: bytes) -> Marker:
    """Return the marker of a record's value. Raises InvalidPayloadError."""
    try:
        said = json.loads(value)
        if said["v"] != MARKER_VERSION:
            raise InvalidPayloadError(
                f"a marker of version {said['v']}; this program knows {MARKER_VERSION}"
            )
        return Marker(
            MarkerKind(said["k"]),
            merge_ranges([_check_range(int(first), int(last)) for first, last in said["r"]]),
            int(said.get("ms", 0)),
            int(said.get("n", 0)),
            str(said.get("why", "")),
            str(said.get("by", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidPayloadError(f"not a marker: {value[:80]!r}") from error


def _check_range(first: int, last: int) -> tuple[int, int]:
    if not 0 <= first <= last:
        raise ValueError((first, last))
    return first, last


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> OffsetRanges:
    """Return the offsets of ranges that come in any order and may overlap, each once."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def to_ranges(offsets: Iterable[int]) -> OffsetRanges:
    """Return offsets, each given once and in any order, as ranges."""
    ordered = sorted(offsets)
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:  # all but always, of thousands
        return ((ordered[0], ordered[-1]),)
    return merge_ranges((offset, offset) for offset in ordered)


def count_offsets(ranges: Sequence[tuple[int, int]]) -> int:
    """Return how many offsets there are in ranges."""
    return sum(last - first + 1 for first, last in ranges)
