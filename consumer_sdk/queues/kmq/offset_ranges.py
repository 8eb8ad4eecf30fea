"""Who has which offsets, by stretches: one entry for thousands of neighbours of one owner."""

from bisect import bisect_left, bisect_right
from typing import Generic, TypeVar

from trimtab.consumer_sdk.queues.kmq.markers import size

T = TypeVar("T")


class Spans(Generic[T]):
    """Offsets with an owner each. Stretches go from a first to a last offset, both included."""

    def __init__(self) -> None:
        # stretches that share no offset, ascending
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._owners: list[T] = []
        self._count = 0

    def __len__(self) -> int:
        """Return how many offsets have an owner."""
        return self._count

    def within(self, first: int, last: int) -> list[tuple[int, int, T]]:
        """Return what of a stretch has an owner, ascending."""
        where = self._touched(first, last)
        touched = zip(self._firsts[where], self._lasts[where], self._owners[where], strict=True)
        return [(max(first, begin), min(last, end), owner) for begin, end, owner in touched]

    def cut(self, first: int, last: int) -> list[tuple[int, int, T]]:
        """Take a stretch from whoever has it; return what `within` would have."""
        where, found = self._touched(first, last), self.within(first, last)
        if found:
            begin, end = self._firsts[where][0], self._lasts[where][-1]
            before = [(begin, first - 1, found[0][2])] if begin < first else []
            after = [(last + 1, end, found[-1][2])] if last < end else []
            self._replace(where, before + after)
        return found

    def put(self, first: int, last: int, owner: T) -> None:
        """Give a stretch to an owner, whoever had it."""
        self.cut(first, last)
        place = bisect_left(self._firsts, first)
        self._replace(slice(place, place), [(first, last, owner)])

    def _touched(self, first: int, last: int) -> slice:
        return slice(bisect_left(self._lasts, first), bisect_right(self._firsts, last))

    def _replace(self, where: slice, by: list[tuple[int, int, T]]) -> None:
        gone = zip(self._firsts[where], self._lasts[where], strict=True)
        self._count += size([(first, last) for first, last, _ in by]) - size(list(gone))
        self._firsts[where] = [first for first, _, _ in by]
        self._lasts[where] = [last for _, last, _ in by]
        self._owners[where] = [owner for _, _, owner in by]
