"""Column generation: the linear program and the knapsacks in turn, until neither has more to say.

Rules of this file:
- The bound holds at any time, not just at the end: whatever worths the linear program gives the
  partitions, the relaxed knapsacks tell how much a consumer could earn at them, and what all
  partitions are worth less what all consumers could earn beyond their cost is below every packing
  (Lagrange; Farley). A time limit makes it weaker, never wrong.
- First rounds run with coarse steps rounded up, where every column is a true one; then fine steps
  rounded down give the bound, and the columns that are still missing.
- `left()` tells the seconds that are left; it is asked between rounds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from trimtab.assignor.certify.kinds import Kinds
from trimtab.assignor.certify.master import Column, Duals, Master, Prices
from trimtab.assignor.certify.pricing import Best, Knapsacks
from trimtab.assignor.model import FloatArray, IntArray

COARSE: Final = 600
FINE: Final = 10_000
"""Steps of a capacity, to find columns and for the bound: 0.01 % of a consumer are given away."""

CLOSE: Final = 1e-4
"""Relative distance to the linear program's value at which the bound is as good as complete."""

Left: TypeAlias = Callable[[], float]
"""Tells how many seconds are left."""


@dataclass(frozen=True, slots=True)
class Found:
    """A bound that no packing undercuts, the least cost of a packing found, and if all was said."""

    lower: float
    best: float
    complete: bool


def search(kinds: Kinds, prices: Prices, starts: Iterable[Column], left: Left) -> Found:
    """Bound the least cost of a packing from below, and look for one; `starts` are columns."""
    master = Master(kinds, prices)
    master.add(starts)
    duals = _columns_for_a_start(master, kinds, prices, left)
    lower, complete = 0.0, False
    knapsacks = Knapsacks(kinds, FINE, relaxed=True)
    while duals is not None and left() > 0 and not complete:
        sets = list(knapsacks.best(duals.worth))
        earned = np.array([s.profit for s in sets])
        lower = max(lower, bound(kinds, prices, duals, earned))
        complete = lower >= duals.value * (1 - CLOSE) or not _add(master, sets, duals)
        duals = duals if complete else master.solve(left())
    best = master.solve_whole(left())
    return Found(lower, best, complete)


def bound(kinds: Kinds, prices: Prices, duals: Duals, earned: FloatArray) -> float:
    """Return what no packing costs less than, at these worths; `earned` (K,) is from relaxed sets.

    The price of the limit on the count is chosen anew: at least what one to be added could earn
    beyond its cost, as there may be any number of those.
    """
    beyond = earned - prices.consumer
    endless = np.isinf(kinds.times)
    least = float(np.maximum(beyond[endless], 0.0).max(initial=0.0))
    counted, times = beyond[~endless], kinds.times[~endless]
    tried = np.append(counted[counted > least], (least, max(least, duals.count)))
    excess = np.maximum(counted - tried[:, None], 0.0) @ times
    return float((duals.worth.sum() - prices.most * tried - excess).max())


def _columns_for_a_start(master: Master, kinds: Kinds, prices: Prices, left: Left) -> Duals | None:
    """Add true columns until there are no more, or half of the time is over."""
    knapsacks = Knapsacks(kinds, COARSE, relaxed=False)
    half = left() / 2
    duals = master.solve(left())
    while duals is not None and left() > half:
        sets = [*knapsacks.best(duals.worth), *_more(knapsacks, kinds, prices, duals)]
        if not _add(master, sets, duals):
            break
        duals = master.solve(left())
    return duals


def _more(knapsacks: Knapsacks, kinds: Kinds, prices: Prices, duals: Duals) -> Iterator[Best]:
    """Yield more than one set of the kinds that may be used more than once."""
    for kind in np.flatnonzero(kinds.times > 1).tolist():
        least = prices.consumer + duals.use[kind] + duals.count
        yield from knapsacks.disjoint(kind, duals.worth, least)


def _add(master: Master, sets: Sequence[Best], duals: Duals) -> int:
    columns = (Column(found.kind, found.items) for found in sets)
    return master.add(c for c in columns if master.lacks(c, duals))


def columns_of(kinds: Kinds, bins: IntArray) -> list[Column]:
    """Return the columns of a packing; a set that does not fit is left out."""
    members = len(kinds.of) - 1
    found: list[Column] = []
    for number in np.unique(bins[bins >= 0]).tolist():
        column = Column(
            int(kinds.of[min(number, members)]), np.flatnonzero(bins == number).astype(np.int32)
        )
        if column.kind >= 0 and kinds.hold(*column):
            found.append(column)
    return found
