"""Generators of streams: the paper's random walk, and loads that are harder to pack.

Each generator is a frozen record of its shape; equal seeds give equal streams. Write rates are in
bytes/s and scale with the capacity.

1. Write rates stay within the limits of the shape and are never below 0.
2. `clamped=False` removes the upper limit.
3. An invalid shape raises InvalidStreamError, which names the field.
"""

import math
from dataclasses import dataclass, fields
from typing import Final, Protocol

import numpy as np

from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.common.errors import InvalidStreamError
from trimtab.common.units import format_count

_NOISE_AUTOCORRELATION: Final = 0.9  # from one tick to the next


class StreamGenerator(Protocol):
    """A source of streams."""

    def generate_stream(self, rng: np.random.Generator) -> WriteRateStream:
        """Return a stream. Raises InvalidStreamError for an invalid shape."""
        ...


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """The paper's random walk."""

    delta: float  # largest step in percent of the capacity
    partitions: int = 200
    ticks: int = 500
    capacity: float = 100.0
    clamped: bool = True
    initial: float | None = None  # of all partitions, in percent of the capacity; None: uniform in [0, C]

    def generate_stream(self, rng: np.random.Generator) -> WriteRateStream:
        """Return equation 11: steps in ±δ % of C from the initial write rates. Raises InvalidStreamError."""
        _check_shape("random walk", self, at_least_0=("delta", "initial"))
        top = np.full(self.partitions, self.capacity)
        start = rng.uniform(0, self.capacity, self.partitions)
        if self.initial is not None:
            start = self.initial / 100 * top
        # The printed formula has no upper limit; the published results need one.
        limit = top if self.clamped else np.full_like(top, math.inf)
        return _build_stream("walk", _walk(rng, start, self.delta / 100 * top, limit, self.ticks))


@dataclass(frozen=True, slots=True)
class ZipfLoad:
    """Zipf-distributed write rates with a daily wave."""

    partitions: int = 200
    ticks: int = 500
    capacity: float = 100.0
    clamped: bool = True
    exponent: float = 0.5  # the r-th busiest partition, ranks at random, writes r^-exponent
    wave: float = 0.5  # relative amplitude
    day: float = 250.0  # period in ticks
    phase: float = 0.1  # part of a day that a partition is early or late, at most
    noise: float = 0.05  # standard deviation of a tick's relative change
    load: float = 0.3  # mean of a partition in capacities, before clamping

    def generate_stream(self, rng: np.random.Generator) -> WriteRateStream:
        """Return the stream. Raises InvalidStreamError for an invalid shape."""
        _check_shape("Zipf load", self, at_least_0=("exponent", "wave", "phase", "noise"))
        share = np.arange(1, self.partitions + 1, dtype=np.float64) ** -self.exponent
        mean = rng.permutation(share / share.mean() * self.load * self.capacity)
        late = rng.uniform(-self.phase, self.phase, self.partitions)
        angle = 2 * np.pi * (np.arange(self.ticks)[:, None] / self.day - late)
        rates = mean * (1 + self.wave * np.sin(angle)) * _noise(rng, self)
        return _build_stream("zipf", np.clip(rates, 0, self.capacity if self.clamped else None))


@dataclass(frozen=True, slots=True)
class FlashCrowd:
    """A quiet load with flash crowds, during which some partitions write `factor` times as much."""

    partitions: int = 200
    ticks: int = 500
    capacity: float = 100.0
    clamped: bool = True
    quiet: float = 0.5  # of a capacity that a partition writes without crowds, at most
    factor: float = 3.0
    share: float = 0.2  # of the partitions
    every: float = 40.0  # ticks between crowds on average
    length: int = 15  # ticks
    noise: float = 0.05

    def generate_stream(self, rng: np.random.Generator) -> WriteRateStream:
        """Return the stream. Raises InvalidStreamError for an invalid shape."""
        _check_shape("flash crowd", self, at_least_0=("share", "noise"))
        calm = rng.uniform(0, self.quiet * self.capacity, self.partitions) * _noise(rng, self)
        crowded = np.zeros(calm.shape, dtype=np.bool_)
        for begin in np.flatnonzero(rng.random(self.ticks) * self.every < 1).tolist():
            crowded[begin : begin + self.length] |= rng.random(self.partitions) < self.share
        rates = np.where(crowded, self.factor * calm, calm)
        return _build_stream("crowd", np.clip(rates, 0, self.capacity if self.clamped else None))


@dataclass(frozen=True, slots=True)
class OversizeLoad:
    """A random walk in which a `share` of the partitions may write more than a capacity."""

    partitions: int = 200
    ticks: int = 500
    capacity: float = 100.0
    clamped: bool = True
    largest: float = 2.5  # limit of that share in capacities
    small: float = 0.5  # limit of the others
    share: float = 0.1
    delta: float = 10.0  # largest step in percent of the partition's limit

    def generate_stream(self, rng: np.random.Generator) -> WriteRateStream:
        """Return the stream. Raises InvalidStreamError for an invalid shape."""
        _check_shape("oversize load", self, at_least_0=("share", "delta"))
        top = np.full(self.partitions, self.small * self.capacity)
        large = rng.permutation(self.partitions)[: round(self.share * self.partitions)]
        top[large] = self.largest * self.capacity
        start = rng.uniform(0, top)
        limit = top if self.clamped else np.full_like(top, math.inf)
        return _build_stream("oversize", _walk(rng, start, self.delta / 100 * top, limit, self.ticks))


def _walk(
    rng: np.random.Generator, start: FloatArray, step: FloatArray, limit: FloatArray, ticks: int
) -> FloatArray:
    rates = np.empty((ticks, len(start)))
    rates[0] = start
    for tick in range(1, ticks):
        rates[tick] = np.clip(rates[tick - 1] + rng.uniform(-step, step), 0, limit)
    return rates


def _noise(rng: np.random.Generator, shape: "ZipfLoad | FlashCrowd") -> FloatArray:
    """Return factors (N, P) around 1 that change by about `shape.noise` per tick."""
    shocks = rng.normal(0.0, shape.noise, (shape.ticks, shape.partitions))
    noise = np.empty_like(shocks)
    noise[0] = shocks[0] / math.sqrt(1 - _NOISE_AUTOCORRELATION**2)  # same variance as later ticks
    for tick in range(1, shape.ticks):
        noise[tick] = _NOISE_AUTOCORRELATION * noise[tick - 1] + shocks[tick]
    return np.exp(noise)


def _build_stream(topic: str, rates: FloatArray) -> WriteRateStream:
    return WriteRateStream(tuple(TopicPartition(topic, p) for p in range(rates.shape[1])), rates)


def _check_shape(
    what: str, shape: "RandomWalk | ZipfLoad | FlashCrowd | OversizeLoad", at_least_0: tuple[str, ...]
) -> None:
    if shape.partitions < 1 or shape.ticks < 1:
        partitions, ticks = format_count(shape.partitions, "partition"), format_count(shape.ticks, "tick")
        raise InvalidStreamError(f"a {what} of {partitions} and {ticks}; both must be at least 1")
    for name in (field.name for field in fields(shape) if field.name != "clamped"):
        value: float | None = getattr(shape, name)
        if value is None:
            continue
        may_be_0 = name in at_least_0
        if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_0):
            least = "from 0 on" if may_be_0 else "above 0"
            raise InvalidStreamError(f"a {what}'s {name} is {value}; it must be a number {least}")
