"""Forecasts write rates from those of earlier seasons, as long as that proves better than "as now".

1. The change of a partition from now on is the mean of its changes from the same time of up to seven earlier
   seasons. That of the group is the factor by which its sum changed then, which noise of partitions hardly
   touches.
2. Every forecast is scored once its time has come, beside the rate that was there when it was made: "as now".
   A record covers the last season, and counts when it is that long. With another horizon, or with rates of
   earlier ticks, it is made again: each forecast from the rates before its time alone.
3. A partition's forecast is used while the squared errors of its record are below `GATE` of those of "as
   now"; else the group's, by its own record; else the rate as it is now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from trimtab.assignor.model import BoolArray, FloatArray, IntArray

SEASONS: Final = 7  # a week of days
# Squared error ÷ that of "as now", which on a random walk is above 1, but for chance: with 0.8 chance made
# late traffic of fast walks 1.7 % more.
GATE: Final = 0.75

History: TypeAlias = FloatArray  # (N, P) bytes/s tick by tick, NaN for an absent partition


class ForecastErrors(NamedTuple):
    """Squared errors of a record, of P partitions or of the group, which is the last."""

    forecast: FloatArray  # (P + 1,)
    as_now: FloatArray  # (P + 1,)

    def find_better(self) -> BoolArray:
        """Return where the forecast has proved better, (P + 1,)."""
        better: BoolArray = self.forecast < GATE * self.as_now
        return better

    def compute_group_ratio(self) -> float | None:
        """Return the group's squared errors ÷ those of "as now"; None where "as now" made none."""
        return float(self.forecast[-1] / self.as_now[-1]) if self.as_now[-1] > 0 else None


@dataclass(frozen=True, slots=True, eq=False)
class SeasonalForecast:
    """Forecast of P partitions, and which of them have proved better than "as now"."""

    rates: FloatArray  # (P,) bytes/s
    partitions_open: BoolArray  # (P,)
    group_open: bool
    error_ratio: float | None  # squared errors of the group's record ÷ those of "as now"; None without one


class SeasonalForecaster:
    """Rates and errors of the last seasons.

    A season has `period` ticks; a forecast is for `horizon` ticks later.
    """

    def __init__(self, period: int, horizon: int) -> None:
        self._period = period
        self._horizon = horizon
        self._rates: list[FloatArray] = []
        self._made: list[FloatArray] = []  # (P + 1,) forecasts before the gate, and of the sum
        self._errors: list[ForecastErrors] = []

    def add_rates(self, rates: FloatArray) -> SeasonalForecast:
        """Add the write rates (P,) of a tick, NaN if absent; return the forecast."""
        self._forecast_next(rates)
        return self._gate_last()

    def forecast_peak(self, ticks: int) -> float:
        """Return the highest sum of the group, in bytes/s, of the ticks after the last one, at least one.

        The sums of as many ticks before it count, too, each multiplied by the season's factor since then: a
        fall that was not forecast may end. Call it after a tick. Only the horizon's forecast has a record.
        """
        until = max(1, min(ticks, self._period))
        rise = max(_forecast_factor(self._rates, self._period, ahead) for ahead in range(1, until + 1))
        earlier = (self._rates[:-back] for back in range(1, min(until, self.ticks - 1) + 1))
        sums = [
            float(np.nansum(rates[-1])) * _forecast_factor(rates, self._period, back)
            for back, rates in enumerate(earlier, start=1)
        ]
        return max(float(np.nansum(self._rates[-1])), *sums) * rise

    def set_horizon(self, horizon: int) -> SeasonalForecast | None:
        """Forecast for so many ticks later; return the last tick's forecast, None before the first."""
        self._horizon = horizon
        return self._forecast_again(self._rates) if self._rates else None

    def prepend_rates(self, earlier: Sequence[FloatArray]) -> SeasonalForecast:
        """Put the rates (P,) of earlier ticks before the first one; return the last tick's forecast."""
        return self._forecast_again([*earlier, *self._rates])

    def list_last_rates(self, count: int) -> list[FloatArray]:
        """Return the rates (P,) of up to so many ticks, the newest last."""
        return self._rates[-count:]

    @property
    def ticks(self) -> int:
        """Number of ticks whose rates are kept."""
        return len(self._rates)

    def select_partitions(self, source: IntArray) -> None:
        """Reorder the partitions: each (P,) was at this place, UNASSIGNED if it has no history."""
        self._rates = [_select(row, source) for row in self._rates]
        self._made = [_select_with_sum(row, source) for row in self._made]
        pairs = ((_select_with_sum(row, source) for row in errors) for errors in self._errors)
        self._errors = [ForecastErrors(*pair) for pair in pairs]

    def _forecast_next(self, rates: FloatArray) -> None:
        self._rates = [*self._rates[-(SEASONS * self._period + self._horizon) :], rates]
        self._score(rates)
        seasonal = _forecast_partitions(self._rates, self._period, self._horizon)
        factor = _forecast_factor(self._rates, self._period, self._horizon)
        self._made = [*self._made[-self._horizon :], np.append(seasonal, np.nansum(rates) * factor)]

    def _forecast_again(self, rates: Sequence[FloatArray]) -> SeasonalForecast:
        begin = max(0, len(rates) - self._period - self._horizon)  # of what a record needs
        self._rates, self._made, self._errors = list(rates[:begin]), [], []
        for row in rates[begin:]:
            self._forecast_next(row)
        return self._gate_last()

    def _gate_last(self) -> SeasonalForecast:
        """Return the last forecast as far as it has proved better."""
        rates, seasonal, errors = self._rates[-1], self._made[-1][:-1], self._sum_errors()
        better = np.zeros(len(rates) + 1, dtype=np.bool_) if errors is None else errors.find_better()
        factor = _forecast_factor(self._rates, self._period, self._horizon)
        by_group = rates * factor if better[-1] else rates
        forecast: FloatArray = np.where(better[:-1], seasonal, by_group)
        ratio = None if errors is None else errors.compute_group_ratio()
        return SeasonalForecast(forecast, better[:-1], bool(better[-1]), ratio)

    def _score(self, rates: FloatArray) -> None:
        if len(self._made) < self._horizon or len(self._rates) <= self._period + self._horizon:
            return  # without an earlier season the forecast was "as now"
        before = self._rates[-1 - self._horizon]
        now, then = (np.append(each, np.nansum(each)) for each in (rates, before))
        error = ForecastErrors((self._made[-self._horizon] - now) ** 2, (then - now) ** 2)
        self._errors = [*self._errors[1 - self._period :], error]

    def _sum_errors(self) -> ForecastErrors | None:
        if len(self._errors) < self._period:
            return None
        return ForecastErrors(*(np.nansum(each, axis=0) for each in zip(*self._errors, strict=True)))


def _select(row: FloatArray, source: IntArray) -> FloatArray:
    return np.append(row, np.nan)[source]  # UNASSIGNED (-1) picks the last entry


def _select_with_sum(row: FloatArray, source: IntArray) -> FloatArray:
    return np.append(_select(row[:-1], source), row[-1])


def _list_seasons(
    history: Sequence[FloatArray], period: int, horizon: int
) -> list[tuple[FloatArray, FloatArray]]:
    """Return the rates at this time of earlier seasons, and those `horizon` ticks later."""
    begins = [len(history) - 1 - n * period for n in range(1, SEASONS + 1)]
    return [(history[b], history[b + horizon]) for b in begins if b >= 0]


def _forecast_partitions(history: Sequence[FloatArray], period: int, horizon: int) -> FloatArray:
    """Return the rates (P,) `horizon` ticks from now by each partition's own changes."""
    changes = np.array([after - before for before, after in _list_seasons(history, period, horizon)])
    if not len(changes):
        return history[-1]
    known = (~np.isnan(changes)).sum(axis=0)
    mean: FloatArray = np.nan_to_num(changes, nan=0.0).sum(axis=0) / np.maximum(known, 1)
    return np.maximum(history[-1] + mean, 0.0)


def _forecast_factor(history: Sequence[FloatArray], period: int, horizon: int) -> float:
    """Return the factor by which the group's sum changes."""
    seasons = _list_seasons(history, period, horizon)
    before = sum(float(np.nansum(one)) for one, _ in seasons)
    after = sum(float(np.nansum(np.where(np.isnan(one), np.nan, two))) for one, two in seasons)
    return after / before if before > 0 else 1.0
