"""The autoscaling policy: limits, rules, timeouts. Its defaults are those of the settings."""

from dataclasses import dataclass, replace

from trimtab.assignor.model import PlacementPolicy
from trimtab.sidecar.model.catch_up_policy import CatchUpPolicy
from trimtab.sidecar.model.hpa_behavior import Direction, FallbackBehavior, ScalingRules
from trimtab.sidecar.model.record_weights import BYTES_ALONE, RecordWeights
from trimtab.sidecar.model.schedule import CronPeriod, resolve_scheduled_limits


@dataclass(frozen=True, slots=True)
class FallbackPolicy:
    """Applies once no write rate was known in `failure_threshold` iterations in a row."""

    behavior: FallbackBehavior
    replicas: int
    failure_threshold: int

    def resolve_replicas(self, current: int) -> int:
        """Return the recommended count while `current` replicas are planned."""
        match self.behavior:
            case FallbackBehavior.CURRENT:
                return current
            case FallbackBehavior.STATIC:
                return self.replicas
            case FallbackBehavior.CURRENT_IF_HIGHER:
                return max(current, self.replicas)


@dataclass(frozen=True, slots=True)
class CapacityBounds:
    """Limits of a learned capacity, as shares of the configured one."""

    min_share: float
    max_share: float


@dataclass(frozen=True, slots=True)
class AutoscalingPolicy:
    """Policy of the operator; times in seconds."""

    placement: PlacementPolicy
    min_replicas: int
    max_replicas: int
    scale_up: ScalingRules
    scale_down: ScalingRules
    cooldown: float
    fallback: FallbackPolicy
    idle_after: float  # without records, until the last replica stops; with `min_replicas` 0
    scale_up_evaluation_window: float  # of consumption, before and after a scale-up
    scale_up_evaluation_retry: float  # suspension after a scale-up without effect
    drain_retry: float
    startup_timeout: float
    catch_up: CatchUpPolicy
    paused_directions: frozenset[Direction] = frozenset()
    schedule: tuple[CronPeriod, ...] = ()
    freshness_slo: float | None = None  # desired p99 of produced to committed
    learned_capacity_bounds: CapacityBounds | None = None  # None: capacities are not learned
    record_weights: RecordWeights = BYTES_ALONE  # the unit of all rates; `learn-record-cost` changes it
    consumers_per_replica: int = 1
    advisory: bool = False  # the target cannot be scaled: the observed count is recorded

    @property
    def usable_capacity(self) -> float:
        """Bytes/s to assign to one consumer at most: capacity x headroom."""
        return self.placement.capacity * self.placement.headroom

    def clamp_replicas(self, count: int) -> int:
        """Return the count bounded by the limits."""
        return max(self.min_replicas, min(self.max_replicas, count))

    def apply_schedule(self, now: float) -> "AutoscalingPolicy":
        """Return the policy with the schedule applied; `now` is seconds since the epoch."""
        if not self.schedule:
            return self
        limits = resolve_scheduled_limits(self.schedule, now)
        most = self.max_replicas if limits.max_replicas is None else limits.max_replicas
        least = self.min_replicas if limits.min_replicas is None else limits.min_replicas
        paused = self.paused_directions | limits.paused_directions
        # A scheduled maximum may be below the minimum of the settings: the maximum wins.
        least = min(least, most)
        return replace(self, min_replicas=least, max_replicas=most, paused_directions=paused, schedule=())
