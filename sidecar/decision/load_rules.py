"""Rules that follow the load: they change replica count or placement by it; `decide` orders them."""

from dataclasses import replace
from typing import Final

from trimtab.common.units import format_fill, format_rate
from trimtab.sidecar.decision.decision import REPLICA_ACTIONS, ScalingAction, compute_totals
from trimtab.sidecar.decision.decision_context import (
    DecisionContext,
    DecisionStep,
    drain_replicas,
    hold,
    start_epoch,
)
from trimtab.sidecar.decision.recommendation import (
    ReplicaRecommendation,
    explain_tolerated_excess,
    find_due_placement,
    is_overfull_for_long,
)
from trimtab.sidecar.decision.scale_in_selection import select_victims
from trimtab.sidecar.decision.scale_to_zero import is_active, is_idle
from trimtab.sidecar.model.hpa_behavior import Direction, SelectPolicy, limit_scale_down, limit_scale_up

UNSTEERED: Final = "the group is unsteered: it follows no plan"
CAPACITY_TOLERANCE: Final = 0.2  # relative change of a learned capacity that is worth a rebalance


def scale_up(context: DecisionContext) -> DecisionStep | None:
    """Start replicas up to the desired count, as policies, pauses and cooldown allow."""
    planned, desired = context.plan.replicas, context.recommendation.desired
    if desired <= planned:
        return None
    rules = context.policy.scale_up
    count = limit_scale_up(rules, planned, desired, context.memory.scale_events, context.now)
    blocker = context.model.explain_pause(Direction.UP) or (context.explain_cooldown() if planned else None)
    if blocker is None and count <= planned:
        blocker = _explain_policy_limit(rules.select_policy, "scale-up-policies")
    if blocker is not None:
        return hold(f"{desired} desired", blocker)
    reason = f"{planned} -> {count}: {_describe_demand(context)}"
    plan = context.amend_plan(reason, replicas=count)  # the new member's join starts the rebalance
    add = max(0, count - len(context.model.active))
    return DecisionStep(ScalingAction.SCALE_UP, (reason,), plan, add)


def scale_down(context: DecisionContext) -> DecisionStep | None:
    """Drain replicas down to the desired count, as policies, pauses, cooldown and group allow."""
    planned, desired = context.plan.replicas, context.recommendation.desired
    if desired >= planned:
        return None
    rules = context.policy.scale_down
    model = context.model
    count = limit_scale_down(rules, planned, desired, context.memory.scale_events, context.now)
    blocker = model.explain_pause(Direction.DOWN) or context.explain_cooldown() or model.explain_instability()
    if blocker is None and count >= planned:
        blocker = _explain_policy_limit(rules.select_policy, "scale-down-policies")
    if blocker is not None:
        return hold(f"{desired} desired", blocker)
    if count == 0:
        return _drain_last_replicas(context)
    if not context.observation.is_steered and not context.policy.advisory:
        return hold(f"{desired} desired", UNSTEERED)  # the drained replicas would never be empty
    victims = _select_drained(context, planned - count)
    if not victims:
        return hold(f"{desired} desired", "the others cannot take over the load of any replica")
    left = planned - len(victims)
    cheap = "newest" if model.is_share_group else "cheapest to move"
    if model.members.keys().isdisjoint(model.list_consumers(victims)):
        cheap = "has not joined" if len(victims) == 1 else "have not joined"
    why = f"{planned} -> {left}: {_describe_demand(context)}; {' and '.join(victims)} {cheap}"
    return drain_replicas(context, victims, left, why)


def is_scale_down_due(context: DecisionContext) -> bool:
    """Return whether a scale-down is desired, possible, and held back by nothing but time."""
    desired = context.recommendation.desired
    disabled = context.policy.scale_down.select_policy is SelectPolicy.DISABLED
    if desired >= context.plan.replicas or disabled or context.model.explain_pause(Direction.DOWN):
        return False
    return desired == 0 or bool(_select_drained(context, 1))


def _select_drained(context: DecisionContext, count: int) -> tuple[str, ...]:
    suspension = context.memory.scale_up_suspension
    limit = None if suspension is None else suspension.most_replicas
    most = min(context.policy.max_replicas, context.policy.max_replicas if limit is None else limit)
    forced = context.plan.replicas > most  # the others read as much, or as much as they may
    return select_victims(context.model, count, forced=forced)


def _drain_last_replicas(context: DecisionContext) -> DecisionStep:
    since = context.memory.idle_since
    idle = 0.0 if since is None else context.now - since
    reason = f"{context.plan.replicas} -> 0: nothing written or waiting for {idle:.0f} s"
    draining = (*context.plan.draining, *context.model.active)
    # Same epoch: no replica is left to take the partitions, so there is nothing to rebalance.
    plan = context.amend_plan(reason, replicas=0, draining=draining)
    return DecisionStep(ScalingAction.DRAIN, (reason,), plan)


def stop_last_replicas(context: DecisionContext) -> DecisionStep | None:
    """Stop the last replicas, which read until now, if the group is still idle."""
    last = context.model.draining
    if context.plan.replicas or context.model.active or not last or context.recommendation.desired:
        return None
    if not is_idle(context.model.write_rates):
        return hold("unknown whether there are records to read")
    reason = f"nothing to read, {' and '.join(last)} can stop"
    return DecisionStep(ScalingAction.STOP, (reason,), stop_names=last)


def publish_learned_capacities(context: DecisionContext) -> DecisionStep | None:
    """Publish learned capacities that differ enough from those in force."""
    if not context.observation.is_steered:
        return None
    default = context.policy.placement.capacity
    published = context.plan.capacities
    active = context.model.list_consumers(context.model.active)
    learned = {n: c for n, c in context.memory.learned_capacities.items() if n in active}
    changed = {
        n: c for n, c in learned.items() if abs(c / published.get(n, default) - 1) >= CAPACITY_TOLERANCE
    }
    if not changed or context.explain_cooldown() or context.model.explain_instability():
        return None
    listed = ", ".join(f"{name} {format_rate(rate)}" for name, rate in sorted(changed.items()))
    unit = context.policy.record_weights
    # else they would be read as bytes on the wire
    note = f" (counting {unit.format_unit()})" if unit.counts_records else ""
    reason = f"learned while behind: {listed}{note}"
    plan = context.next_plan(reason, capacities=dict(sorted(learned.items())), record_weights=unit)
    return DecisionStep(ScalingAction.PLACE, (reason,), plan)


def request_placement(context: DecisionContext) -> DecisionStep | None:
    """Publish a new placement if the current one overfills a consumer and a better one exists."""
    model = context.model
    before, limit = model.fullest, model.fill_limit
    if not is_overfull_for_long(model, context.memory, context.now) or model.unknown_partitions:
        return None
    blocker = _explain_wait(context)
    what = f"the fullest consumer is at {format_fill(before, limit)}, above {limit:.0%}"
    if blocker is not None:
        return hold(what, blocker, *context.recommendation.hold_reasons)
    recent = context.memory.seconds_since_change(context.now) < context.policy.drain_retry
    if recent and model.capture_placement() == context.memory.last_placement:
        return hold(what, f"plan {context.plan.epoch} has moved nothing so far")
    better = find_due_placement(model, context.memory, context.now)
    if better is None:
        return hold(what, "no better placement found", *context.recommendation.hold_reasons)
    after = format_fill(model.compute_fullest(better.assignment), limit)
    reason = f"{what}, {after} in a better placement"
    return DecisionStep(ScalingAction.PLACE, (reason,), context.next_plan(reason), placed=better)


def renew_target(context: DecisionContext) -> DecisionStep | None:
    """Publish a placement on the consumers there are once the target names none of them."""
    target = context.plan.target
    named = set[str]() if target is None else set(target.consumers)
    running = context.model.list_consumers(context.model.running)
    if not named or not context.model.active or not named.isdisjoint(running):
        return None
    what = "none of the plan's consumers is left"
    blocker = _explain_wait(context)
    if blocker is not None:
        return hold(what, blocker, *context.recommendation.hold_reasons)
    return DecisionStep(ScalingAction.PLACE, (what,), context.next_plan(what))


def hold_replicas(context: DecisionContext) -> DecisionStep:
    """Change nothing, and tell why."""
    recommendation = context.recommendation
    excess = explain_tolerated_excess(context.model, context.memory, context.now)
    notes = () if excess is None else (excess,)
    if recommendation.hold_reasons:
        return hold(*recommendation.hold_reasons, *notes, *context.observation.errors[:1])
    if recommendation.bounded != recommendation.desired:
        return hold(
            f"{_describe_bounded(recommendation)}, but not for the whole stabilization window", *notes
        )
    return hold(f"{context.plan.replicas} is the desired count", *notes)


def _describe_bounded(recommendation: ReplicaRecommendation) -> str:
    needed, bounded = recommendation.recommended, recommendation.bounded
    if needed in (None, bounded):
        return f"{bounded} recommended"
    return f"{bounded} recommended ({needed} needed by the load, then tolerance and limits)"


def _explain_wait(context: DecisionContext) -> str | None:
    """Return what a new placement has to wait for; None if nothing."""
    if not context.observation.is_steered:
        return UNSTEERED
    pending = context.model.find_unjoined_replicas(context.now)  # their join makes a new placement anyway
    if pending:
        return f"{pending[0]} has not joined yet"
    return context.explain_cooldown() or context.model.explain_instability()


def add_due_placement(context: DecisionContext, step: DecisionStep) -> DecisionStep:
    """Return the step with a placement that is due, if it is one that moves nothing and comes first.

    In advisory mode the placement itself, if the step is mere advice.
    """
    step = _prefer_placement(context, step)
    plan = step.plan or context.plan
    moves_nothing = step.action in (ScalingAction.DRAIN, ScalingAction.STOP, ScalingAction.ADOPT)
    if not moves_nothing or plan.epoch > context.plan.epoch or context.observation.pending_restarts:
        return step
    grows = context.recommendation.desired > plan.replicas  # that makes a placement, and comes before
    due = None if grows else request_placement(context)
    if due is None or due.placed is None:
        return step
    left = [name for name in context.model.active if name not in plan.draining]
    placed = context.model.find_better_placement(left) if step.action is ScalingAction.DRAIN else due.placed
    if placed is None:
        return step
    reasons = (*step.reasons, *due.reasons)
    plan = start_epoch(replace(plan, time=context.now, reasons=reasons), context.policy)
    return replace(step, reasons=reasons, plan=plan, placed=placed)


def _prefer_placement(context: DecisionContext, step: DecisionStep) -> DecisionStep:
    """Return a due placement instead of mere advice, which may stand for as long as nobody scales."""
    if not context.policy.advisory or step.action not in REPLICA_ACTIONS:
        return step
    rules = (publish_learned_capacities, request_placement, renew_target)
    due = (rule(context) for rule in rules)
    return next((placed for placed in due if placed is not None and placed.plan is not None), step)


def _explain_policy_limit(select: SelectPolicy, setting: str) -> str:
    disabled = select is SelectPolicy.DISABLED
    return f"{setting} is disabled" if disabled else f"{setting} allows no more in its period"


def _describe_demand(context: DecisionContext) -> str:
    policy = context.policy
    required = compute_totals(context.observation).required_rate
    if not context.plan.replicas:
        active = is_active(context.model.write_rates)
        return "records to read" if active else f"no records known, but min is {policy.min_replicas}"
    if required is None:
        return f"at least {policy.min_replicas}; the load is not known yet"
    return f"required {format_rate(required)} at {format_rate(policy.usable_capacity)} a consumer"
