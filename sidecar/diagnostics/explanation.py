"""Why a group has the count and the placement it has: sentences with figures, from verdicts. Pure.

The verdict at a time is the last that had begun by then. Beside it stand the last one that changed
the count or published a plan, and the last one with moves: what they say is still in force.
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
"""Moves that are told one by one."""

OVERLOAD_TOLERANCE: Final = 1e-6
"""Relative overload that counts as none: sums of floats are not exact."""

SENTENCE_BY_ACTION: Final = {
    ScalingAction.HOLD: "nothing is done",
    ScalingAction.ANNOUNCE: "a plan is published",
    ScalingAction.ADOPT: "the plan takes over what was found",
    ScalingAction.ADOPT_EXTERNAL: "the plan takes over the count that somebody else set",
    ScalingAction.SCALE_UP: "replicas are started",
    ScalingAction.REPLACE: "replicas that are missing are started",
    ScalingAction.SURGE: "one more is started, so that another can be replaced",
    ScalingAction.DRAIN: "replicas are drained",
    ScalingAction.RETRY_DRAIN: "the drain is asked for again",
    ScalingAction.CANCEL_DRAIN: "replicas that drained stay",
    ScalingAction.STOP: "replicas that own nothing are stopped",
    ScalingAction.PLACE: "another placement is asked for",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict at a time, and the last that acted, that asked for moves, that saw moves.

    Those three are None where none is kept. `history` holds the last verdicts, the newest last, as
    many as were asked for.
    """

    verdict: DecisionRecord
    acted: DecisionRecord | None
    asked: DecisionRecord | None
    moved: DecisionRecord | None
    history: tuple[DecisionRecord, ...]


@dataclass(frozen=True, slots=True)
class AlternativeCount:
    """What another count would cost now: bytes/s that change their reader are `moved`."""

    count: int
    moves: int
    moved: float
    r_score: float
    fill: float
    fits: bool


def build_explanation(
    records: Sequence[DecisionRecord], as_of: float | None, number: int
) -> Explanation | None:
    """Return what explains the group at a time (seconds since the epoch; None: now).

    None where no verdict is kept that had begun by then.
    """
    begun = [r for r in records if as_of is None or r.time <= as_of]
    if not begun:
        return None
    acted = [r for r in begun if r.action is not ScalingAction.HOLD]
    asked = [r for r in begun if r.expected_moves]
    moved = [r for r in begun if r.seen_count]
    return Explanation(
        verdict=begun[-1],
        acted=acted[-1] if acted else None,
        asked=asked[-1] if asked else None,
        moved=moved[-1] if moved else None,
        history=tuple(begun[-number:]) if number else (),
    )


def build_explanation_body(
    explanation: Explanation, alternatives: Iterable[AlternativeCount]
) -> dict[str, Any]:
    """Return an explanation as JSON has it: seconds, bytes and bytes/s, None where unknown."""
    return {**asdict(explanation), "others": [asdict(other) for other in alternatives]}


def explain_count(explanation: Explanation, now: float) -> tuple[str, ...]:
    """Tell why there are so many."""
    last, acted = explanation.verdict, explanation.acted
    said = [_describe_replicas(last, now), *_describe_load(last), *_describe_constraints(last)]
    if last.action is ScalingAction.HOLD:
        said.append(f"Last verdict: nothing is done: {join_reasons(last.reasons, last.failure)}.")
    if acted is not None:
        when = f"{format_age(now - acted.time)} ago" if acted is not last else "Now"
        said.append(
            f"{when} {SENTENCE_BY_ACTION[acted.action]}: "
            f"{join_reasons(acted.reasons, acted.failure)}."
        )
    who = "a sidecar" if last.by is None else str(last.by)
    if is_fresh(last, now):
        said.append(f"At work: {who}.")
    else:
        ended = f", {who} has ended" if last.ended else ""
        said.append(
            f"No verdict came for {format_age(now - last.until)}: no sidecar is at work "
            f"then{ended}."
        )
    return tuple(said)


def explain_placement(explanation: Explanation, now: float) -> tuple[str, ...]:
    """Tell why the partitions are where they are: what moved, why, and what it cost."""
    if explanation.verdict.metrics.queue_kind == QueueKind.SHARE:
        return ("The broker hands every worker messages of every partition: nothing is placed.",)
    asked, moved, said = explanation.asked, explanation.moved, list[str]()
    if asked is not None:
        n = asked.metrics
        said.append(
            f"{format_age(now - asked.time)} ago ({asked.action}) "
            f"{_format_partition_count(n.moves)} had to change "
            f"hands, R {n.r_score:.2f}: so many consumers' work is interrupted for a moment."
        )
        said += _format_moves(asked.expected_moves, n.moves)
    if moved is not None:
        cost = f", R {moved.seen_rate / moved.capacity:.2f}" if moved.capacity else ""
        whose = "its reader" if moved.seen_count == 1 else "their readers"
        said.append(
            f"{_format_partition_count(moved.seen_count)} changed {whose} since "
            f"{format_age(now - moved.time)} ago: "
            f"{format_rate(moved.seen_rate)} in all{cost}."
        )
        said += _format_moves(moved.seen, moved.seen_count)
    said += _describe_racks(explanation.verdict)
    return tuple(said) or ("No verdict that is kept moved a partition: they are where they were.",)


def explain_alternatives(alternatives: Iterable[AlternativeCount], current: int) -> tuple[str, ...]:
    """Tell what other counts would cost; `current` is the present one."""
    return tuple(
        f"{other.count} ({'one fewer' if other.count < current else 'one more'}): "
        f"{_format_partition_count(other.moves)} would move, {format_rate(other.moved)}, "
        f"R {other.r_score:.2f}; "
        f"the fullest would be at {other.fill:.0%}{'' if other.fits else ', which is too full'}."
        for other in alternatives
    )


def format_decision_line(record: DecisionRecord) -> str:
    """Return a verdict of the history in one line, without its time."""
    n = record.metrics
    turns = f", {record.turns} turns" if record.turns > 1 else ""
    moves = f", {_format_partition_count(record.seen_count)} moved" if record.seen_count else ""
    return (
        f"{record.action}: {join_reasons(record.reasons, record.failure)} ({n.replica_summary}; "
        f"needed {format_rate(n.needed_rate)}{moves}{turns})"
    )


def _describe_replicas(last: DecisionRecord, now: float) -> str:
    n, epoch = last.metrics, last.epoch
    return (
        f"{format_count(n.running_replicas)} replicas run, {format_count(n.planned_replicas)} "
        "are planned "
        f"(epoch {epoch}), {format_count(n.desired_replicas)} are wanted, as of "
        f"{format_age(now - last.until)} ago."
    )


def _describe_load(last: DecisionRecord) -> Iterable[str]:
    n = last.metrics
    if n.queue_summary is not None:
        yield f"It is a queue of kind {n.queue_kind}: {n.queue_summary}."
    if n.needed_rate is None:
        yield "The load is not known: no write speed is."
        return
    least = (
        math.ceil(n.needed_rate / last.usable_capacity - OVERLOAD_TOLERANCE)
        if last.usable_capacity
        else 0
    )
    yield (
        f"{format_rate(n.write_rate)} are written and {format_bytes(n.backlog_bytes)} wait, "
        "for which the "
        f"consumers must sustain {format_rate(n.needed_rate)} together; "
        f"at {format_rate(last.usable_capacity)} a consumer "
        f"({last.headroom:.0%} of {format_rate(last.capacity)}) the sum alone needs {least}."
    )
    if n.max_fill is not None:
        yield f"The fullest consumer has {n.max_fill:.0%} of its capacity to do."
    if n.recommended_replicas is not None and n.recommended_replicas > max(1, least):
        yield (
            f"{n.recommended_replicas} are asked for by the load: partitions cannot be cut "
            "to fill each one up."
        )
    if n.unknown_partitions:
        yield (
            f"Of {n.unknown_partitions} of {_format_partition_count(n.partitions)} the "
            "write speed is not known."
        )


def _describe_racks(last: DecisionRecord) -> Iterable[str]:
    n = last.metrics
    if n.cross_rack_rate is None:
        return
    share = f", {n.cross_rack_rate / n.needed_rate:.0%} of what is needed" if n.needed_rate else ""
    yield f"{format_rate(n.cross_rack_rate)} are read from other racks{share}."
    if n.partitions_without_local_replica:
        yield (
            f"{_format_partition_count(n.partitions_without_local_replica)} cannot be near: "
            "no replica is in a consumer's rack."
        )
    if n.racks_without_consumer:
        yield f"Racks with replicas and without a consumer: {n.racks_without_consumer}."


def _describe_constraints(last: DecisionRecord) -> Iterable[str]:
    n = last.metrics
    if (
        None not in (n.recommended_replicas, n.desired_replicas)
        and n.recommended_replicas != n.desired_replicas
    ):
        yield (
            f"The load alone asks for {n.recommended_replicas}; limits, dead band and windows "
            f"leave {n.desired_replicas}."
        )
    if last.action is ScalingAction.HOLD and n.desired_replicas != n.planned_replicas:
        yield f"Held back by: {'; '.join(last.reasons[1:]) or last.reasons[0]}."


def _format_moves(moves: Sequence[RecordedMove], count: int) -> Iterable[str]:
    for move in moves[:MAX_EXPLAINED_MOVES]:
        why = f": {move.reason}" if move.reason else ""
        yield (
            f"  {move.topic}-{move.partition} {move.source or 'nobody'} -> {move.target} "
            f"({format_rate(move.speed)}){why}"
        )
    if count > MAX_EXPLAINED_MOVES:
        yield f"  and {count - min(MAX_EXPLAINED_MOVES, len(moves))} more"


def _format_partition_count(number: int) -> str:
    return f"{number} partition{'' if number == 1 else 's'}"
