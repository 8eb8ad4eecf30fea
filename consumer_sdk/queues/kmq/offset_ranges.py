"""Map from offsets to owners, stored as ranges: one entry for thousands of neighbours."""

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

from trimtab.consumer_sdk.queues.kmq.markers import count_offsets

OwnerT = TypeVar("OwnerT")


class OffsetRangeMap(Generic[OwnerT]):
    """Offsets with one owner each. A range includes its first and last offset."""

    def __init__(self) -> None:
        # Disjoint ranges, ascending, as parallel lists for bisection.
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._owners: list[OwnerT] = []
        self._count = 0

    def __len__(self) -> int:
        """Return the number of offsets with an owner."""
        return self._count

    def find_owned(self, first: int, last: int) -> list[tuple[int, int, OwnerT]]:
        """Return the owned parts of a range as (first, last, owner), ascending."""
        overlap = self._overlapping_slice(first, last)
        entries = zip(self._firsts[overlap], self._lasts[overlap], self._owners[overlap], strict=True)
        return [(max(first, begin), min(last, end), owner) for begin, end, owner in entries]

    def remove_range(self, first: int, last: int) -> list[tuple[int, int, OwnerT]]:
        """Remove a range from its owners; return the removed parts as `find_owned` does."""
        overlap = self._overlapping_slice(first, last)
        owned = self.find_owned(first, last)
        if owned:
            begin, end = self._firsts[overlap][0], self._lasts[overlap][-1]
            before = [(begin, first - 1, owned[0][2])] if begin < first else []
            after = [(last + 1, end, owned[-1][2])] if last < end else []
            self._replace_ranges(overlap, before + after)
        return owned

    def assign_range(self, first: int, last: int, owner: OwnerT) -> None:
        """Assign a range to an owner, replacing previous owners."""
        self.remove_range(first, last)
        index = bisect_left(self._firsts, first)
        self._replace_ranges(slice(index, index), [(first, last, owner)])

    def _overlapping_slice(self, first: int, last: int) -> slice:
        return slice(bisect_left(self._lasts, first), bisect_right(self._firsts, last))

    def _replace_ranges(self, old: slice, ranges: list[tuple[int, int, OwnerT]]) -> None:
        removed = list(zip(self._firsts[old], self._lasts[old], strict=True))
        added = [(first, last) for first, last, _ in ranges]
        self._count += count_offsets(added) - count_offsets(removed)
        self._firsts[old] = [first for first, _, _ in ranges]
        self._lasts[old] = [last for _, last, _ in ranges]
        self._owners[old] = [owner for _, _, owner in ranges]
