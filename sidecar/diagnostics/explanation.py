"""Explains a group's replica count and placement in sentences, from decision records. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.common.units import format_age, format_bytes, format_count, format_rate
from trimtab.sidecar.decision.decision import ScalingAction
from trimtab.sidecar.diagnostics.group_status import is_fresh
from trimtab.sidecar.records.decision_record import DecisionRecord, RecordedMove
from trimtab.sidecar.records.plan_outcome import PlanOutcome

MAX_EXPLAINED_MOVES: Final = 10
OVERLOAD_TOLERANCE: Final = 1e-6  # in consumers: sums of floats are inexact

SENTENCE_BY_ACTION: Final = {
    ScalingAction.HOLD: "no change",
    ScalingAction.ANNOUNCE: "a plan is published",
    ScalingAction.ADOPT: "the plan adopts the existing consumers",
    ScalingAction.ADOPT_EXTERNAL: "the plan adopts an externally set count",
    ScalingAction.SCALE_UP: "replicas are started",
    ScalingAction.REPLACE: "missing replicas are started",
    ScalingAction.SURGE: "one more replica is started before another is replaced",
    ScalingAction.DRAIN: "replicas are drained",
    ScalingAction.RETRY_DRAIN: "the drain is requested again",
    ScalingAction.CANCEL_DRAIN: "draining replicas stay",
    ScalingAction.STOP: "drained replicas are stopped",
    ScalingAction.PLACE: "a new placement is requested",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decision at a time, and earlier ones that are still in effect (None if not recorded)."""

    decision: DecisionRecord
    last_change: DecisionRecord | None  # of the count or the plan
    last_plan_with_moves: DecisionRecord | None
    last_observed_moves: DecisionRecord | None
    history: tuple[DecisionRecord, ...]
    plan_outcome: PlanOutcome | None = None  # of the last plan with moves
    moves_since_plan: int = 0  # observed since then

    @property
    def has_other_moves(self) -> bool:
        """Whether partitions have moved that the outcome of the last plan does not count."""
        outcome = self.plan_outcome
        return outcome is None or not outcome.is_settled or self.moves_since_plan > (outcome.moves or 0)


@dataclass(frozen=True, slots=True)
class AlternativeCount:
    """Cost of another replica count now."""

    consumers: int
    moves: int
    moved_bytes_per_s: float
    r_score: float
    fill: float
    fits: bool


def build_explanation(
    records: Sequence[DecisionRecord], as_of: float | None, number: int
) -> Explanation | None:
    """Return the explanation at `as_of` (seconds since the epoch; None: now).

    None if no decision is older than that. `number` limits the history.
    """
    begun = [r for r in records if as_of is None or r.time <= as_of]
    if not begun:
        return None
    newest_first = begun[::-1]
    planned = next((r for r in newest_first if r.expected_moves), None)
    since = [r for r in begun if planned is not None and r.time > planned.time]
    return Explanation(
        decision=begun[-1],
        last_change=next((r for r in newest_first if _is_change(r)), None),
        last_plan_with_moves=planned,
        last_observed_moves=next((r for r in newest_first if r.observed_move_count), None),
        history=tuple(begun[-number:]) if number else (),
        plan_outcome=None if planned is None else _find_outcome(newest_first, planned),
        moves_since_plan=sum(r.observed_move_count for r in since),
    )


def _find_outcome(newest_first: Sequence[DecisionRecord], planned: DecisionRecord) -> PlanOutcome | None:
    outcomes = (r.outcome for r in newest_first if r.outcome is not None)
    key = (planned.epoch, planned.revision)
    return next((outcome for outcome in outcomes if (outcome.epoch, outcome.revision) == key), None)


def build_explanation_body(
    explanation: Explanation, alternatives: Iterable[AlternativeCount]
) -> dict[str, Any]:
    """Return the JSON form of an explanation: seconds, bytes and bytes/s, None if unknown."""
    return {**asdict(explanation), "alternatives": [asdict(a) for a in alternatives]}


def explain_count(explanation: Explanation, now: float) -> tuple[str, ...]:
    """Explain the replica count, one sentence per item."""
    last = explanation.decision
    change = explanation.last_change
    lines = [_describe_replicas(last, now), *_describe_load(last), *_describe_limits(last)]
    if not _is_change(last):
        decided = str(last.action) if last.is_advice else SENTENCE_BY_ACTION[last.action]
        lines.append(f"Last decision: {decided}: {last.reason_text}.")
    if change is not None:
        when = "Now" if change is last else f"{format_age(now - change.time)} ago"
        reasons = change.reason_text
        lines.append(f"{when} {SENTENCE_BY_ACTION[change.action]}: {reasons}.")
    author = last.author or "a sidecar"
    if is_fresh(last, now):
        lines.append(f"Active sidecar: {author}.")
        lines += [] if last.carrier is None else [f"{last.carrier.format_line()}."]
    else:
        ended = f"; {author} has ended" if last.is_final else ""
        lines.append(f"No decision for {format_age(now - last.until)}: no sidecar is active{ended}.")
    return tuple(lines)


def explain_placement(explanation: Explanation, now: float) -> tuple[str, ...]:
    """Explain the placement: the moves, their reasons and their cost."""
    if explanation.decision.metrics.queue_kind == QueueKind.SHARE:
        return ("The broker delivers messages of every partition to every worker: no placement.",)
    # a decision expects moves; later iterations observe them, after the group has rebalanced
    planned = explanation.last_plan_with_moves
    observed = explanation.last_observed_moves
    lines = list[str]()
    if planned is not None:
        lines += _describe_plan(planned, explanation.plan_outcome, now)
    if observed is not None and explanation.has_other_moves:
        count, rate = observed.observed_move_count, observed.observed_move_bytes_per_s
        age = format_age(now - observed.time)
        cost = f", R {rate / observed.capacity:.2f}" if observed.capacity else ""
        lines.append(f"{_count_partitions(count)} moved since {age} ago: {format_rate(rate)} in total{cost}.")
        lines += _format_moves(observed.observed_moves, count)
    lines += _describe_racks(explanation.decision)
    return tuple(lines) or ("No recorded decision moved a partition.",)


def explain_alternatives(alternatives: Iterable[AlternativeCount], current: int) -> tuple[str, ...]:
    """Describe the cost of other counts; `current` is the present count."""
    return tuple(
        f"{a.consumers} ({'one fewer' if a.consumers < current else 'one more'}): "
        f"{_count_partitions(a.moves)} would move, {format_rate(a.moved_bytes_per_s)}, R {a.r_score:.2f}; "
        f"maximum fill {a.fill:.0%}{'' if a.fits else ', which is too high'}."
        for a in alternatives
    )


def format_decision_line(record: DecisionRecord) -> str:
    """Return a decision of the history in one line, without its time."""
    n = record.metrics
    count = record.observed_move_count
    iterations = f", {format_count(record.iterations, 'iteration')}" if record.iterations > 1 else ""
    moves = f", {_count_partitions(count)} moved" if count else ""
    return (
        f"{record.action}: {record.reason_text} ({n.replica_summary}; "
        f"required {format_rate(n.required_rate)}{moves}{iterations})"
    )


def _is_change(record: DecisionRecord) -> bool:
    return record.action is not ScalingAction.HOLD and not record.is_advice


def _describe_replicas(last: DecisionRecord, now: float) -> str:
    n = last.metrics
    return (
        f"{n.describe_running('replica')}, "
        f"{format_count(n.planned_replicas)} planned (epoch {last.epoch}), "
        f"{format_count(n.desired_replicas)} desired, as of {format_age(now - last.until)} ago."
    )


def _describe_load(last: DecisionRecord) -> Iterable[str]:
    n = last.metrics
    usable = last.usable_capacity
    if n.queue_summary is not None:
        yield f"Queue of kind {n.queue_kind}: {n.queue_summary}."
    if n.required_rate is None:
        yield "The load is unknown: no write rate is known."
        return
    # lower bound of bin packing: partitions that fill every consumer exactly
    least = math.ceil(n.required_rate / usable - OVERLOAD_TOLERANCE) if usable else 0
    yield (
        f"Write rate {format_rate(n.write_rate)} and backlog {format_bytes(n.backlog_bytes)} "
        f"need {format_rate(n.required_rate)} in total; at {format_rate(usable)} per "
        f"consumer ({last.headroom:.0%} of {format_rate(last.capacity)}) at least "
        f"{format_count(least, 'consumer')}."
    )
    yield from _describe_weights(last)
    told = (last.record_sizes, last.rare_commits)
    yield from (f"{status.format_line()}." for status in told if status is not None)
    if n.max_fill is not None:
        yield f"The fullest consumer needs {n.max_fill:.0%} of its capacity."
    if n.recommended_replicas is not None and n.recommended_replicas > max(1, least):
        yield f"The load needs {n.recommended_replicas}: partitions cannot be split to fill every consumer."


def _describe_weights(last: DecisionRecord) -> Iterable[str]:
    if last.record_cost:
        cost = format_bytes(last.record_cost)
        yield f"Rates, backlogs and capacities count {cost} for each record (record-cost)."
    learned = (last.learned_record_cost, last.forecast)
    yield from (f"{status.format_line()}." for status in learned if status is not None)
    if last.learned_record_cost is not None and last.learned_record_cost.is_used:
        yield "Rates, backlogs and learned capacities count records by that cost: not bytes on the wire."


def _describe_plan(planned: DecisionRecord, outcome: PlanOutcome | None, now: float) -> Iterable[str]:
    n = planned.metrics
    fill = "" if n.planned_fill is None else f", fullest consumer {n.planned_fill:.0%}"
    plan = (
        f"{format_age(now - planned.time)} ago ({planned.action}) {_count_partitions(n.moves)} had to move, "
        f"R {n.r_score:.2f} (the moved load in consumer capacities){fill}."
    )
    yield plan if outcome is None else f"{plan} {_describe_outcome(outcome)}"
    places = {} if outcome is None else outcome.consumer_by_place
    moves = [replace(move, target=places.get(move.target, move.target)) for move in planned.expected_moves]
    yield from _format_moves(moves, n.moves)
    for one in () if outcome is None else outcome.elsewhere[:MAX_EXPLAINED_MOVES]:
        reason = f": {one.reason}" if one.reason else ""
        yield f"  {one.topic}-{one.partition} is at {one.owner or 'no consumer'}, not {one.planned}{reason}"


def _describe_outcome(outcome: PlanOutcome) -> str:
    if not outcome.is_settled:
        return f"Not carried out yet: {outcome.describe_difference()}."
    if outcome.moves is None:
        return f"Done: {outcome.describe_difference()}."
    fill = "?" if outcome.max_fill is None else f"{outcome.max_fill:.0%}"
    return (
        f"Done: {_count_partitions(outcome.moves)} moved, R {outcome.r_score or 0.0:.2f}, "
        f"fullest consumer {fill}; {outcome.describe_difference()}."
    )


def _describe_racks(last: DecisionRecord) -> Iterable[str]:
    n = last.metrics
    if n.cross_rack_rate is None:
        return
    share = f", {n.cross_rack_rate / n.required_rate:.0%} of the required rate" if n.required_rate else ""
    yield f"Cross-rack traffic: {format_rate(n.cross_rack_rate)}{share}."
    if n.partitions_without_local_replica:
        partitions = _count_partitions(n.partitions_without_local_replica)
        yield f"{partitions} without a replica in any consumer's rack."
    if n.racks_without_consumer:
        yield f"Racks with replicas but without a consumer: {n.racks_without_consumer}."


def _describe_limits(last: DecisionRecord) -> Iterable[str]:
    recommended, desired = last.metrics.recommended_replicas, last.metrics.desired_replicas
    if None not in (recommended, desired) and recommended != desired:
        yield f"The load recommends {recommended}; limits, tolerance and windows make it {desired}."
    if last.action is ScalingAction.HOLD and desired != last.metrics.planned_replicas:
        # the first reason is the desired count; the others are limits
        yield f"Limited by: {'; '.join(last.reasons[1:]) or last.reasons[0]}."


def _format_moves(moves: Sequence[RecordedMove], count: int) -> Iterable[str]:
    for move in moves[:MAX_EXPLAINED_MOVES]:
        reason = f": {move.reason}" if move.reason else ""
        yield (
            f"  {move.topic}-{move.partition} {move.source or 'unassigned'} -> {move.target} "
            f"({format_rate(move.load_bytes_per_s)}){reason}"
        )
    if count > MAX_EXPLAINED_MOVES:
        yield f"  and {count - min(MAX_EXPLAINED_MOVES, len(moves))} more"


def _count_partitions(number: int) -> str:
    return format_count(number, "partition")
