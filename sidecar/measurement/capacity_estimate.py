"""Estimates the capacity that a consumer will show next, from samples of it. No I/O.

1. A sample is what the consumer read over a whole window in which it was behind. Samples do not overlap, or
   they would be alike and understate the variance.
2. The next one differs from their mean by their own variance and by the error of that mean. A variance of
   few samples may be far too low: it is enlarged to that of Student's t distribution.
3. Samples of other partitions remain: the mix of partitions is one of the reasons why capacities vary.
4. A consumer that was seldom behind varies as the handler time of all consumers does, if that is known.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from trimtab.sidecar.measurement.observation import ObservedMember

MAX_SAMPLES: Final = 30  # an hour behind, or more; a new release may have another capacity
MIN_SAMPLES: Final = 4  # Student's t distribution of fewer has no variance


class CapacityEstimate(NamedTuple):
    """Distribution of a consumer's capacity over a window."""

    mean: float  # bytes/s
    variance: float = 0.0  # (bytes/s)²; 0 if too little was measured to know


@dataclass(frozen=True, slots=True)
class CapacitySamples:
    """Capacities that a consumer showed, the oldest first."""

    rates: tuple[float, ...] = ()  # bytes/s
    sampled_at: float = -math.inf  # the newest, in seconds since the epoch

    def add_sample(self, now: float, rate: float, window: float) -> "CapacitySamples":
        """Return the samples with a rate over the last `window` seconds, if it overlaps with none."""
        if 0 <= now - self.sampled_at < window:  # less than 0: the clock was set back
            return self
        return CapacitySamples((*self.rates, rate)[-MAX_SAMPLES:], now)

    def estimate_next(self) -> CapacityEstimate:
        """Return the distribution of the next sample; there must be one."""
        rates, count = np.array(self.rates), len(self.rates)
        if count < MIN_SAMPLES:
            return CapacityEstimate(float(rates.mean()))
        enlarged = (1 + 1 / count) * (count - 1) / (count - 3)
        return CapacityEstimate(float(rates.mean()), enlarged * float(rates.var(ddof=1)))


def estimate_capacities(
    members: Iterable[ObservedMember],
    samples: Mapping[str, CapacitySamples],
    published: Mapping[str, float],
    default: float,
    spread: float = 0.0,
) -> tuple[CapacityEstimate, ...]:
    """Return the capacity of each member: as it states itself, else as measured, published, or `default`.

    `samples` and `published` are by instance, `spread` is relative. What varies was measured, whatever a
    member states.
    """

    def estimate(member: ObservedMember) -> CapacityEstimate:
        known = CapacityEstimate(published.get(member.instance, default))
        measured = samples[member.instance].estimate_next() if member.instance in samples else known
        mean = measured.mean if member.capacity is None else member.capacity
        return CapacityEstimate(mean, measured.variance or (spread * mean) ** 2)

    return tuple(map(estimate, members))
