"""How the sidecar may scale: limits, rules, and what is remembered between two decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.sidecar.decision.hpa_behavior import (
    MAX_POLICY_PERIOD_S,
    Direction,
    ScaleEvent,
    ScalingPolicy,
    ScalingRules,
)
from trimtab.sidecar.decision.schedule import CronPeriod, resolve_scheduled_limits
from trimtab.sidecar.measurement.freshness import AgeSample
from trimtab.sidecar.measurement.write_rate import CatchUpPolicy

DEFAULT_SCALE_UP: Final = ScalingRules((ScalingPolicy(4),))
DEFAULT_SCALE_DOWN: Final = ScalingRules((ScalingPolicy(1),), stabilization_window=300.0)
"""Growing and shrinking unless something else is asked for."""


class FallbackBehavior(StrEnum):
    """Which count is wished for when measuring fails."""

    CURRENT = "current"
    STATIC = "static"
    CURRENT_IF_HIGHER = "current-if-higher"


@dataclass(frozen=True, slots=True)
class FallbackPolicy:
    """What is wished for once no write speed was known in `failure_threshold` turns in a row."""

    behavior: FallbackBehavior = FallbackBehavior.CURRENT
    replicas: int = 0
    failure_threshold: int = 3

    def resolve_replicas(self, current: int) -> int:
        """Return the count that is wished for where `current` replicas are planned."""
        match self.behavior:
            case FallbackBehavior.CURRENT:
                return current
            case FallbackBehavior.STATIC:
                return self.replicas
            case FallbackBehavior.CURRENT_IF_HIGHER:
                return max(current, self.replicas)


@dataclass(frozen=True, slots=True)
class CapacityBounds:
    """Between which shares of the configured capacity a learned one may be."""

    min_share: float = 0.5
    max_share: float = 2.0


@dataclass(frozen=True, slots=True)
class AutoscalingPolicy:
    """The operator's wishes; times in seconds.

    Of the stabilisation windows as the HPA has them: out follows the lowest wish of its window, in
    the highest. `freshness_slo` is the p99 freshness that is asked for, None for none. `idle_after` is for
    how long nothing may have been written or waiting before the last replica goes (`min_replicas` of 0).
    `scale_up_evaluation_window` is what consumption is measured over, before and after growing; `scale_up_evaluation_retry`
    how long growing stops where it brought nothing. `learned_capacity_bounds` are the bounds of learned capacities,
    None where none is learned. `advisory` says that the replica target cannot be acted upon: the
    count is then taken as it is found.
    """

    placement: PlacementPolicy = field(default_factory=PlacementPolicy)
    min_replicas: int = 1
    max_replicas: int = 10
    scale_up: ScalingRules = DEFAULT_SCALE_UP
    scale_down: ScalingRules = DEFAULT_SCALE_DOWN
    cooldown: float = 30.0
    paused_directions: frozenset[Direction] = frozenset()
    schedule: tuple[CronPeriod, ...] = ()
    fallback: FallbackPolicy = FallbackPolicy()
    freshness_slo: float | None = None
    idle_after: float = 300.0
    scale_up_evaluation_window: float = 120.0
    scale_up_evaluation_retry: float = 600.0
    learned_capacity_bounds: CapacityBounds | None = None
    drain_retry: float = 60.0
    startup_timeout: float = 120.0
    catch_up: CatchUpPolicy = field(default_factory=CatchUpPolicy)
    advisory: bool = False

    @property
    def usable_capacity(self) -> float:
        """Bytes/s that one consumer may be filled with."""
        return self.placement.capacity * self.placement.headroom

    def clamp_replicas(self, count: int) -> int:
        """Return the count within the limits."""
        return max(self.min_replicas, min(self.max_replicas, count))

    def apply_schedule(self, now: float) -> "AutoscalingPolicy":
        """Return the policy with what its schedule asks for at a time (seconds, epoch)."""
        if not self.schedule:
            return self
        wanted = resolve_scheduled_limits(self.schedule, now)
        most = self.max_replicas if wanted.max_replicas is None else wanted.max_replicas
        least = self.min_replicas if wanted.min_replicas is None else wanted.min_replicas
        return replace(
            self,
            min_replicas=min(least, most),
            max_replicas=most,
            paused_directions=self.paused_directions | wanted.paused_directions,
            schedule=(),
        )


@dataclass(frozen=True, slots=True)
class TimestampedRecommendation:
    """A count that was wished for at a time."""

    time: float
    replicas: int


@dataclass(frozen=True, slots=True)
class ScaleUpEvaluation:
    """A scale-out whose effect is not known yet: what there was before it.

    `consumption_rate` is bytes/s of the whole group; `joined_at` is when `joined_replicas` replicas had joined.
    """

    time: float
    replicas: int
    consumption_rate: float
    joined_at: float = 0.0
    joined_replicas: int = 0


@dataclass(frozen=True, slots=True)
class ScaleUpSuspension:
    """Why and until when growing stops."""

    until: float
    reason: str


@dataclass(frozen=True, slots=True)
class SaturatedConsumer:
    """A consumer that has been behind with all it reads since a time, and what it reads."""

    since: float
    owned_partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class DecisionMemory:
    """What a decision remembers.

    All of it may be lost; then the sidecar is only more cautious for a while, except that it has
    forgotten, as the HPA does, the changes that policies with a period count (`scale_events`).

    Times are seconds since the epoch. `replacements` holds the starts of replicas for dead ones and
    for a restart; `last_placement` is the placement at the last request for a better one. `unknown_iterations` counts
    turns in a row in which no write speed was known. `idle_since` is since when nothing was written and
    nothing waited. `age_samples` are the ages of what waited lately. `learned_capacities` are capacities in bytes/s
    by instance. `short_since` is since when fewer replicas run than planned.
    """

    recommendations: tuple[TimestampedRecommendation, ...] = ()
    last_change: float | None = None
    scale_events: tuple[ScaleEvent, ...] = ()
    replacements: tuple[float, ...] = ()
    short_since: float | None = None
    last_placement: frozenset[tuple[TopicPartition, str]] = frozenset()
    unknown_iterations: int = 0
    idle_since: float | None = None
    age_samples: tuple[AgeSample, ...] = ()
    scale_up_evaluation: ScaleUpEvaluation | None = None
    scale_up_suspension: ScaleUpSuspension | None = None
    saturated: Mapping[str, SaturatedConsumer] = field(default_factory=dict[str, SaturatedConsumer])
    learned_capacities: Mapping[str, float] = field(default_factory=dict[str, float])

    def keep_recent_recommendations(self, now: float, horizon: float) -> "DecisionMemory":
        """Return the memory without the wishes older than `horizon` seconds, or from the future.

        The future comes about when the clock is set back.
        """
        kept = tuple(w for w in self.recommendations if now - horizon <= w.time <= now)
        return replace(self, recommendations=kept)

    def record_scaling(self, now: float, replica_change: int) -> "DecisionMemory":
        """Return the memory with a change of the count in it, without those no policy counts."""
        kept = (c for c in self.scale_events if now - MAX_POLICY_PERIOD_S < c.time <= now)
        changes = (*kept, ScaleEvent(now, replica_change)) if replica_change else tuple(kept)
        return replace(self, last_change=now, scale_events=changes, short_since=None)

    def seconds_since_change(self, now: float) -> float:
        """Return the seconds since the last change; infinite if there was none."""
        return float("inf") if self.last_change is None else max(0.0, now - self.last_change)
