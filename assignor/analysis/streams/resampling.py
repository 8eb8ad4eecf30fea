"""Measured write rates at any times, resampled to the equal ticks of a stream.

1. Between two samples of a partition its rate changes linearly; a tick has the mean over its length.
2. A longer distance than `max_gap` between two samples is a gap: the partition is absent from every tick
   that the gap touches, as from those before its first sample and after its last.
3. Missing samples within `max_gap` are bridged by rule 1.
4. `speed` seconds of the samples pass in a second of the stream. Rates stay as they are, so the load in
   consumers is that of the samples.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.common.errors import InvalidStreamError
from trimtab.common.units import format_count

MAX_CELLS: Final = 50_000_000  # ticks x partitions: 400 MB


@dataclass(frozen=True, slots=True, eq=False)
class RateSamples:
    """Samples of one partition: times (N,) in seconds, strictly ascending, and rates (N,) in bytes/s."""

    times: FloatArray
    rates: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ResampledTrace:
    """A trace as one stream, and what was done about missing samples."""

    stream: WriteRateStream
    bridged_gaps: int  # distances above the usual one that were bridged
    absent_share: float  # of all ticks and partitions
    max_gap: float  # seconds of the samples


def resample_rates(
    samples: Mapping[TopicPartition, RateSamples], tick: float, speed: float, max_gap: float | None = None
) -> ResampledTrace:
    """Return the stream with ticks of `tick` seconds; `max_gap` is three times the usual distance by default.

    Raises InvalidStreamError for samples that fill no tick.
    """
    usual = _find_usual_distance(samples)
    longest = 3 * usual if max_gap is None else max_gap
    begin = min((float(s.times[0]) for s in samples.values()), default=0.0)
    end = max((float(s.times[-1]) for s in samples.values()), default=0.0)
    step = tick * speed
    ticks = math.floor((end - begin) / step * (1 + 1e-9))
    if ticks < 1:
        raise InvalidStreamError(
            f"the trace lasts {end - begin:g} s from its first to its last sample, and a tick {step:g} s "
            "of it; give more samples, a shorter --tick or a lower --speed"
        )
    if ticks * len(samples) > MAX_CELLS:
        counted = format_count(len(samples), "partition")
        raise InvalidStreamError(
            f"the trace has {ticks:,} ticks of {step:g} s from its first to its last sample; at most "
            f"{MAX_CELLS // len(samples):,} are possible with {counted}: is a time wrong? "
            "Else give a longer --tick or a higher --speed"
        )
    # The last one, beyond the last sample by a rounding, would leave its tick without rates.
    edges = np.minimum(np.arange(ticks + 1, dtype=np.float64) * step + begin, end)
    partitions = tuple(sorted(samples))
    rates = np.column_stack([_resample(samples[p], edges, longest) for p in partitions])
    distances = np.concatenate([np.diff(s.times) for s in samples.values()])
    bridged = int(((distances > 1.5 * usual) & (distances <= longest)).sum())
    return ResampledTrace(
        WriteRateStream(partitions, rates), bridged, float(np.isnan(rates).mean()), float(longest)
    )


def split_halves(stream: WriteRateStream) -> tuple[WriteRateStream, WriteRateStream]:
    """Return the first and the second half of the time. Raises InvalidStreamError for a single tick."""
    middle = len(stream.rates) // 2
    if not middle:
        raise InvalidStreamError("the trace has one tick, so that a half of it has none; lower --speed")
    first, second = (WriteRateStream(stream.partitions, r) for r in np.split(stream.rates, [middle]))
    return first, second


def select_windows(stream: WriteRateStream, count: int, ticks: int) -> tuple[WriteRateStream, ...]:
    """Return at most `count` windows of `ticks` ticks, spread evenly, without overlaps.

    In a short stream there are fewer windows, at last one of its length.
    """
    length = min(ticks, len(stream.rates))
    number = max(1, min(count, len(stream.rates) // length))
    begins = [n * len(stream.rates) // number for n in range(number)]  # of its share of the time
    return tuple(WriteRateStream(stream.partitions, stream.rates[b : b + length]) for b in begins)


def busiest_percentile(stream: WriteRateStream, percent: float) -> float:
    """Return this percentile of the rate of the partition where it is highest."""
    present = stream.rates[:, ~np.isnan(stream.rates).all(axis=0)]
    return float(np.nanpercentile(present, percent, axis=0).max(initial=0.0))


def _find_usual_distance(samples: Mapping[TopicPartition, RateSamples]) -> float:
    distances = [np.diff(s.times) for s in samples.values() if len(s.times) > 1]
    return float(np.median(np.concatenate(distances))) if distances else 0.0


def _resample(one: RateSamples, edges: FloatArray, max_gap: float) -> FloatArray:
    """Return the mean rate between each two edges, NaN where a gap lies; (N,)."""
    if len(one.times) < 2:  # noqa: PLR2004 - a line has two ends
        return np.full(len(edges) - 1, math.nan)
    distance = np.diff(one.times)
    written = np.append(0.0, np.cumsum((one.rates[1:] + one.rates[:-1]) / 2 * distance))
    missing = np.append(0.0, np.cumsum(np.where(distance > max_gap, distance, 0.0)))
    segment = np.clip(np.searchsorted(one.times, edges, side="right") - 1, 0, len(distance) - 1)
    into = np.clip(edges - one.times[segment], 0.0, distance[segment])
    slope = np.diff(one.rates) / distance
    total = written[segment] + into * (one.rates[segment] + slope[segment] * into / 2)
    rate = np.maximum(np.diff(total) / np.diff(edges), 0.0)  # differences of sums may be below 0
    outside = (edges[:-1] < one.times[0]) | (edges[1:] > one.times[-1])
    absent = outside | (np.diff(np.interp(edges, one.times, missing)) > 0)
    return np.where(absent, math.nan, rate)
