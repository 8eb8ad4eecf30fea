"""Forecasts a group's load from its earlier seasons, iteration by iteration. No I/O.

1. A season has at most `MAX_BINS` bins, none shorter than an iteration. A bin's write rate is the mean of its
   iterations; without a measurement it is that of the bin before.
2. `SeasonalForecaster` forecasts from bins how write rates change until a replica that starts now has
   joined, at least a bin from now. The measured rate is that of half a window ago: so long is added.
3. What a partition requires changes by as much, until the bin after: a rise may count up to a bin early. Of a
   fall counts the share of the horizon that passes until a replica that starts in the next iteration has
   joined, as if it fell evenly, and nothing that the load has fallen already.
4. In a group of more than `MAX_PARTITIONS` the forecast is that of the group's sum for all partitions:
   a week of each one's bins would take hundreds of megabytes.
5. Bins are numbered by their time since the epoch. A sidecar that stands by measures, too. One that starts
   gets the bins that the one before has recorded (`season_record`), and scores what it would have forecast
   from them; a gap between is like one in the measurement. Its own bins count before recorded ones.
6. Bins are of bytes as written, since what records weigh may change within a season (`record_cost`). What is
   forecast of a partition weighs as its bytes do now.
7. While the forecast of the group's sum is used, it also tells by how much the load may rise beyond it within
   `look_ahead` (`recommendation` skips a window that guards against that). The load may rise to what it still
   is; to the sum of each bin of that time, as the season has changed it since: a fall that was not forecast
   may end; and by the catch-up of a backlog that has ended. It is unknown for `look_ahead` and two bins
   after a start or an iteration without any rate, and where records weigh, since the sum is of bytes alone.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from trimtab.assignor.model import UNASSIGNED, FloatArray, TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.units import format_count, format_rate
from trimtab.sidecar.measurement.seasonal_forecast import GATE, SEASONS, SeasonalForecast, SeasonalForecaster

MAX_BINS: Final = 288  # five minutes of a day
MAX_PARTITIONS: Final = 2_000  # 40 MB for a week of days
CHUNK_BINS: Final = 24  # recorded together: fewer records to read at a start
DEFAULT_STARTUP_S: Final = 20.0  # until a replica was seen to join

Column: TypeAlias = TopicPartition | None  # None: the sum of a large group
Loads: TypeAlias = Mapping[TopicPartition, PartitionLoad]
ByteWeights: TypeAlias = Mapping[TopicPartition, float]  # partitions that are absent have 1
ALL_EQUAL: Final[ByteWeights] = MappingProxyType({})


class _RateChange(NamedTuple):
    """A change that is forecast, and the rate after it, in bytes/s as written."""

    by: float
    to: float


@dataclass(frozen=True, slots=True, eq=False)
class SeasonChunk:
    """Write rates of consecutive bins."""

    bin_s: float
    first: int  # number of the first bin
    columns: tuple[Column, ...]
    rates: FloatArray  # (bins, columns) bytes/s as written, NaN for an absent partition

    def list_numbers(self) -> range:
        """Return the numbers of its bins."""
        return range(self.first, self.first + len(self.rates))


@dataclass(frozen=True, slots=True)
class ForecastStatus:
    """The forecast in force, and its record over the last season."""

    horizon: float  # seconds from now; of a fall only those that count (rule 3)
    change: float  # bytes/s by which it changes what all partitions require
    by_partition: int  # partitions that follow their own record
    by_group: bool  # whether the others follow that of the group's sum
    error_ratio: float | None  # squared errors of the group's record ÷ those of "as now"; None without one
    # Share by which the load may rise beyond the forecast in the time looked ahead; None: unknown.
    rise: float | None = None

    @property
    def is_used(self) -> bool:
        """Whether any partition is forecast to change."""
        return self.by_group or self.by_partition > 0

    def format_line(self) -> str:
        """Return the forecast, and why it is used or not, as one sentence."""
        if self.error_ratio is None and not self.is_used:
            return "Forecast: none until two seasons have been measured"
        record = "" if self.error_ratio is None else f"{self.error_ratio:.2f} of "
        proof = f"over the last season its squared errors are {record}the naive forecast's"
        if not self.is_used:
            return f"Forecast: not used; {proof}, it is used below {GATE:g}"
        sign = "-" if self.change < 0 else "+"
        beyond = "" if self.rise is None else f", at most {self.rise:.0%} more while a scale-down would wait"
        what = f"{sign}{format_rate(abs(self.change))} in {self.horizon:.0f} s{beyond}"
        which = (
            f", {format_count(self.by_partition, 'partition')} by their own record"
            if self.by_partition
            else ""
        )
        return f"Forecast: {what}; {proof}{which}"


class LoadForecaster:
    """Bins of the last seasons, and the changes that are forecast from them."""

    def __init__(self, season: float, interval: float, lag: float = 0.0, look_ahead: float = 0.0) -> None:
        """Take seconds: season, between iterations, lag of a measured rate, look-ahead of rule 7."""
        period = max(1, int(season / max(interval, season / MAX_BINS)))
        self._bin = season / period
        self._period = period
        self._interval = interval
        self._lag = lag
        self._look_ahead = look_ahead
        self._horizon = 1  # bins
        self._due_share = 1.0  # of a fall (rule 3)
        self._forecaster = SeasonalForecaster(period, self._horizon)
        self._phase: float | None = None  # by which a bin begins later than its number says
        self._filling = 0  # number of the bin that fills
        self._sums: dict[TopicPartition, tuple[float, int]] = {}  # of the bin that fills
        self._last_seen: dict[TopicPartition, int] = {}  # bin
        self._columns: tuple[Column, ...] = ()
        self._rates: FloatArray = np.empty(0)  # (columns,) of the last bin
        self._changes: dict[TopicPartition, _RateChange] = {}
        self._forecast: SeasonalForecast | None = None
        self._peak: float | None = None  # bytes/s as written, while the group's forecast is used
        self._measured_since = math.inf
        self._catch_ups: tuple[tuple[float, float], ...] = ()  # time, bytes/s beyond the write rates

    def forecast_load(
        self, now: float, loads: Loads, startup: float | None, byte_weights: ByteWeights = ALL_EQUAL
    ) -> tuple[Loads, ForecastStatus]:
        """Add an iteration's loads; return what they require when replicas that start now have joined.

        `now` is in seconds since the epoch, but passes steadily; `startup` is how long replicas take,
        `byte_weights` what a written byte weighs in `loads`.
        """
        self._follow_startup(startup)
        self._collect(now, loads, byte_weights)
        required = {p: self._forecast_partition(p, load, byte_weights) for p, load in loads.items()}
        change = math.fsum((required[p].weight or 0.0) - (loads[p].weight or 0.0) for p in loads)
        rise = self._forecast_rise(now, loads, change) if _is_unweighted(byte_weights) else None
        return required, replace(self._build_status(change), rise=rise)

    def build_chunk(self) -> SeasonChunk | None:
        """Return the last bin and those before it, from a multiple of `CHUNK_BINS`; None before the first."""
        rates = self._forecaster.list_last_rates((self._filling - 1) % CHUNK_BINS + 1)
        if not rates:
            return None
        return SeasonChunk(self._bin, self._filling - len(rates), self._columns, np.array(rates))

    @property
    def bin_s(self) -> float:
        """Length of a bin in seconds."""
        return self._bin

    def restore(self, chunks: Iterable[SeasonChunk]) -> int:
        """Put recorded bins, as long as its own, before those of this process (rule 5); return how many."""
        until = self._filling - self._forecaster.ticks
        numbers = range(self._filling - SEASONS * self._period, until)
        recorded = [chunk for chunk in chunks if any(n in numbers for n in chunk.list_numbers())]
        if not recorded:
            return 0
        for chunk in recorded:
            last = min(chunk.list_numbers()[-1], until - 1)
            seen = ((p, self._last_seen.get(p, last)) for p in _list_present(chunk))
            self._last_seen |= {p: max(n, last) for p, n in seen}
        self._align()
        rates, count = _join_chunks(recorded, self._columns, numbers)
        if not self._forecaster.ticks:
            self._rates = rates[-1]
        self._follow_forecast(self._forecaster.prepend_rates(list(rates)))
        return count

    def _follow_startup(self, startup: float | None) -> None:
        ahead = (DEFAULT_STARTUP_S if startup is None else startup) + self._lag
        needed = max(1, min(self._period, math.ceil(ahead / self._bin)))
        # The record of another horizon is made again from all bins: a little too far ahead costs less.
        if needed > self._horizon or 2 * needed < self._horizon:
            self._horizon = needed
            if (forecast := self._forecaster.set_horizon(needed)) is not None:
                self._follow_forecast(forecast)
        self._due_share = min(1.0, (ahead + self._interval) / (self._horizon * self._bin))

    def _collect(self, now: float, loads: Loads, byte_weights: ByteWeights) -> None:
        if self._phase is None:
            self._filling = round(now / self._bin)
            self._phase = now - self._filling * self._bin
        since = now - self._phase + self._interval / 2  # iterations are never exactly an interval apart
        self._finish_bins(int(since / self._bin))
        for partition, load in loads.items():
            self._last_seen[partition] = self._filling
            if load.bytes_per_s is not None:
                total, count = self._sums.get(partition, (0.0, 0))
                self._sums[partition] = (
                    total + load.bytes_per_s / byte_weights.get(partition, 1.0),
                    count + 1,
                )
        self._finish_bins(int((since + self._interval) / self._bin))  # with its last iteration

    def _finish_bins(self, until: int) -> None:
        """Add the bins before this one; of a long pause, those of all seasons."""
        self._filling = max(self._filling, until - SEASONS * self._period)
        while self._filling < until:
            self._finish_bin()
            self._filling += 1

    def _finish_bin(self) -> None:
        self._align()
        self._rates = self._build_rates()
        self._follow_forecast(self._forecaster.add_rates(self._rates))
        self._sums = {}

    def _follow_forecast(self, forecast: SeasonalForecast) -> None:
        self._forecast, self._changes = forecast, self._list_changes(forecast.rates)
        # The bin that fills now is the first one ahead: the last time that this peak stands for is its end.
        ahead = 1 + math.ceil((self._lag + self._look_ahead) / self._bin)
        self._peak = self._forecaster.forecast_peak(ahead) if forecast.group_open else None

    def _align(self) -> None:
        """Drop partitions without a bin in any season, and add the new ones."""
        oldest = self._filling - SEASONS * self._period
        self._last_seen = {p: seen for p, seen in self._last_seen.items() if seen >= oldest}
        columns: tuple[Column, ...] = tuple(sorted(self._last_seen))
        columns = columns if len(columns) <= MAX_PARTITIONS else (None,)
        if columns != self._columns:
            place = {column: n for n, column in enumerate(self._columns)}
            source = np.array([place.get(column, UNASSIGNED) for column in columns], dtype=np.int32)
            self._forecaster.select_partitions(source)
            self._rates = np.append(self._rates, np.nan)[source]
            self._columns = columns

    def _build_rates(self) -> FloatArray:
        """Return the rates (columns,) of the bin that ends, NaN for partitions that were not there."""
        there = {p for p, seen in self._last_seen.items() if seen == self._filling}
        if not there:
            return self._rates  # nothing was measured
        means = {p: total / count for p, (total, count) in self._sums.items()}
        if self._columns == (None,):
            return np.array([math.fsum(means.values())]) if means else self._rates
        before = zip(self._known_columns(), self._rates.tolist(), strict=True)
        return np.array([means.get(p, rate if p in there else math.nan) for p, rate in before])

    def _known_columns(self) -> Iterable[TopicPartition]:
        return (column for column in self._columns if column is not None)

    def _list_changes(self, forecast: FloatArray) -> dict[TopicPartition, _RateChange]:
        """Return the known changes other than 0."""
        if self._columns == (None,):
            means = {p: total / count for p, (total, count) in self._sums.items()}
            total = math.fsum(means.values())
            share = float(forecast[0] - self._rates[0]) / total if total else 0.0
            return {p: _RateChange(share * mean, (1 + share) * mean) for p, mean in means.items() if share}
        rates = zip(self._known_columns(), self._rates.tolist(), forecast.tolist(), strict=True)
        return {
            p: _RateChange(to - now, to) for p, now, to in rates if to != now and not math.isnan(to - now)
        }

    def _forecast_partition(
        self, partition: TopicPartition, load: PartitionLoad, byte_weights: ByteWeights
    ) -> PartitionLoad:
        change = self._changes.get(partition)
        if change is None or load.weight is None:
            return load
        by, to = (rate * byte_weights.get(partition, 1.0) for rate in change)
        if by < 0:
            by = max(by * self._due_share, min(0.0, to - load.weight))
        return replace(load, required_bytes_per_s=max(0.0, load.weight + by))

    def _forecast_rise(self, now: float, loads: Loads, change: float) -> float | None:
        """Return by which share the load may rise beyond what is forecast (rule 7); None: unknown."""
        rates = [load.bytes_per_s for load in loads.values() if load.bytes_per_s is not None]
        self._measured_since = min(self._measured_since, now) if rates else math.inf
        written, required = math.fsum(rates), math.fsum(load.weight or 0.0 for load in loads.values())
        recent = (one for one in self._catch_ups if now - self._look_ahead < one[0] <= now)
        self._catch_ups = (*recent, (now, required - written))
        forecast = required + change
        is_new = now - self._measured_since < self._look_ahead + 2 * self._bin
        if self._peak is None or forecast <= 0 or is_new:
            return None
        highest = max(self._peak, written) + max(catch_up for _, catch_up in self._catch_ups)
        return max(0.0, highest / forecast - 1)

    def _build_status(self, change: float) -> ForecastStatus:
        horizon, made = self._horizon * self._bin, self._forecast
        if change < 0:
            horizon *= self._due_share
        if made is None:
            return ForecastStatus(horizon, change, 0, by_group=False, error_ratio=None)
        better = int(made.partitions_open.sum())
        if self._columns == (None,):
            return ForecastStatus(horizon, change, 0, made.group_open or better > 0, made.error_ratio)
        return ForecastStatus(horizon, change, better, made.group_open, made.error_ratio)


def _is_unweighted(byte_weights: ByteWeights) -> bool:
    return all(math.isclose(weight, 1.0) for weight in byte_weights.values())


def _list_present(chunk: SeasonChunk) -> list[TopicPartition]:
    """Return the partitions that have a rate in a chunk; the others had vanished before."""
    is_absent = np.isnan(chunk.rates)
    return [p for n, p in enumerate(chunk.columns) if p is not None and not is_absent[:, n].all()]


def _join_chunks(
    chunks: Iterable[SeasonChunk], columns: tuple[Column, ...], numbers: range
) -> tuple[FloatArray, int]:
    """Return the rates (bins, columns) from the first recorded bin of `numbers` to its end, and how many are.

    A bin that no chunk has is that of the bin before.
    """
    place = {column: n for n, column in enumerate(columns)}
    rates = np.full((len(numbers), len(columns)), np.nan)
    known = np.zeros(len(numbers), dtype=np.bool_)
    for chunk in chunks:
        rows = [
            (n, numbers.index(number)) for n, number in enumerate(chunk.list_numbers()) if number in numbers
        ]
        found = [(n, place[column]) for n, column in enumerate(chunk.columns) if column in place]
        taken, to = np.array(rows).T
        rates[to] = np.nan
        for n, column in found:
            rates[to, column] = chunk.rates[taken, n]
        known[to] = True
    first = int(known.argmax())
    newest = np.maximum.accumulate(np.where(known, np.arange(len(known)), first))
    joined: FloatArray = rates[newest[first:]]
    return joined, int(known.sum())
