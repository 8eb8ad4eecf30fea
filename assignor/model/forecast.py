"""Forecast of the change of write rates from one measurement to the next.

The expected change is 0; its variance is an exponentially weighted mean of the partition's squared
changes, averaged with the mean of all partitions.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from trimtab.assignor.model import BoolArray, FloatArray, RateForecast

VARIANCE_DECAY: Final = 0.9  # weight of the earlier variance when a change is added

POOLED_SHARE: Final = 0.5  # weight of the mean of all partitions in a forecast's variance


@dataclass(frozen=True, slots=True, eq=False)  # == of arrays is an array
class RateChangeStats:
    """Last write rate and variance of P partitions; NaN without a measurement."""

    last_rate: FloatArray  # (P,) bytes/s
    variance: FloatArray  # (P,) of the change between two measurements, (bytes/s)²

    @classmethod
    def empty(cls, partitions: int) -> Self:
        """Return the statistics before any measurement."""
        unknown = np.full(partitions, np.nan)
        return cls(unknown, unknown)

    def with_measurement(self, write_rates: FloatArray) -> "RateChangeStats":
        """Return the statistics with one more measurement (P,); NaN for an absent partition."""
        square = (write_rates - self.last_rate) ** 2
        known = square[~np.isnan(square)]
        before = np.where(np.isnan(self.variance), known.mean() if known.size else np.nan, self.variance)
        after = VARIANCE_DECAY * before + (1 - VARIANCE_DECAY) * square
        return RateChangeStats(
            last_rate=np.where(np.isnan(write_rates), self.last_rate, write_rates),
            variance=np.where(np.isnan(after), self.variance, after),
        )

    def forecast_next(self, write_rates: FloatArray) -> RateForecast:
        """Return the forecast for the next measurement; `write_rates` (P,) are the current ones."""
        known = self.variance[~np.isnan(self.variance)]
        if not known.size or not len(write_rates):
            return constant_forecast(write_rates)
        pooled = float(known.mean())  # one partition has too few samples for its own variance
        own = np.where(np.isnan(self.variance), pooled, self.variance)
        # Trends, levels and the variance of several ticks gave no lasting gain (bench_lookahead.py).
        return RateForecast(np.zeros_like(write_rates), (1 - POOLED_SHARE) * own + POOLED_SHARE * pooled)


def constant_forecast(write_rates: FloatArray) -> RateForecast:
    """Return the forecast that write rates (P,) stay as they are."""
    return RateForecast(np.zeros_like(write_rates), np.zeros_like(write_rates))


def select_forecast(forecast: RateForecast, selected: BoolArray) -> RateForecast:
    """Return the forecast of the selected partitions."""
    return RateForecast(forecast.drift[selected], forecast.variance[selected])
