"""Explains a group's replica count and placement in sentences, from decision records. Pure.

The decision at a time is the last one that began before it. The last decision that changed the
count or published a plan, and the last one with moves, are still in effect and explained as well.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from trimtab.common.choices import QueueKind
from trimtab.common.units import format_bytes, format_count, format_rate
from trimtab.sidecar.decision.decision import ScalingAction, join_reasons
from trimtab.sidecar.diagnostics.group_status import format_age, is_fresh
from trimtab.sidecar.reporting.decision_record import DecisionRecord, RecordedMove

MAX_EXPLAINED_MOVES: Final = 10
"""Moves that are listed one by one."""

OVERLOAD_TOLERANCE: Final = 1e-6
"""Relative overload treated as none: sums of floats are inexact."""

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
    """The decision at a time, and the last ones that acted, expected moves and observed moves.

    The latter three are None if the topic holds none. `history` has the last decisions, the newest
    last.
    """

    decision: DecisionRecord
    last_change: DecisionRecord | None
    last_plan_with_moves: DecisionRecord | None
    last_observed_moves: DecisionRecord | None
    history: tuple[DecisionRecord, ...]


@dataclass(frozen=True, slots=True)
class AlternativeCount:
    """Cost of another replica count now; `moved_bytes_per_s` is the moved load in bytes/s."""

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

    None if the topic holds no decision from before that time. `number` limits the history.
    """
    begun = [r for r in records if as_of is None or r.time <= as_of]
    if not begun:
        return None
    acted = [r for r in begun if r.action is not ScalingAction.HOLD]
    asked = [r for r in begun if r.expected_moves]
    moved = [r for r in begun if r.observed_move_count]
    return Explanation(
        decision=begun[-1],
        last_change=acted[-1] if acted else None,
        last_plan_with_moves=asked[-1] if asked else None,
        last_observed_moves=moved[-1] if moved else None,
        history=tuple(begun[-number:]) if number else (),
    )


def build_explanation_body(
    explanation: Explanation, alternatives: Iterable[AlternativeCount]
) -> dict[str, Any]:
    """Return the JSON form of an explanation: seconds, bytes and bytes/s, None if unknown."""
    return {**asdict(explanation), "alternatives": [asdict(other) for other in alternatives]}


def explain_count(explanation: Explanation, now: float) -> tuple[str, ...]:
    """Explain the replica count, one sentence per item."""
    last, acted = explanation.decision, explanation.last_change
    lines = [_describe_replicas(last, now), *_describe_load(last), *_describe_constraints(last)]
    if last.action is ScalingAction.HOLD:
        lines.append(f"Last decision: no change: {join_reasons(last.reasons, last.failure)}.")
    if acted is not None:
        when = f"{format_age(now - acted.time)} ago" if acted is not last else "Now"
        lines.append(
            f"{when} {SENTENCE_BY_ACTION[acted.action]}: {join_reasons(acted.reasons, acted.failure)}."
        )
    author = "a sidecar" if last.author is None else str(last.author)
    if is_fresh(last, now):
        lines.append(f"Active sidecar: {author}.")
    else:
        ended = f"; {author} has ended" if last.is_final else ""
        lines.append(f"No decision for {format_age(now - last.until)}: no sidecar is active{ended}.")
    return tuple(lines)


def explain_placement(explanation: Explanation, now: float) -> tuple[str, ...]:
    """Explain the placement: the moves, their reasons and their cost."""
    if explanation.decision.metrics.queue_kind == QueueKind.SHARE:
        return ("The broker delivers messages of every partition to every worker: no placement.",)
    asked, moved, lines = explanation.last_plan_with_moves, explanation.last_observed_moves, list[str]()
    if asked is not None:
        n = asked.metrics
        lines.append(
            f"{format_age(now - asked.time)} ago ({asked.action}) "
            f"{_format_partition_count(n.moves)} had to move, R {n.r_score:.2f}: "
            "the moved load in consumer capacities."
        )
        lines += _format_moves(asked.expected_moves, n.moves)
    if moved is not None:
        cost = f", R {moved.observed_move_bytes_per_s / moved.capacity:.2f}" if moved.capacity else ""
        lines.append(
            f"{_format_partition_count(moved.observed_move_count)} moved since "
            f"{format_age(now - moved.time)} ago: "
            f"{format_rate(moved.observed_move_bytes_per_s)} in total{cost}."
        )
        lines += _format_moves(moved.observed_moves, moved.observed_move_count)
    lines += _describe_racks(explanation.decision)
    return tuple(lines) or ("No recorded decision moved a partition.",)


def explain_alternatives(alternatives: Iterable[AlternativeCount], current: int) -> tuple[str, ...]:
    """Describe the cost of other counts; `current` is the present count."""
    return tuple(
        f"{other.consumers} ({'one fewer' if other.consumers < current else 'one more'}): "
        f"{_format_partition_count(other.moves)} would move, {format_rate(other.moved_bytes_per_s)}, "
        f"R {other.r_score:.2f}; "
        f"maximum fill {other.fill:.0%}{'' if other.fits else ', which is too high'}."
        for other in alternatives
    )


def format_decision_line(record: DecisionRecord) -> str:
    """Return a decision of the history in one line, without its time."""
    n = record.metrics
    iterations = f", {record.iterations} iterations" if record.iterations > 1 else ""
    moves = (
        f", {_format_partition_count(record.observed_move_count)} moved" if record.observed_move_count else ""
    )
    return (
        f"{record.action}: {join_reasons(record.reasons, record.failure)} ({n.replica_summary}; "
        f"needed {format_rate(n.needed_rate)}{moves}{iterations})"
    )


def _describe_replicas(last: DecisionRecord, now: float) -> str:
    n, epoch = last.metrics, last.epoch
    return (
        f"{format_count(n.running_replicas)} replicas running, "
        f"{format_count(n.planned_replicas)} planned (epoch {epoch}), "
        f"{format_count(n.desired_replicas)} desired, as of {format_age(now - last.until)} ago."
    )


def _describe_load(last: DecisionRecord) -> Iterable[str]:
    n = last.metrics
    if n.queue_summary is not None:
        yield f"Queue of kind {n.queue_kind}: {n.queue_summary}."
    if n.needed_rate is None:
        yield "The load is unknown: no write rate is known."
        return
    least = (
        math.ceil(n.needed_rate / last.usable_capacity - OVERLOAD_TOLERANCE) if last.usable_capacity else 0
    )
    yield (
        f"Write rate {format_rate(n.write_rate)} and backlog {format_bytes(n.backlog_bytes)} "
        f"need {format_rate(n.needed_rate)} in total; at {format_rate(last.usable_capacity)} per "
        f"consumer ({last.headroom:.0%} of {format_rate(last.capacity)}) at least {least} "
        f"consumer{'' if least == 1 else 's'}."
    )
    if n.max_fill is not None:
        yield f"The fullest consumer needs {n.max_fill:.0%} of its capacity."
    if n.recommended_replicas is not None and n.recommended_replicas > max(1, least):
        yield (f"The load needs {n.recommended_replicas}: partitions cannot be split to fill every consumer.")
    if n.unknown_partitions:
        yield (
            f"The write rate of {n.unknown_partitions} of {_format_partition_count(n.partitions)} is unknown."
        )


def _describe_racks(last: DecisionRecord) -> Iterable[str]:
    n = last.metrics
    if n.cross_rack_rate is None:
        return
    share = f", {n.cross_rack_rate / n.needed_rate:.0%} of the needed rate" if n.needed_rate else ""
    yield f"Cross-rack traffic: {format_rate(n.cross_rack_rate)}{share}."
    if n.partitions_without_local_replica:
        yield (
            f"{_format_partition_count(n.partitions_without_local_replica)} without a replica in "
            "any consumer's rack."
        )
    if n.racks_without_consumer:
        yield f"Racks with replicas but without a consumer: {n.racks_without_consumer}."


def _describe_constraints(last: DecisionRecord) -> Iterable[str]:
    n = last.metrics
    if (
        None not in (n.recommended_replicas, n.desired_replicas)
        and n.recommended_replicas != n.desired_replicas
    ):
        yield (
            f"The load recommends {n.recommended_replicas}; limits, tolerance and windows make it "
            f"{n.desired_replicas}."
        )
    if last.action is ScalingAction.HOLD and n.desired_replicas != n.planned_replicas:
        yield f"Limited by: {'; '.join(last.reasons[1:]) or last.reasons[0]}."


def _format_moves(moves: Sequence[RecordedMove], count: int) -> Iterable[str]:
    for move in moves[:MAX_EXPLAINED_MOVES]:
        why = f": {move.reason}" if move.reason else ""
        yield (
            f"  {move.topic}-{move.partition} {move.source or 'unassigned'} -> {move.target} "
            f"({format_rate(move.load_bytes_per_s)}){why}"
        )
    if count > MAX_EXPLAINED_MOVES:
        yield f"  and {count - min(MAX_EXPLAINED_MOVES, len(moves))} more"


def _format_partition_count(number: int) -> str:
    return f"{number} partition{'' if number == 1 else 's'}"
