"""How many replicas the load asks for, and what stabilisation leaves of it.

The rules are those of the HPA, the count is the assignor's:

1. The count comes from the heuristic in open mode, starting from the present owners. Of a share
   group, in which every worker is given messages of every partition, it is the load divided by what
   one may be filled with.
2. Dead band: a wish to grow counts only if the load would not fit into the present count filled up
   to headroom x (1 + band); a wish to shrink only as far as it would fit filled to headroom x (1 -
   band).
3. What is unknown pulls against the move: unknown partitions weigh nothing towards growing and
   forbid shrinking. With nothing known, the present count is wished for.
4. Growing follows the lowest wish of its window, shrinking the highest. The first window starts
   with the present count, and blind turns wish for it. Limits apply before the windows, steps
   after.
5. With nothing known for so many turns in a row, the fallback's count is wished for.
6. Where growing showed no effect (`effect`), the present count is wanted, or the least.
7. The last replica goes, where none need run, when nothing was written and nothing waited for
   `idle_after` seconds, all of it known; the first comes back in the turn that sees a record,
   whatever the windows say.
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

REPLICA_EPSILON: Final = 1e-6
"""Of a worker: sums of floats are not exact."""


@dataclass(frozen=True, slots=True)
class ReplicaRecommendation:
    """Counts: `recommended` by the load, `bounded` after dead band and limits, `desired` after windows.

    `hold_reasons` say what held a wish back, `warnings` what is to be said whatever is done.
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
    """Return what is wanted now and the memory with this wish in it."""
    current = model.policy.clamp_replicas(model.plan.replicas)
    expected = _compute_expected_plan(model)
    wished = _recommend_from_load(model, expected)
    memory = _record_iteration(model, memory, now, is_load_known=wished is not None)
    steady, notes = _apply_tolerance(model, current, wished, memory.unknown_iterations)
    memory = prepare_recommendations(memory, model.policy, current, now)
    memory = replace(
        memory, recommendations=(*memory.recommendations, TimestampedRecommendation(now, steady))
    )
    wanted = _stabilize_recommendation(memory, model.policy, current, now)
    sizing = ReplicaRecommendation(wished, steady, wanted, expected, notes)
    sizing = _apply_scale_to_zero(model, _apply_suspension(model, sizing, memory, now), memory, now)
    return _add_slo_warning(model, sizing, memory), memory


def prepare_recommendations(
    memory: DecisionMemory, policy: AutoscalingPolicy, count: int, now: float
) -> DecisionMemory:
    """Return the memory without what no window needs; an empty one starts with this count."""
    if not memory.recommendations:
        return replace(memory, recommendations=(TimestampedRecommendation(now, count),))
    return memory.keep_recent_recommendations(
        now, max(policy.scale_up.stabilization_window, policy.scale_down.stabilization_window)
    )


def _record_iteration(
    model: GroupModel, memory: DecisionMemory, now: float, *, is_load_known: bool
) -> DecisionMemory:
    """Return the memory with what this turn tells of idleness, effect and capacities."""
    since = memory.idle_since if memory.idle_since is not None and memory.idle_since <= now else now
    memory = replace(
        memory,
        unknown_iterations=0 if is_load_known else memory.unknown_iterations + 1,
        idle_since=since if is_idle(model.observation.write_rates) else None,
    )
    short = now if memory.short_since is None or memory.short_since > now else memory.short_since
    lacking = len(model.active) < model.plan.replicas
    memory = replace(
        memory,
        age_samples=_append_age_sample(model, memory, now),
        short_since=short if lacking else None,
    )
    return update_learned_capacities(model, evaluate_scale_up(model, memory, now), now)


def _append_age_sample(
    model: GroupModel, memory: DecisionMemory, now: float
) -> tuple[AgeSample, ...]:
    """Return the ages of what waited over the window of consumption, with this turn's."""
    since = now - model.policy.scale_up_evaluation_window
    kept = tuple(seen for seen in memory.age_samples if since < seen.time <= now)
    new = (
        sample_ages(now, model.observation.write_rates)
        if model.policy.scale_up_evaluation_window
        else None
    )
    return kept if new is None else (*kept, new)


def _compute_expected_plan(model: GroupModel) -> PlacementPlan | None:
    """Return the placement that is wished for; None where nothing is known, or to be placed."""
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
    """Return how many would do if they were filled to this share of the headroom."""
    if not model.observation.group.is_share_group:
        return _size_group(model, share).consumers
    room = model.policy.placement.capacity * min(1.0, model.policy.placement.headroom * share)
    return max(1, math.ceil(model.compute_total_rate() / room - REPLICA_EPSILON))


def _size_group(model: GroupModel, share: float) -> PlacementPlan:
    policy = model.policy.placement
    policy = replace(policy, headroom=min(1.0, policy.headroom * share))
    return size_group(
        model.build_group(with_draining=False), model.build_load(unknown_as_zero=True), policy
    )


def _apply_tolerance(
    model: GroupModel, current: int, recommended: int | None, unknown_iterations: int
) -> tuple[int, tuple[str, ...]]:
    """Return the wish after rules 2, 3 and 5 and the limits, and what held it back."""
    if recommended is None:
        return _apply_fallback(model.policy, current, unknown_iterations)
    wanted = model.policy.clamp_replicas(recommended)
    if wanted > current:
        band = model.policy.scale_up.tolerance
        fits = model.policy.clamp_replicas(_count_needed_replicas(model, 1 + band)) <= current
        return (current, (f"{wanted} is within the dead band",)) if fits else (wanted, ())
    if wanted < current and model.unknown_partitions:
        return current, (
            f"{len(model.unknown_partitions)} partitions are unknown, so nothing is taken away",
        )
    if wanted < current:
        band = model.policy.scale_down.tolerance
        careful = max(wanted, model.policy.clamp_replicas(_count_needed_replicas(model, 1 - band)))
        held = careful >= current
        return min(current, careful), (f"{wanted} is within the dead band",) if held else ()
    return current, ()


def _apply_fallback(
    policy: AutoscalingPolicy, current: int, unknown_iterations: int
) -> tuple[int, tuple[str, ...]]:
    fallback, reason = policy.fallback, "no write speed is known"
    if (
        unknown_iterations < fallback.failure_threshold
        or fallback.behavior is FallbackBehavior.CURRENT
    ):
        return current, (reason,)
    count = policy.clamp_replicas(fallback.resolve_replicas(current))
    return count, (
        f"{reason} for {unknown_iterations} turns: fallback {fallback.behavior}, {count} replicas",
    )


def _stabilize_recommendation(
    memory: DecisionMemory, policy: AutoscalingPolicy, current: int, now: float
) -> int:
    """Bound the present count by the windows (rule 4); the newest wish is in both."""
    *before, newest = memory.recommendations
    out = [w.replicas for w in before if w.time > now - policy.scale_up.stabilization_window]
    back = [w.replicas for w in before if w.time > now - policy.scale_down.stabilization_window]
    lowest, highest = min([*out, newest.replicas]), max([*back, newest.replicas])
    return max(min(current, highest), lowest)


def _apply_suspension(
    model: GroupModel, recommendation: ReplicaRecommendation, memory: DecisionMemory, now: float
) -> ReplicaRecommendation:
    """Return what is wanted while growing is stopped (rule 6)."""
    stall, most = memory.scale_up_suspension, max(model.plan.replicas, model.policy.min_replicas)
    if stall is None or recommendation.desired <= most:
        return recommendation
    warning = f"{stall.reason}; tried again in {stall.until - now:.0f} s"
    return replace(recommendation, bounded=most, desired=most, warnings=(warning,))


def _add_slo_warning(
    model: GroupModel, recommendation: ReplicaRecommendation, memory: DecisionMemory
) -> ReplicaRecommendation:
    """Return the sizing with what is to be said of a goal that is missed."""
    goal, found = model.policy.freshness_slo, estimate_freshness(memory.age_samples)
    told = None if goal is None or found is None else found.describe_slo_miss(goal)
    return (
        recommendation
        if told is None
        else replace(recommendation, warnings=(*recommendation.warnings, told))
    )


def _apply_scale_to_zero(
    model: GroupModel, recommendation: ReplicaRecommendation, memory: DecisionMemory, now: float
) -> ReplicaRecommendation:
    """Return what is wanted where no replica need run (rule 7)."""
    if model.policy.min_replicas or model.plan.replicas > 1:
        return recommendation
    if not model.plan.replicas:
        return _scale_from_zero(model, recommendation)
    if memory.idle_since is None or recommendation.desired > 1:
        return recommendation
    quiet, enough = now - memory.idle_since, model.policy.idle_after
    if quiet >= enough:
        return replace(recommendation, bounded=0, desired=0)
    note = f"nothing to read for {quiet:.0f} s, the last one goes after {enough:.0f} s"
    return replace(recommendation, hold_reasons=(*recommendation.hold_reasons, note))


def _scale_from_zero(
    model: GroupModel, recommendation: ReplicaRecommendation
) -> ReplicaRecommendation:
    if is_active(model.observation.write_rates):
        count = max(1, recommendation.bounded)
        return replace(recommendation, bounded=count, desired=count)
    fallen_back = recommendation.recommended is None and recommendation.desired > 0
    if fallen_back:
        return recommendation
    return replace(
        recommendation,
        bounded=0,
        desired=0,
        hold_reasons=recommendation.hold_reasons or ("nothing is to be read",),
    )
