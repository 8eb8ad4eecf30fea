"""Column generation: the linear program and the knapsacks in turn, until no column improves it.

1. The bound holds at any time: for any worth of the partitions, their sum less what all consumers
   could earn beyond their cost, by relaxed knapsacks, is below every packing (Lagrange; Farley). A
   time limit weakens the bound but never breaks it.
2. Coarse rounds round weights up, so every column fits. Fine rounds round down; they give the bound
   and the missing columns.
3. `left()` returns the remaining seconds and is called between rounds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from trimtab.assignor.analysis.optimality.consumer_kinds import ConsumerKinds
from trimtab.assignor.analysis.optimality.master_program import (
    DualPrices,
    MasterPrices,
    MasterProgram,
    PackingColumn,
)
from trimtab.assignor.analysis.optimality.pricing import Knapsacks, PricedSet
from trimtab.assignor.model import FloatArray, IntArray

COARSE_STEPS: Final = 600
# Steps of a capacity, for columns and for the bound, which loses 0.01 % of a consumer.
FINE_STEPS: Final = 10_000

# Relative distance to the linear program's value at which the bound counts as complete.
COMPLETENESS_TOLERANCE: Final = 1e-4

DUAL_SMOOTHING: Final = 0.7  # weight of the earlier mean in the smoothed duals

COARSE_TIME_SHARE: Final = 0.5
# Fractions of the time: maximum for coarse rounds, minimum for the integer program.
INTEGER_TIME_SHARE: Final = 0.2

SecondsLeft: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True)
class CostBounds:
    """A lower bound, the least cost found, and whether the search was complete."""

    lower_bound: float
    best_known: float
    complete: bool


def search_bounds(
    kinds: ConsumerKinds, prices: MasterPrices, starts: Iterable[PackingColumn], left: SecondsLeft
) -> CostBounds:
    """Return bounds on the least cost of a packing, searching from the columns `starts`."""
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
    """Add columns until none is missing or `price_sets` returns None; return whether that came in time."""
    # Duals jump between rounds, so a moving mean is priced; if that finds no column, the duals are.
    duals = master.solve_relaxation(left())
    while duals is not None and left() > 0:
        worth = duals.worth if mean is None else DUAL_SMOOTHING * mean + (1 - DUAL_SMOOTHING) * duals.worth
        sets = price_sets(replace(duals, worth=worth))
        if sets is None:
            return True
        columns = (PackingColumn(found.kind, found.items) for found in sets)
        missing = [c for c in columns if master.would_improve(c, duals)]
        if master.add_columns(missing):
            mean = worth
            duals = master.solve_relaxation(left())
        elif mean is None:
            return True
        else:
            mean = None
    return False


class _CoarsePricing:
    """Prices sets that fit: the best of each kind, and disjoint ones of repeated kinds."""

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
    """Prices the best relaxed set of each kind, and keeps the best bound."""

    def __init__(self, kinds: ConsumerKinds, prices: MasterPrices) -> None:
        self._knapsacks = Knapsacks(kinds, FINE_STEPS, relaxed=True)
        self._kinds = kinds
        self._prices = prices
        self.lower_bound = 0.0

    def __call__(self, at: DualPrices) -> Sequence[PricedSet] | None:
        sets = list(self._knapsacks.best_sets(at.worth))
        earned = np.array([found.profit for found in sets])
        self.lower_bound = max(self.lower_bound, lagrangian_bound(self._kinds, self._prices, at, earned))
        return None if self.lower_bound >= at.objective * (1 - COMPLETENESS_TOLERANCE) else sets


def lagrangian_bound(
    kinds: ConsumerKinds, prices: MasterPrices, duals: DualPrices, earned: FloatArray
) -> float:
    """Return the lower bound at these duals; `earned` (K,) is the profit of relaxed sets."""
    # The price of the limit on the consumer count is chosen anew. It is at least the excess profit
    # of an added consumer, since their number is unlimited.
    beyond = earned - prices.per_consumer
    unlimited = np.isinf(kinds.max_uses)
    least = float(np.maximum(beyond[unlimited], 0.0).max(initial=0.0))
    counted = beyond[~unlimited]
    times = kinds.max_uses[~unlimited]
    tried = np.append(counted[counted > least], (least, max(least, duals.consumer_count_price)))
    excess = np.maximum(counted - tried[:, None], 0.0) @ times
    return float((duals.worth.sum() - prices.max_consumers * tried - excess).max())


def columns_of_packing(kinds: ConsumerKinds, bins: IntArray) -> list[PackingColumn]:
    """Return the columns of a packing, without sets that do not fit."""
    members = len(kinds.kind_of_member) - 1
    columns: list[PackingColumn] = []
    for number in np.unique(bins[bins >= 0]).tolist():
        kind = int(kinds.kind_of_member[min(number, members)])
        items = np.flatnonzero(bins == number).astype(np.int32)
        if kind >= 0 and kinds.can_hold(kind, items):
            columns.append(PackingColumn(kind, items))
    return columns
