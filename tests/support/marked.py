"""Expands the offset ranges of markers."""

from collections.abc import Iterator

from trimtab.consumer_sdk.queues.kmq.markers import OffsetRanges


def offsets(ranges: OffsetRanges) -> Iterator[int]:
    """Return each offset of the ranges, ascending."""
    for first, last in ranges:
        yield from range(first, last + 1)
