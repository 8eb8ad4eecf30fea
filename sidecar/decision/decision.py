"""The scaling decision: action, reasons, metrics, and its log line."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from trimtab.assignor.model import Move, PlacementPlan
from trimtab.common.control_topics.number_ranges import Figure
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.common.units import format_bytes, format_count, format_rate
from trimtab.sidecar.model.observation import Observation
from trimtab.sidecar.model.queue_backlog import QueueBacklog

MAX_LISTED_MOVES: Final = 20  # moves listed one by one in a decision; the others are only counted


class ScalingAction(StrEnum):
    """Action of a scaling decision."""

    HOLD = "hold"
    ANNOUNCE = "announce"  # publish a first plan, or one with new settings
    ADOPT = "adopt"  # record observed count or stopped members; moves nothing
    ADOPT_EXTERNAL = "adopt-external"  # plan the count set by others
    SCALE_UP = "scale-up"
    REPLACE = "replace"
    SURGE = "surge"  # one extra replica during a restart
    DRAIN = "drain"
    RETRY_DRAIN = "retry-drain"
    CANCEL_DRAIN = "cancel-drain"
    STOP = "stop"
    PLACE = "place"


REPLICA_ACTIONS: Final = frozenset(  # in advisory mode they are only reported
    {
        ScalingAction.SCALE_UP,
        ScalingAction.REPLACE,
        ScalingAction.SURGE,
        ScalingAction.DRAIN,
        ScalingAction.CANCEL_DRAIN,
        ScalingAction.STOP,
    }
)


@dataclass(frozen=True, slots=True)
class DecisionMetrics:
    """Inputs and outcome of a decision; None where unknown. Rates are bytes/s."""

    write_rate: Figure | None = None
    required_rate: Figure | None = None
    backlog_bytes: Figure | None = None
    overdue_backlog_bytes: Figure | None = None  # waiting longer than the backlog grace
    consumption_rate: Figure | None = None  # None if it is unknown for an overdue partition
    p99_freshness_s: float | None = None  # estimated time from produced to committed
    freshness_slo_s: float | None = None  # the objective; None: not set
    max_batch_s: float | None = None  # batch age that the freshness SLO allows
    unknown_partitions: int = 0
    partitions: int = 0
    running_replicas: int | None = None  # live and not draining
    joined_replicas: int | None = None  # of these; None in records of earlier versions
    planned_replicas: int | None = None
    recommended_replicas: int | None = None  # by the load alone
    desired_replicas: int | None = None  # after tolerance, limits and windows
    max_fill: float | None = None  # required rate / capacity of the fullest consumer
    r_score: float = 0.0  # of the placement that the decision publishes, as are the moves
    moves: int = 0
    planned_fill: float | None = None  # of its fullest consumer; None if it publishes no placement
    cross_rack_rate: float | None = None  # part of `required_rate`; None if no consumer reports its rack
    partitions_without_local_replica: int | None = None  # none in any consumer's rack
    racks_without_consumer: int | None = None  # racks that have replicas only
    queue_kind: str | None = None  # None without a queue; the counts are those of `QueueBacklog`
    queue_waiting: int | None = None
    queue_in_flight: int | None = None
    queue_awaiting_redelivery: int | None = None

    @property
    def queue_summary(self) -> str | None:
        """Return "3 messages waiting, …"; None without a queue."""
        if self.queue_kind is None:
            return None
        counts = (self.queue_waiting, self.queue_in_flight, self.queue_awaiting_redelivery)
        return str(QueueBacklog(QueueKind(self.queue_kind), *counts))

    @property
    def placement_summary(self) -> str:
        """Return ": R 0.72, 5 moves, fullest 88%"; empty without a placement."""
        if self.planned_fill is None:
            return ""
        moves = format_count(self.moves, "move")
        return f": R {self.r_score:.2f}, {moves}, fullest {self.planned_fill:.0%}"

    @property
    def replica_summary(self) -> str:
        """Return "2 running, 2 planned, 3 desired", without counts that are unknown."""
        counts = {"planned": self.planned_replicas, "desired": self.desired_replicas}
        known = [f"{count} {name}" for name, count in counts.items() if count is not None]
        return ", ".join((self.describe_running(), *known))

    @property
    def load_summary(self) -> str:
        """Return "writing 1.6 MB/s, required 1.6 MB/s, backlog 1.1 MB, fullest 92%"."""
        if (self.write_rate, self.required_rate, self.backlog_bytes, self.max_fill) == (None,) * 4:
            return "load unknown"
        return (
            f"writing {format_rate(self.write_rate)}, required {format_rate(self.required_rate)}, "
            f"backlog {format_bytes(self.backlog_bytes)}, "
            f"fullest {'?' if self.max_fill is None else f'{self.max_fill:.0%}'}"
        )

    def describe_running(self, noun: str = "") -> str:
        """Return "2 running", with a noun after the number, or "3 started, 0 joined"."""
        running = format_count(self.running_replicas, noun)
        if self.joined_replicas in (None, self.running_replicas):
            return f"{running} running"
        return f"{running} started, {self.joined_replicas} joined"


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """A decision: publish `plan` if set, start `replicas_to_start`, stop `replicas_to_stop`."""

    action: ScalingAction
    reasons: tuple[str, ...]
    metrics: DecisionMetrics
    plan: GroupPlan | None = None
    replicas_to_start: int = 0
    replicas_to_stop: tuple[str, ...] = ()
    expected_moves: tuple[Move, ...] = ()  # the largest ones that the leader should make
    failure: str = ""  # why the decision could not be executed
    is_advice: bool = False  # of an advisory sidecar: nothing is done

    def moves(self, observation: Observation) -> bool:
        """Return whether the plan makes the group's leader rebalance."""
        before = observation.plan
        return self.plan is not None and before is not None and self.plan.epoch > before.epoch

    def agrees_with(self, other: "ScalingDecision") -> bool:
        """Return whether both decisions act alike; metrics and reasons may differ."""
        return _action_key(self) == _action_key(other)

    @property
    def reason_text(self) -> str:
        """Reasons, and the failure if it was not carried out."""
        return join_reasons(self.reasons, self.failure)

    def format_line(self) -> str:
        """Return the decision as one log line."""
        n = self.metrics
        load = f"{n.load_summary}, {n.queue_summary}" if n.queue_summary else n.load_summary
        reading = "" if n.consumption_rate is None else f", consuming {format_rate(n.consumption_rate)}"
        cross_rack = "" if n.cross_rack_rate is None else f", {format_rate(n.cross_rack_rate)} across racks"
        unknown = n.unknown_partitions
        missing = f", {unknown} of {format_count(n.partitions, 'partition')} unknown" if unknown else ""
        plan = f"; plan {self.plan.epoch}{n.placement_summary}" if self.plan else ""
        figures = f"{n.replica_summary}; {load}{reading}{cross_rack}{missing}{plan}"
        return f"{self.action}: {self.reason_text} ({figures})"


def make_advice(decision: ScalingDecision) -> ScalingDecision:
    """Return the decision of an advisory sidecar: its plan is not published, and nothing moves."""
    metrics = replace(decision.metrics, r_score=0.0, moves=0, planned_fill=None)
    reasons = ("advice only: nothing is scaled here", *decision.reasons)
    return replace(decision, reasons=reasons, metrics=metrics, plan=None, expected_moves=(), is_advice=True)


def join_reasons(reasons: tuple[str, ...], failure: str) -> str:
    """Return the reasons of a decision and its failure, if any, as one text."""
    return "; ".join((*reasons, f"not done: {failure}") if failure else reasons)


def select_largest_moves(plan: PlacementPlan | None) -> tuple[Move, ...]:
    """Return the `MAX_LISTED_MOVES` largest moves of a placement, by bytes/s."""
    return () if plan is None else tuple(plan.moves.select_largest(MAX_LISTED_MOVES))


def compute_totals(observation: Observation) -> DecisionMetrics:
    """Return the totals over known values; None where none is known."""
    loads = observation.write_rates.values()
    queue = observation.queue
    written = [s.bytes_per_s for s in loads if s.bytes_per_s is not None]
    weights = [s.weight for s in loads if s.weight is not None]
    backlog = [s.backlog_bytes for s in loads if s.backlog_bytes is not None]
    return DecisionMetrics(
        write_rate=sum(written) if written else None,
        required_rate=sum(weights) if weights else None,
        backlog_bytes=sum(backlog) if backlog else None,
        unknown_partitions=sum(s.weight is None for s in loads),
        partitions=len(observation.write_rates),
        queue_kind=None if queue is None else queue.kind.value,
        queue_waiting=None if queue is None else queue.waiting,
        queue_in_flight=None if queue is None else queue.in_flight,
        queue_awaiting_redelivery=None if queue is None else queue.returned,
    )


def _action_key(decision: ScalingDecision) -> tuple[object, ...]:
    plan = decision.plan  # without reasons, time, revision and capacities, which differ from read to read
    planned = None if plan is None else (plan.epoch, plan.replicas, plan.draining, _target_key(plan.target))
    return decision.action, planned, decision.replicas_to_start, decision.replicas_to_stop


def _target_key(target: PlanTarget | None) -> tuple[object, ...]:
    return () if target is None else (target.consumers, target.places, target.partitions)
