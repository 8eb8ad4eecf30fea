"""The rules that change count or placement of the sidecar's own accord; `decide` has the order."""

from dataclasses import replace
from typing import Final

from trimtab.common.units import format_rate
from trimtab.sidecar.decision.decision import Action, totals
from trimtab.sidecar.decision.decision_context import Step, Turn, drained, next_plan
from trimtab.sidecar.decision.group_model import overflow
from trimtab.sidecar.decision.hpa_behavior import Select, Way, highest, lowest
from trimtab.sidecar.decision.scale_in_selection import choose
from trimtab.sidecar.decision.scale_to_zero import awake, idle

BETTER: Final = 0.05
"""Share of a consumer's capacity by which a placement must lower the overload."""

NEWS: Final = 0.2
"""Share by which a learned capacity must differ from the one in force to be published."""


def scale_out(turn: Turn) -> Step | None:
    """Start replicas where more are wanted, as far as pace, pauses and cool-down allow."""
    planned, wanted = turn.plan.replicas, turn.sizing.wanted
    if wanted <= planned:
        return None
    rules = turn.at.policy.out
    limit = highest(rules, planned, turn.memory.changes, turn.now)
    if planned == 0 and rules.select is not Select.DISABLED:
        limit = max(1, limit)  # no percentage of nothing is one, and a first one is not late
    count = min(wanted, limit)
    waits = turn.at.paused(Way.OUT) or (turn.cooling() if planned else None)
    if waits is None and count <= planned:
        waits = _paced(rules.select, "step-out")
    if waits is not None:
        return Step(Action.HOLD, (f"{wanted} are wanted", waits))
    why = _demand(turn) if planned else _first(turn)
    reasons = (f"{planned} -> {count}: {why}",)
    plan = replace(turn.plan, replicas=count, time=turn.now, reasons=reasons)
    add = max(0, count - len(turn.at.active))
    return Step(Action.START, reasons, plan, add=add, expected=turn.sizing.expected)


def _first(turn: Turn) -> str:
    if awake(turn.at.seen.speeds):
        return "there is something to read"
    return (
        f"nothing is known to be read, but so many are to run at least (min {turn.at.policy.least})"
    )


def scale_in(turn: Turn) -> Step | None:
    """Drain replicas where fewer would do, as far as pace, pauses, cool-down and group allow."""
    planned, wanted = turn.plan.replicas, turn.sizing.wanted
    if wanted >= planned:
        return None
    rules = turn.at.policy.back
    count = max(wanted, lowest(rules, planned, turn.memory.changes, turn.now))
    waits = turn.at.paused(Way.IN) or turn.cooling() or turn.at.unsettled()
    if waits is None and count >= planned:
        waits = _paced(rules.select, "step-in")
    if waits is not None:
        return Step(Action.HOLD, (f"{wanted} would do", waits))
    if count == 0:
        return _retire(turn)
    victims = choose(turn.at, planned - count, forced=planned > turn.at.policy.most)
    if not victims:
        return Step(
            Action.HOLD, (f"{wanted} would do", "the others could not hold what any one reads")
        )
    left = planned - len(victims)
    cheap = "may go, as any might" if turn.at.seen.group.shared else "cost least"
    why = f"{planned} -> {left}: {_demand(turn)}; {' and '.join(victims)} {cheap}"
    return drained(turn, victims, left, why)


def _retire(turn: Turn) -> Step:
    """Let the last ones go. The epoch stays: there is nobody to hand anything over to."""
    since = turn.memory.idle
    quiet = 0.0 if since is None else turn.now - since
    why = f"{turn.plan.replicas} -> 0: nothing was written and nothing waited for {quiet:.0f} s"
    draining = (*turn.plan.draining, *turn.at.active)
    plan = replace(turn.plan, replicas=0, draining=draining, time=turn.now, reasons=(why,))
    return Step(Action.DRAIN, (why,), plan)


def rest(turn: Turn) -> Step | None:
    """Stop the last ones, which go on reading till then, if there still is nothing to read."""
    last = turn.at.draining
    if turn.plan.replicas or turn.at.active or not last or turn.sizing.wanted:
        return None
    if not idle(turn.at.seen.speeds):
        return Step(Action.HOLD, ("it is not known whether there is something to read",))
    return Step(Action.STOP, (f"nothing is to be read, {' and '.join(last)} may end",), stop=last)


def learn(turn: Turn) -> Step | None:
    """Publish capacities that were learned, where they differ enough from those in force."""
    usual, said = turn.at.policy.placement.capacity, turn.plan.capacities
    learned = {n: c for n, c in turn.memory.learned.items() if n in turn.at.active}
    news = {n: c for n, c in learned.items() if abs(c / said.get(n, usual) - 1) >= NEWS}
    if not news or turn.cooling() is not None or turn.at.unsettled() is not None:
        return None
    told = ", ".join(f"{name} {format_rate(rate)}" for name, rate in sorted(news.items()))
    reasons = (f"learned from what they sustained while behind: {told}",)
    base = replace(turn.plan, capacities=dict(sorted(learned.items())))
    return Step(Action.PLACE, reasons, next_plan(base, turn.at.policy, turn.now, reasons))


def place(turn: Turn) -> Step | None:
    """Ask for another placement where the present one overfills a consumer and a better one is."""
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
    after = overflow(better.assignment, turn.at.load(), turn.at.capacity)
    if before - after < BETTER * capacity:
        return Step(Action.HOLD, (what, "no better placement is known"))
    reasons = (f"{what}, {format_rate(after)} in a better one",)
    plan = next_plan(turn.plan, turn.at.policy, turn.now, reasons)
    return Step(Action.PLACE, reasons, plan, expected=better)


def _paced(select: Select, setting: str) -> str:
    if select is Select.DISABLED:
        return f"{setting} is disabled"
    return f"{setting} allows no more in its period"


def _demand(turn: Turn) -> str:
    needed, room = totals(turn.at.seen).needed, turn.at.policy.room
    if needed is None:
        return f"at least {turn.at.policy.least}; the load is not known yet"
    return f"needed {format_rate(needed)} at {format_rate(room)} a consumer"
