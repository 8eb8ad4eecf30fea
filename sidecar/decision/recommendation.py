"""Recommends a replica count from the load, and stabilizes it.

The rules are those of the HPA, the count is the assignor's:

1. The heuristic computes the count in open mode, starting from the current owners. In a share
   group, which delivers every partition to every worker, it is load / usable capacity of a worker.
2. Tolerance: scale up only if the load exceeds the current count filled to headroom x
   (1 + tolerance); scale down only as far as the load fits at headroom x (1 - tolerance).
3. Unknown data counts against a change: unknown partitions weigh nothing for scale-up and prevent
   scale-down. With nothing known, the current count is recommended.
4. Scale-up follows the lowest recommendation in its stabilization window, scale-down the highest.
   The first window starts with the current count, as does an iteration without data. Limits apply
   before the windows, scaling policies after.
5. After `fallback-after` iterations without any known write rate, the fallback count is
   recommended.
6. While scale-up is suspended (`scale_up_effectiveness`), the current count or the minimum is
   desired.
7. With `min` 0, the last replica stops once nothing was written or waiting for `idle_after`
   seconds, with every partition known. The first iteration that sees a record starts one again,
   regardless of the windows.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from trimtab.assignor.decisions import size_group
from trimtab.assignor.model import PlacementPlan
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.decision.learned_capacity import update_learned_capacities
from trimtab.sidecar.decision.scale_to_zero import is_active, is_idle
from trimtab.sidecar.decision.scale_up_effectiveness import evaluate_scale_up
from trimtab.sidecar.decision.scaling_policy import (
    AutoscalingPolicy,
    DecisionMemory,
    FallbackBehavior,
    TimestampedRecommendation,
)
from trimtab.sidecar.measurement.freshness import AgeSample, estimate_freshness, sample_ages

REPLICA_EPSILON: Final = 1e-6  # share of a worker that rounding up ignores: float sums are inexact


@dataclass(frozen=True, slots=True)
class ReplicaRecommendation:
    """Counts: `recommended` by load, `bounded` by tolerance and limits, `desired` after windows.

    `hold_reasons` explain why a change was held back; `warnings` belong to every decision.
    """

    recommended: int | None
    bounded: int
    desired: int
    expected_plan: PlacementPlan | None
    hold_reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def recommend_replicas(
    model: GroupModel, memory: DecisionMemory, now: float
) -> tuple[ReplicaRecommendation, DecisionMemory]:
    """Return the recommendation, and the memory with it added."""
    current = model.policy.clamp_replicas(model.plan.replicas)
    expected = _compute_expected_plan(model)
    recommended = _recommend_from_load(model, expected)
    memory = _record_iteration(model, memory, now, is_load_known=recommended is not None)
    bounded, notes = _apply_tolerance(model, current, recommended, memory.unknown_iterations)
    memory = prepare_recommendations(memory, model.policy, current, now)
    memory = replace(
        memory, recommendations=(*memory.recommendations, TimestampedRecommendation(now, bounded))
    )
    desired = _stabilize_recommendation(memory, model.policy, current, now)
    sizing = ReplicaRecommendation(recommended, bounded, desired, expected, notes)
    sizing = _apply_scale_to_zero(model, _apply_suspension(model, sizing, memory, now), memory, now)
    return _add_slo_warning(model, sizing, memory), memory


def prepare_recommendations(
    memory: DecisionMemory, policy: AutoscalingPolicy, count: int, now: float
) -> DecisionMemory:
    """Drop recommendations that no window needs; an empty memory starts with `count`."""
    if not memory.recommendations:
        return replace(memory, recommendations=(TimestampedRecommendation(now, count),))
    return memory.keep_recent_recommendations(
        now, max(policy.scale_up.stabilization_window, policy.scale_down.stabilization_window)
    )


def _record_iteration(
    model: GroupModel, memory: DecisionMemory, now: float, *, is_load_known: bool
) -> DecisionMemory:
    """Update idle time, scale-up evaluation and learned capacities."""
    since = memory.idle_since if memory.idle_since is not None and memory.idle_since <= now else now
    memory = replace(
        memory,
        unknown_iterations=0 if is_load_known else memory.unknown_iterations + 1,
        idle_since=since if is_idle(model.observation.write_rates) else None,
    )
    short = now if memory.short_since is None or memory.short_since > now else memory.short_since
    lacking = len(model.active) < model.plan.replicas
    memory = replace(
        memory, age_samples=_append_age_sample(model, memory, now), short_since=short if lacking else None
    )
    return update_learned_capacities(model, evaluate_scale_up(model, memory, now), now)


def _append_age_sample(model: GroupModel, memory: DecisionMemory, now: float) -> tuple[AgeSample, ...]:
    """Append the ages of the waiting records; drop samples outside the evaluation window."""
    since = now - model.policy.scale_up_evaluation_window
    kept = tuple(seen for seen in memory.age_samples if since < seen.time <= now)
    new = sample_ages(now, model.observation.write_rates) if model.policy.scale_up_evaluation_window else None
    return kept if new is None else (*kept, new)


def _compute_expected_plan(model: GroupModel) -> PlacementPlan | None:
    """Return the placement of the recommended count; None without load or placement."""
    if _is_load_unknown(model) or model.observation.group.is_share_group:
        return None
    return _size_group(model, 1.0)


def _is_load_unknown(model: GroupModel) -> bool:
    return not model.observation.write_rates or len(model.unknown_partitions) == len(
        model.observation.write_rates
    )


def _recommend_from_load(model: GroupModel, expected: PlacementPlan | None) -> int | None:
    if expected is not None:
        return expected.consumers
    return None if _is_load_unknown(model) else _count_needed_replicas(model, 1.0)


def _count_needed_replicas(model: GroupModel, share: float) -> int:
    """Return the replicas needed if filled to `share` of the headroom."""
    if not model.observation.group.is_share_group:
        return _size_group(model, share).consumers
    room = model.policy.placement.capacity * min(1.0, model.policy.placement.headroom * share)
    return max(1, math.ceil(model.compute_total_rate() / room - REPLICA_EPSILON))


def _size_group(model: GroupModel, share: float) -> PlacementPlan:
    policy = model.policy.placement
    policy = replace(policy, headroom=min(1.0, policy.headroom * share))
    return size_group(model.build_group(with_draining=False), model.build_load(unknown_as_zero=True), policy)


def _apply_tolerance(
    model: GroupModel, current: int, recommended: int | None, unknown_iterations: int
) -> tuple[int, tuple[str, ...]]:
    """Apply rules 2, 3, 5 and the limits; return the count and why it was held back."""
    if recommended is None:
        return _apply_fallback(model.policy, current, unknown_iterations)
    desired = model.policy.clamp_replicas(recommended)
    if desired > current:
        tolerance = model.policy.scale_up.tolerance
        fits = model.policy.clamp_replicas(_count_needed_replicas(model, 1 + tolerance)) <= current
        return (current, (f"{desired} is within the tolerance",)) if fits else (desired, ())
    if desired < current and model.unknown_partitions:
        return current, (f"{len(model.unknown_partitions)} partitions are unknown: no scale-down",)
    if desired < current:
        tolerance = model.policy.scale_down.tolerance
        careful = max(desired, model.policy.clamp_replicas(_count_needed_replicas(model, 1 - tolerance)))
        held = careful >= current
        return min(current, careful), (f"{desired} is within the tolerance",) if held else ()
    return current, ()


def _apply_fallback(
    policy: AutoscalingPolicy, current: int, unknown_iterations: int
) -> tuple[int, tuple[str, ...]]:
    fallback, reason = policy.fallback, "no write rate is known"
    if unknown_iterations < fallback.failure_threshold or fallback.behavior is FallbackBehavior.CURRENT:
        return current, (reason,)
    count = policy.clamp_replicas(fallback.resolve_replicas(current))
    reason += f" for {unknown_iterations} iterations"
    return count, (f"{reason}: fallback {fallback.behavior}, {count} replicas",)


def _stabilize_recommendation(
    memory: DecisionMemory, policy: AutoscalingPolicy, current: int, now: float
) -> int:
    """Bound the current count by both windows (rule 4); the newest is in each."""
    *before, newest = memory.recommendations
    up = [w.replicas for w in before if w.time > now - policy.scale_up.stabilization_window]
    down = [w.replicas for w in before if w.time > now - policy.scale_down.stabilization_window]
    lowest, highest = min([*up, newest.replicas]), max([*down, newest.replicas])
    return max(min(current, highest), lowest)


def _apply_suspension(
    model: GroupModel, recommendation: ReplicaRecommendation, memory: DecisionMemory, now: float
) -> ReplicaRecommendation:
    """Cap the recommendation while scale-up is suspended (rule 6)."""
    suspension, most = (memory.scale_up_suspension, max(model.plan.replicas, model.policy.min_replicas))
    if suspension is None or recommendation.desired <= most:
        return recommendation
    warning = f"{suspension.reason}; retried in {suspension.until - now:.0f} s"
    return replace(recommendation, bounded=most, desired=most, warnings=(warning,))


def _add_slo_warning(
    model: GroupModel, recommendation: ReplicaRecommendation, memory: DecisionMemory
) -> ReplicaRecommendation:
    """Add a warning if the freshness SLO is missed."""
    slo, estimate = model.policy.freshness_slo, estimate_freshness(memory.age_samples)
    miss = None if slo is None or estimate is None else estimate.describe_slo_miss(slo)
    return (
        recommendation if miss is None else replace(recommendation, warnings=(*recommendation.warnings, miss))
    )


def _apply_scale_to_zero(
    model: GroupModel, recommendation: ReplicaRecommendation, memory: DecisionMemory, now: float
) -> ReplicaRecommendation:
    """Apply scale to zero (rule 7)."""
    if model.policy.min_replicas or model.plan.replicas > 1:
        return recommendation
    if not model.plan.replicas:
        return _scale_from_zero(model, recommendation)
    if memory.idle_since is None or recommendation.desired > 1:
        return recommendation
    idle, limit = now - memory.idle_since, model.policy.idle_after
    if idle >= limit:
        return replace(recommendation, bounded=0, desired=0)
    note = f"idle for {idle:.0f} s, the last replica stops after {limit:.0f} s"
    return replace(recommendation, hold_reasons=(*recommendation.hold_reasons, note))


def _scale_from_zero(model: GroupModel, recommendation: ReplicaRecommendation) -> ReplicaRecommendation:
    if is_active(model.observation.write_rates):
        count = max(1, recommendation.bounded)
        return replace(recommendation, bounded=count, desired=count)
    fallen_back = recommendation.recommended is None and recommendation.desired > 0
    if fallen_back:
        return recommendation
    return replace(
        recommendation, bounded=0, desired=0, hold_reasons=recommendation.hold_reasons or ("nothing to read",)
    )
