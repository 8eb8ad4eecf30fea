"""The memory between decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.measurement.freshness import AgeSample
from trimtab.sidecar.model.hpa_behavior import MAX_POLICY_PERIOD_S, ScaleEvent


@dataclass(frozen=True, slots=True)
class TimestampedRecommendation:
    """A replica count recommended at `time`."""

    time: float
    replicas: int


@dataclass(frozen=True, slots=True)
class ScaleUpEvaluation:
    """A scale-up under evaluation, with the state before it."""

    time: float
    replicas: int
    consumption_rate: float  # of the group, bytes/s
    joined_at: float = 0.0
    joined_replicas: int = 0  # had joined at `joined_at`


@dataclass(frozen=True, slots=True)
class ScaleUpSuspension:
    """A suspension of scale-up until a time, with its reason."""

    until: float
    reason: str
    limit: "ConsumptionLimit | None" = None  # None: not all consumers lag
    most_replicas: int | None = None  # None: those that are planned


@dataclass(frozen=True, slots=True)
class ConsumptionLimit:
    """What the group reads at most, whatever its count, as measured over a window."""

    rate: float  # bytes/s
    replicas: int  # that should read as much
    tried: int  # fewest that were seen to
    measured_at: float
    first: int = 0  # count before any was taken back to find out; 0: a scale-up has shown the limit

    @property
    def is_trial(self) -> bool:
        """Whether no fewer replicas than before have read as much yet."""
        return self.tried == self.first


@dataclass(frozen=True, slots=True)
class SaturatedConsumer:
    """A consumer behind with all its partitions since a time."""

    since: float
    owned_partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class DecisionMemory:
    """Memory between two decisions; times are seconds since the epoch.

    All of it may be lost: the sidecar is then more cautious for a while, except that policies with
    a period forget their `scale_events`, as in the HPA.
    """

    recommendations: tuple[TimestampedRecommendation, ...] = ()
    last_change: float | None = None
    scale_events: tuple[ScaleEvent, ...] = ()
    replacements: tuple[float, ...] = ()  # starts of replicas for dead ones, and during a restart
    failed_start: str = ""  # why the last of these failed
    short_since: float | None = None  # since when fewer replicas run than planned
    overfull_since: float | None = None  # since when a consumer exceeds the headroom
    last_owners: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    last_placement: frozenset[tuple[TopicPartition, str]] = frozenset()  # when a better one was requested
    unknown_iterations: int = 0  # in a row, without a known write rate
    idle_since: float | None = None  # since when nothing was written or waiting
    age_samples: tuple[AgeSample, ...] = ()  # recent ages of waiting records
    scale_up_evaluation: ScaleUpEvaluation | None = None
    scale_up_suspension: ScaleUpSuspension | None = None
    useless_scale_ups: int = 0  # in a row
    replica_rate: float = (
        0.0  # most bytes/s that a replica was seen to read; 0: unknown, or nothing is behind
    )
    held_up_since: float | None = None  # since when all consumers are behind and read far below capacity
    vain_trial_capacity: float = 0.0  # configured one at which fewer replicas were tried in vain
    saturated: Mapping[str, SaturatedConsumer] = field(default_factory=dict[str, SaturatedConsumer])
    learned_capacities: Mapping[str, float] = field(default_factory=dict[str, float])  # bytes/s by instance

    def keep_recent_recommendations(self, now: float, horizon: float) -> "DecisionMemory":
        """Drop recommendations older than `horizon` seconds, or from the future."""
        # Those from the future were made before the clock was set back.
        kept = tuple(w for w in self.recommendations if now - horizon <= w.time <= now)
        return replace(self, recommendations=kept)

    def record_scaling(self, now: float, replica_change: int) -> "DecisionMemory":
        """Add a scale event; drop those beyond the longest policy period."""
        kept = (c for c in self.scale_events if now - MAX_POLICY_PERIOD_S < c.time <= now)
        changes = (*kept, ScaleEvent(now, replica_change)) if replica_change else tuple(kept)
        return replace(self, last_change=now, scale_events=changes, short_since=None)

    def forget_rates(self) -> "DecisionMemory":
        """Drop the rates of before records weighed otherwise: they are in another unit than those of now."""
        # not the saturated consumers: their rate over the window is measured anew in the new weights
        memory = replace(self, learned_capacities={}, scale_up_evaluation=None, replica_rate=0.0)
        return replace(memory, vain_trial_capacity=0.0)

    def seconds_since_change(self, now: float) -> float:
        """Return the seconds since the last change; infinite without one."""
        return float("inf") if self.last_change is None else max(0.0, now - self.last_change)
