"""Scenario of the demo: topics, load over time and times of the failures. Pure."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.assignor.analysis.streams.generators import RandomWalk
from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.cli.demo.options import DEFAULT_DURATION_S

TOPIC_SHARES: Final = {"orders": 4.0, "clicks": 2.0, "payments": 1.0, "audit": 0.5}  # of the load
PARTITIONS_PER_TOPIC: Final = 8
RECORD_BYTES: Final = 1000  # bytes of key and value
DEMO_CONSUMER_CAPACITY: Final = 300e3  # bytes/s, throttled: two cores carry six such consumers
WALK_STEP_PERCENT: Final = 10.0  # of a partition's largest share
WALK_TICK_S: Final = 1.0

# loads in consumer capacities
CALM_LOAD: Final = 0.5  # at both ends
PEAK_LOAD: Final = 4.4  # takes six consumers: headroom 0.8
SECONDS_PER_CONSUMER: Final = 30.0  # limits the peak of a short demo: a worker's start takes seconds

# times as shares of the duration
RAMP_UP_END: Final = 0.48
KILL_AT: Final = 0.52  # at the peak, where the others have the least room to take over
RAMP_DOWN_START: Final = 0.60
RESTART_AT: Final = 0.75  # few consumers are left then, so that replacing them one by one is short


@dataclass(frozen=True, slots=True)
class DemoScenario:
    """Timeline of a demo: seconds from its start, rates in bytes/s."""

    # all times are shares of the duration, so that a short demo shows the same steps
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

    def load_at(self, at: float) -> float:
        """Return the total write rate of all topics."""
        share = max(0.0, min(1.0, at / self.duration_s))
        if share < RAMP_UP_END:
            height = _ease_in_out(share / RAMP_UP_END)
        elif share < RAMP_DOWN_START:
            height = 1.0
        else:
            height = _ease_in_out((1.0 - share) / (1.0 - RAMP_DOWN_START))
        return DEMO_CONSUMER_CAPACITY * (CALM_LOAD + (self.peak_load - CALM_LOAD) * height)

    def write_rates(self) -> FloatArray:
        """Return write rates (ticks, partitions) in bytes/s; their sum is the scenario's load."""
        ticks = math.ceil(self.duration_s / WALK_TICK_S)
        # equation 11 of the autoscaler paper
        walk = RandomWalk(WALK_STEP_PERCENT, len(self.partitions), ticks, capacity=100.0)
        steps = walk.generate_stream(np.random.default_rng(self.seed)).rates
        shares = [TOPIC_SHARES[p.topic.removeprefix(self.prefix)] for p in self.partitions]
        weights = (20.0 + steps) * np.array(shares)  # the walk touches 0: no partition is idle for long
        levels = np.array([self.load_at(tick * WALK_TICK_S) for tick in range(ticks)])
        rates: FloatArray = weights / weights.sum(axis=1, keepdims=True) * levels[:, None]
        return rates


def _ease_in_out(x: float) -> float:
    return (1.0 - math.cos(math.pi * x)) / 2.0
