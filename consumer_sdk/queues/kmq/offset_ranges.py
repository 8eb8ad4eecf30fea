"""Who has which offsets, by stretches: one entry for thousands of neighbours of one owner."""

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

from trimtab.consumer_sdk.queues.kmq.markers import count_offsets

OwnerT = TypeVar("OwnerT")


class OffsetRangeMap(Generic[OwnerT]):
    """Offsets with an owner each. Stretches go from a first to a last offset, both included."""

    def __init__(self) -> None:
        # stretches that share no offset, ascending
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._owners: list[OwnerT] = []
        self._count = 0

    def __len__(self) -> int:
        """Return how many offsets have an owner."""
        return self._count

    def find_owned(self, first: int, last: int) -> list[tuple[int, int, OwnerT]]:
        """Return what of a stretch has an owner, ascending."""
        where = self._overlapping_slice(first, last)
        touched = zip(self._firsts[where], self._lasts[where], self._owners[where], strict=True)
        return [(max(first, begin), min(last, end), owner) for begin, end, owner in touched]

    def remove_range(self, first: int, last: int) -> list[tuple[int, int, OwnerT]]:
        """Take a stretch from whoever has it; return what `find_owned` would have."""
        where, found = self._overlapping_slice(first, last), self.find_owned(first, last)
        if found:
            begin, end = self._firsts[where][0], self._lasts[where][-1]
            before = [(begin, first - 1, found[0][2])] if begin < first else []
            after = [(last + 1, end, found[-1][2])] if last < end else []
            self._replace_ranges(where, before + after)
        return found

    def assign_range(self, first: int, last: int, owner: OwnerT) -> None:
        """Give a stretch to an owner, whoever had it."""
        self.remove_range(first, last)
        place = bisect_left(self._firsts, first)
        self._replace_ranges(slice(place, place), [(first, last, owner)])

    def _overlapping_slice(self, first: int, last: int) -> slice:
        return slice(bisect_left(self._lasts, first), bisect_right(self._firsts, last))

    def _replace_ranges(self, where: slice, ranges: list[tuple[int, int, OwnerT]]) -> None:
        gone = zip(self._firsts[where], self._lasts[where], strict=True)
        self._count += count_offsets([(first, last) for first, last, _ in ranges]) - count_offsets(
            list(gone)
        )
        self._firsts[where] = [first for first, _, _ in ranges]
        self._lasts[where] = [last for _, last, _ in ranges]
        self._owners[where] = [owner for _, _, owner in ranges]
