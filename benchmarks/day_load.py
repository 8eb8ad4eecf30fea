"""The load of bench_day: a day of a packaged trace, at a multiple of its speed."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

import numpy as np
from stream import TICK, WriteRates

from trimtab.assignor.analysis.streams.resampling import RateSamples
from trimtab.assignor.model import TopicPartition

DAY_S: Final = 86_400.0
LARGEST: Final = 0.85  # of a consumer's capacity: no autoscaler could help a larger partition
BUSIEST_PERCENT: Final = 99.9  # of the time the largest partition is below that


def build_day(
    samples: Mapping[TopicPartition, RateSamples], day: date, speed: float, hours: float, capacity: float
) -> WriteRates:
    """Return the write rates (ticks, partitions) of the first hours of a day, rates between samples linear.

    The busiest partition of the day writes `LARGEST` of a consumer's capacity. Raises ValueError for a day
    outside the trace.
    """
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()  # the traces' clocks are local
    first, last = (edge(float(s.times[at]) for s in samples.values()) for edge, at in ((max, 0), (min, -1)))
    if not first <= begin <= last - DAY_S:
        begins, ends = (datetime.fromtimestamp(at, UTC).date() for at in (first + DAY_S, last - DAY_S))
        raise ValueError(f"{day} is not in the trace, whose days are {begins} to {ends}")
    times = begin + np.arange(round(hours * 3600 / speed / TICK)) * TICK * speed
    rates = np.column_stack([np.interp(times, s.times, s.rates) for _, s in sorted(samples.items())])
    return rates / np.percentile(rates, BUSIEST_PERCENT, axis=0).max() * LARGEST * capacity
