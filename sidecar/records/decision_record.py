"""Records of the decision topic: the last decisions of each group, as versioned JSON.

1. A group has `RECORD_SLOTS` keys, used as a ring.
2. Consecutive iterations with the same decision and reasons (ignoring figures) are one record with
   the newest figures, from `time` until `until`.
3. An observed move belongs to the iteration that observed it, possibly later than the decision that
   expected it. The first `MAX_LISTED_MOVES` are listed, the others counted.
4. A record names its author. A sidecar that shuts down rewrites its last record as final.
5. The outcome is that of the plan in force, possibly one that an earlier record decided: epoch and
   revision tell which.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.number_ranges import Count, Figure, Fraction, PositiveFigure, Timestamp
from trimtab.common.control_topics.versioned_json import decode_control_value, encode_control_value
from trimtab.sidecar.decision.condition import Condition, mask_figures
from trimtab.sidecar.decision.decision import MAX_LISTED_MOVES, DecisionMetrics, ScalingAction, join_reasons
from trimtab.sidecar.measurement.commit_interval import CommitInterval
from trimtab.sidecar.measurement.load_forecast import ForecastStatus
from trimtab.sidecar.measurement.record_cost import RecordCostStatus
from trimtab.sidecar.measurement.record_sizes import SizeStatus
from trimtab.sidecar.plan_carrier import CarrierStatus
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.records.plan_outcome import PlanOutcome

RECORD_SLOTS: Final = 128  # keys of a group: the compacted topic stays bounded


@dataclass(frozen=True, slots=True)
class SidecarIdentity:
    """The author of a decision; `started_at` is in seconds since the epoch."""

    id: str  # shared by sidecars that a lease or a state directory lock excludes from each other
    host: str
    pid: int
    started_at: Timestamp
    ownership_term: Count = 0  # increases with each takeover of the group; 0: inactive

    def __str__(self) -> str:
        """Return host, pid and start time."""
        started_at = datetime.fromtimestamp(self.started_at, UTC)
        return f"{self.host} (pid {self.pid}, since {started_at:%F %T} UTC)"


@dataclass(frozen=True, slots=True)
class RecordedMove:
    """An observed or expected move of a partition."""

    topic: str
    partition: int
    source: str | None
    target: str
    load_bytes_per_s: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision repeated by `iterations` iterations, from `time` until `until` (epoch seconds)."""

    group: str
    number: Count
    time: Timestamp
    until: Timestamp
    iterations: Count
    interval: Figure  # readers derive the author's silence timeout from it
    epoch: Count
    action: ScalingAction
    reasons: tuple[str, ...]
    metrics: DecisionMetrics
    capacity: PositiveFigure  # bytes/s of one consumer
    headroom: Fraction
    replicas: int | None = None  # of the published plan; None without one
    draining: tuple[str, ...] = ()
    replicas_to_start: int = 0
    replicas_to_stop: tuple[str, ...] = ()
    expected_moves: tuple[RecordedMove, ...] = ()
    observed_moves: tuple[RecordedMove, ...] = ()
    observed_move_count: int = 0
    observed_move_bytes_per_s: float = 0.0
    partitions_by_instance: Mapping[str, int] = field(default_factory=dict[str, int])
    conditions: tuple[Condition, ...] = ()  # as of `until`
    author: SidecarIdentity | None = None
    is_final: bool = False
    failure: str = ""
    revision: Count = 0  # of the published plan's target; 0 without one
    outcome: PlanOutcome | None = None  # None without a target, and in records of earlier versions
    carrier: CarrierStatus | None = None  # None: the group's members carry plans out themselves
    is_advice: bool = False  # of an advisory sidecar: nothing is done
    forecast: ForecastStatus | None = None  # None without a season
    record_cost: Figure = 0.0  # bytes that a record weighs beyond its own, in all rates and backlogs
    learned_record_cost: RecordCostStatus | None = None  # None if it is not learned
    rare_commits: CommitInterval | None = None  # None if the group commits within the grace
    record_sizes: SizeStatus | None = None  # None while no size is known

    @property
    def reason_text(self) -> str:
        """Reasons, and the failure if the decision was not carried out."""
        return join_reasons(self.reasons, self.failure)

    @property
    def key(self) -> str:
        """Key of the record in the decision topic."""
        return json.dumps([self.group, self.number % RECORD_SLOTS])

    @property
    def usable_capacity(self) -> float:
        """Maximum planned load of a consumer in bytes/s."""
        return self.capacity * self.headroom

    def encode(self) -> bytes:
        """Return the record's value; equal records give equal bytes."""
        return encode_control_value(asdict(self))

    @classmethod
    def decode(cls, value: bytes) -> "DecisionRecord":
        """Read a record's value. Raises InvalidPayloadError."""
        return decode_control_value(cls, value, "decision")


@dataclass(frozen=True, slots=True)
class RecordTerms:
    """Fields common to all records of a sidecar, under the record's own names."""

    group: str
    interval: float
    capacity: float
    headroom: float
    record_cost: float = 0.0


def build_decision_record(
    report: IterationReport, terms: RecordTerms, author: SidecarIdentity | None = None
) -> DecisionRecord:
    """Return the record of one iteration, without a number."""
    decision = report.decision
    plan = decision.plan
    observed = [
        RecordedMove(*move.partition, move.source, move.target, _get_load(report, move.partition))
        for move in report.observed_moves
    ]
    expected = [
        RecordedMove(*move.partition, move.source, move.target, move.write_rate, move.reason)
        for move in decision.expected_moves
    ]
    return DecisionRecord(
        **asdict(terms),
        number=0,
        time=report.time,
        until=report.time,
        iterations=1,
        epoch=report.epoch,
        action=decision.action,
        reasons=decision.reasons,
        metrics=decision.metrics,
        replicas=None if plan is None else plan.replicas,
        draining=() if plan is None else plan.draining,
        replicas_to_start=decision.replicas_to_start,
        replicas_to_stop=decision.replicas_to_stop,
        expected_moves=tuple(expected),
        observed_moves=tuple(observed[:MAX_LISTED_MOVES]),
        observed_move_count=len(observed),
        observed_move_bytes_per_s=report.moved_load,
        partitions_by_instance={m.instance or m.id: len(m.owned_partitions) for m in report.members},
        conditions=report.conditions,
        author=author,
        failure=decision.failure,
        revision=0 if plan is None or plan.target is None else plan.target.revision,
        outcome=report.plan_outcome,
        carrier=report.carrier,
        is_advice=decision.is_advice,
        forecast=report.forecast,
        learned_record_cost=report.learned.record_cost,
        rare_commits=report.learned.rare_commits,
        record_sizes=report.learned.record_sizes,
    )


def merge_decision_record(previous: DecisionRecord | None, new: DecisionRecord) -> DecisionRecord:
    """Return the new record with its number, merged with an equal previous decision."""
    if previous is None:
        return new
    if _get_comparison_key(previous) != _get_comparison_key(new):
        return replace(new, number=previous.number + 1)
    return replace(
        new,
        number=previous.number,
        time=previous.time,
        iterations=previous.iterations + 1,
        expected_moves=new.expected_moves or previous.expected_moves,
        observed_moves=(*previous.observed_moves, *new.observed_moves)[:MAX_LISTED_MOVES],
        observed_move_count=previous.observed_move_count + new.observed_move_count,
        observed_move_bytes_per_s=previous.observed_move_bytes_per_s + new.observed_move_bytes_per_s,
    )


def _get_load(report: IterationReport, partition: TopicPartition) -> float | None:
    load = report.write_rates.get(partition)
    return None if load is None else load.weight


def _get_comparison_key(record: DecisionRecord) -> tuple[object, ...]:
    # figures change with every measurement; without them idle days are one record, not a full ring
    texts = tuple(mask_figures(reason) for reason in (*record.reasons, record.failure))
    metrics = record.metrics
    return (
        (record.action, record.replicas, record.draining, record.replicas_to_start, record.replicas_to_stop),
        (metrics.planned_replicas, metrics.desired_replicas, record.capacity, record.headroom),
        (texts, record.author, record.record_cost),
        frozenset((one.type, one.reason, one.status) for one in record.conditions),
    )
