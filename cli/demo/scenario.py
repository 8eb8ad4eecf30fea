"""What the demo plays: topics, the load over time, and when something goes wrong. Pure.

Everything scales with the length of the show, so that a short one tells the same story with fewer
consumers.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.assignor.analysis.streams.generators import Walk
from trimtab.assignor.model import FloatArray, TopicPartition

SHARES: Final = {"orders": 4.0, "clicks": 2.0, "payments": 1.0, "audit": 0.5}
"""How much faster one topic is written than another."""

PARTITIONS: Final = 8  # of each topic
RECORD: Final = 1000  # bytes of key and value
CAPACITY: Final = 300e3  # bytes/s of one consumer, throttled: two cores can show six of them
SECONDS: Final = 150.0
SHORTEST: Final = 20.0
DELTA: Final = 10.0  # of the random walk, in percent of a partition's largest share
TICK: Final = 1.0  # seconds between two steps of the walk

CALM: Final = 0.5  # consumers' worth of load at both ends
PEAK: Final = 4.4  # at the top; with headroom that takes six
SECONDS_PER_CONSUMER: Final = 30.0  # a shorter show climbs less high: a worker needs its time
RISEN: Final = 0.48  # of the show: the top begins
KILL: Final = 0.52
FALLING: Final = 0.60  # the top ends
RESTART: Final = 0.75


@dataclass(frozen=True, slots=True)
class Script:
    """One show; times in seconds from its start, rates in bytes/s."""

    seconds: float = SECONDS
    prefix: str = ""
    seed: int = 11
    format: str = "iceberg"  # of the tables

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics."""
        return tuple(self.prefix + name for name in SHARES)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Every partition, sorted."""
        return tuple(sorted(TopicPartition(t, p) for t in self.topics for p in range(PARTITIONS)))

    @property
    def peak(self) -> float:
        """Load at the top, in consumers' worth."""
        return max(1.5, min(PEAK, self.seconds / SECONDS_PER_CONSUMER))

    @property
    def kill_at(self) -> float:
        """When a consumer is killed."""
        return KILL * self.seconds

    @property
    def restart_at(self) -> float:
        """When all consumers are restarted, one after the other."""
        return RESTART * self.seconds

    def level(self, at: float) -> float:
        """Return the load of all topics together: up, along, and down again."""
        share = max(0.0, min(1.0, at / self.seconds))
        if share < RISEN:
            height = _eased(share / RISEN)
        elif share < FALLING:
            height = 1.0
        else:
            height = _eased((1.0 - share) / (1.0 - FALLING))
        return CAPACITY * (CALM + (self.peak - CALM) * height)

    def speeds(self) -> FloatArray:
        """Return write speeds (ticks, partitions) in bytes/s.

        Each partition walks at random (equation 11 of the autoscaler paper), each topic has its
        share, and together they make up the level of their time.
        """
        ticks = math.ceil(self.seconds / TICK)
        rng = np.random.default_rng(self.seed)
        partitions = self.partitions
        walk = Walk(DELTA, len(partitions), ticks, capacity=100.0).stream(rng).speeds
        shares = [SHARES[p.topic.removeprefix(self.prefix)] for p in partitions]
        weights = (20.0 + walk) * np.array(shares)  # nobody is silent for long
        levels = np.array([self.level(tick * TICK) for tick in range(ticks)])
        speeds: FloatArray = weights / weights.sum(axis=1, keepdims=True) * levels[:, None]
        return speeds


def _eased(x: float) -> float:
    """Return 0..1 for 0..1, slow at both ends."""
    return (1.0 - math.cos(math.pi * x)) / 2.0
