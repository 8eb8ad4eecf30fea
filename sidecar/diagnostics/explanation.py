"""Why a group has the count and the placement it has: sentences with figures, from verdicts. Pure.

The verdict at a time is the last that had begun by then. Beside it stand the last one that changed
the count or published a plan, and the last one with moves: what they say is still in force.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from trimtab.common.units import format_bytes, format_count, format_rate
from trimtab.sidecar.decision.decision import Action
from trimtab.sidecar.diagnostics.group_status import ago, fresh
from trimtab.sidecar.measurement.queue_backlog import Kind
from trimtab.sidecar.reporting.decision_record import Moved, VerdictRecord

SHOWN: Final = 10
"""Moves that are told one by one."""

ENOUGH: Final = 1e-6
"""Relative overload that counts as none: sums of floats are not exact."""

DID: Final = {
    Action.HOLD: "nothing is done",
    Action.ANNOUNCE: "a plan is published",
    Action.ADOPT: "the plan takes over what was found",
    Action.FOLLOW: "the plan takes over the count that somebody else set",
    Action.START: "replicas are started",
    Action.REPLACE: "replicas that are missing are started",
    Action.SURGE: "one more is started, so that another can be replaced",
    Action.DRAIN: "replicas are drained",
    Action.ASK_AGAIN: "the drain is asked for again",
    Action.UNDRAIN: "replicas that drained stay",
    Action.STOP: "replicas that own nothing are stopped",
    Action.PLACE: "another placement is asked for",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict at a time, and the last that acted, that asked for moves, that saw moves.

    Those three are None where none is kept. `history` holds the last verdicts, the newest last, as
    many as were asked for.
    """

    verdict: VerdictRecord
    acted: VerdictRecord | None
    asked: VerdictRecord | None
    moved: VerdictRecord | None
    history: tuple[VerdictRecord, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """What another count would cost now: bytes/s that change their reader are `moved`."""

    count: int
    moves: int
    moved: float
    r_score: float
    fill: float
    fits: bool


def explained(
    records: Sequence[VerdictRecord], at: float | None, number: int
) -> Explanation | None:
    """Return what explains the group at a time (seconds since the epoch; None: now).

    None where no verdict is kept that had begun by then.
    """
    begun = [r for r in records if at is None or r.time <= at]
    if not begun:
        return None
    acted = [r for r in begun if r.action is not Action.HOLD]
    asked = [r for r in begun if r.expected]
    moved = [r for r in begun if r.seen_count]
    return Explanation(
        verdict=begun[-1],
        acted=acted[-1] if acted else None,
        asked=asked[-1] if asked else None,
        moved=moved[-1] if moved else None,
        history=tuple(begun[-number:]) if number else (),
    )


def body(found: Explanation, others: Iterable[Other]) -> dict[str, Any]:
    """Return an explanation as JSON has it: seconds, bytes and bytes/s, None where unknown."""
    return {**asdict(found), "others": [asdict(other) for other in others]}


def why_count(found: Explanation, now: float) -> tuple[str, ...]:
    """Tell why there are so many."""
    last, acted = found.verdict, found.acted
    said = [_standing(last, now), *_load(last), *_wanted(last)]
    if last.action is Action.HOLD:
        said.append(f"Last verdict: nothing is done: {'; '.join(last.reasons)}.")
    if acted is not None:
        when = f"{ago(now - acted.time)} ago" if acted is not last else "Now"
        said.append(f"{when} {DID[acted.action]}: {'; '.join(acted.reasons)}.")
    who = "a sidecar" if last.by is None else str(last.by)
    if fresh(last, now):
        said.append(f"At work: {who}.")
    else:
        ended = f", {who} has ended" if last.ended else ""
        said.append(
            f"No verdict came for {ago(now - last.until)}: no sidecar is at work then{ended}."
        )
    return tuple(said)


def why_placement(found: Explanation, now: float) -> tuple[str, ...]:
    """Tell why the partitions are where they are: what moved, why, and what it cost."""
    if found.verdict.numbers.queue == Kind.SHARE:
        return ("The broker hands every worker messages of every partition: nothing is placed.",)
    asked, moved, said = found.asked, found.moved, list[str]()
    if asked is not None:
        n = asked.numbers
        said.append(
            f"{ago(now - asked.time)} ago ({asked.action}) {_partitions(n.moves)} had to change "
            f"hands, R {n.r_score:.2f}: so many consumers' work is interrupted for a moment."
        )
        said += _listed(asked.expected, n.moves)
    if moved is not None:
        cost = f", R {moved.seen_rate / moved.capacity:.2f}" if moved.capacity else ""
        whose = "its reader" if moved.seen_count == 1 else "their readers"
        said.append(
            f"{_partitions(moved.seen_count)} changed {whose} since {ago(now - moved.time)} ago: "
            f"{format_rate(moved.seen_rate)} in all{cost}."
        )
        said += _listed(moved.seen, moved.seen_count)
    said += _racks(found.verdict)
    return tuple(said) or ("No verdict that is kept moved a partition: they are where they were.",)


def why_not(others: Iterable[Other], now: int) -> tuple[str, ...]:
    """Tell what other counts would cost; `now` is the present one."""
    return tuple(
        f"{other.count} ({'one fewer' if other.count < now else 'one more'}): "
        f"{_partitions(other.moves)} would move, {format_rate(other.moved)}, "
        f"R {other.r_score:.2f}; "
        f"the fullest would be at {other.fill:.0%}{'' if other.fits else ', which is too full'}."
        for other in others
    )


def line(record: VerdictRecord) -> str:
    """Return a verdict of the history in one line, without its time."""
    n = record.numbers
    turns = f", {record.turns} turns" if record.turns > 1 else ""
    moves = f", {_partitions(record.seen_count)} moved" if record.seen_count else ""
    return (
        f"{record.action}: {'; '.join(record.reasons)} ({n.counts}; "
        f"needed {format_rate(n.needed)}{moves}{turns})"
    )


def _standing(last: VerdictRecord, now: float) -> str:
    n, epoch = last.numbers, last.epoch
    return (
        f"{format_count(n.running)} replicas run, {format_count(n.planned)} are planned "
        f"(epoch {epoch}), {format_count(n.wanted)} are wanted, as of {ago(now - last.until)} ago."
    )


def _load(last: VerdictRecord) -> Iterable[str]:
    n = last.numbers
    if n.queued is not None:
        yield f"It is a queue of kind {n.queue}: {n.queued}."
    if n.needed is None:
        yield "The load is not known: no write speed is."
        return
    least = math.ceil(n.needed / last.room - ENOUGH) if last.room else 0
    yield (
        f"{format_rate(n.written)} are written and {format_bytes(n.backlog)} wait, for which the "
        f"consumers must sustain {format_rate(n.needed)} together; "
        f"at {format_rate(last.room)} a consumer "
        f"({last.headroom:.0%} of {format_rate(last.capacity)}) the sum alone needs {least}."
    )
    if n.fill is not None:
        yield f"The fullest consumer has {n.fill:.0%} of its capacity to do."
    if n.wished is not None and n.wished > max(1, least):
        yield f"{n.wished} are asked for by the load: partitions cannot be cut to fill each one up."
    if n.unknown:
        yield f"Of {n.unknown} of {_partitions(n.partitions)} the write speed is not known."


def _racks(last: VerdictRecord) -> Iterable[str]:
    n = last.numbers
    if n.crossing is None:
        return
    share = f", {n.crossing / n.needed:.0%} of what is needed" if n.needed else ""
    yield f"{format_rate(n.crossing)} are read from other racks{share}."
    if n.stranded:
        yield f"{_partitions(n.stranded)} cannot be near: no replica is in a consumer's rack."
    if n.unmanned:
        yield f"Racks with replicas and without a consumer: {n.unmanned}."


def _wanted(last: VerdictRecord) -> Iterable[str]:
    n = last.numbers
    if None not in (n.wished, n.wanted) and n.wished != n.wanted:
        yield (
            f"The load alone asks for {n.wished}; limits, dead band and windows leave {n.wanted}."
        )
    if last.action is Action.HOLD and n.wanted != n.planned:
        yield f"Held back by: {'; '.join(last.reasons[1:]) or last.reasons[0]}."


def _listed(moves: Sequence[Moved], count: int) -> Iterable[str]:
    for move in moves[:SHOWN]:
        why = f": {move.reason}" if move.reason else ""
        yield (
            f"  {move.topic}-{move.partition} {move.source or 'nobody'} -> {move.target} "
            f"({format_rate(move.speed)}){why}"
        )
    if count > SHOWN:
        yield f"  and {count - min(SHOWN, len(moves))} more"


def _partitions(number: int) -> str:
    return f"{number} partition{'' if number == 1 else 's'}"
