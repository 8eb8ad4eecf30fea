"""The rules that change count or placement of the sidecar's own accord; `decide` has the order."""

from dataclasses import replace
from typing import Final

from trimtab.common.units import format_rate
from trimtab.sidecar.decision.decision import ScalingAction, compute_totals
from trimtab.sidecar.decision.decision_context import (
    DecisionContext,
    DecisionStep,
    drain_replicas,
    next_plan,
)
from trimtab.sidecar.decision.group_model import compute_overflow
from trimtab.sidecar.decision.hpa_behavior import (
    Direction,
    SelectPolicy,
    calculate_scale_down_limit,
    calculate_scale_up_limit,
)
from trimtab.sidecar.decision.scale_in_selection import select_victims
from trimtab.sidecar.decision.scale_to_zero import is_active, is_idle

MIN_OVERLOAD_GAIN: Final = 0.05
"""Share of a consumer's capacity by which a placement must lower the overload."""

CAPACITY_TOLERANCE: Final = 0.2
"""Share by which a learned capacity must differ from the one in force to be published."""


def scale_up(context: DecisionContext) -> DecisionStep | None:
    """Start replicas where more are wanted, as far as pace, pauses and cooldown allow."""
    planned, wanted = context.plan.replicas, context.recommendation.desired
    if wanted <= planned:
        return None
    rules = context.model.policy.scale_up
    limit = calculate_scale_up_limit(rules, planned, context.memory.scale_events, context.now)
    if planned == 0 and rules.select_policy is not SelectPolicy.DISABLED:
        limit = max(1, limit)  # no percentage of nothing is one, and a first one is not late
    count = min(wanted, limit)
    waits = context.model.explain_pause(Direction.UP) or (
        context.explain_cooldown() if planned else None
    )
    if waits is None and count <= planned:
        waits = _explain_policy_limit(rules.select_policy, "scale-up-policies")
    if waits is not None:
        return DecisionStep(ScalingAction.HOLD, (f"{wanted} are wanted", waits))
    why = _describe_demand(context) if planned else _explain_first_replica(context)
    reasons = (f"{planned} -> {count}: {why}",)
    plan = replace(context.plan, replicas=count, time=context.now, reasons=reasons)
    add = max(0, count - len(context.model.active))
    return DecisionStep(
        ScalingAction.SCALE_UP,
        reasons,
        plan,
        start_count=add,
        expected_plan=context.recommendation.expected_plan,
    )


def _explain_first_replica(context: DecisionContext) -> str:
    if is_active(context.model.observation.write_rates):
        return "there is something to read"
    return f"nothing is known to be read, but so many are to run at least (min {context.model.policy.min_replicas})"


def scale_down(context: DecisionContext) -> DecisionStep | None:
    """Drain replicas where fewer would do, as far as pace, pauses, cooldown and group allow."""
    planned, wanted = context.plan.replicas, context.recommendation.desired
    if wanted >= planned:
        return None
    rules = context.model.policy.scale_down
    count = max(
        wanted, calculate_scale_down_limit(rules, planned, context.memory.scale_events, context.now)
    )
    waits = (
        context.model.explain_pause(Direction.DOWN)
        or context.explain_cooldown()
        or context.model.explain_instability()
    )
    if waits is None and count >= planned:
        waits = _explain_policy_limit(rules.select_policy, "scale-down-policies")
    if waits is not None:
        return DecisionStep(ScalingAction.HOLD, (f"{wanted} would do", waits))
    if count == 0:
        return _drain_last_replicas(context)
    victims = select_victims(
        context.model, planned - count, forced=planned > context.model.policy.max_replicas
    )
    if not victims:
        return DecisionStep(
            ScalingAction.HOLD,
            (f"{wanted} would do", "the others could not hold what any one reads"),
        )
    left = planned - len(victims)
    cheap = (
        "may go, as any might" if context.model.observation.group.is_share_group else "cost least"
    )
    why = f"{planned} -> {left}: {_describe_demand(context)}; {' and '.join(victims)} {cheap}"
    return drain_replicas(context, victims, left, why)


def _drain_last_replicas(context: DecisionContext) -> DecisionStep:
    """Let the last ones go. The epoch stays: there is nobody to hand anything over to."""
    since = context.memory.idle_since
    quiet = 0.0 if since is None else context.now - since
    why = f"{context.plan.replicas} -> 0: nothing was written and nothing waited for {quiet:.0f} s"
    draining = (*context.plan.draining, *context.model.active)
    plan = replace(context.plan, replicas=0, draining=draining, time=context.now, reasons=(why,))
    return DecisionStep(ScalingAction.DRAIN, (why,), plan)


def stop_last_replicas(context: DecisionContext) -> DecisionStep | None:
    """Stop the last ones, which go on reading till then, if there still is nothing to read."""
    last = context.model.draining
    if context.plan.replicas or context.model.active or not last or context.recommendation.desired:
        return None
    if not is_idle(context.model.observation.write_rates):
        return DecisionStep(
            ScalingAction.HOLD, ("it is not known whether there is something to read",)
        )
    return DecisionStep(
        ScalingAction.STOP,
        (f"nothing is to be read, {' and '.join(last)} may end",),
        stop_names=last,
    )


def publish_learned_capacities(context: DecisionContext) -> DecisionStep | None:
    """Publish capacities that were learned, where they differ enough from those in force."""
    usual, said = context.model.policy.placement.capacity, context.plan.capacities
    learned = {
        n: c for n, c in context.memory.learned_capacities.items() if n in context.model.active
    }
    news = {
        n: c for n, c in learned.items() if abs(c / said.get(n, usual) - 1) >= CAPACITY_TOLERANCE
    }
    if (
        not news
        or context.explain_cooldown() is not None
        or context.model.explain_instability() is not None
    ):
        return None
    told = ", ".join(f"{name} {format_rate(rate)}" for name, rate in sorted(news.items()))
    reasons = (f"learned from what they sustained while behind: {told}",)
    base = replace(context.plan, capacities=dict(sorted(learned.items())))
    return DecisionStep(
        ScalingAction.PLACE, reasons, next_plan(base, context.model.policy, context.now, reasons)
    )


def request_placement(context: DecisionContext) -> DecisionStep | None:
    """Ask for another placement where the present one overfills a consumer and a better one is."""
    before, capacity = context.model.compute_overflow(), context.model.policy.placement.capacity
    if before <= 0 or context.model.unknown_partitions:
        return None
    pending = context.model.find_unjoined_replicas(context.now)
    waits = context.explain_cooldown() or context.model.explain_instability()
    if pending:
        waits = f"{pending[0]} has not joined yet"
    what = f"{format_rate(before)} above capacity in the present placement"
    if waits is not None:
        return DecisionStep(ScalingAction.HOLD, (what, waits))
    asked_lately = (
        context.memory.seconds_since_change(context.now) < context.model.policy.drain_retry
    )
    if asked_lately and context.model.capture_placement() == context.memory.last_placement:
        return DecisionStep(ScalingAction.HOLD, (what, "the leader kept it when asked"))
    better = context.model.plan_without(())
    after = compute_overflow(
        better.assignment, context.model.build_load(), context.model.capacity_of
    )
    if before - after < MIN_OVERLOAD_GAIN * capacity:
        return DecisionStep(ScalingAction.HOLD, (what, "no better placement is known"))
    reasons = (f"{what}, {format_rate(after)} in a better one",)
    plan = next_plan(context.plan, context.model.policy, context.now, reasons)
    return DecisionStep(ScalingAction.PLACE, reasons, plan, expected_plan=better)


def _explain_policy_limit(select: SelectPolicy, setting: str) -> str:
    if select is SelectPolicy.DISABLED:
        return f"{setting} is disabled"
    return f"{setting} allows no more in its period"


def _describe_demand(context: DecisionContext) -> str:
    needed, room = (
        compute_totals(context.model.observation).needed,
        context.model.policy.usable_capacity,
    )
    if needed is None:
        return f"at least {context.model.policy.min_replicas}; the load is not known yet"
    return f"needed {format_rate(needed)} at {format_rate(room)} a consumer"
