"""Lag-threshold autoscaler: KEDA's Kafka scaler with Kubernetes' HPA.

Every `SYNC_PERIOD_S` seconds, at most once per tick, from the committed lag of the group:

1. ratio = lag / (replicas x threshold); within the tolerance of 10 % nothing changes.
2. Otherwise desired = ceil(replicas x ratio), between 1 and the number of partitions (KEDA allows
   no idle consumers).
3. Scale-up is limited to the greater of twice the replicas and 4 more, per 15 s.
4. Scale-down goes to the highest recommendation of the last 300 s.

Values are the defaults of KEDA 2 and autoscaling/v2. It starts with the replicas that the first
write rates need.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from trimtab.assignor.model.packing import CAPACITY_TOLERANCE

# From one replica on the HPA reads the lag at its own sync period; KEDA's pollingInterval (30 s)
# only activates a group from zero (kedacore/keda-docs#1482), unless metrics are cached.
SYNC_PERIOD_S: Final = 15.0
HPA_TOLERANCE: Final = 0.1
STABILIZATION_WINDOW_S: Final = 300.0
SCALE_UP_PERIOD_S: Final = 15.0
SCALE_UP_FACTOR: Final = 2
SCALE_UP_PODS: Final = 4


@dataclass(slots=True)
class LagAutoscaler:
    """Replicas over time."""

    lag_threshold: float  # target lag per replica in bytes
    replicas: int
    max_replicas: int
    _recommendations: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    _last_sync: float = -math.inf

    def decide_replicas(self, now: float, lag: float) -> int:
        """Return the replicas from `now` (seconds) on; `lag` is the group's, in bytes."""
        if now - self._last_sync < SYNC_PERIOD_S * (1 - CAPACITY_TOLERANCE):
            return self.replicas
        # In a tick longer than a sync period the HPA would sync several times: here once, with the
        # scale-up limit of all of them.
        grown_since = SYNC_PERIOD_S if math.isinf(self._last_sync) else now - self._last_sync
        self._last_sync = now
        recommended = self._recommend(lag)
        recent = ((at, n) for at, n in self._recommendations if at > now - STABILIZATION_WINDOW_S)
        self._recommendations = [*recent, (now, recommended)]
        if recommended > self.replicas:
            self.replicas = min(recommended, self._scale_up_limit(grown_since))
        else:
            self.replicas = min(self.replicas, max(n for _, n in self._recommendations))
        return self.replicas

    def _recommend(self, lag: float) -> int:
        ratio = lag / (self.replicas * self.lag_threshold)
        if abs(ratio - 1) <= HPA_TOLERANCE:
            return self.replicas
        return max(1, min(self.max_replicas, math.ceil(self.replicas * ratio - CAPACITY_TOLERANCE)))

    def _scale_up_limit(self, seconds: float) -> int:
        limit = self.replicas
        for _ in range(max(1, int(seconds / SCALE_UP_PERIOD_S))):
            limit = max(limit * SCALE_UP_FACTOR, limit + SCALE_UP_PODS)
            if limit >= self.max_replicas:
                return self.max_replicas
        return limit
