"""A lag-threshold autoscaler, as KEDA's Kafka scaler and Kubernetes' HPA act together.

Every `SYNC` seconds, but at most once a tick, from the committed lag of the group:

1. ratio = lag / (replicas x threshold); within the tolerance of 10 % nothing changes;
2. else desired = ceil(replicas x ratio), between 1 and the number of partitions (KEDA allows no
   idle consumers);
3. growing is limited to the greater of twice the replicas and 4 more, per 15 s;
4. shrinking goes to the highest of the recommendations of the last 300 s.

The values are the defaults of KEDA 2 and of autoscaling/v2. From one replica on it is the HPA that
asks for the lag, at its own sync period; KEDA's pollingInterval (30 s) only wakes a group from none
(kedacore/keda-docs#1482), unless metrics are cached. In a tick that is longer than a sync period
the HPA would look several times: here it looks once, and may then grow as often as it could have.
It begins with as many replicas as the first speeds need.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from trimtab.assignor.packing import TOLERANCE

SYNC: Final = 15.0
TOLERATED: Final = 0.1
WINDOW: Final = 300.0
GROWTH_PERIOD: Final = 15.0
GROWTH_FACTOR: Final = 2
GROWTH_STEP: Final = 4


@dataclass(slots=True)
class Autoscaler:
    """Replicas over time; `threshold` is the lag in bytes that one replica may have."""

    threshold: float
    replicas: int
    most: int
    _seen: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    _polled: float = -math.inf

    def decide(self, now: float, lag: float) -> int:
        """Return the replicas from `now` (seconds) on; `lag` in bytes is the group's."""
        if now - self._polled < SYNC * (1 - TOLERANCE):
            return self.replicas
        grown_since = SYNC if math.isinf(self._polled) else now - self._polled
        self._polled = now
        wish = self._wish(lag)
        self._seen = [(at, n) for at, n in self._seen if at > now - WINDOW] + [(now, wish)]
        if wish > self.replicas:
            self.replicas = min(wish, self._limit(grown_since))
        else:
            self.replicas = min(self.replicas, max(n for _, n in self._seen))
        return self.replicas

    def _wish(self, lag: float) -> int:
        ratio = lag / (self.replicas * self.threshold)
        if abs(ratio - 1) <= TOLERATED:
            return self.replicas
        return max(1, min(self.most, math.ceil(self.replicas * ratio - TOLERANCE)))

    def _limit(self, seconds: float) -> int:
        limit = self.replicas
        for _ in range(max(1, int(seconds / GROWTH_PERIOD))):
            limit = max(limit * GROWTH_FACTOR, limit + GROWTH_STEP)
            if limit >= self.most:
                return self.most
        return limit
