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
    partition has an owner. Nothing that owns a partition is ever stopped, but the last replica of a
    group in which nothing is to be read (`rest`). Where the target takes replicas away in an order,
    the last ones go first. In a share group nobody owns anything, and the next turn stops them.
 5. Settle: drained replicas that are gone leave the plan, without a new epoch. Then comes what
    others did to the count at the target: `foreign` has the rules.
 6. Undrain: while draining, a load that wants more, or a death, is answered by keeping a draining
    replica.
 7. Ask again: a drain that is not over after `ask_again` seconds is published with a new epoch;
    till then nothing else is begun.
 8. Replace: live replicas short of the plan are started at once; those that keep dying, after a
    growing pause. Where the target already does it, it is waited for. What it has not brought about
    after `start_grace` seconds (it has limits of its own) is said in each verdict, and the other
    rules go on with the replicas that exist; a count that is wanted no more is given up.
 9. Adopt: more live replicas than planned (somebody started them) are recorded; limits bring them
    down later.
10. Scale out: the wanted count above the plan, as far as the rules for growing allow (`rules`),
    after the cool-down and where it is not paused. The plan keeps its epoch: the join starts the
    rebalance. The plan is published before replicas are started, so that a crash in between is
    completed by rule 8. The first replica of none waits for nothing, and is started before its plan
    is published: zero beside a plan for more would be somebody's pause (`foreign`), and what runs
    beyond the plan is adopted by rule 9. Where counts are contested there is no such pause.
11. Restart: one more replica is started (above the limit too), and when it has joined, one of
    those to be replaced is drained. One that dies first is started again as in rule 8; once an old
    one has been replaced, the starts before no longer count.
12. Scale in: the wanted count below the plan, as far as the rules for shrinking allow, after the
    cool-down, where it is not paused, in a group at rest: the replicas whose load costs least to
    move are drained, if the others can hold it. A new epoch, unless they own nothing.
13. Place: capacities that were learned and differ enough are published with a new epoch. A
    placement that overfills a consumer gets one if the leader would find a better placement, after
    the cool-down, and not twice for the same one within `ask_again` seconds.
14. Else hold.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from trimtab.assignor.racks.cross_rack_traffic import Crossing
from trimtab.common.control_topics.values import GroupPlan
from trimtab.common.units import format_rate
from trimtab.sidecar.decision.decision import Action, Numbers, Verdict, largest, totals
from trimtab.sidecar.decision.decision_context import Step, Turn, adopt, drained, next_plan
from trimtab.sidecar.decision.external_scaling import foreign, meant, on_its_way, switched_off
from trimtab.sidecar.decision.group_model import situation
from trimtab.sidecar.decision.hpa_behavior import Way
from trimtab.sidecar.decision.recommendation import remember, wish
from trimtab.sidecar.decision.scale_in_selection import choose
from trimtab.sidecar.decision.scale_up_effectiveness import behind, consumed, grown
from trimtab.sidecar.decision.scaling_policy import Memory, ScalePolicy, Wish
from trimtab.sidecar.decision.scaling_rules import learn, place, rest, scale_in, scale_out
from trimtab.sidecar.measurement.freshness import freshness, paced
from trimtab.sidecar.measurement.observation import Asked, GroupState, Observation

FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 120.0
"""Seconds before a replica that keeps dying is replaced: doubled from the first to the longest."""

FORGIVEN: Final = 300.0
"""Seconds after which a replacement no longer counts."""


def decide(
    seen: Observation, policy: ScalePolicy, memory: Memory, now: float, group: str = ""
) -> tuple[Verdict, Memory]:
    """Return the verdict on an observation, and the memory of having seen it.

    `now` is seconds since the epoch; `group` is the group's name, for its first plan. What
    the verdict asks for is not remembered as done: `done` does that, once it is.
    """
    policy = policy.at(now)
    blind = _blind(seen)
    if blind is not None:
        return Verdict(Action.HOLD, blind, totals(seen)), _unmoved(seen, policy, memory, now)
    if seen.plan is None:
        return _first(seen, policy, now, group), memory
    at = situation(seen, policy, seen.plan)
    sizing, memory = wish(at, memory, now)
    turn = Turn(at, sizing, memory, now)
    step = next(step for rule in RULES if (step := rule(turn)) is not None)
    crossing = at.across()
    numbers = _numbers(turn, step, crossing)
    unmet = _unmet(turn)
    said = () if unmet is None else (unmet, *seen.trouble[:1])
    far = crossing.notes if crossing is not None and at.weighs_racks() else ()
    bounds = (*at.oversize(), *at.narrow(sizing.wished), *at.stuck(), *far)
    reasons = (*step.reasons, *said, *sizing.warnings, *bounds)
    expected = largest(step.expected)
    verdict = Verdict(step.action, reasons, numbers, step.plan, step.add, step.stop, expected)
    return verdict, memory


def done(verdict: Verdict, seen: Observation, memory: Memory, now: float) -> Memory:
    """Return the memory once a verdict has been carried out."""
    match verdict.action:
        case Action.REPLACE | Action.SURGE:
            recent = (t for t in memory.replaced if t >= now - FORGIVEN)
            return replace(memory, replaced=(*recent, now))
        case Action.STOP if set(verdict.stop) & set(seen.restart):
            return replace(memory, replaced=())  # the new one reads: a long restart is not slowed
        case Action.FOLLOW if verdict.plan is not None:
            return replace(memory, changed=now, wishes=(Wish(now, verdict.plan.replicas),))
        case Action.PLACE:
            placed = frozenset((p, r.instance) for r in seen.group.readers for p in r.owned)
            return replace(memory, changed=now, placed=placed)
        case Action.HOLD | Action.ANNOUNCE | Action.ADOPT | Action.STOP:
            return memory
        case _:
            memory = memory.scaled(now, _by(verdict, seen))
            starts = verdict.action is Action.START
            return grown(verdict, seen, memory, now) if starts else memory


def _by(verdict: Verdict, seen: Observation) -> int:
    """Return how many replicas more than before the verdict plans."""
    if verdict.plan is None or seen.plan is None:
        return 0
    return verdict.plan.replicas - seen.plan.replicas


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
    wishes = (*memory.wishes, Wish(now, count))
    return replace(memory, wishes=wishes, dark=memory.dark + 1, idle=None)


def _first(seen: Observation, policy: ScalePolicy, now: float, group: str) -> Verdict:
    running = sum(i.alive for i in seen.replicas or ())
    count = running if policy.advisory else policy.clamp(running)
    base = GroupPlan(group, 0, now, count, "", 0.0)
    reasons = (f"the first plan of this group, with {count} replicas ({running} running)",)
    plan = next_plan(base, policy, now, reasons)
    return Verdict(Action.ANNOUNCE, reasons, replace(totals(seen), running=running), plan)


def _announce(turn: Turn) -> Step | None:
    plan, wanted = turn.plan, turn.at.policy.placement
    changed = [
        f"{name} {old} -> {new}"
        for name, old, new in (
            ("heuristic", plan.heuristic, wanted.heuristic),
            ("headroom", plan.headroom, wanted.headroom),
        )
        if old != new
    ]
    if plan.capacity != wanted.capacity:
        rates = f"{format_rate(plan.capacity)} -> {format_rate(wanted.capacity)}"
        changed.append(f"capacity {rates}")
    if plan.capacities and turn.at.policy.learn is None:
        changed.append("capacities are learned no more")
    if not changed:
        return None
    reasons = ("settings were changed: " + ", ".join(changed),)
    return Step(Action.ANNOUNCE, reasons, next_plan(plan, turn.at.policy, turn.now, reasons))


def _pace(turn: Turn) -> Step | None:
    """Say how long batches may be, before more replicas are asked to make up for it."""
    goal, told = turn.at.policy.goal, turn.plan.batch
    batch = paced(told, freshness(turn.memory.looks), goal)
    if batch == told:
        return None
    reason = "batches may be as long as consumers are set to: no freshness is asked for"
    if batch is not None and goal is not None:
        reason = f"batches may take {batch:.1f} s, for a p99 freshness of {goal:g} s"
    plan = replace(turn.plan, batch=batch, time=turn.now, reasons=(reason,))
    return Step(Action.ADOPT, (reason,), plan)  # no new epoch: nothing moves


def _found(turn: Turn) -> Step | None:
    found = len(turn.at.active)
    if not turn.at.policy.advisory or found == turn.plan.replicas:
        return None
    return adopt(turn, found, f"{found} are running; the count is not ours to change")


def _stop(turn: Turn) -> Step | None:
    if turn.at.seen.group.shared and not turn.at.active and not turn.plan.replicas:
        return None  # the last ones: `rest` looks first whether there still is nothing to read
    ordinals = turn.at.ordinals()
    busy = [ordinals[n] for n in turn.at.running if n in turn.at.active or turn.at.owned(n)]
    free = sorted((n for n in turn.at.draining if not turn.at.owned(n)), key=lambda n: -ordinals[n])
    drained = tuple(n for n in free if ordinals[n] >= max(busy, default=0))
    if not drained or turn.at.unsettled() is not None:
        return None
    names = " and ".join(drained)
    why = f"nothing is left with {names}, the group is at rest"
    if turn.at.seen.group.shared:
        why = f"{names} may end: what is in work with them they finish, or it goes to others"
    return Step(Action.STOP, (why,), stop=drained)


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


def _foreign(turn: Turn) -> Step | None:
    off, asked = switched_off(turn.at), foreign(turn.at)
    contest = turn.at.seen.outside.contest
    if off is not None and not contest:
        return Step(Action.HOLD, (off,))
    if asked is None:
        return None
    if contest:
        return _contested(turn, asked)
    reason = f"{asked.by} set {asked.count} replicas, respected"
    base = replace(turn.plan, replicas=asked.count, draining=(), time=turn.now, reasons=(reason,))
    plan = next_plan(base, turn.at.policy, turn.now, (reason,)) if turn.at.draining else base
    return Step(Action.FOLLOW, (reason,), plan)


def _contested(turn: Turn, asked: Asked) -> Step | None:
    reason = f"{asked.by} set {asked.count} replicas, contested: {turn.plan.replicas} are planned"
    missing = turn.plan.replicas - len(turn.at.active)
    if missing > 0:
        return _pause(turn, reason) or Step(Action.REPLACE, (reason,), add=missing)
    waits = turn.at.unsettled()
    if waits is not None:
        return Step(Action.HOLD, (reason, waits))
    victims = choose(turn.at, -missing, forced=True)
    return drained(turn, victims, turn.plan.replicas, reason) if victims else None


def _undrain(turn: Turn) -> Step | None:
    short = turn.plan.replicas - len(turn.at.active)
    more = 0 if turn.at.paused(Way.OUT) else turn.sizing.wanted - turn.plan.replicas
    count = min(len(turn.at.draining), max(0, more) + max(0, short))
    if count <= 0 or turn.at.policy.advisory:
        return None
    ordinals = turn.at.ordinals()
    order = sorted(turn.at.draining, key=lambda n: (ordinals[n], -len(turn.at.owned(n)), n))
    keep = order[:count]
    why = f"{short} died" if short > 0 else f"{turn.sizing.wanted} are wanted again"
    reasons = (f"{' and '.join(keep)} stay: {why} while draining",)
    left = tuple(n for n in turn.plan.draining if n not in keep)
    replicas = min(len(turn.at.active) + count, max(turn.sizing.wanted, turn.plan.replicas))
    base = replace(turn.plan, draining=left, replicas=replicas)
    return Step(Action.UNDRAIN, reasons, next_plan(base, turn.at.policy, turn.now, reasons))


def _ask_again(turn: Turn) -> Step | None:
    busy = tuple(n for n in turn.at.draining if turn.at.owned(n))
    if not turn.at.draining:
        return None
    waited = turn.memory.since_change(turn.now)
    if busy and waited >= turn.at.policy.ask_again:
        reasons = (f"{busy[0]} still owns {len(turn.at.owned(busy[0]))} partitions, asked again",)
        return Step(
            Action.ASK_AGAIN, reasons, next_plan(turn.plan, turn.at.policy, turn.now, reasons)
        )
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
    if on_its_way(turn.at):
        return _awaited(turn, what)
    pause = _pause(turn, what)
    if pause is not None:
        return pause
    return Step(Action.REPLACE, (what,), add=missing)


def _awaited(turn: Turn, what: str) -> Step | None:
    """Wait for what the target starts; beyond the grace, go on with what exists."""
    if _unmet(turn) is None:
        return Step(Action.HOLD, (what, "the target starts the others", *turn.at.seen.trouble[:1]))
    enough = max(turn.sizing.wanted, len(turn.at.active))
    return adopt(turn, enough, f"{enough} would do") if enough < turn.plan.replicas else None


def _unmet(turn: Turn) -> str | None:
    """Say that the target brings about fewer replicas than it was asked for; None where not."""
    running, planned, grace = len(turn.at.active), turn.plan.replicas, turn.at.policy.start_grace
    since = turn.memory.short
    if since is None or turn.now - since < grace or not on_its_way(turn.at):
        return None
    return (
        f"{running} of {planned} run, the target has not started the others within {grace:g} s: "
        "look at its own limits (maxReplicaCount, a quota) and at the nodes"
    )


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
    running = meant(turn.at)
    if running <= turn.plan.replicas or turn.at.seen.restart:
        return None
    return adopt(turn, running, f"{running} run, {turn.plan.replicas} were planned")


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
    return drained(turn, old[:1], turn.plan.replicas, f"{old[0]} is to be replaced")


def _hold(turn: Turn) -> Step:
    sizing = turn.sizing
    if sizing.notes:
        return Step(Action.HOLD, (*sizing.notes, *turn.at.seen.trouble[:1]))
    if sizing.steady != sizing.wanted:
        return Step(Action.HOLD, (f"{sizing.steady} would do, but not for long enough",))
    return Step(Action.HOLD, (f"{turn.plan.replicas} is right",))


RULES: Final[Sequence[Callable[[Turn], Step | None]]] = (
    _announce,
    _pace,
    _found,
    _stop,
    _settle,
    _foreign,
    rest,
    _undrain,
    _ask_again,
    _replace,
    _surplus,
    scale_out,
    _restart,
    scale_in,
    learn,
    place,
    _hold,
)


def _numbers(turn: Turn, step: Step, crossing: Crossing | None) -> Numbers:
    seen, drain, goal = turn.at.seen, turn.at.policy.drain, turn.at.policy.goal
    fresh = freshness(turn.memory.looks)
    return replace(
        totals(seen),
        late=behind(seen, drain),
        consumed=consumed(seen, drain),
        freshness=None if fresh is None else fresh.p99,
        batch=None if fresh is None or goal is None else fresh.longest(goal),
        running=len(turn.at.active),
        planned=turn.plan.replicas,
        wished=turn.sizing.wished,
        wanted=turn.sizing.wanted,
        fill=turn.at.fill(),
        r_score=0.0 if step.expected is None else step.expected.r_score,
        moves=0 if step.expected is None else len(step.expected.moves),
        crossing=None if crossing is None else crossing.load,
        stranded=None if crossing is None else crossing.stranded,
        unmanned=None if crossing is None else len(crossing.unmanned),
    )
