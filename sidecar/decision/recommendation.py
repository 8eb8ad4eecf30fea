"""Recommends a replica count from the load, and stabilizes it.

The rules are those of the HPA, the count is the assignor's:

1. The heuristic computes the count in open mode, starting from the current owners. If it adds
   consumers, those that are too small for any partition left are counted, too: they run on. In a share
   group, which delivers every partition to every worker, it is load / usable capacity of a worker.
2. Tolerance: scale up only if the load exceeds the current count filled to headroom x
   (1 + tolerance), or if a new placement is due: the recommended count then costs fewer moves than the
   current one, filled up; or if a consumer stays above its capacity that no placement on the current
   count relieves; scale down only as far as the load fits at headroom x (1 - tolerance).
3. Unknown data counts against a change: unknown partitions weigh nothing for scale-up and prevent
   scale-down. With nothing known, the current count is recommended.
4. Scale-up follows the lowest recommendation in its stabilization window, scale-down the highest:
   the load may return. Scale-down skips its window while a forecast tells that the load will not: that
   within the window it rises by no more than rule 2 leaves room for. The first window starts with the
   current count, as does an iteration without data. Limits apply before the windows, scaling policies
   after.
5. After `fallback-after` iterations without any known write rate, the fallback count is
   recommended.
6. While scale-up is suspended (`scale_up_effectiveness`), at most the current count is desired, or that which
   reads as much, or the minimum.
7. With `min` 0, the last replica stops once nothing was written or waiting for `idle_after`
   seconds, with every partition known. The first iteration that sees a record starts one again,
   regardless of the windows.
8. While replicas have started and not joined, the count rises only as far as the write rates alone need
   it: the backlog grows since they do not read yet. After `startup_timeout` that holds while fewer than
   half have joined. (The HPA, too, scales up less while pods are not ready.)
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from trimtab.assignor.model import PlacementPlan
from trimtab.common.units import format_count
from trimtab.sidecar.decision.decision_memory import (
    ConsumptionLimit,
    DecisionMemory,
    TimestampedRecommendation,
)
from trimtab.sidecar.decision.group_model import MIN_FILL_GAIN, GroupModel, exceeds
from trimtab.sidecar.decision.learned_capacity import update_learned_capacities
from trimtab.sidecar.decision.scale_to_zero import is_active, is_idle
from trimtab.sidecar.decision.scale_up_effectiveness import evaluate_scale_up
from trimtab.sidecar.measurement.freshness import AgeSample, sample_ages
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.hpa_behavior import FallbackBehavior

SMALL_EXCESS_PATIENCE_S: Final = 300.0  # of an excess over the headroom that is no overload
MIN_TOLD_EXCESS: Final = 0.005  # percentages without decimals would be equal
REPLICA_EPSILON: Final = 1e-6  # share of a worker that rounding up ignores: float sums are inexact


@dataclass(frozen=True, slots=True)
class ReplicaRecommendation:
    """Replica counts, from the load alone to the one to scale to."""

    recommended: int | None  # by load; None if it is unknown
    bounded: int  # after tolerance and limits
    desired: int  # after the stabilization windows
    hold_reasons: tuple[str, ...] = ()  # why a change is held back


def recommend_replicas(
    model: GroupModel, memory: DecisionMemory, now: float
) -> tuple[ReplicaRecommendation, DecisionMemory]:
    """Return the recommendation, and the memory with it added."""
    current = model.policy.clamp_replicas(model.plan.replicas)
    recommended = _recommend(model)
    memory = _record_iteration(model, memory, now, is_load_known=recommended is not None)
    bounded, notes = _apply_tolerance(model, current, recommended, memory, now)
    if bounded > current and model.lacks_readers(now):
        bounded, notes = _ignore_backlog(model, current, bounded, memory, now)
    memory = prepare_recommendations(memory, model.policy, current, now)
    newest = TimestampedRecommendation(now, bounded)
    memory = replace(memory, recommendations=(*memory.recommendations, newest))
    desired = _stabilize(memory, model, current, now)
    recommendation = ReplicaRecommendation(recommended, bounded, desired, notes)
    # Scale to zero comes last: windows and a suspension hold back neither an idle group nor a new record.
    recommendation = _apply_suspension(model, recommendation, memory)
    return _apply_scale_to_zero(model, recommendation, memory, now), memory


def prepare_recommendations(
    memory: DecisionMemory, policy: AutoscalingPolicy, count: int, now: float
) -> DecisionMemory:
    """Drop recommendations that no window needs; an empty memory starts with `count`."""
    if not memory.recommendations:
        return replace(memory, recommendations=(TimestampedRecommendation(now, count),))
    horizon = max(policy.scale_up.stabilization_window, policy.scale_down.stabilization_window)
    return memory.keep_recent_recommendations(now, horizon)


def _record_iteration(
    model: GroupModel, memory: DecisionMemory, now: float, *, is_load_known: bool
) -> DecisionMemory:
    idle = is_idle(model.write_rates)
    lacking = len(model.active) < model.plan.replicas
    memory = replace(
        memory,
        unknown_iterations=0 if is_load_known else memory.unknown_iterations + 1,
        idle_since=_start_time(memory.idle_since, now) if idle else None,
        short_since=_start_time(memory.short_since, now) if lacking else None,
        overfull_since=_start_time(memory.overfull_since, now) if model.is_overfull else None,
        last_owners=model.find_last_owners(),
        age_samples=_append_age_sample(model, memory, now),
    )
    return update_learned_capacities(model, evaluate_scale_up(model, memory, now), now)


def _start_time(since: float | None, now: float) -> float:
    return now if since is None or since > now else since  # later than now: the clock was set back


def _append_age_sample(model: GroupModel, memory: DecisionMemory, now: float) -> tuple[AgeSample, ...]:
    window = model.policy.scale_up_evaluation_window
    kept = tuple(seen for seen in memory.age_samples if now - window < seen.time <= now)
    new = sample_ages(now, model.write_rates) if window else None
    return kept if new is None else (*kept, new)


def _recommend(model: GroupModel) -> int | None:
    """Return the count by the load alone (rule 1); None if it is unknown."""
    if len(model.unknown_partitions) == len(model.write_rates):
        return None
    if model.sized is None:
        return _count_required_replicas(model, 1.0)
    return _count_replicas(model, model.sized)


def _count_required_replicas(model: GroupModel, share: float) -> int:
    """Return the replicas required if filled to `share` of the headroom."""
    if not model.is_share_group:
        return _count_replicas(model, model.size_active(share))
    room = model.policy.placement.capacity * min(1.0, model.policy.placement.headroom * share)
    return model.count_replicas(max(1, math.ceil(model.compute_total_rate() / room - REPLICA_EPSILON)))


def _count_replicas(model: GroupModel, sized: PlacementPlan) -> int:
    active = model.list_consumers(model.active)
    if sized.assignment.keys() <= set(active):
        return model.count_replicas(sized.consumers)
    # Beside added consumers, one too small or with too few topics stays, and counts, although it is empty.
    idle = sum(not sized.assignment[name] and model.is_limited(name) for name in active)
    return model.count_replicas(sized.consumers + idle)


def _apply_tolerance(
    model: GroupModel, current: int, recommended: int | None, memory: DecisionMemory, now: float
) -> tuple[int, tuple[str, ...]]:
    """Apply rules 2, 3, 5 and the limits; return the count and why it was held back."""
    if recommended is None:
        return _apply_fallback(model.policy, current, memory.unknown_iterations)
    policy = model.policy
    desired = policy.clamp_replicas(recommended)
    if desired == current:
        return current, ()
    within = (f"{desired} is within the tolerance",)
    if desired > current:
        share = 1 + policy.scale_up.tolerance
        fits = model.bound_replicas(share) <= current and _count_required_replicas(model, share) <= current
        return (current, within) if fits and not _is_placement_due(model, memory, now) else (desired, ())
    if model.unknown_partitions:
        unknown = format_count(len(model.unknown_partitions), "partition is", "partitions are")
        return current, (f"{unknown} unknown: no scale-down",)
    share = 1 - policy.scale_down.tolerance
    if model.bound_replicas(share) >= current:
        return current, within
    careful = max(desired, policy.clamp_replicas(_count_required_replicas(model, share)))
    return min(current, careful), within if careful >= current else ()


def _ignore_backlog(
    model: GroupModel, current: int, bounded: int, memory: DecisionMemory, now: float
) -> tuple[int, tuple[str, ...]]:
    """Apply rule 8 to a count above the current one; return the count and why it was held back."""
    written = model.without_backlog()
    needed, _ = _apply_tolerance(written, current, _recommend(written), memory, now)
    if needed >= bounded:
        return bounded, ()
    started = len(model.active)
    joined = f"{started} started, {started - len(model.unjoined)} joined"
    return max(current, needed), (f"{joined}: no scale-up for a backlog that they do not read yet",)


def is_overfull_for_long(model: GroupModel, memory: DecisionMemory, now: float) -> bool:
    """Return whether a consumer is above its capacity, or above the headroom for a whole cooldown.

    A small excess counts after `SMALL_EXCESS_PATIENCE_S` without a change.
    """
    fullest, since = model.fullest, memory.overfull_since
    if exceeds(fullest, 1.0):
        return True
    # Write rates vary around the headroom of a consumer filled up to it: each peak would move partitions.
    if fullest - model.fill_limit < MIN_FILL_GAIN:
        return _is_unchanged_excess(memory, now)
    return since is not None and now - since >= model.policy.cooldown


def _is_placement_due(model: GroupModel, memory: DecisionMemory, now: float) -> bool:
    if model.is_share_group or model.unknown_partitions or not is_overfull_for_long(model, memory, now):
        return False
    return find_due_placement(model, memory, now) is not None or _needs_growth(model, memory, now)


def explain_tolerated_excess(model: GroupModel, memory: DecisionMemory, now: float) -> str | None:
    """Return why a consumer above the headroom keeps its partitions for now; None if none is above it."""
    excess = model.fullest - model.fill_limit
    if not model.is_overfull or excess < MIN_TOLD_EXCESS or is_overfull_for_long(model, memory, now):
        return None
    is_small = excess < MIN_FILL_GAIN
    patience = SMALL_EXCESS_PATIENCE_S if is_small else model.policy.cooldown
    return (
        f"the fullest consumer is at {model.fullest:.0%}, above {model.fill_limit:.0%}: "
        f"tolerated for {patience:.0f} s unless it exceeds its capacity, since moves interrupt reading"
    )


def find_due_placement(model: GroupModel, memory: DecisionMemory, now: float) -> PlacementPlan | None:
    """Return a better placement on the active replicas, or one that at least ends a long overload."""
    lasts = _is_unchanged_excess(memory, now)
    return model.better_placement or (model.relieving_placement if lasts else None)


def _needs_growth(model: GroupModel, memory: DecisionMemory, now: float) -> bool:
    """Return whether a consumer stays above its capacity that only a larger group relieves."""
    if model.sized is None or not exceeds(model.fullest, 1.0) or not _is_unchanged_excess(memory, now):
        return False
    return not exceeds(model.compute_fullest(model.sized.assignment), 1.0)


def _is_unchanged_excess(memory: DecisionMemory, now: float) -> bool:
    """Return whether a consumer has been too full for long, and nothing was changed meanwhile."""
    since, patience = memory.overfull_since, SMALL_EXCESS_PATIENCE_S
    return since is not None and min(now - since, memory.seconds_since_change(now)) >= patience


def _apply_fallback(
    policy: AutoscalingPolicy, current: int, unknown_iterations: int
) -> tuple[int, tuple[str, ...]]:
    fallback = policy.fallback
    reason = "no write rate is known"
    if unknown_iterations < fallback.failure_threshold or fallback.behavior is FallbackBehavior.CURRENT:
        return current, (reason,)
    count = policy.clamp_replicas(fallback.resolve_replicas(current))
    reason += f" for {format_count(unknown_iterations, 'iteration')}"
    return count, (f"{reason}: fallback {fallback.behavior}, {format_count(count, 'replica')}",)


def _stabilize(memory: DecisionMemory, model: GroupModel, current: int, now: float) -> int:
    *before, newest = memory.recommendations  # the newest is in each window, even in one of 0 s
    rules = model.policy.scale_down
    awaited = 0.0 if model.has_room_for_rise(rules.tolerance) else rules.stabilization_window
    up = [w.replicas for w in before if w.time > now - model.policy.scale_up.stabilization_window]
    down = [w.replicas for w in before if w.time > now - awaited]
    lowest, highest = min([*up, newest.replicas]), max([*down, newest.replicas])
    return max(min(current, highest), lowest)


def _apply_suspension(
    model: GroupModel, recommendation: ReplicaRecommendation, memory: DecisionMemory
) -> ReplicaRecommendation:
    suspension = memory.scale_up_suspension
    if suspension is None:
        return recommendation
    planned = model.plan.replicas if suspension.most_replicas is None else suspension.most_replicas
    most = max(planned, model.policy.min_replicas)
    if recommendation.desired <= most:
        return recommendation
    held = (*recommendation.hold_reasons, f"scale-up is suspended: {_explain_suspension(suspension.limit)}")
    return replace(recommendation, bounded=most, desired=most, hold_reasons=held)


def _explain_suspension(limit: ConsumptionLimit | None) -> str:
    if limit is None:
        return "the last one had no effect"
    return "measuring whether fewer replicas read as much" if limit.is_trial else "the sink is the limit"


def _apply_scale_to_zero(
    model: GroupModel, recommendation: ReplicaRecommendation, memory: DecisionMemory, now: float
) -> ReplicaRecommendation:
    if model.policy.min_replicas or model.plan.replicas > 1:
        return recommendation
    if not model.plan.replicas:
        return _scale_from_zero(model, recommendation)
    if memory.idle_since is None or recommendation.desired > 1:
        return recommendation
    idle = now - memory.idle_since
    limit = model.policy.idle_after
    if idle >= limit:
        return replace(recommendation, bounded=0, desired=0)
    note = f"idle for {idle:.0f} s, the last replica stops after {limit:.0f} s"
    return replace(recommendation, hold_reasons=(*recommendation.hold_reasons, note))


def _scale_from_zero(model: GroupModel, recommendation: ReplicaRecommendation) -> ReplicaRecommendation:
    if is_active(model.write_rates):
        count = max(1, recommendation.bounded)
        return replace(recommendation, bounded=count, desired=count)
    if recommendation.recommended is None and recommendation.desired > 0:
        return recommendation  # the fallback applies
    reasons = recommendation.hold_reasons or ("nothing to read",)
    return replace(recommendation, bounded=0, desired=0, hold_reasons=reasons)
