"""What was decided, from which numbers and why, and the one line that says so."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trimtab.assignor.model import Move, PlacementPlan
from trimtab.common.control_topics.values import GroupPlan
from trimtab.common.units import format_bytes, format_count, format_rate
from trimtab.sidecar.measurement.observation import Observation
from trimtab.sidecar.measurement.queue_backlog import QueueBacklog, QueueKind

MAX_LISTED_MOVES: Final = 20
"""Moves of one verdict that are told one by one; the others are only counted."""


class ScalingAction(StrEnum):
    """What a verdict asks for."""

    HOLD = "hold"
    ANNOUNCE = "announce"  # publish a first plan, or one with new settings
    ADOPT = "adopt"  # record the count or the drained members as they are found; moves nothing
    ADOPT_EXTERNAL = "follow"  # take over the count that somebody else set
    SCALE_UP = "scale-out"
    REPLACE = "replace"
    SURGE = "surge"  # one more, so that another can be replaced
    DRAIN = "drain"
    RETRY_DRAIN = "drain-retry"
    CANCEL_DRAIN = "undrain"
    STOP = "stop"
    PLACE = "place"


@dataclass(frozen=True, slots=True)
class DecisionMetrics:
    """Inputs of a decision: rates in bytes/s, backlog in bytes; None where unknown.

    `late` is the backlog that has waited for longer than the allowance, `consumed` what the group
    consumes, None if unknown of a partition that is late; `freshness` estimates the p99 of produced
    to committed and `batch` is how long a batch may be for the goal, both in seconds. `running`
    counts live replicas that are not draining, `wished` is what the load alone asks for now,
    `wanted` what is left of it after dead band, limits and windows; `fill` is the fullest
    consumer's needed rate / capacity; `r_score` and `moves` are what the verdict is expected to
    cost. `crossing` is the part of `needed` that is read from other racks; `stranded` counts
    partitions with no replica in any consumer's rack, `unmanned` racks with replicas and without a
    consumer: None where no consumer says its rack. `queue` is the kind of the queue, None of none,
    and of its messages so many are `waiting`, `working` and `returned`, as in `QueueBacklog`.
    """

    written: float | None = None
    needed: float | None = None
    backlog: float | None = None
    late: float | None = None
    consumed: float | None = None
    freshness: float | None = None
    batch: float | None = None
    unknown: int = 0
    partitions: int = 0
    running: int | None = None
    planned: int | None = None
    wished: int | None = None
    wanted: int | None = None
    fill: float | None = None
    r_score: float = 0.0
    moves: int = 0
    crossing: float | None = None
    stranded: int | None = None
    unmanned: int | None = None
    queue: str | None = None
    waiting: int | None = None
    working: int | None = None
    returned: int | None = None

    @property
    def queue_summary(self) -> str | None:
        """Return "3 messages wait, …"; None where it is no queue."""
        if self.queue is None:
            return None
        return str(QueueBacklog(QueueKind(self.queue), self.waiting, self.working, self.returned))

    @property
    def replica_summary(self) -> str:
        """Return "2 running, 2 planned, 3 wanted"."""
        running, planned = format_count(self.running), format_count(self.planned)
        return f"{running} running, {planned} planned, {format_count(self.wanted)} wanted"


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """What to do: publish `plan` if there is one, start `add` replicas, stop those of `stop`.

    `expected` are the moves that the leader is expected to make of it, the largest ones.
    """

    action: ScalingAction
    reasons: tuple[str, ...]
    numbers: DecisionMetrics
    plan: GroupPlan | None = None
    add: int = 0
    stop: tuple[str, ...] = ()
    expected: tuple[Move, ...] = ()

    def agrees_with(self, other: "ScalingDecision") -> bool:
        """Tell whether the other verdict asks for the same; numbers and reasons may differ."""
        return _decision_key(self) == _decision_key(other)

    def format_line(self) -> str:
        """Return one readable line."""
        n = self.numbers
        load = (
            f"writing {format_rate(n.written)}, needed {format_rate(n.needed)}, "
            f"backlog {format_bytes(n.backlog)}, "
            f"fullest {'?' if n.fill is None else f'{n.fill:.0%}'}"
        )
        load += f", {n.queue_summary}" if n.queue_summary else ""
        reading = "" if n.consumed is None else f", consuming {format_rate(n.consumed)}"
        crossing = "" if n.crossing is None else f", {format_rate(n.crossing)} across racks"
        unknown = f", {n.unknown} of {n.partitions} partitions unknown" if n.unknown else ""
        cost = f", R {n.r_score:.2f}, {n.moves} moves" if n.moves else ""
        epoch = f", epoch {self.plan.epoch}" if self.plan else ""
        figures = f"{n.replica_summary}; {load}{reading}{crossing}{unknown}{cost}{epoch}"
        return f"{self.action}: {'; '.join(self.reasons)} ({figures})"


def select_largest_moves(plan: PlacementPlan | None) -> tuple[Move, ...]:
    """Return the `MAX_LISTED_MOVES` moves of a placement that move the most load; none of no placement."""
    moves = () if plan is None else plan.moves
    return tuple(sorted(moves, key=lambda m: (-m.write_rate, m.partition))[:MAX_LISTED_MOVES])


def compute_totals(observation: Observation) -> DecisionMetrics:
    """Return the totals over what is known; None where nothing is."""
    speeds, queue = observation.write_rates.values(), observation.queue
    written = [s.bytes_per_s for s in speeds if s.bytes_per_s is not None]
    weights = [s.weight for s in speeds if s.weight is not None]
    backlog = [s.backlog_bytes for s in speeds if s.backlog_bytes is not None]
    return DecisionMetrics(
        written=sum(written) if written else None,
        needed=sum(weights) if weights else None,
        backlog=sum(backlog) if backlog else None,
        unknown=sum(s.weight is None for s in speeds),
        partitions=len(observation.write_rates),
        queue=None if queue is None else queue.kind.value,
        waiting=None if queue is None else queue.waiting,
        working=None if queue is None else queue.in_flight,
        returned=None if queue is None else queue.returned,
    )


def _decision_key(decision: ScalingDecision) -> tuple[object, ...]:
    plan = decision.plan
    asked = None if plan is None else (plan.epoch, plan.replicas, plan.draining)
    return decision.action, asked, decision.add, decision.stop
