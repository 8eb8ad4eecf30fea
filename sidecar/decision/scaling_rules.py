"""Decision rules that change replica count or placement by load; `decide` orders them."""

from dataclasses import replace
from typing import Final

from trimtab.common.units import format_rate
from trimtab.sidecar.decision.decision import ScalingAction, compute_totals
from trimtab.sidecar.decision.decision_context import DecisionContext, DecisionStep, drain_replicas, next_plan
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
"""Share of a consumer's capacity by which a new placement must reduce the overload."""

CAPACITY_TOLERANCE: Final = 0.2
"""Relative change of a learned capacity that is published."""


def scale_up(context: DecisionContext) -> DecisionStep | None:
    """Start replicas up to the desired count, as policies, pauses and cooldown allow."""
    planned, desired = context.plan.replicas, context.recommendation.desired
    if desired <= planned:
        return None
    rules = context.model.policy.scale_up
    limit = calculate_scale_up_limit(rules, planned, context.memory.scale_events, context.now)
    if planned == 0 and rules.select_policy is not SelectPolicy.DISABLED:
        limit = max(1, limit)  # a percentage of 0 replicas is 0
    count = min(desired, limit)
    blocker = context.model.explain_pause(Direction.UP) or (context.explain_cooldown() if planned else None)
    if blocker is None and count <= planned:
        blocker = _explain_policy_limit(rules.select_policy, "scale-up-policies")
    if blocker is not None:
        return DecisionStep(ScalingAction.HOLD, (f"{desired} desired", blocker))
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
        return "records to read"
    return f"no records known, but min is {context.model.policy.min_replicas}"


def scale_down(context: DecisionContext) -> DecisionStep | None:
    """Drain replicas down to the desired count, as policies, pauses, cooldown and group allow."""
    planned, desired = context.plan.replicas, context.recommendation.desired
    if desired >= planned:
        return None
    rules = context.model.policy.scale_down
    count = max(desired, calculate_scale_down_limit(rules, planned, context.memory.scale_events, context.now))
    blocker = (
        context.model.explain_pause(Direction.DOWN)
        or context.explain_cooldown()
        or context.model.explain_instability()
    )
    if blocker is None and count >= planned:
        blocker = _explain_policy_limit(rules.select_policy, "scale-down-policies")
    if blocker is not None:
        return DecisionStep(ScalingAction.HOLD, (f"{desired} desired", blocker))
    if count == 0:
        return _drain_last_replicas(context)
    victims = select_victims(
        context.model, planned - count, forced=planned > context.model.policy.max_replicas
    )
    if not victims:
        return DecisionStep(
            ScalingAction.HOLD, (f"{desired} desired", "the others cannot take over the load of any replica")
        )
    left = planned - len(victims)
    cheap = "newest" if context.model.observation.group.is_share_group else "cheapest to move"
    why = f"{planned} -> {left}: {_describe_demand(context)}; {' and '.join(victims)} {cheap}"
    return drain_replicas(context, victims, left, why)


def _drain_last_replicas(context: DecisionContext) -> DecisionStep:
    """Drain the last replicas in the same epoch: their partitions get no new owner."""
    since = context.memory.idle_since
    idle = 0.0 if since is None else context.now - since
    why = f"{context.plan.replicas} -> 0: nothing written or waiting for {idle:.0f} s"
    draining = (*context.plan.draining, *context.model.active)
    plan = replace(context.plan, replicas=0, draining=draining, time=context.now, reasons=(why,))
    return DecisionStep(ScalingAction.DRAIN, (why,), plan)


def stop_last_replicas(context: DecisionContext) -> DecisionStep | None:
    """Stop the last replicas, which read until now, if the group is still idle."""
    last = context.model.draining
    if context.plan.replicas or context.model.active or not last or context.recommendation.desired:
        return None
    if not is_idle(context.model.observation.write_rates):
        return DecisionStep(ScalingAction.HOLD, ("unknown whether there are records to read",))
    return DecisionStep(
        ScalingAction.STOP, (f"nothing to read, {' and '.join(last)} can stop",), stop_names=last
    )


def publish_learned_capacities(context: DecisionContext) -> DecisionStep | None:
    """Publish learned capacities that differ enough from those in force."""
    default, published = context.model.policy.placement.capacity, context.plan.capacities
    learned = {n: c for n, c in context.memory.learned_capacities.items() if n in context.model.active}
    changed = {
        n: c for n, c in learned.items() if abs(c / published.get(n, default) - 1) >= CAPACITY_TOLERANCE
    }
    if (
        not changed
        or context.explain_cooldown() is not None
        or context.model.explain_instability() is not None
    ):
        return None
    listed = ", ".join(f"{name} {format_rate(rate)}" for name, rate in sorted(changed.items()))
    reasons = (f"learned while behind: {listed}",)
    base = replace(context.plan, capacities=dict(sorted(learned.items())))
    return DecisionStep(
        ScalingAction.PLACE, reasons, next_plan(base, context.model.policy, context.now, reasons)
    )


def request_placement(context: DecisionContext) -> DecisionStep | None:
    """Request a new placement if the current one overfills a consumer and a better one exists."""
    before, capacity = context.model.compute_overflow(), context.model.policy.placement.capacity
    if before <= 0 or context.model.unknown_partitions:
        return None
    pending = context.model.find_unjoined_replicas(context.now)
    blocker = context.explain_cooldown() or context.model.explain_instability()
    if pending:
        blocker = f"{pending[0]} has not joined yet"
    what = f"{format_rate(before)} above capacity in the current placement"
    if blocker is not None:
        return DecisionStep(ScalingAction.HOLD, (what, blocker))
    requested_recently = context.memory.seconds_since_change(context.now) < context.model.policy.drain_retry
    if requested_recently and context.model.capture_placement() == context.memory.last_placement:
        return DecisionStep(ScalingAction.HOLD, (what, "the leader kept it on request"))
    better = context.model.plan_without(())
    after = compute_overflow(better.assignment, context.model.build_load(), context.model.capacity_of)
    if before - after < MIN_OVERLOAD_GAIN * capacity:
        return DecisionStep(ScalingAction.HOLD, (what, "no better placement found"))
    reasons = (f"{what}, {format_rate(after)} in a better one",)
    plan = next_plan(context.plan, context.model.policy, context.now, reasons)
    return DecisionStep(ScalingAction.PLACE, reasons, plan, expected_plan=better)


def _explain_policy_limit(select: SelectPolicy, setting: str) -> str:
    if select is SelectPolicy.DISABLED:
        return f"{setting} is disabled"
    return f"{setting} allows no more in its period"


def _describe_demand(context: DecisionContext) -> str:
    needed, room = (
        compute_totals(context.model.observation).needed_rate,
        context.model.policy.usable_capacity,
    )
    if needed is None:
        return f"at least {context.model.policy.min_replicas}; the load is not known yet"
    return f"needed {format_rate(needed)} at {format_rate(room)} a consumer"
