"""Makes the scaling decision: observation, policy and memory in, decision with reasons out. Pure.

The state of the group is derived, not stored: it follows from the plan in force (Kafka) and the
live replicas (target), so a restarted sidecar resumes where the previous one stopped.

    steady      no live replica is draining
    draining    plan.draining names a live replica
    restarting  replicas with a pending restart are still alive

Rules; the first that applies decides:

 1. Unknown state: hold while the plan, the replicas or the group's members are unknown. Unknown write
    rates alone do not change the count (`recommendation`, rule 3); dead replicas are replaced.
 2. Announce: publish a new epoch if there is no plan, or heuristic, capacity or headroom changed.
    Publish a changed maximum batch age (`freshness`) in the same epoch.
 3. Advisory: record the observed count. A placement (rule 13) comes before advice to change the count.
 4. Stop: stop a draining replica once it owns nothing, the group is stable and every partition has
    an owner. A drained consumer of the SDK has left the group by then. Targets that remove replicas in
    order start with the last. In a share group nothing is owned; the next iteration stops the replica.
 5. Settle: remove stopped replicas from the plan, in the same epoch. Then apply counts set by
    others at the target (`external_scaling`). Then stop the last replicas if the group is idle
    (`stop_last_replicas`): only they are stopped while they own partitions.
 6. Cancel drain: if the load rises or a replica dies while draining, keep a draining replica.
 7. Retry drain: publish a new epoch if a drain takes longer than `drain_retry` seconds; until then
    start nothing else.
 8. Replace: start replicas missing from the plan at once, with growing delays if they keep dying.
    If the target already starts them, wait. After `startup_timeout` seconds (the target may have
    limits of its own) continue with the replicas that run; lower the plan if fewer are desired.
 9. Adopt: record live replicas beyond the plan; limits scale them down later.
10. Scale up: if the desired count exceeds the plan, as far as the scale-up policies allow
    (`load_rules`), after the cooldown and unless paused. The epoch stays: the join triggers the
    rebalance. The plan is published before replicas start; from zero the start comes first, or a
    crash between the two would look like an external pause.
11. Restart: start one extra replica (even above the limit); once it has joined, drain one of those
    to replace. An extra replica that dies is started again by rule 8; the backoff resets after each
    replaced replica. While a scale-down is due that only time holds back (rule 12), it comes first and
    no extra replica starts: the count never rises above a plan that is already too large.
12. Scale down: if the desired count is below the plan, as far as the scale-down policies allow,
    after the cooldown, unless paused, in a stable group: drain the replicas whose load costs least
    to move if the others can hold it, those with a pending restart first. New epoch, unless they own
    nothing.
13. Place: publish learned capacities that changed enough in a new epoch. If a consumer is above its
    capacity, or above the headroom for long, or none of the target's is left, publish a better placement
    in a new epoch after the cooldown, but not twice for the same one within `drain_retry` seconds. Rules
    2 to 12 publish it where they move nothing, so that an empty replica's stop does not hold it up.
14. Otherwise hold.

A plan of a new epoch, or with more replicas to start, carries the placement as its target
(`decision_context.attach_target`); the others carry the target in force along.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.units import format_count
from trimtab.sidecar.decision.decision import (
    DecisionMetrics,
    ScalingAction,
    ScalingDecision,
    compute_totals,
    select_largest_moves,
)
from trimtab.sidecar.decision.decision_context import (
    DecisionContext,
    DecisionStep,
    adopt_count,
    attach_target,
    drain_replicas,
    hold,
    list_changed_settings,
    start_epoch,
)
from trimtab.sidecar.decision.decision_memory import DecisionMemory, TimestampedRecommendation
from trimtab.sidecar.decision.external_scaling import (
    count_without_surge,
    explain_external_pause,
    explain_missing_replicas,
    find_external_request,
    is_target_starting,
)
from trimtab.sidecar.decision.group_model import build_group_model
from trimtab.sidecar.decision.load_rules import (
    add_due_placement,
    hold_replicas,
    is_scale_down_due,
    publish_learned_capacities,
    renew_target,
    request_placement,
    scale_down,
    scale_up,
    stop_last_replicas,
)
from trimtab.sidecar.decision.recommendation import prepare_recommendations, recommend_replicas
from trimtab.sidecar.decision.scale_up_effectiveness import (
    begin_scale_up_evaluation,
    sum_consumption_rates,
    sum_overdue_backlog,
)
from trimtab.sidecar.measurement.freshness import estimate_freshness, update_batch_max_age
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.hpa_behavior import Direction
from trimtab.sidecar.model.observation import Observation, explain_unknown_state

# A replica that dies right after its start would be replaced in every iteration: the pause doubles
# from initial to max, and a replacement older than the reset no longer counts.
RESTART_BACKOFF_INITIAL_S: Final = 5.0
RESTART_BACKOFF_MAX_S: Final = 120.0
RESTART_BACKOFF_RESET_S: Final = 300.0
DRAIN_RETRIED: Final = "drain retried"  # in the reasons of a plan whose drain takes too long


def make_decision(
    observation: Observation, policy: AutoscalingPolicy, memory: DecisionMemory, now: float, group: str = ""
) -> tuple[ScalingDecision, DecisionMemory]:
    """Return the decision on an observation, and the memory updated with that observation.

    `now` is seconds since the epoch; `group` names the group in its first plan.
    """
    # The loop may discard the decision when it observes again, so the memory does not count it as
    # executed yet: `record_execution` does.
    policy = policy.apply_schedule(now)
    unknown = explain_unknown_state(observation)
    if unknown is not None:
        decision = ScalingDecision(ScalingAction.HOLD, unknown, compute_totals(observation))
        return decision, _record_unknown_state(observation, policy, memory, now)
    if observation.plan is None:
        return _announce_first_plan(observation, policy, now, group), memory
    model = build_group_model(observation, policy, observation.plan, memory.last_owners)
    recommendation, memory = recommend_replicas(model, memory, now)
    context = DecisionContext(model, recommendation, memory, now)
    step = next(s for rule in DECISION_RULES if (s := rule(context)) is not None)
    step = attach_target(context, add_due_placement(context, step))
    cross_rack = model.compute_cross_rack_traffic()
    return ScalingDecision(
        step.action,
        step.reasons,
        _build_metrics(context, step, cross_rack),
        step.plan,
        step.start_count,
        step.stop_names,
        select_largest_moves(step.placed),
    ), memory


def record_execution(
    decision: ScalingDecision, observation: Observation, memory: DecisionMemory, now: float
) -> DecisionMemory:
    """Return the memory after the decision was executed."""
    match decision.action:
        case ScalingAction.REPLACE | ScalingAction.SURGE:
            recent = (t for t in memory.replacements if t >= now - RESTART_BACKOFF_RESET_S)
            return replace(memory, replacements=(*recent, now), failed_start=decision.failure)
        case ScalingAction.STOP if set(decision.replicas_to_stop) & set(observation.pending_restarts):
            # The replacement reads already: the backoff must not slow a long rolling restart down.
            return replace(memory, replacements=())
        case ScalingAction.ADOPT_EXTERNAL if decision.plan is not None:
            adopted = TimestampedRecommendation(now, decision.plan.replicas)  # windows start anew
            return replace(memory, last_change=now, recommendations=(adopted,))
        case ScalingAction.PLACE | ScalingAction.STOP | ScalingAction.ADOPT if decision.moves(observation):
            placed = frozenset((p, r.instance) for r in observation.group.members for p in r.owned_partitions)
            return replace(memory, last_change=now, last_placement=placed)
        case ScalingAction.HOLD | ScalingAction.ANNOUNCE | ScalingAction.ADOPT | ScalingAction.STOP:
            return memory
        case _:
            plan, before = decision.plan, observation.plan
            change = 0 if plan is None or before is None else plan.replicas - before.replicas
            memory = memory.record_scaling(now, change)
            starts = decision.action is ScalingAction.SCALE_UP
            return begin_scale_up_evaluation(decision, observation, memory, now) if starts else memory


def _record_unknown_state(
    observation: Observation, policy: AutoscalingPolicy, memory: DecisionMemory, now: float
) -> DecisionMemory:
    if observation.plan is None:
        return memory
    # The current count fills the windows, so that one unknown state neither lowers nor raises them.
    count = policy.clamp_replicas(observation.plan.replicas)
    memory = prepare_recommendations(memory, policy, count, now)
    return replace(
        memory,
        recommendations=(*memory.recommendations, TimestampedRecommendation(now, count)),
        unknown_iterations=memory.unknown_iterations + 1,
        idle_since=None,  # records may have come unseen
    )


def _announce_first_plan(
    observation: Observation, policy: AutoscalingPolicy, now: float, group: str
) -> ScalingDecision:
    running = sum(i.alive for i in observation.replicas or ())
    count = running if policy.advisory else policy.clamp_replicas(running)
    reasons = (f"first plan of this group, with {format_count(count, 'replica')}",)
    plan = start_epoch(GroupPlan(group, 0, now, count, "", 0.0, reasons=reasons), policy)
    metrics = replace(compute_totals(observation), running_replicas=running)
    return ScalingDecision(ScalingAction.ANNOUNCE, reasons, metrics, plan)


def _announce_settings(context: DecisionContext) -> DecisionStep | None:
    changed = list_changed_settings(context.plan, context.policy)
    if not changed:
        return None
    reason = "settings changed: " + ", ".join(changed)
    return DecisionStep(ScalingAction.ANNOUNCE, (reason,), context.next_plan(reason))


def _announce_batch_max_age(context: DecisionContext) -> DecisionStep | None:
    # Before any rule that adds replicas: shorter batches may already meet the freshness SLO.
    slo = context.policy.freshness_slo
    current = context.plan.batch_max_age_s
    batch = update_batch_max_age(current, estimate_freshness(context.memory.age_samples), slo)
    if batch == current:
        return None
    reason = "no freshness SLO is set: consumers use their own batch.max.age"
    if batch is not None and slo is not None:
        reason = f"batches limited to {batch:.1f} s, for a p99 freshness of {slo:g} s"
    return DecisionStep(ScalingAction.ADOPT, (reason,), context.amend_plan(reason, batch_max_age_s=batch))


def _adopt_advisory_count(context: DecisionContext) -> DecisionStep | None:
    count = len(context.model.active)
    if not context.policy.advisory or count == context.plan.replicas:
        return None
    return adopt_count(context, count, f"{count} running; the count is not managed here")


def _stop_drained_replicas(context: DecisionContext) -> DecisionStep | None:
    model = context.model
    shared = model.is_share_group
    if shared and not model.active and not context.plan.replicas:
        return None  # `stop_last_replicas` first checks that the queue is still empty
    ordinals = model.map_ordinals()
    owning = {n for n in model.running if model.owned_partitions(n)}
    busy = max((ordinals[n] for n in {*model.active, *owning}), default=0)
    # A StatefulSet removes its highest ordinal: a busy replica above blocks the ones below it.
    free = sorted((n for n in model.draining if n not in owning), key=lambda n: -ordinals[n])
    drained = tuple(n for n in free if ordinals[n] >= busy)
    if not drained or model.explain_instability() is not None:
        return None
    names = " and ".join(drained)
    why = f"{names} {'owns' if len(drained) == 1 else 'own'} nothing, the group is stable"
    if model.members.keys().isdisjoint(model.list_consumers(drained)):
        why = f"{names} {'is' if len(drained) == 1 else 'are'} not in the group and no longer needed"
    if shared:
        why = f"{names} can stop: they finish their messages, or the broker redelivers them"
    return DecisionStep(ScalingAction.STOP, (why,), stop_names=drained)


def _forget_stopped_replicas(context: DecisionContext) -> DecisionStep | None:
    gone = context.model.list_stopped_replicas()
    if not gone:
        return None
    left = tuple(n for n in context.plan.draining if n not in gone)
    reason = f"{' and '.join(gone)} stopped"
    return DecisionStep(ScalingAction.ADOPT, (reason,), context.amend_plan(reason, draining=left))


def _handle_external_scaling(context: DecisionContext) -> DecisionStep | None:
    pause = explain_external_pause(context.model)
    request = find_external_request(context.model)
    if pause is not None:
        return hold(pause)
    if request is None:
        return None
    reason = f"{request.requested_by} set {format_count(request.count, 'replica')}, adopted"
    # Ending a drain gives partitions back, which takes a rebalance; a count alone does not.
    make = context.next_plan if context.model.draining else context.amend_plan
    plan = make(reason, replicas=request.count, draining=())
    return DecisionStep(ScalingAction.ADOPT_EXTERNAL, (reason,), plan)


def _cancel_drain(context: DecisionContext) -> DecisionStep | None:
    model = context.model
    plan = context.plan
    desired = context.recommendation.desired
    short = plan.replicas - len(model.active)
    more = 0 if model.explain_pause(Direction.UP) else desired - plan.replicas
    count = min(len(model.draining), max(0, more) + max(0, short))
    if count <= 0 or context.policy.advisory:
        return None
    ordinals = model.map_ordinals()
    # Targets remove the highest ordinal first; the fullest replica has the fewest partitions to regain.
    order = sorted(model.draining, key=lambda n: (ordinals[n], -len(model.owned_partitions(n)), n))
    keep = order[:count]
    why = f"{short} died" if short > 0 else f"{desired} desired again"
    reason = f"{' and '.join(keep)} kept: {why} while draining"
    left = tuple(n for n in plan.draining if n not in keep)
    replicas = min(len(model.active) + count, max(desired, plan.replicas))
    least = min(context.policy.min_replicas, plan.replicas)  # the dead are replaced, not planned away
    next_plan = context.next_plan(reason, draining=left, replicas=max(least, replicas))
    return DecisionStep(ScalingAction.CANCEL_DRAIN, (reason,), next_plan)


def _retry_drain(context: DecisionContext) -> DecisionStep | None:
    model = context.model
    if not model.draining:
        return None
    busy = tuple(n for n in model.draining if model.owned_partitions(n))
    if not busy:
        drained = " and ".join(model.draining)
        return hold(f"{drained} drained; {model.explain_instability() or 'about to stop'}")
    if context.memory.seconds_since_change(context.now) < context.policy.drain_retry:
        left = sum(len(model.owned_partitions(n)) for n in busy)
        return hold(f"{' and '.join(busy)} draining, {format_count(left, 'partition')} left")
    owned = format_count(len(model.owned_partitions(busy[0])), "partition")
    reason = f"{busy[0]} still owns {owned}, {DRAIN_RETRIED}"
    return DecisionStep(ScalingAction.RETRY_DRAIN, (reason,), context.next_plan(reason))


def _replace_missing_replicas(context: DecisionContext) -> DecisionStep | None:
    running = len(context.model.active)
    missing = context.plan.replicas - running
    if missing <= 0:
        return None
    what = f"{running} of {context.plan.replicas} running"
    if is_target_starting(context.model):
        return _await_target(context, what)
    return _back_off(context, what) or DecisionStep(ScalingAction.REPLACE, (what,), start_count=missing)


def _await_target(context: DecisionContext, reason: str) -> DecisionStep | None:
    """Wait for replicas the target starts; after the startup timeout, use those that run."""
    if explain_missing_replicas(context.model, context.memory, context.now) is None:
        return hold(reason, "the target is starting the others", *context.observation.errors[:1])
    enough = max(context.recommendation.desired, len(context.model.active))
    if enough >= context.plan.replicas:
        return None
    return adopt_count(context, enough, f"{enough} are sufficient")


def _back_off(context: DecisionContext, reason: str) -> DecisionStep | None:
    """Return a step that waits before the next start; None if the backoff is over."""
    now = context.now  # an entry in its future is from before the clock was set back
    recent = [t for t in context.memory.replacements if now - RESTART_BACKOFF_RESET_S <= t <= now]
    if not recent:
        return None
    pause = min(RESTART_BACKOFF_MAX_S, RESTART_BACKOFF_INITIAL_S * 2 ** (len(recent) - 1))
    left = pause - (now - recent[-1])
    if left <= 0:
        return None
    period = f"in the last {RESTART_BACKOFF_RESET_S:.0f} s"
    again = f"{format_count(len(recent), 'replacement')} {period}, the next in {left:.0f} s"
    return hold(reason, again, "check the logs of the replicas")


def _adopt_surplus_replicas(context: DecisionContext) -> DecisionStep | None:
    running = count_without_surge(context.model)
    if running <= context.plan.replicas or context.observation.pending_restarts:
        return None  # the extra replica of a restart is no surplus
    return adopt_count(context, running, f"{running} running, {context.plan.replicas} planned")


def _continue_restart(context: DecisionContext) -> DecisionStep | None:
    model = context.model
    old = tuple(n for n in model.active if n in context.observation.pending_restarts)
    if not old:
        return None
    if len(model.active) <= context.plan.replicas:
        if is_scale_down_due(context):
            return scale_down(context)
        step = DecisionStep(ScalingAction.SURGE, (f"one extra replica to replace {old[0]}",), start_count=1)
        return _back_off(context, f"restart of {old[0]} waits") or step
    absent = tuple(n for n in model.unjoined if n not in old)
    waits = f"{absent[0]} has not joined yet" if absent else model.explain_instability()
    if waits is not None:
        return hold(f"restart of {old[0]} waits", waits)
    return drain_replicas(context, old[:1], context.plan.replicas, f"{old[0]} is being replaced")


# In the order of the rules above: the first that returns a step decides.
DECISION_RULES: Final[Sequence[Callable[[DecisionContext], DecisionStep | None]]] = (
    _announce_settings,
    _announce_batch_max_age,
    _adopt_advisory_count,
    _stop_drained_replicas,
    _forget_stopped_replicas,
    _handle_external_scaling,
    stop_last_replicas,
    _cancel_drain,
    _retry_drain,
    _replace_missing_replicas,
    _adopt_surplus_replicas,
    scale_up,
    _continue_restart,
    scale_down,
    publish_learned_capacities,
    request_placement,
    renew_target,
    hold_replicas,
)


def _build_metrics(
    context: DecisionContext, step: DecisionStep, cross_rack: CrossRackTraffic | None
) -> DecisionMetrics:
    model = context.model
    catch_up, slo = context.policy.catch_up, context.policy.freshness_slo
    freshness = estimate_freshness(context.memory.age_samples)
    return replace(
        compute_totals(context.observation),
        overdue_backlog_bytes=sum_overdue_backlog(context.observation, catch_up),
        consumption_rate=sum_consumption_rates(context.observation, catch_up),
        p99_freshness_s=None if freshness is None else freshness.p99,
        freshness_slo_s=slo,
        max_batch_s=None if freshness is None or slo is None else freshness.compute_max_batch_age(slo),
        running_replicas=len(model.active),
        joined_replicas=len(model.active) - len(model.unjoined),
        planned_replicas=context.plan.replicas,
        recommended_replicas=context.recommendation.recommended,
        desired_replicas=context.recommendation.desired,
        max_fill=model.compute_max_fill(),
        r_score=0.0 if step.placed is None else step.placed.r_score,
        moves=0 if step.placed is None else len(step.placed.moves),
        planned_fill=None if step.placed is None else step.placed.fill,
        cross_rack_rate=None if cross_rack is None else cross_rack.load,
        partitions_without_local_replica=None if cross_rack is None else cross_rack.without_local_replica,
        racks_without_consumer=None if cross_rack is None else len(cross_rack.racks_without_members),
    )
