"""Forecasts the chance that a consumer is above its capacity at the next measurement. No I/O.

1. A consumer's change until then has a variance: that of its partitions (`assignor.forecast`), and that of
   the changes that all partitions share, such as a wave, in proportion to its load.
2. How often a change is larger than so many deviations is counted in the last measurements, of consumers that
   were about as full: the changes of partitions are neither normal nor independent, and high loads fall
   more often than they rise. The normal distribution counts as `PRIOR_CHANGES` changes, until there are more.
3. Older changes count less: half after `HALF_LIFE` measurements.
4. The capacity is normal about its mean, whatever the load does. A change counts with the chance that the
   capacity is below the load that it leads to; in the normal part the two variances add up.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from trimtab.assignor.forecast import VARIANCE_DECAY, RateChangeStats
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray
from trimtab.assignor.packing import sum_loads

PRIOR_CHANGES: Final = 20.0
HALF_LIFE: Final = 60.0  # measurements: half an hour at a window of 30 s
MAX_CHANGES: Final = 5_000
ALIKE_FILL: Final = 0.1  # standard deviation of a fill that counts as alike
LEAST_DEVIATION: Final = 1e-12  # relative; a load or a capacity that is constant
TAIL_END: Final = 8.0  # deviations; the tail beyond is below 1e-15
TAIL_STEP: Final = 0.002


@dataclass(frozen=True, slots=True, eq=False)
class ChangeHistory:
    """Changes of consumers in deviations, their fills before, and how much each counts; oldest first."""

    changes: FloatArray = field(default_factory=lambda: np.empty(0))
    fills: FloatArray = field(default_factory=lambda: np.empty(0))
    weights: FloatArray = field(default_factory=lambda: np.empty(0))

    def add_changes(self, changes: FloatArray, fills: FloatArray) -> "ChangeHistory":
        """Return the history with those of one more measurement."""
        aged = self.weights * 0.5 ** (1 / HALF_LIFE)
        return ChangeHistory(
            np.append(self.changes, changes)[-MAX_CHANGES:],
            np.append(self.fills, fills)[-MAX_CHANGES:],
            np.append(aged, np.ones(len(changes)))[-MAX_CHANGES:],
        )

    def estimate_exceeding(self, limits: FloatArray, blurs: FloatArray, fills: FloatArray) -> FloatArray:
        """Return the chance (M,) that the change of a consumer so full is larger than its limit.

        The limits are normal with these means and standard deviations, all in deviations of the change.
        """
        seen, count = np.zeros_like(limits), np.zeros_like(limits)
        for number, (limit, blur, fill) in enumerate(zip(limits, blurs, fills, strict=True)):
            counts = self.weights * np.exp(-0.5 * ((self.fills - fill) / ALIKE_FILL) ** 2)
            larger = look_up_normal_tail((limit - self.changes) / max(blur, LEAST_DEVIATION))
            seen[number], count[number] = counts @ larger, counts.sum()
        normal = compute_normal_tail(limits / np.sqrt(1 + blurs**2))
        chance: FloatArray = (seen + PRIOR_CHANGES * normal) / (count + PRIOR_CHANGES)
        return chance


def compute_normal_tail(deviations: FloatArray) -> FloatArray:
    """Return the chance that a standard normal variable is larger."""
    return np.array([0.5 * math.erfc(x / math.sqrt(2)) for x in deviations.tolist()])


NORMAL_TAIL: Final = compute_normal_tail(np.arange(-TAIL_END, TAIL_END + TAIL_STEP, TAIL_STEP))


def look_up_normal_tail(deviations: FloatArray) -> FloatArray:
    """Return `compute_normal_tail` to three decimals, in a tenth of its time: a history has many changes."""
    places = np.clip((deviations + TAIL_END) / TAIL_STEP, 0, len(NORMAL_TAIL) - 1)
    tail: FloatArray = NORMAL_TAIL[np.rint(places).astype(np.intp)]
    return tail


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerDeviations:
    """Owners (P,), write rates (P,), and the consumers' deviations (M,) and fills (M,)."""

    owner: IntArray
    rates: FloatArray
    deviations: FloatArray
    fills: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class OverloadForecaster:
    """Statistics of P partitions and of the consumers' changes until the last measurement."""

    partitions: RateChangeStats
    shared_variance: float = 0.0  # of the relative change of the group's sum beyond the partitions' own
    history: ChangeHistory = field(default_factory=ChangeHistory)
    last: ConsumerDeviations | None = None

    def add_measurement(
        self,
        rates: FloatArray,
        owner: IntArray,
        capacities: FloatArray,
        capacity_variance: FloatArray | float = 0.0,
    ) -> "tuple[FloatArray, OverloadForecaster]":
        """Return the chance (M,) that a consumer exceeds its capacity at the next measurement.

        `rates` (P,) are NaN for partitions that are absent or unknown; `owner` (P,) are numbers of consumers.
        `capacities` (M,) are means.
        """
        history = self.history
        if self.last is not None:
            history = history.add_changes(*_measure_changes(self.last, rates))
        shared = self._update_shared_variance(rates)
        partitions = self.partitions.with_measurement(rates)
        variance = partitions.forecast_next(rates).variance
        known = np.nan_to_num(rates, nan=0.0)
        load = sum_loads(owner, known, len(capacities))
        own = sum_loads(owner, np.where(np.isnan(rates), 0.0, variance), len(capacities))
        deviations = np.sqrt(own + shared * load**2)
        divisor = np.maximum(deviations, LEAST_DEVIATION * capacities)
        several = sum_loads(owner, (~np.isnan(rates)).astype(np.float64), len(capacities)) > 1
        room, blur = (capacities - load) / divisor, np.sqrt(capacity_variance) / divisor
        chances = np.where(several, history.estimate_exceeding(room, blur, load / capacities), np.nan)
        last = ConsumerDeviations(owner, rates, np.where(several, deviations, 0.0), load / capacities)
        return chances, OverloadForecaster(partitions, shared, history, last)

    def select_partitions(self, source: IntArray) -> "OverloadForecaster":
        """Reorder the partitions: each (P,) was at this place, UNASSIGNED if it is new."""
        rates, variance = self.partitions.last_rate, self.partitions.variance
        partitions = RateChangeStats(np.append(rates, np.nan)[source], np.append(variance, np.nan)[source])
        if self.last is None:
            return replace(self, partitions=partitions)
        owner = np.append(self.last.owner, UNASSIGNED)[source].astype(np.int32)
        last = replace(self.last, owner=owner, rates=np.append(self.last.rates, np.nan)[source])
        return replace(self, partitions=partitions, last=last)

    def get_own_variance(self) -> FloatArray:
        """Return the variance (P,) of the partitions' next changes; 0 for those that are absent."""
        if self.last is None:
            return np.zeros_like(self.partitions.variance)
        variance = self.partitions.forecast_next(self.last.rates).variance
        return np.where(np.isnan(self.last.rates), 0.0, variance)

    def _update_shared_variance(self, rates: FloatArray) -> float:
        if self.last is None:
            return self.shared_variance
        before = self.last.rates
        both = ~np.isnan(before) & ~np.isnan(rates)
        total = float(before[both].sum())
        if total <= 0:
            return self.shared_variance
        own = float(self.partitions.forecast_next(before).variance[both].sum())
        excess = (float((rates - before)[both].sum()) ** 2 - own) / total**2
        return max(0.0, VARIANCE_DECAY * self.shared_variance + (1 - VARIANCE_DECAY) * excess)


def _measure_changes(last: ConsumerDeviations, rates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the changes of loads in deviations, and fills, of the consumers with a deviation."""
    change = np.nan_to_num(rates - last.rates, nan=0.0)
    moved = sum_loads(last.owner, change, len(last.deviations))
    known = last.deviations > 0
    return moved[known] / last.deviations[known], last.fills[known]
