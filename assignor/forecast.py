"""How much write speeds change from one measurement to the next: what the next tick may bring.

The variance of a partition's change is exponentially weighted, and half of it is pooled with the
others': one partition alone says little. Trends, levels and the variance of several ticks were
tried, too, and won nothing that lasts (`benchmarks/bench_lookahead.py`), so no change is expected,
only its size.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from trimtab.assignor.model import BoolArray, FloatArray, RateForecast

VARIANCE_DECAY: Final = 0.9
"""Share of the variance that a new change leaves."""

POOLED_SHARE: Final = 0.5
"""Share of the variance that is the mean of all partitions."""


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no one truth of equality
class RateChangeStats:
    """What was seen of P partitions so far; NaN where nothing was."""

    last_rate: FloatArray  # (P,) bytes/s
    variance: FloatArray  # (P,) of the change between two measurements, (bytes/s)²

    @classmethod
    def empty(cls, partitions: int) -> Self:
        """Return the memory of having seen nothing."""
        nothing = np.full(partitions, np.nan)
        return cls(nothing, nothing)

    def with_measurement(self, write_rates: FloatArray) -> "RateChangeStats":
        """Return the memory with one more measurement, shape (P,); NaN where it is away."""
        square = (write_rates - self.last_rate) ** 2
        known = square[~np.isnan(square)]
        before = np.where(
            np.isnan(self.variance), known.mean() if known.size else np.nan, self.variance
        )
        after = VARIANCE_DECAY * before + (1 - VARIANCE_DECAY) * square
        return RateChangeStats(
            last_rate=np.where(np.isnan(write_rates), self.last_rate, write_rates),
            variance=np.where(np.isnan(after), self.variance, after),
        )

    def forecast_next(self, write_rates: FloatArray) -> RateForecast:
        """Return what the next measurement may bring; `write_rates` (P,) are the present ones."""
        known = self.variance[~np.isnan(self.variance)]
        if not known.size or not len(write_rates):
            return constant_forecast(write_rates)
        pooled = float(known.mean())
        own = np.where(np.isnan(self.variance), pooled, self.variance)
        return RateForecast(
            np.zeros_like(write_rates), (1 - POOLED_SHARE) * own + POOLED_SHARE * pooled
        )


def constant_forecast(write_rates: FloatArray) -> RateForecast:
    """Return the outlook of speeds (P,) that were never seen to change: that they stay."""
    return RateForecast(np.zeros_like(write_rates), np.zeros_like(write_rates))


def select_forecast(forecast: RateForecast, selected: BoolArray) -> RateForecast:
    """Return the outlook of some of the partitions."""
    return RateForecast(forecast.drift[selected], forecast.variance[selected])
