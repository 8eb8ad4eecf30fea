"""The load of bench_day: a day of a packaged trace, at a multiple of its speed."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

import numpy as np

from benchmarks.stream import TICK, WriteRates
from trimtab.assignor.analysis.streams.resampling import RateSamples
from trimtab.assignor.model import TopicPartition

DAY_S: Final = 86_400.0
LARGEST: Final = 0.85  # of a consumer's capacity: no autoscaler could help a larger partition


def build_day(
    samples: Mapping[TopicPartition, RateSamples], day: date, speed: float, peak: float, capacity: float
) -> WriteRates:
    """Return the write rates (ticks, partitions) of a day; rates between samples are linear.

    At its highest, the load is that of `peak` consumers. Raises ValueError for a day outside the trace.
    """
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()  # the traces' clocks are local
    first, last = (edge(float(s.times[at]) for s in samples.values()) for edge, at in ((max, 0), (min, -1)))
    if not first <= begin <= last - DAY_S:
        begins, ends = (datetime.fromtimestamp(at, UTC).date() for at in (first + DAY_S, last - DAY_S))
        raise ValueError(f"{day} is not in the trace, whose days are {begins} to {ends}")
    times = begin + np.arange(round(DAY_S / speed / TICK)) * TICK * speed
    rates = np.column_stack([np.interp(times, s.times, s.rates) for _, s in sorted(samples.items())])
    scaled = rates / rates.sum(axis=1).max() * peak * capacity
    return np.minimum(scaled, LARGEST * capacity)


def select_hours(rates: WriteRates, begin: float, hours: float) -> WriteRates:
    """Return the part of a day's rates from an hour on."""
    first, last = (round(len(rates) * hour / 24) for hour in (begin, min(24.0, begin + hours)))
    return rates[first:last]
