"""The load of bench_autoscale: a wave with a flash crowd, skewed over the partitions, from a seed.

In units of one consumer's capacity: a base load of 1.5, a wave that rises to 4 and falls again, and
just before its crest a flash crowd of 2 that arrives within 2 % of the time and decays slowly. The
partitions' shares follow Zipf's law (exponent 0.6: the largest of 32 has 12 %), each with a random
walk of about 15 %. No partition exceeds 85 % of a consumer's capacity, since no autoscaler could
help there.
"""

import numpy as np

from benchmarks.stream import TICK, WriteRates
from trimtab.assignor.model import ConsumerGroup, Load, PlacementPolicy, TopicPartition
from trimtab.assignor.modes.decisions import size_group

QUIET, WAVE, CROWD = 1.5, 2.5, 2.0
"""In consumer capacities."""
SKEW, WANDER, BACK = 0.6, 0.05, 0.05
"""Zipf's exponent; standard deviation of a share's step per tick, and its mean reversion."""
LARGEST = 0.85


def generate_write_rates(seconds: float, partitions: int, capacity: float, seed: int) -> WriteRates:
    """Return the write rates of a run; the shape does not depend on its length."""
    chance = np.random.default_rng(seed)
    ticks = max(2, round(seconds / TICK))
    total = np.array([_count_consumers(tick / ticks) for tick in range(ticks)])
    zipf = chance.permutation(np.arange(1.0, partitions + 1) ** -SKEW)
    drift, rows = np.zeros(partitions), list[np.ndarray[tuple[int], np.dtype[np.float64]]]()
    for _ in range(ticks):
        drift += chance.normal(0.0, WANDER, partitions) - BACK * drift
        rows.append(zipf * np.exp(drift))
    shares = np.array(rows)
    rates = shares / shares.sum(axis=1, keepdims=True) * total[:, None] * capacity
    return np.minimum(rates, LARGEST * capacity)


def _count_consumers(share: float) -> float:
    """Return the load in consumer capacities after this share of the time."""
    rise, crest = 0.08, 0.42
    phase = np.clip((share - rise) / (1 - 2 * rise), 0.0, 1.0)
    since = (share - crest) / 0.02
    crowd = np.clip(since, 0.0, 1.0) * np.exp(-max(0.0, since - 1) * 0.02 / 0.12)
    return float(QUIET + WAVE * (1 - np.cos(2 * np.pi * phase)) / 2 + CROWD * crowd)


def count_needed_consumers(write_rates: WriteRates, capacity: float) -> list[int]:
    """Return the minimum number of consumers of each tick, by packing partitions into capacities."""
    names = tuple(TopicPartition("load", number) for number in range(write_rates.shape[1]))
    group, policy = ConsumerGroup((), names), PlacementPolicy("bfd", capacity)
    loads = (Load(dict(zip(names, row, strict=True))) for row in write_rates.tolist())
    return [size_group(group, load, policy).consumers for load in loads]
