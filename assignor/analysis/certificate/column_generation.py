"""Column generation: the linear program and the knapsacks in turn, until neither has more to say.

Rules of this file:
- The bound holds at any time, not just at the end: whatever the partitions are taken to be worth,
  the relaxed knapsacks tell how much each consumer could earn at that, and what all partitions are
  worth, less what all consumers could earn beyond their cost, is below every packing (Lagrange;
  Farley). A time limit makes the bound weaker, never wrong.
- First rounds run with coarse steps rounded up, where every column is a true one; then fine steps
  rounded down give the bound, and the columns that are still missing.
- The linear program's worths jump about, so a moving mean of them is asked instead (smoothing);
  where that finds no column, they themselves are.
- `left()` tells the seconds that are left; it is asked between rounds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from trimtab.assignor.analysis.certificate.consumer_kinds import Kinds
from trimtab.assignor.analysis.certificate.master_program import Column, Duals, Master, Prices
from trimtab.assignor.analysis.certificate.pricing import Best, Knapsacks
from trimtab.assignor.model import FloatArray, IntArray

COARSE: Final = 600
FINE: Final = 10_000
"""Steps of a capacity, to find columns and for the bound: 0.01 % of a consumer are given away."""

CLOSE: Final = 1e-4
"""Relative distance to the linear program's value at which the bound is as good as complete."""

SMOOTH: Final = 0.7
"""Share of the mean so far in the worths that are asked."""

FOR_COARSE: Final = 0.5
FOR_WHOLE: Final = 0.2
"""Shares of the time: for coarse rounds at most, and for whole columns at least."""

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
    seconds = left()
    coarse = _Coarse(kinds, prices)
    guess = np.minimum(kinds.weight / kinds.capacity.max(), 1.0) * prices.consumer
    _generate(master, coarse, guess, lambda: left() - (1 - FOR_COARSE) * seconds)
    fine = _Fine(kinds, prices)
    complete = _generate(master, fine, None, lambda: left() - FOR_WHOLE * seconds)
    return Found(fine.lower, master.solve_whole(left()), complete)


def _generate(
    master: Master,
    sets_at: Callable[[Duals], Sequence[Best] | None],
    mean: FloatArray | None,
    left: Left,
) -> bool:
    """Add columns until none is missing, or `sets_at` says that it is enough; tell if so."""
    duals = master.solve(left())
    while duals is not None and left() > 0:
        worth = duals.worth if mean is None else SMOOTH * mean + (1 - SMOOTH) * duals.worth
        sets = sets_at(replace(duals, worth=worth))
        if sets is None:
            return True
        columns = (Column(found.kind, found.items) for found in sets)
        lacking = [c for c in columns if master.lacks(c, duals)]
        if master.add(lacking):
            mean, duals = worth, master.solve(left())
        elif mean is None:
            return True
        else:
            mean = None
    return False


class _Coarse:
    """Sets that truly fit: the best of each kind, and more of kinds that are used repeatedly."""

    def __init__(self, kinds: Kinds, prices: Prices) -> None:
        self._knapsacks = Knapsacks(kinds, COARSE, relaxed=False)
        self._repeated: list[int] = np.flatnonzero(kinds.times > 1).tolist()
        self._price = prices.consumer

    def __call__(self, at: Duals) -> Sequence[Best]:
        return [*self._knapsacks.best(at.worth), *self._more(at)]

    def _more(self, at: Duals) -> Iterator[Best]:
        for kind in self._repeated:
            least = self._price + float(at.use[kind]) + at.count
            yield from self._knapsacks.disjoint(kind, at.worth, least)


class _Fine:
    """The best set of each kind, relaxed, and the best bound that these have given."""

    def __init__(self, kinds: Kinds, prices: Prices) -> None:
        self._knapsacks = Knapsacks(kinds, FINE, relaxed=True)
        self._kinds, self._prices = kinds, prices
        self.lower = 0.0

    def __call__(self, at: Duals) -> Sequence[Best] | None:
        sets = list(self._knapsacks.best(at.worth))
        earned = np.array([found.profit for found in sets])
        self.lower = max(self.lower, bound(self._kinds, self._prices, at, earned))
        return None if self.lower >= at.value * (1 - CLOSE) else sets


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
