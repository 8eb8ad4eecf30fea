"""The best set of partitions for every kind of consumer, by knapsacks that share their tables.

1. A knapsack is a dynamic program over the capacity in equal steps. For a bound (`relaxed`) weights
   are rounded *down*: the profit is never below the true one. For columns they are rounded *up*:
   every set found fits.
2. Kinds differ only in their own and subscribed partitions. So they are halved repeatedly, and a
   partition is inserted where all kinds below agree on its profit: about P·log K insertions
   instead of P·K.
3. A single partition fits any capacity, so it is tried beside the knapsack.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.analysis.optimality.consumer_kinds import ConsumerKinds
from trimtab.assignor.model import BoolArray, FloatArray, IntArray

ROUNDING_MARGIN: Final = 1e-12  # float errors must not turn the direction of rounding

MAX_CAPACITY_RATIO: Final = 4  # largest capacity ÷ median at which the resolution is still full

ItemNumbers: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class PricedSet:
    """A set of partitions, sorted, for one kind, and its profit."""

    kind: int
    profit: float
    items: IntArray


class _TableInsertion(NamedTuple):
    item: int
    size: int
    taken: BoolArray  # at which capacities


class _KindBranch(NamedTuple):
    """Kinds low..high-1 with a table of the partitions they agree on; `pending` are the others."""

    low: int
    high: int
    table: FloatArray
    pending: ItemNumbers
    path: tuple[_TableInsertion, ...]


class Knapsacks:
    """Knapsacks of all kinds, with weights in whole steps; `steps` make the median capacity."""

    def __init__(self, kinds: ConsumerKinds, steps: int, *, relaxed: bool) -> None:
        step = max(np.median(kinds.capacity), kinds.capacity.max() / MAX_CAPACITY_RATIO) / steps
        if relaxed:
            size = np.floor(kinds.weight / step * (1 - ROUNDING_MARGIN))
            room = np.floor(kinds.capacity / step * (1 + ROUNDING_MARGIN))
        else:
            size = np.ceil(kinds.weight / step * (1 + ROUNDING_MARGIN))
            room = np.floor(kinds.capacity / step * (1 - ROUNDING_MARGIN))
        self._item_steps: list[int] = size.astype(np.intp).tolist()
        self._capacity_steps: list[int] = room.astype(np.intp).tolist()
        self._fits = kinds.subscribed & (kinds.weight <= kinds.capacity[:, None])
        self._kinds = kinds

    def best_sets(self, worth: FloatArray) -> Iterator[PricedSet]:
        """Yield each kind's best set, in order; `worth` (P,) is the profit of each partition."""
        profit = np.maximum(worth - self._kinds.move_cost, 0.0) * self._kinds.subscribed
        table = np.zeros(max(self._capacity_steps) + 1)
        root = _KindBranch(0, len(profit), table, np.arange(len(worth)), ())
        for found in self._solve_branch(root, profit * self._fits):
            yield _prefer_single(found, profit[found.kind])

    def disjoint_sets(self, kind: int, worth: FloatArray, least: float) -> Iterator[PricedSet]:
        """Yield disjoint sets of one kind, best first, while they earn at least `least`."""
        profit = np.maximum(worth - self._kinds.move_cost[kind], 0.0) * self._kinds.subscribed[kind]
        while True:
            table = np.zeros(self._capacity_steps[kind] + 1)
            path = tuple(self._insert(table, np.arange(len(worth)), profit * self._fits[kind]))
            found = _prefer_single(self._trace(kind, table, path), profit)
            if found.profit < least or not len(found.items):
                return
            yield found
            profit[found.items] = 0.0

    def _solve_branch(self, at: _KindBranch, profit: FloatArray) -> Iterator[PricedSet]:
        """Insert the partitions the branch agrees on, then split it (rule 2)."""
        low, high, table, pending, path = at
        part = profit[low:high, pending]
        agreed = (part == part[0]).all(axis=0)
        if agreed.any():
            table = table.copy()
            path = (*path, *self._insert(table, pending[agreed], part[0, agreed]))
        if high - low == 1:
            yield self._trace(low, table, path)
            return
        middle = (low + high) // 2
        rest = pending[~agreed]
        yield from self._solve_branch(_KindBranch(low, middle, table, rest, path), profit)
        yield from self._solve_branch(_KindBranch(middle, high, table, rest, path), profit)

    def _insert(self, table: FloatArray, items: ItemNumbers, profit: FloatArray) -> Iterator[_TableInsertion]:
        """Insert partitions into the table, whose entry c is the best profit within c steps."""
        top = len(table)
        for item, gain in zip(items.tolist(), profit.tolist(), strict=True):
            size = self._item_steps[item]
            if gain <= 0 or size >= top:
                continue
            taken = np.zeros(top, dtype=np.bool_)
            candidate = table[: top - size] + gain
            np.greater(candidate, table[size:], out=taken[size:])
            np.maximum(candidate, table[size:], out=table[size:])
            yield _TableInsertion(item, size, taken)

    def _trace(self, kind: int, table: FloatArray, path: tuple[_TableInsertion, ...]) -> PricedSet:
        room = self._capacity_steps[kind]
        profit = float(table[room])
        items: list[int] = []
        for item, size, taken in reversed(path):
            if taken[room]:
                items.append(item)
                room -= size
        return PricedSet(kind, profit, np.array(sorted(items), dtype=np.int32))


def _prefer_single(found: PricedSet, profit: FloatArray) -> PricedSet:
    """Return the set, or a single partition that earns more (rule 3)."""
    if not len(profit):
        return found
    single = int(profit.argmax())
    if profit[single] <= found.profit:
        return found
    return PricedSet(found.kind, float(profit[single]), np.array([single], dtype=np.int32))
