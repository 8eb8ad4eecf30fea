"""What became of a plan's target: owners compared with it once the group is stable. Pure.

1. A plan is known by its epoch and its target's revision. A plan without a target has no outcome.
2. The group is compared only while it is stable; in between the last outcome stands.
3. The plan is settled once every partition has an owner, no consumer has yet to join, and the owners
   are those of the target or have changed since the plan. Moves, R-score and fill are those of that
   moment; later differences only count as off plan.
4. Moves and R-score are the changes of owner since the observation the plan was decided on, with the
   loads of then: they equal the planned ones if and only if the plan was carried out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from trimtab.common.control_topics.number_ranges import Count
from trimtab.sidecar.measurement.observation import Observation

MAX_LISTED_ELSEWHERE: Final = 20  # partitions listed one by one in an outcome; the others are only counted


@dataclass(frozen=True, slots=True)
class PartitionElsewhere:
    """A partition that another consumer than the planned one owns."""

    topic: str
    partition: int
    planned: str  # consumer, or "+1" for a place that no consumer has taken
    owner: str | None
    reason: str  # empty if the planned consumer is there


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The target of a plan as it is carried out."""

    epoch: Count
    revision: Count
    moves: int | None  # None, as the R-score: the plan was published before this sidecar started
    r_score: float | None
    max_fill: float | None  # required rate / capacity of the fullest consumer
    off_plan: int  # partitions elsewhere
    is_settled: bool = False
    elsewhere: tuple[PartitionElsewhere, ...] = ()  # the first `MAX_LISTED_ELSEWHERE`
    consumer_by_place: Mapping[str, str] = field(default_factory=dict[str, str])  # "+1": "worker-3"


@dataclass(frozen=True, slots=True)
class PlanTracker:
    """Follows the plan in force from one observation to the next."""

    outcome: PlanOutcome | None = None
    last: Observation | None = None
    before: Observation | None = None  # the last one without the plan; None: it is older than this sidecar

    def track_outcome(self, seen: Observation) -> "PlanTracker":
        """Return the tracker with the outcome as of an observation."""
        return replace(self, last=seen)
