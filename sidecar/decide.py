"""The decision: one observation, policy and memory in; a verdict with its reasons out. Pure.

The group's state is not stored. It follows from the plan in force (Kafka) and the live replicas
(target), so a sidecar that was killed finds itself where it left off:

    steady     no live replica is draining
    draining   a live replica is named in plan.draining
    restarting somebody asked for replicas to be replaced, and some of them still live

Rules, the first that applies decides; all of them are kept here:

 1. Blind: without the plan, the replicas or the group's members nothing is done. Unknown write
    speeds change no count either (`wishes`, rule 3), but replicas that died are replaced.
 2. Announce: without a plan, or when heuristic, capacity or headroom were changed, a new epoch is
    published.
 3. Advice only: where replicas cannot be acted upon, their count is recorded as it is found.
 4. Stop: a draining replica is stopped once it owns nothing, the group is stable and every
    partition has an owner. Nothing that owns a partition is ever stopped.
 5. Settle: drained replicas that are gone leave the plan, without a new epoch.
 6. Undrain: while draining, a load that wants more, or a death, is answered by keeping a draining
    replica.
 7. Ask again: a drain that is not over after `ask_again` seconds is published with a new epoch;
    till then nothing else is begun.
 8. Replace: live replicas short of the plan are started at once; those that keep dying, after a
    growing pause.
 9. Adopt: more live replicas than planned (somebody started them) are recorded; limits bring them
    down later.
10. Scale out: the wanted count above the plan, by at most `step_out`, after the cool-down. The
    plan keeps its epoch: the join starts the rebalance. The plan is published before replicas are
    started, so that a crash in between is completed by rule 8.
11. Restart: one more replica is started (above the limit too), and when it has joined, one of
    those to be replaced is drained. One that dies first is started again as in rule 8; once an old
    one has been replaced, the starts before no longer count.
12. Scale in: the wanted count below the plan, by at most `step_in`, after the cool-down, in a
    group at rest: the replicas whose load costs least to move are drained, if the others can hold
    it. A new epoch, unless they own nothing.
13. Place: a placement that overfills a consumer gets a new epoch if the leader would find a better
    one, after the cool-down, and not twice for the same placement within `ask_again` seconds.
14. Else hold.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trimtab.assignor.control import GroupPlan
from trimtab.assignor.model import Plan
from trimtab.assignor.units import format_rate
from trimtab.sidecar.drains import choose
from trimtab.sidecar.observation import GroupState, Observation
from trimtab.sidecar.policy import Memory, ScalePolicy, Wish
from trimtab.sidecar.situation import Situation, overflow, situation
from trimtab.sidecar.verdict import Action, Numbers, Verdict
from trimtab.sidecar.wishes import Sizing, remember, wish

FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 120.0
"""Seconds before a replica that keeps dying is replaced: doubled from the first to the longest."""

FORGIVEN: Final = 300.0
"""Seconds after which a replacement no longer counts."""

BETTER: Final = 0.05
"""Share of a consumer's capacity by which a placement must lower the overload."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a rule may look at."""

    at: Situation
    sizing: Sizing
    memory: Memory
    now: float

    @property
    def plan(self) -> GroupPlan:
        """Return the plan in force."""
        return self.at.plan

    def cooling(self) -> str | None:
        """Tell how long the cool-down still lasts; None where it is over."""
        left = self.at.policy.cool_down - self.memory.since_change(self.now)
        return f"cool-down for another {left:.0f} s" if left > 0 else None


@dataclass(frozen=True, slots=True)
class Step:
    """What a rule asks for."""

    action: Action
    reasons: tuple[str, ...]
    plan: GroupPlan | None = None
    add: int = 0
    stop: tuple[str, ...] = ()
    expected: Plan | None = None


def decide(
    seen: Observation, policy: ScalePolicy, memory: Memory, now: float, group: str = ""
) -> tuple[Verdict, Memory]:
    """Return the verdict on an observation, and the memory of having seen it.

    `now` is seconds since the epoch; `group` is the group's name, for its first plan. What
    the verdict asks for is not remembered as done: `done` does that, once it is.
    """
    blind = _blind(seen)
    if blind is not None:
        return Verdict(Action.HOLD, blind, _sums(seen)), _unmoved(seen, policy, memory, now)
    if seen.plan is None:
        return _first(seen, policy, now, group), memory
    at = situation(seen, policy, seen.plan)
    sizing, memory = wish(at, memory, now)
    turn = Turn(at, sizing, memory, now)
    step = next(step for rule in RULES if (step := rule(turn)) is not None)
    numbers = _numbers(turn, step)
    reasons = (*step.reasons, *at.oversize())
    return Verdict(step.action, reasons, numbers, step.plan, step.add, step.stop), memory


def done(verdict: Verdict, seen: Observation, memory: Memory, now: float) -> Memory:
    """Return the memory once a verdict has been carried out."""
    match verdict.action:
        case Action.REPLACE | Action.SURGE:
            recent = (t for t in memory.replaced if t >= now - FORGIVEN)
            return replace(memory, replaced=(*recent, now))
        case Action.STOP if set(verdict.stop) & set(seen.restart):
            return replace(memory, replaced=())  # the new one reads: a long restart is not slowed
        case Action.PLACE:
            placed = frozenset((p, r.instance) for r in seen.group.readers for p in r.owned)
            return replace(memory, changed=now, placed=placed)
        case Action.HOLD | Action.ANNOUNCE | Action.ADOPT | Action.STOP:
            return memory
        case _:
            return replace(memory, changed=now)


def _blind(seen: Observation) -> tuple[str, ...] | None:
    if not seen.plan_known:
        return ("the plan in force could not be read yet", *seen.trouble)
    if seen.replicas is None:
        return ("the replica target does not answer", *seen.trouble)
    if seen.group.state is GroupState.UNKNOWN:
        return ("the group could not be described", *seen.trouble)
    return None


def _unmoved(seen: Observation, policy: ScalePolicy, memory: Memory, now: float) -> Memory:
    """Remember that the present count was wished for while nothing was known."""
    if seen.plan is None:
        return memory
    count = policy.clamp(seen.plan.replicas)
    memory = remember(memory, policy, count, now)
    return replace(memory, wishes=(*memory.wishes, Wish(now, count)))


def _first(seen: Observation, policy: ScalePolicy, now: float, group: str) -> Verdict:
    running = sum(i.alive for i in seen.replicas or ())
    count = running if policy.advisory else policy.clamp(running)
    base = GroupPlan(group, 0, now, count, "", 0.0)
    reasons = (f"the first plan of this group, with {count} replicas ({running} running)",)
    plan = _next(base, policy, now, reasons)
    return Verdict(Action.ANNOUNCE, reasons, replace(_sums(seen), running=running), plan)


def _announce(turn: Turn) -> Step | None:
    plan, wanted = turn.plan, turn.at.policy.placement
    changed = [
        f"{name} {old} -> {new}"
        for name, old, new in (
            ("heuristic", plan.heuristic, wanted.heuristic),
            ("capacity", plan.capacity, wanted.capacity),
            ("headroom", plan.headroom, wanted.headroom),
        )
        if old != new
    ]
    if not changed:
        return None
    reasons = ("settings were changed: " + ", ".join(changed),)
    return Step(Action.ANNOUNCE, reasons, _next(plan, turn.at.policy, turn.now, reasons))


def _found(turn: Turn) -> Step | None:
    found = len(turn.at.active)
    if not turn.at.policy.advisory or found == turn.plan.replicas:
        return None
    return _adopt(turn, found, f"{found} are running; the count is not ours to change")


def _stop(turn: Turn) -> Step | None:
    drained = tuple(n for n in turn.at.draining if not turn.at.owned(n))
    if not drained or turn.at.unsettled() is not None:
        return None
    names = " and ".join(drained)
    return Step(Action.STOP, (f"nothing is left with {names}, the group is at rest",), stop=drained)


def _settle(turn: Turn) -> Step | None:
    known = {*turn.at.running, *(r.instance for r in turn.at.seen.group.readers)}
    gone = tuple(n for n in turn.plan.draining if n not in known)
    if not gone:
        return None
    left = tuple(n for n in turn.plan.draining if n in known)
    reasons = (f"{' and '.join(gone)} stopped",)
    return Step(
        Action.ADOPT, reasons, replace(turn.plan, draining=left, time=turn.now, reasons=reasons)
    )


def _undrain(turn: Turn) -> Step | None:
    short = turn.plan.replicas - len(turn.at.active)
    more = turn.sizing.wanted - turn.plan.replicas
    count = min(len(turn.at.draining), max(0, more) + max(0, short))
    if count <= 0 or turn.at.policy.advisory:
        return None
    keep = sorted(turn.at.draining, key=lambda n: (-len(turn.at.owned(n)), n))[:count]
    why = f"{short} died" if short > 0 else f"{turn.sizing.wanted} are wanted again"
    reasons = (f"{' and '.join(keep)} stay: {why} while draining",)
    left = tuple(n for n in turn.plan.draining if n not in keep)
    replicas = min(len(turn.at.active) + count, max(turn.sizing.wanted, turn.plan.replicas))
    base = replace(turn.plan, draining=left, replicas=replicas)
    return Step(Action.UNDRAIN, reasons, _next(base, turn.at.policy, turn.now, reasons))


def _ask_again(turn: Turn) -> Step | None:
    busy = tuple(n for n in turn.at.draining if turn.at.owned(n))
    if not turn.at.draining:
        return None
    waited = turn.memory.since_change(turn.now)
    if busy and waited >= turn.at.policy.ask_again:
        reasons = (f"{busy[0]} still owns {len(turn.at.owned(busy[0]))} partitions, asked again",)
        return Step(Action.ASK_AGAIN, reasons, _next(turn.plan, turn.at.policy, turn.now, reasons))
    if busy:
        left = sum(len(turn.at.owned(n)) for n in busy)
        return Step(Action.HOLD, (f"{' and '.join(busy)} drain, {left} partitions to go",))
    reason = turn.at.unsettled() or "it is about to stop"
    return Step(Action.HOLD, (f"{' and '.join(turn.at.draining)} drained; {reason}",))


def _replace(turn: Turn) -> Step | None:
    running = len(turn.at.active)
    missing = turn.plan.replicas - running
    if missing <= 0:
        return None
    what = f"{running} of {turn.plan.replicas} run"
    pause = _pause(turn, what)
    if pause is not None:
        return pause
    return Step(Action.REPLACE, (what,), add=missing)


def _pause(turn: Turn, what: str) -> Step | None:
    """Return the wait before another start; None where it is over, or nothing died lately."""
    lately = [t for t in turn.memory.replaced if turn.now - FORGIVEN <= t <= turn.now]
    if not lately:
        return None
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (len(lately) - 1))
    left = pause - (turn.now - lately[-1])
    if left <= 0:
        return None
    again = f"{len(lately)} replacements in the last {FORGIVEN:.0f} s, the next in {left:.0f} s"
    return Step(Action.HOLD, (what, again, "look into the logs of the replicas"))


def _surplus(turn: Turn) -> Step | None:
    running = len(turn.at.active)
    if running <= turn.plan.replicas or turn.at.seen.restart:
        return None
    return _adopt(turn, running, f"{running} run, {turn.plan.replicas} were planned")


def _scale_out(turn: Turn) -> Step | None:
    planned, policy = turn.plan.replicas, turn.at.policy
    if turn.sizing.wanted <= planned:
        return None
    cooling = turn.cooling()
    if cooling is not None:
        return Step(Action.HOLD, (f"{turn.sizing.wanted} are wanted", cooling))
    count = min(turn.sizing.wanted, planned + policy.step_out)
    reasons = (f"{planned} -> {count}: {_demand(turn)}",)
    plan = replace(turn.plan, replicas=count, time=turn.now, reasons=reasons)
    add = max(0, count - len(turn.at.active))
    return Step(Action.START, reasons, plan, add=add, expected=turn.sizing.expected)


def _restart(turn: Turn) -> Step | None:
    old = tuple(n for n in turn.at.active if n in turn.at.seen.restart)
    if not old:
        return None
    if len(turn.at.active) <= turn.plan.replicas:
        step = Step(Action.SURGE, (f"one more, so that {old[0]} can be replaced",), add=1)
        return _pause(turn, f"restart of {old[0]} waits") or step
    absent = tuple(n for n in turn.at.active if n not in turn.at.readers and n not in old)
    waits = f"{absent[0]} has not joined yet" if absent else turn.at.unsettled()
    if waits is not None:
        return Step(Action.HOLD, (f"restart of {old[0]} waits", waits))
    return _drained(turn, old[:1], turn.plan.replicas, f"{old[0]} is to be replaced")


def _scale_in(turn: Turn) -> Step | None:
    planned, wanted = turn.plan.replicas, turn.sizing.wanted
    if wanted >= planned:
        return None
    waits = turn.cooling() or turn.at.unsettled()
    if waits is not None:
        return Step(Action.HOLD, (f"{wanted} would do", waits))
    count = max(wanted, planned - turn.at.policy.step_in)
    forced = planned > turn.at.policy.most
    victims = choose(turn.at, planned - count, forced=forced)
    if not victims:
        return Step(
            Action.HOLD, (f"{wanted} would do", "the others could not hold what any one reads")
        )
    left = planned - len(victims)
    why = f"{planned} -> {left}: {_demand(turn)}; {' and '.join(victims)} cost least"
    return _drained(turn, victims, left, why)


def _place(turn: Turn) -> Step | None:
    before, capacity = turn.at.overflow(), turn.at.policy.placement.capacity
    if before <= 0 or turn.at.unknown:
        return None
    pending = turn.at.pending(turn.now)
    waits = turn.cooling() or turn.at.unsettled()
    if pending:
        waits = f"{pending[0]} has not joined yet"
    what = f"{format_rate(before)} above capacity in the present placement"
    if waits is not None:
        return Step(Action.HOLD, (what, waits))
    asked_lately = turn.memory.since_change(turn.now) < turn.at.policy.ask_again
    if asked_lately and turn.at.placed() == turn.memory.placed:
        return Step(Action.HOLD, (what, "the leader kept it when asked"))
    better = turn.at.without(())
    after = overflow(better.assignment, turn.at.load(), capacity)
    if before - after < BETTER * capacity:
        return Step(Action.HOLD, (what, "no better placement is known"))
    reasons = (f"{what}, {format_rate(after)} in a better one",)
    plan = _next(turn.plan, turn.at.policy, turn.now, reasons)
    return Step(Action.PLACE, reasons, plan, expected=better)


def _hold(turn: Turn) -> Step:
    sizing = turn.sizing
    if sizing.notes:
        return Step(Action.HOLD, (*sizing.notes, *turn.at.seen.trouble[:1]))
    if sizing.steady != sizing.wanted:
        return Step(Action.HOLD, (f"{sizing.steady} would do, but not for long enough",))
    return Step(Action.HOLD, (f"{turn.plan.replicas} is right",))


RULES: Final[Sequence[Callable[[Turn], Step | None]]] = (
    _announce,
    _found,
    _stop,
    _settle,
    _undrain,
    _ask_again,
    _replace,
    _surplus,
    _scale_out,
    _restart,
    _scale_in,
    _place,
    _hold,
)


def _next(plan: GroupPlan, policy: ScalePolicy, now: float, reasons: tuple[str, ...]) -> GroupPlan:
    """Return the plan with a new epoch and the settings in force."""
    return replace(
        plan,
        epoch=plan.epoch + 1,
        time=now,
        heuristic=policy.placement.heuristic,
        capacity=policy.placement.capacity,
        headroom=policy.placement.headroom,
        reasons=reasons,
    )


def _adopt(turn: Turn, count: int, reason: str) -> Step:
    plan = replace(turn.plan, replicas=count, time=turn.now, reasons=(reason,))
    return Step(Action.ADOPT, (reason,), plan)


def _drained(turn: Turn, names: Sequence[str], replicas: int, reason: str) -> Step:
    base = replace(turn.plan, replicas=replicas, draining=(*turn.plan.draining, *names))
    plan = _next(base, turn.at.policy, turn.now, (reason,))
    if not any(turn.at.owned(name) for name in names):
        plan = replace(plan, epoch=turn.plan.epoch)  # nobody has anything to hand over
    return Step(Action.DRAIN, (reason,), plan, expected=turn.at.without(names))


def _demand(turn: Turn) -> str:
    needed, room = _sums(turn.at.seen).needed, turn.at.policy.room
    if needed is None:
        return f"at least {turn.at.policy.least}; the load is not known yet"
    return f"needed {format_rate(needed)} at {format_rate(room)} a consumer"


def _numbers(turn: Turn, step: Step) -> Numbers:
    return replace(
        _sums(turn.at.seen),
        running=len(turn.at.active),
        planned=turn.plan.replicas,
        wished=turn.sizing.wished,
        wanted=turn.sizing.wanted,
        fill=turn.at.fill(),
        r_score=0.0 if step.expected is None else step.expected.r_score,
        moves=0 if step.expected is None else len(step.expected.moves),
    )


def _sums(seen: Observation) -> Numbers:
    """Return the totals over what is known; None where nothing is."""
    speeds = seen.speeds.values()
    written = [s.bytes_per_s for s in speeds if s.bytes_per_s is not None]
    weights = [s.weight for s in speeds if s.weight is not None]
    backlog = [s.backlog_bytes for s in speeds if s.backlog_bytes is not None]
    return Numbers(
        written=sum(written) if written else None,
        needed=sum(weights) if weights else None,
        backlog=sum(backlog) if backlog else None,
        unknown=sum(s.weight is None for s in speeds),
        partitions=len(seen.speeds),
    )
