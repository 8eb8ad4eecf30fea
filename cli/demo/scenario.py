"""Scenario of the demo: topics, load over time and times of the failures. Pure.

The scenario scales with its duration: a short demo takes the same steps with fewer consumers.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.assignor.analysis.streams.generators import RandomWalk
from trimtab.assignor.model import FloatArray, TopicPartition

TOPIC_SHARES: Final = {"orders": 4.0, "clicks": 2.0, "payments": 1.0, "audit": 0.5}
"""Shares of the load by topic."""

PARTITIONS_PER_TOPIC: Final = 8  # of each topic
RECORD_BYTES: Final = 1000  # bytes of key and value
DEMO_CONSUMER_CAPACITY: Final = 300e3  # bytes/s of one consumer, throttled: two cores can show six of them
DEFAULT_DURATION_S: Final = 150.0
MIN_DURATION_S: Final = 20.0
WALK_STEP_PERCENT: Final = 10.0  # of the random walk, in percent of a partition's largest share
WALK_TICK_S: Final = 1.0  # seconds between two steps of the walk

CALM_LOAD: Final = 0.5  # consumers' worth of load at both ends
PEAK_LOAD: Final = 4.4  # at the top; with headroom that takes six
SECONDS_PER_CONSUMER: Final = 30.0  # a shorter show climbs less high: a worker needs its time
RAMP_UP_END: Final = 0.48  # of the show: the top begins
KILL_AT: Final = 0.52
RAMP_DOWN_START: Final = 0.60  # the top ends
RESTART_AT: Final = 0.75


@dataclass(frozen=True, slots=True)
class DemoScenario:
    """Timeline of a demo: seconds from its start, rates in bytes/s."""

    duration_s: float = DEFAULT_DURATION_S
    prefix: str = ""
    seed: int = 11
    format: str = "iceberg"  # of the tables

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics."""
        return tuple(self.prefix + name for name in TOPIC_SHARES)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """All partitions, sorted."""
        return tuple(sorted(TopicPartition(t, p) for t in self.topics for p in range(PARTITIONS_PER_TOPIC)))

    @property
    def peak_load(self) -> float:
        """Peak load in consumer capacities."""
        return max(1.5, min(PEAK_LOAD, self.duration_s / SECONDS_PER_CONSUMER))

    @property
    def kill_at(self) -> float:
        """Time at which a consumer is killed."""
        return KILL_AT * self.duration_s

    @property
    def restart_at(self) -> float:
        """Time of the rolling restart."""
        return RESTART_AT * self.duration_s

    def load_at(self, at: float) -> float:
        """Return the total load of all topics: ramp up, plateau, ramp down."""
        share = max(0.0, min(1.0, at / self.duration_s))
        if share < RAMP_UP_END:
            height = _ease_in_out(share / RAMP_UP_END)
        elif share < RAMP_DOWN_START:
            height = 1.0
        else:
            height = _ease_in_out((1.0 - share) / (1.0 - RAMP_DOWN_START))
        return DEMO_CONSUMER_CAPACITY * (CALM_LOAD + (self.peak_load - CALM_LOAD) * height)

    def write_rates(self) -> FloatArray:
        """Return write speeds (ticks, partitions) in bytes/s.

        Each partition walks at random (equation 11 of the autoscaler paper), each topic has its
        share, and together they make up the level of their time.
        """
        ticks = math.ceil(self.duration_s / WALK_TICK_S)
        rng = np.random.default_rng(self.seed)
        partitions = self.partitions
        walk = (
            RandomWalk(WALK_STEP_PERCENT, len(partitions), ticks, capacity=100.0).generate_stream(rng).rates
        )
        shares = [TOPIC_SHARES[p.topic.removeprefix(self.prefix)] for p in partitions]
        weights = (20.0 + walk) * np.array(shares)  # no partition is idle for long
        levels = np.array([self.load_at(tick * WALK_TICK_S) for tick in range(ticks)])
        speeds: FloatArray = weights / weights.sum(axis=1, keepdims=True) * levels[:, None]
        return speeds


def _ease_in_out(x: float) -> float:
    """Ease in and out: map 0..1 to 0..1."""
    return (1.0 - math.cos(math.pi * x)) / 2.0
