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

from trimtab.assignor.analysis.certificate.consumer_kinds import ConsumerKinds
from trimtab.assignor.analysis.certificate.master_program import (
    DualPrices,
    MasterPrices,
    MasterProgram,
    PackingColumn,
)
from trimtab.assignor.analysis.certificate.pricing import Knapsacks, PricedSet
from trimtab.assignor.model import FloatArray, IntArray

COARSE_STEPS: Final = 600
FINE_STEPS: Final = 10_000
"""Steps of a capacity, to find columns and for the bound: 0.01 % of a consumer are given away."""

COMPLETENESS_TOLERANCE: Final = 1e-4
"""Relative distance to the linear program's value at which the bound is as good as complete."""

DUAL_SMOOTHING: Final = 0.7
"""Share of the mean so far in the worths that are asked."""

COARSE_TIME_SHARE: Final = 0.5
INTEGER_TIME_SHARE: Final = 0.2
"""Shares of the time: for coarse rounds at most, and for whole columns at least."""

SecondsLeft: TypeAlias = Callable[[], float]
"""Tells how many seconds are left."""


@dataclass(frozen=True, slots=True)
class CostBounds:
    """A bound that no packing undercuts, the least cost of a packing found, and if all was said."""

    lower_bound: float
    best_known: float
    complete: bool


def search_bounds(
    kinds: ConsumerKinds, prices: MasterPrices, starts: Iterable[PackingColumn], left: SecondsLeft
) -> CostBounds:
    """Bound the least cost of a packing from below, and look for one; `starts` are columns."""
    master = MasterProgram(kinds, prices)
    master.add_columns(starts)
    seconds = left()
    coarse = _CoarsePricing(kinds, prices)
    guess = np.minimum(kinds.weight / kinds.capacity.max(), 1.0) * prices.per_consumer
    _generate_columns(master, coarse, guess, lambda: left() - (1 - COARSE_TIME_SHARE) * seconds)
    fine = _FinePricing(kinds, prices)
    complete = _generate_columns(master, fine, None, lambda: left() - INTEGER_TIME_SHARE * seconds)
    return CostBounds(fine.lower_bound, master.solve_integer(left()), complete)


def _generate_columns(
    master: MasterProgram,
    price_sets: Callable[[DualPrices], Sequence[PricedSet] | None],
    mean: FloatArray | None,
    left: SecondsLeft,
) -> bool:
    """Add columns until none is missing, or `price_sets` says that it is enough; tell if so."""
    duals = master.solve_relaxation(left())
    while duals is not None and left() > 0:
        worth = (
            duals.worth
            if mean is None
            else DUAL_SMOOTHING * mean + (1 - DUAL_SMOOTHING) * duals.worth
        )
        sets = price_sets(replace(duals, worth=worth))
        if sets is None:
            return True
        columns = (PackingColumn(found.kind, found.items) for found in sets)
        lacking = [c for c in columns if master.would_improve(c, duals)]
        if master.add_columns(lacking):
            mean, duals = worth, master.solve_relaxation(left())
        elif mean is None:
            return True
        else:
            mean = None
    return False


class _CoarsePricing:
    """Sets that truly fit: the best of each kind, and more of kinds that are used repeatedly."""

    def __init__(self, kinds: ConsumerKinds, prices: MasterPrices) -> None:
        self._knapsacks = Knapsacks(kinds, COARSE_STEPS, relaxed=False)
        self._repeated: list[int] = np.flatnonzero(kinds.max_uses > 1).tolist()
        self._price = prices.per_consumer

    def __call__(self, at: DualPrices) -> Sequence[PricedSet]:
        return [*self._knapsacks.best_sets(at.worth), *self._disjoint_sets(at)]

    def _disjoint_sets(self, at: DualPrices) -> Iterator[PricedSet]:
        for kind in self._repeated:
            least = self._price + float(at.kind_price[kind]) + at.consumer_count_price
            yield from self._knapsacks.disjoint_sets(kind, at.worth, least)


class _FinePricing:
    """The best set of each kind, relaxed, and the best bound that these have given."""

    def __init__(self, kinds: ConsumerKinds, prices: MasterPrices) -> None:
        self._knapsacks = Knapsacks(kinds, FINE_STEPS, relaxed=True)
        self._kinds, self._prices = kinds, prices
        self.lower_bound = 0.0

    def __call__(self, at: DualPrices) -> Sequence[PricedSet] | None:
        sets = list(self._knapsacks.best_sets(at.worth))
        earned = np.array([found.profit for found in sets])
        self.lower_bound = max(
            self.lower_bound, lagrangian_bound(self._kinds, self._prices, at, earned)
        )
        return None if self.lower_bound >= at.objective * (1 - COMPLETENESS_TOLERANCE) else sets


def lagrangian_bound(
    kinds: ConsumerKinds, prices: MasterPrices, duals: DualPrices, earned: FloatArray
) -> float:
    """Return what no packing costs less than, at these worths; `earned` (K,) is from relaxed sets.

    The price of the limit on the count is chosen anew: at least what one to be added could earn
    beyond its cost, as there may be any number of those.
    """
    beyond = earned - prices.per_consumer
    endless = np.isinf(kinds.max_uses)
    least = float(np.maximum(beyond[endless], 0.0).max(initial=0.0))
    counted, times = beyond[~endless], kinds.max_uses[~endless]
    tried = np.append(counted[counted > least], (least, max(least, duals.consumer_count_price)))
    excess = np.maximum(counted - tried[:, None], 0.0) @ times
    return float((duals.worth.sum() - prices.max_consumers * tried - excess).max())


def columns_of_packing(kinds: ConsumerKinds, bins: IntArray) -> list[PackingColumn]:
    """Return the columns of a packing; a set that does not fit is left out."""
    members = len(kinds.kind_of_member) - 1
    found: list[PackingColumn] = []
    for number in np.unique(bins[bins >= 0]).tolist():
        column = PackingColumn(
            int(kinds.kind_of_member[min(number, members)]),
            np.flatnonzero(bins == number).astype(np.int32),
        )
        if column.kind >= 0 and kinds.can_hold(*column):
            found.append(column)
    return found
