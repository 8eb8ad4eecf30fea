"""The load of bench_autoscale: a wave with a flash crowd on it, skewed over partitions, by a seed.

In consumers' capacities: a quiet time (1.5), a wave that rises to 4 and falls again, and just
before its crest a crowd of 2 more that comes within a fiftieth of the time and loses interest
slowly, as crowds do. Partitions have Zipf's shares (exponent 0.6: the first of 32 writes 12 %), and
each wanders around its own by some 15 %. No partition writes more than 85 % of what one consumer
can do, since no autoscaler could help there.
"""

import numpy as np
from stream import TICK, Speeds

from trimtab.assignor.decisions import size_group
from trimtab.assignor.model import ConsumerGroup, Load, PlacementPolicy, TopicPartition

QUIET, WAVE, CROWD = 1.5, 2.5, 2.0
"""Consumers' capacities."""
SKEW, WANDER, BACK = 0.6, 0.05, 0.05
"""Zipf's exponent; deviation of a share's step each tick, and the part of it that is taken back."""
LARGEST = 0.85


def load(seconds: float, partitions: int, capacity: float, seed: int) -> Speeds:
    """Return the write speeds of a run, whatever its length the same shape."""
    chance = np.random.default_rng(seed)
    ticks = max(2, round(seconds / TICK))
    total = np.array([_consumers(tick / ticks) for tick in range(ticks)])
    zipf = chance.permutation(np.arange(1.0, partitions + 1) ** -SKEW)
    drift, rows = np.zeros(partitions), list[np.ndarray[tuple[int], np.dtype[np.float64]]]()
    for _ in range(ticks):
        drift += chance.normal(0.0, WANDER, partitions) - BACK * drift
        rows.append(zipf * np.exp(drift))
    shares = np.array(rows)
    wanted = shares / shares.sum(axis=1, keepdims=True) * total[:, None] * capacity
    return np.minimum(wanted, LARGEST * capacity)


def _consumers(share: float) -> float:
    """Return how many consumers' capacities are written when so much of the time is over."""
    rise, crest = 0.08, 0.42
    phase = np.clip((share - rise) / (1 - 2 * rise), 0.0, 1.0)
    since = (share - crest) / 0.02
    crowd = np.clip(since, 0.0, 1.0) * np.exp(-max(0.0, since - 1) * 0.02 / 0.12)
    return float(QUIET + WAVE * (1 - np.cos(2 * np.pi * phase)) / 2 + CROWD * crowd)


def needed(speeds: Speeds, capacity: float) -> list[int]:
    """Return the least consumers of each tick: partitions packed into whole capacities."""
    names = tuple(TopicPartition("load", number) for number in range(speeds.shape[1]))
    group, policy = ConsumerGroup((), names), PlacementPolicy("bfd", capacity)
    loads = (Load(dict(zip(names, row, strict=True))) for row in speeds.tolist())
    return [size_group(group, load, policy).consumers for load in loads]
