"""The decision: one observation, policy and memory in; a verdict with its reasons out. Pure.

The group's state is not stored. It follows from the plan in force (Kafka) and the live replicas
(target), so a sidecar that was killed finds itself where it left off:

    steady     no live replica is draining
    draining   a live replica is named in plan.draining
    restarting somebody asked for replicas to be replaced, and some of them still live

Rules, the first that applies decides; all of them are kept here:

 1. Blind: without the plan, the replicas or the group's members nothing is done. Unknown write
    speeds change no count either (`recommendations`, rule 3), but replicas that died are replaced.
 2. Announce: without a plan, or when heuristic, capacity or headroom were changed, a new epoch is
    published.
 3. Advice only: where replicas cannot be acted upon, their count is recorded as it is found.
 4. Stop: a draining replica is stopped once it owns nothing, the group is stable and every
    partition has an owner. Nothing that owns a partition is ever stopped, but the last replica of a
    group in which nothing is to be read (`stop_last_replicas`). Where the target takes replicas away in an order,
    the last ones go first. In a share group nobody owns anything, and the next turn stops them.
 5. Settle: drained replicas that are gone leave the plan, without a new epoch. Then comes what
    others did to the count at the target: `find_external_request` has the rules.
 6. Undrain: while draining, a load that wants more, or a death, is answered by keeping a draining
    replica.
 7. Ask again: a drain that is not over after `drain_retry` seconds is published with a new epoch;
    till then nothing else is begun.
 8. Replace: live replicas short of the plan are started at once; those that keep dying, after a
    growing pause. Where the target already does it, it is waited for. What it has not brought about
    after `startup_timeout` seconds (it has limits of its own) is said in each verdict, and the other
    rules go on with the replicas that exist; a count that is wanted no more is given up.
 9. Adopt: more live replicas than planned (somebody started them) are recorded; limits bring them
    down later.
10. Scale out: the wanted count above the plan, as far as the rules for growing allow (`rules`),
    after the cooldown and where it is not paused. The plan keeps its epoch: the join starts the
    rebalance. The plan is published before replicas are started, so that a crash in between is
    completed by rule 8. The first replica of none waits for nothing, and is started before its plan
    is published: zero beside a plan for more would be somebody's pause (`find_external_request`), and what runs
    beyond the plan is adopted by rule 9. Where counts are contested there is no such pause.
11. Restart: one more replica is started (above the limit too), and when it has joined, one of
    those to be replaced is drained. One that dies first is started again as in rule 8; once an old
    one has been replaced, the starts before no longer count.
12. Scale in: the wanted count below the plan, as far as the rules for shrinking allow, after the
    cooldown, where it is not paused, in a group at rest: the replicas whose load costs least to
    move are drained, if the others can hold it. A new epoch, unless they own nothing.
13. Place: capacities that were learned and differ enough are published with a new epoch. A
    placement that overfills a consumer gets one if the leader would find a better placement, after
    the cooldown, and not twice for the same one within `drain_retry` seconds.
14. Else hold.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.control_topics.values import GroupPlan
from trimtab.common.units import format_rate
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
    drain_replicas,
    next_plan,
)
from trimtab.sidecar.decision.external_scaling import (
    count_without_surge,
    explain_external_pause,
    find_external_request,
    is_target_starting,
)
from trimtab.sidecar.decision.group_model import build_group_model
from trimtab.sidecar.decision.hpa_behavior import Direction
from trimtab.sidecar.decision.recommendation import prepare_recommendations, recommend_replicas
from trimtab.sidecar.decision.scale_in_selection import select_victims
from trimtab.sidecar.decision.scale_up_effectiveness import (
    begin_scale_up_evaluation,
    sum_consumption_rates,
    sum_overdue_backlog,
)
from trimtab.sidecar.decision.scaling_policy import (
    AutoscalingPolicy,
    DecisionMemory,
    TimestampedRecommendation,
)
from trimtab.sidecar.decision.scaling_rules import (
    publish_learned_capacities,
    request_placement,
    scale_down,
    scale_up,
    stop_last_replicas,
)
from trimtab.sidecar.measurement.freshness import estimate_freshness, update_batch_max_age
from trimtab.sidecar.measurement.observation import GroupState, Observation, RequestedReplicas

RESTART_BACKOFF_INITIAL_S: Final = 5.0
RESTART_BACKOFF_MAX_S: Final = 120.0
"""Seconds before a replica that keeps dying is replaced: doubled from the first to the longest."""

RESTART_BACKOFF_RESET_S: Final = 300.0
"""Seconds after which a replacement no longer counts."""


def make_decision(
    observation: Observation,
    policy: AutoscalingPolicy,
    memory: DecisionMemory,
    now: float,
    group: str = "",
) -> tuple[ScalingDecision, DecisionMemory]:
    """Return the verdict on an observation, and the memory of having seen it.

    `now` is seconds since the epoch; `group` is the group's name, for its first plan. What
    the verdict asks for is not remembered as done: `record_execution` does that, once it is.
    """
    policy = policy.apply_schedule(now)
    blind = _explain_blindness(observation)
    if blind is not None:
        return ScalingDecision(
            ScalingAction.HOLD, blind, compute_totals(observation)
        ), _record_blind_iteration(observation, policy, memory, now)
    if observation.plan is None:
        return _announce_first_plan(observation, policy, now, group), memory
    at = build_group_model(observation, policy, observation.plan)
    sizing, memory = recommend_replicas(at, memory, now)
    turn = DecisionContext(at, sizing, memory, now)
    step = next(step for rule in DECISION_RULES if (step := rule(turn)) is not None)
    crossing = at.compute_cross_rack_traffic()
    numbers = _build_metrics(turn, step, crossing)
    unmet = _explain_missing_replicas(turn)
    said = () if unmet is None else (unmet, *observation.trouble[:1])
    far = crossing.notes if crossing is not None and at.weighs_racks() else ()
    bounds = (
        *at.describe_oversized_partitions(),
        *at.describe_partition_limit(sizing.recommended),
        *at.describe_stuck_partitions(),
        *far,
    )
    reasons = (*step.reasons, *said, *sizing.warnings, *bounds)
    expected = select_largest_moves(step.expected_plan)
    verdict = ScalingDecision(
        step.action, reasons, numbers, step.plan, step.start_count, step.stop_names, expected
    )
    return verdict, memory


def record_execution(
    decision: ScalingDecision, observation: Observation, memory: DecisionMemory, now: float
) -> DecisionMemory:
    """Return the memory once a verdict has been carried out."""
    match decision.action:
        case ScalingAction.REPLACE | ScalingAction.SURGE:
            recent = (t for t in memory.replacements if t >= now - RESTART_BACKOFF_RESET_S)
            return replace(memory, replacements=(*recent, now))
        case ScalingAction.STOP if set(decision.stop) & set(observation.pending_restarts):
            return replace(
                memory, replacements=()
            )  # the new one reads: a long restart is not slowed
        case ScalingAction.ADOPT_EXTERNAL if decision.plan is not None:
            return replace(
                memory,
                last_change=now,
                recommendations=(TimestampedRecommendation(now, decision.plan.replicas),),
            )
        case ScalingAction.PLACE:
            placed = frozenset(
                (p, r.instance) for r in observation.group.members for p in r.owned_partitions
            )
            return replace(memory, last_change=now, last_placement=placed)
        case ScalingAction.HOLD | ScalingAction.ANNOUNCE | ScalingAction.ADOPT | ScalingAction.STOP:
            return memory
        case _:
            memory = memory.record_scaling(now, _count_replica_change(decision, observation))
            starts = decision.action is ScalingAction.SCALE_UP
            return (
                begin_scale_up_evaluation(decision, observation, memory, now) if starts else memory
            )


def _count_replica_change(decision: ScalingDecision, observation: Observation) -> int:
    """Return how many replicas more than before the verdict plans."""
    if decision.plan is None or observation.plan is None:
        return 0
    return decision.plan.replicas - observation.plan.replicas


def _explain_blindness(observation: Observation) -> tuple[str, ...] | None:
    if not observation.plan_known:
        return ("the plan in force could not be read yet", *observation.trouble)
    if observation.replicas is None:
        return ("the replica target does not answer", *observation.trouble)
    if observation.group.state is GroupState.UNKNOWN:
        return ("the group could not be described", *observation.trouble)
    return None


def _record_blind_iteration(
    observation: Observation, policy: AutoscalingPolicy, memory: DecisionMemory, now: float
) -> DecisionMemory:
    """Remember that the present count was wished for while nothing was known."""
    if observation.plan is None:
        return memory
    count = policy.clamp_replicas(observation.plan.replicas)
    memory = prepare_recommendations(memory, policy, count, now)
    wishes = (*memory.recommendations, TimestampedRecommendation(now, count))
    return replace(
        memory,
        recommendations=wishes,
        unknown_iterations=memory.unknown_iterations + 1,
        idle_since=None,
    )


def _announce_first_plan(
    observation: Observation, policy: AutoscalingPolicy, now: float, group: str
) -> ScalingDecision:
    running = sum(i.alive for i in observation.replicas or ())
    count = running if policy.advisory else policy.clamp_replicas(running)
    base = GroupPlan(group, 0, now, count, "", 0.0)
    reasons = (f"the first plan of this group, with {count} replicas ({running} running)",)
    plan = next_plan(base, policy, now, reasons)
    return ScalingDecision(
        ScalingAction.ANNOUNCE, reasons, replace(compute_totals(observation), running=running), plan
    )


def _announce_settings(context: DecisionContext) -> DecisionStep | None:
    plan, wanted = context.plan, context.model.policy.placement
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
    if plan.capacities and context.model.policy.learned_capacity_bounds is None:
        changed.append("capacities are learned no more")
    if not changed:
        return None
    reasons = ("settings were changed: " + ", ".join(changed),)
    return DecisionStep(
        ScalingAction.ANNOUNCE, reasons, next_plan(plan, context.model.policy, context.now, reasons)
    )


def _announce_batch_max_age(context: DecisionContext) -> DecisionStep | None:
    """Say how long batches may be, before more replicas are asked to make up for it."""
    goal, told = context.model.policy.freshness_slo, context.plan.batch
    batch = update_batch_max_age(told, estimate_freshness(context.memory.age_samples), goal)
    if batch == told:
        return None
    reason = "batches may be as long as consumers are set to: no freshness is asked for"
    if batch is not None and goal is not None:
        reason = f"batches may take {batch:.1f} s, for a p99 freshness of {goal:g} s"
    plan = replace(context.plan, batch=batch, time=context.now, reasons=(reason,))
    return DecisionStep(ScalingAction.ADOPT, (reason,), plan)  # no new epoch: nothing moves


def _adopt_advisory_count(context: DecisionContext) -> DecisionStep | None:
    found = len(context.model.active)
    if not context.model.policy.advisory or found == context.plan.replicas:
        return None
    return adopt_count(context, found, f"{found} are running; the count is not ours to change")


def _stop_drained_replicas(context: DecisionContext) -> DecisionStep | None:
    if (
        context.model.observation.group.is_share_group
        and not context.model.active
        and not context.plan.replicas
    ):
        return None  # the last ones: `stop_last_replicas` looks first whether there still is nothing to read
    ordinals = context.model.map_ordinals()
    busy = [
        ordinals[n]
        for n in context.model.running
        if n in context.model.active or context.model.owned_partitions(n)
    ]
    free = sorted(
        (n for n in context.model.draining if not context.model.owned_partitions(n)),
        key=lambda n: -ordinals[n],
    )
    drained = tuple(n for n in free if ordinals[n] >= max(busy, default=0))
    if not drained or context.model.explain_instability() is not None:
        return None
    names = " and ".join(drained)
    why = f"nothing is left with {names}, the group is at rest"
    if context.model.observation.group.is_share_group:
        why = f"{names} may end: what is in work with them they finish, or it goes to others"
    return DecisionStep(ScalingAction.STOP, (why,), stop_names=drained)


def _forget_stopped_replicas(context: DecisionContext) -> DecisionStep | None:
    known = {*context.model.running, *(r.instance for r in context.model.observation.group.members)}
    gone = tuple(n for n in context.plan.draining if n not in known)
    if not gone:
        return None
    left = tuple(n for n in context.plan.draining if n in known)
    reasons = (f"{' and '.join(gone)} stopped",)
    return DecisionStep(
        ScalingAction.ADOPT,
        reasons,
        replace(context.plan, draining=left, time=context.now, reasons=reasons),
    )


def _handle_external_scaling(context: DecisionContext) -> DecisionStep | None:
    off, asked = explain_external_pause(context.model), find_external_request(context.model)
    contest = context.model.observation.external_scaling.override
    if off is not None and not contest:
        return DecisionStep(ScalingAction.HOLD, (off,))
    if asked is None:
        return None
    if contest:
        return _override_external_scaling(context, asked)
    reason = f"{asked.requested_by} set {asked.count} replicas, respected"
    base = replace(
        context.plan, replicas=asked.count, draining=(), time=context.now, reasons=(reason,)
    )
    plan = (
        next_plan(base, context.model.policy, context.now, (reason,))
        if context.model.draining
        else base
    )
    return DecisionStep(ScalingAction.ADOPT_EXTERNAL, (reason,), plan)


def _override_external_scaling(
    context: DecisionContext, requested: RequestedReplicas
) -> DecisionStep | None:
    reason = f"{requested.requested_by} set {requested.count} replicas, contested: {context.plan.replicas} are planned"
    missing = context.plan.replicas - len(context.model.active)
    if missing > 0:
        return _back_off(context, reason) or DecisionStep(
            ScalingAction.REPLACE, (reason,), start_count=missing
        )
    waits = context.model.explain_instability()
    if waits is not None:
        return DecisionStep(ScalingAction.HOLD, (reason, waits))
    victims = select_victims(context.model, -missing, forced=True)
    return drain_replicas(context, victims, context.plan.replicas, reason) if victims else None


def _cancel_drain(context: DecisionContext) -> DecisionStep | None:
    short = context.plan.replicas - len(context.model.active)
    more = (
        0
        if context.model.explain_pause(Direction.UP)
        else context.recommendation.desired - context.plan.replicas
    )
    count = min(len(context.model.draining), max(0, more) + max(0, short))
    if count <= 0 or context.model.policy.advisory:
        return None
    ordinals = context.model.map_ordinals()
    order = sorted(
        context.model.draining,
        key=lambda n: (ordinals[n], -len(context.model.owned_partitions(n)), n),
    )
    keep = order[:count]
    why = f"{short} died" if short > 0 else f"{context.recommendation.desired} are wanted again"
    reasons = (f"{' and '.join(keep)} stay: {why} while draining",)
    left = tuple(n for n in context.plan.draining if n not in keep)
    replicas = min(
        len(context.model.active) + count,
        max(context.recommendation.desired, context.plan.replicas),
    )
    base = replace(context.plan, draining=left, replicas=replicas)
    return DecisionStep(
        ScalingAction.CANCEL_DRAIN,
        reasons,
        next_plan(base, context.model.policy, context.now, reasons),
    )


def _retry_drain(context: DecisionContext) -> DecisionStep | None:
    busy = tuple(n for n in context.model.draining if context.model.owned_partitions(n))
    if not context.model.draining:
        return None
    waited = context.memory.seconds_since_change(context.now)
    if busy and waited >= context.model.policy.drain_retry:
        reasons = (
            f"{busy[0]} still owns {len(context.model.owned_partitions(busy[0]))} partitions, asked again",
        )
        return DecisionStep(
            ScalingAction.RETRY_DRAIN,
            reasons,
            next_plan(context.plan, context.model.policy, context.now, reasons),
        )
    if busy:
        left = sum(len(context.model.owned_partitions(n)) for n in busy)
        return DecisionStep(
            ScalingAction.HOLD, (f"{' and '.join(busy)} drain, {left} partitions to go",)
        )
    reason = context.model.explain_instability() or "it is about to stop"
    return DecisionStep(
        ScalingAction.HOLD, (f"{' and '.join(context.model.draining)} drained; {reason}",)
    )


def _replace_missing_replicas(context: DecisionContext) -> DecisionStep | None:
    running = len(context.model.active)
    missing = context.plan.replicas - running
    if missing <= 0:
        return None
    what = f"{running} of {context.plan.replicas} run"
    if is_target_starting(context.model):
        return _await_target(context, what)
    pause = _back_off(context, what)
    if pause is not None:
        return pause
    return DecisionStep(ScalingAction.REPLACE, (what,), start_count=missing)


def _await_target(context: DecisionContext, reason: str) -> DecisionStep | None:
    """Wait for what the target starts; beyond the grace, go on with what exists."""
    if _explain_missing_replicas(context) is None:
        return DecisionStep(
            ScalingAction.HOLD,
            (reason, "the target starts the others", *context.model.observation.trouble[:1]),
        )
    enough = max(context.recommendation.desired, len(context.model.active))
    return (
        adopt_count(context, enough, f"{enough} would do")
        if enough < context.plan.replicas
        else None
    )


def _explain_missing_replicas(context: DecisionContext) -> str | None:
    """Say that the target brings about fewer replicas than it was asked for; None where not."""
    running, planned, grace = (
        len(context.model.active),
        context.plan.replicas,
        context.model.policy.startup_timeout,
    )
    since = context.memory.short_since
    if since is None or context.now - since < grace or not is_target_starting(context.model):
        return None
    return (
        f"{running} of {planned} run, the target has not started the others within {grace:g} s: "
        "look at its own limits (maxReplicaCount, a quota) and at the nodes"
    )


def _back_off(context: DecisionContext, reason: str) -> DecisionStep | None:
    """Return the wait before another start; None where it is over, or nothing died lately."""
    lately = [
        t
        for t in context.memory.replacements
        if context.now - RESTART_BACKOFF_RESET_S <= t <= context.now
    ]
    if not lately:
        return None
    pause = min(RESTART_BACKOFF_MAX_S, RESTART_BACKOFF_INITIAL_S * 2 ** (len(lately) - 1))
    left = pause - (context.now - lately[-1])
    if left <= 0:
        return None
    again = f"{len(lately)} replacements in the last {RESTART_BACKOFF_RESET_S:.0f} s, the next in {left:.0f} s"
    return DecisionStep(ScalingAction.HOLD, (reason, again, "look into the logs of the replicas"))


def _adopt_surplus_replicas(context: DecisionContext) -> DecisionStep | None:
    running = count_without_surge(context.model)
    if running <= context.plan.replicas or context.model.observation.pending_restarts:
        return None
    return adopt_count(context, running, f"{running} run, {context.plan.replicas} were planned")


def _continue_restart(context: DecisionContext) -> DecisionStep | None:
    old = tuple(n for n in context.model.active if n in context.model.observation.pending_restarts)
    if not old:
        return None
    if len(context.model.active) <= context.plan.replicas:
        step = DecisionStep(
            ScalingAction.SURGE, (f"one more, so that {old[0]} can be replaced",), start_count=1
        )
        return _back_off(context, f"restart of {old[0]} waits") or step
    absent = tuple(
        n for n in context.model.active if n not in context.model.members and n not in old
    )
    waits = f"{absent[0]} has not joined yet" if absent else context.model.explain_instability()
    if waits is not None:
        return DecisionStep(ScalingAction.HOLD, (f"restart of {old[0]} waits", waits))
    return drain_replicas(context, old[:1], context.plan.replicas, f"{old[0]} is to be replaced")


def _hold_replicas(context: DecisionContext) -> DecisionStep:
    sizing = context.recommendation
    if sizing.hold_reasons:
        return DecisionStep(
            ScalingAction.HOLD, (*sizing.hold_reasons, *context.model.observation.trouble[:1])
        )
    if sizing.bounded != sizing.desired:
        return DecisionStep(
            ScalingAction.HOLD, (f"{sizing.bounded} would do, but not for long enough",)
        )
    return DecisionStep(ScalingAction.HOLD, (f"{context.plan.replicas} is right",))


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
    _hold_replicas,
)


def _build_metrics(
    context: DecisionContext, step: DecisionStep, crossing: CrossRackTraffic | None
) -> DecisionMetrics:
    seen, drain, goal = (
        context.model.observation,
        context.model.policy.catch_up,
        context.model.policy.freshness_slo,
    )
    fresh = estimate_freshness(context.memory.age_samples)
    return replace(
        compute_totals(seen),
        late=sum_overdue_backlog(seen, drain),
        consumed=sum_consumption_rates(seen, drain),
        freshness=None if fresh is None else fresh.p99,
        batch=None if fresh is None or goal is None else fresh.compute_max_batch_age(goal),
        running=len(context.model.active),
        planned=context.plan.replicas,
        wished=context.recommendation.recommended,
        wanted=context.recommendation.desired,
        fill=context.model.compute_max_fill(),
        r_score=0.0 if step.expected_plan is None else step.expected_plan.r_score,
        moves=0 if step.expected_plan is None else len(step.expected_plan.moves),
        crossing=None if crossing is None else crossing.load,
        stranded=None if crossing is None else crossing.without_local_replica,
        unmanned=None if crossing is None else len(crossing.racks_without_members),
    )
