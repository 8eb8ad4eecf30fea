"""How much write speeds swing: the deviation of their change from one window to the next.

Speeds of overlapping windows hardly differ, so only every `every` seconds one is taken in. What a
partition did is forgotten when it is gone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.assignor.forecast import Changes
from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.common.control_topics.values import PartitionSpeed


@dataclass(frozen=True, slots=True, eq=False)
class Swings:
    """What is known of the changes; `at` is when speeds were taken in last, in seconds."""

    every: float
    at: float = -math.inf
    partitions: tuple[TopicPartition, ...] = ()
    changes: Changes = field(default_factory=lambda: Changes.none(0))

    def seen(self, now: float, speeds: Mapping[TopicPartition, PartitionSpeed]) -> "Swings":
        """Return the memory with these speeds taken in, if it is time and one is known."""
        if now - self.at < self.every or all(s.bytes_per_s is None for s in speeds.values()):
            return self
        names = tuple(sorted(speeds))
        changes = self._aligned(names).seen(_rates(names, speeds))
        return replace(self, at=now, partitions=names, changes=changes)

    def marked(
        self, speeds: Mapping[TopicPartition, PartitionSpeed]
    ) -> dict[TopicPartition, PartitionSpeed]:
        """Return the speeds with what is known of their deviations."""
        names = tuple(speeds)
        found = self._aligned(names).outlook(_rates(names, speeds)).variance
        deviations = dict(zip(names, np.sqrt(found).tolist(), strict=True))
        return {p: replace(s, deviation_bytes_per_s=deviations[p]) for p, s in speeds.items()}

    def _aligned(self, names: tuple[TopicPartition, ...]) -> Changes:
        number = {name: i for i, name in enumerate(self.partitions)}
        index = np.array([number.get(name, len(number)) for name in names], dtype=np.intp)
        return Changes(
            np.append(self.changes.last, np.nan)[index],
            np.append(self.changes.variance, np.nan)[index],
        )


def _rates(
    names: tuple[TopicPartition, ...], speeds: Mapping[TopicPartition, PartitionSpeed]
) -> FloatArray:
    rates = [speeds[name].bytes_per_s for name in names]
    return np.array([math.nan if rate is None else rate for rate in rates], dtype=np.float64)
