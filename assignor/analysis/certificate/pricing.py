"""The best set of partitions for every kind of consumer: knapsacks that share their work.

Rules of this file:
- A knapsack is solved by dynamic programming over a capacity cut into equal steps. Weights are
  rounded *down* for a bound (`relaxed`): every set that fits then still fits, so the best profit
  found is never below the true one. They are rounded *up* for columns: whatever is found fits.
- Kinds differ only in what they own and subscribe to. So they are halved again and again, and a
  partition goes into the table at the point where all kinds below agree on its profit: about
  P·log K insertions in place of P·K.
- A partition alone fits everywhere, and so is tried beside the knapsack.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.analysis.certificate.consumer_kinds import Kinds
from trimtab.assignor.model import BoolArray, FloatArray, IntArray

ROUNDING: Final = 1e-12
"""What is given away to floats, so that rounding down is down and rounding up is up."""

WIDEST: Final = 4
"""The largest capacity in middle ones that still gets the full resolution."""

Numbers: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Best:
    """The best set of one kind: its profit, and its partitions in order."""

    kind: int
    profit: float
    items: IntArray


class _Insertion(NamedTuple):
    """A partition in the table, and at which capacities it is taken."""

    item: int
    size: int
    taken: BoolArray


class _Branch(NamedTuple):
    """Kinds low..high-1 with what they agree on already in the table; `open` is not in it."""

    low: int
    high: int
    table: FloatArray
    open: Numbers
    path: tuple[_Insertion, ...]


class Knapsacks:
    """The knapsacks of all kinds, with weights in whole steps; `steps` make a middle capacity."""

    def __init__(self, kinds: Kinds, steps: int, *, relaxed: bool) -> None:
        step = max(np.median(kinds.capacity), kinds.capacity.max() / WIDEST) / steps
        if relaxed:
            size = np.floor(kinds.weight / step * (1 - ROUNDING))
            room = np.floor(kinds.capacity / step * (1 + ROUNDING))
        else:
            size = np.ceil(kinds.weight / step * (1 + ROUNDING))
            room = np.floor(kinds.capacity / step * (1 - ROUNDING))
        self._size: list[int] = size.astype(np.intp).tolist()
        self._room: list[int] = room.astype(np.intp).tolist()
        self._fits = kinds.may & (kinds.weight <= kinds.capacity[:, None])
        self._kinds = kinds

    def best(self, worth: FloatArray) -> Iterator[Best]:
        """Yield each kind's best set, in order; `worth` (P,) is what holding a partition earns."""
        profit = np.maximum(worth - self._kinds.move, 0.0) * self._kinds.may
        packed = profit * self._fits
        table = np.zeros(max(self._room) + 1)
        every = np.arange(len(worth))
        root = _Branch(0, len(profit), table, every, ())
        for found in self._descend(root, packed):
            yield _or_alone(found, profit[found.kind])

    def disjoint(self, kind: int, worth: FloatArray, least: float) -> Iterator[Best]:
        """Yield sets of one kind that share nothing, the best first, while they earn `least`."""
        profit = np.maximum(worth - self._kinds.move[kind], 0.0) * self._kinds.may[kind]
        every = np.arange(len(worth))
        while True:
            packed = profit * self._fits[kind]
            table = np.zeros(self._room[kind] + 1)
            path = tuple(self._inserted(table, every, packed))
            found = _or_alone(self._traced(kind, table, path), profit)
            if found.profit < least or not len(found.items):
                return
            yield found
            profit[found.items] = 0.0

    def _descend(self, at: _Branch, profit: FloatArray) -> Iterator[Best]:
        """Insert what the branch agrees on, then split it."""
        low, high, table, pending, path = at
        part = profit[low:high, pending]
        agreed = (part == part[0]).all(axis=0)
        if agreed.any():
            table = table.copy()
            path = (*path, *self._inserted(table, pending[agreed], part[0, agreed]))
        if high - low == 1:
            yield self._traced(low, table, path)
            return
        middle, rest = (low + high) // 2, pending[~agreed]
        yield from self._descend(_Branch(low, middle, table, rest, path), profit)
        yield from self._descend(_Branch(middle, high, table, rest, path), profit)

    def _inserted(
        self, table: FloatArray, items: Numbers, profit: FloatArray
    ) -> Iterator[_Insertion]:
        """Put partitions into the table: entry c is the best profit within c steps."""
        top = len(table)
        for item, gain in zip(items.tolist(), profit.tolist(), strict=True):
            size = self._size[item]
            if gain <= 0 or size >= top:
                continue
            taken = np.zeros(top, dtype=np.bool_)
            candidate = table[: top - size] + gain
            np.greater(candidate, table[size:], out=taken[size:])
            np.maximum(candidate, table[size:], out=table[size:])
            yield _Insertion(item, size, taken)

    def _traced(self, kind: int, table: FloatArray, path: tuple[_Insertion, ...]) -> Best:
        """Read the best set off the table."""
        room = self._room[kind]
        profit = float(table[room])
        items: list[int] = []
        for item, size, taken in reversed(path):
            if taken[room]:
                items.append(item)
                room -= size
        return Best(kind, profit, np.array(sorted(items), dtype=np.int32))


def _or_alone(found: Best, profit: FloatArray) -> Best:
    """Return the set, or the one partition that earns more by itself."""
    if not len(profit):
        return found
    single = int(profit.argmax())
    if profit[single] <= found.profit:
        return found
    return Best(found.kind, float(profit[single]), np.array([single], dtype=np.int32))
