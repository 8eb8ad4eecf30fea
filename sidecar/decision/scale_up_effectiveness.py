"""Suspends scale-up when added consumers do not raise throughput.

1. A scale-up of a group that is behind is recorded with the group's consumption before it.
2. Once the new consumers have joined and the count grew by at least half, consumption is measured
   over a whole window and compared. Further steps in that time are not recorded, but their
   consumption counts.
3. The scale-up was effective if the group is no longer behind, or consumption rose by at least a
   tenth of what the added consumers would add at the previous rate per consumer.
4. Otherwise scale-up is suspended for `scale_up_evaluation_retry` seconds. `min` still applies.
5. Unknown consumption proves nothing: scale-up continues, and after some windows the evaluation is
   dropped. So is it when records begin to weigh otherwise, since consumption is then in another unit.
   A window of 0 disables the evaluation.
"""

from dataclasses import replace
from typing import Final

from trimtab.common.units import format_count, format_rate
from trimtab.sidecar.decision.autoscaling_policy import DecisionMemory, ScaleUpEvaluation, ScaleUpSuspension
from trimtab.sidecar.decision.decision import ScalingDecision
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.measurement.observation import Observation
from trimtab.sidecar.measurement.write_rate import CatchUpPolicy, compute_overdue_bytes

MIN_GAIN_SHARE: Final = 0.1  # share of the expected gain that counts as effective
MIN_GROWTH_FACTOR: Final = 1.5  # smaller growth drowns in the noise of commits
MAX_EVALUATION_WINDOWS: Final = 3.0  # windows after which a pending evaluation is dropped


def sum_overdue_backlog(observation: Observation, catch_up: CatchUpPolicy) -> float | None:
    """Return the overdue bytes of the group; None if unknown for all partitions."""
    # Stuck partitions do not count: more consumers would not catch up on them.
    counted = (s for p, s in observation.write_rates.items() if p not in observation.stuck_partitions)
    known = [w for s in counted if (w := compute_overdue_bytes(s, catch_up)) is not None]
    return sum(known) if known else None


def sum_consumption_rates(observation: Observation, catch_up: CatchUpPolicy) -> float | None:
    """Return the group's consumption in bytes/s; None if unknown for an overdue partition."""
    missing = (s for p, s in observation.write_rates.items() if p not in observation.consumption_rates)
    if not observation.consumption_rates or any(compute_overdue_bytes(s, catch_up) for s in missing):
        return None
    return sum(observation.consumption_rates.values())


def begin_scale_up_evaluation(
    decision: ScalingDecision, observation: Observation, memory: DecisionMemory, now: float
) -> DecisionMemory:
    """Record a scale-up for evaluation (rule 1)."""
    before = observation.plan
    metrics = decision.metrics
    if memory.scale_up_evaluation is not None or before is None or not before.replicas:
        return memory
    if not metrics.consumption_rate or not metrics.overdue_backlog_bytes:
        return memory
    evaluation = ScaleUpEvaluation(now, before.replicas, metrics.consumption_rate)
    return replace(memory, scale_up_evaluation=evaluation)


def evaluate_scale_up(model: GroupModel, memory: DecisionMemory, now: float) -> DecisionMemory:
    """Evaluate the last scale-up if its window is complete (rules 2 to 5)."""
    if memory.scale_up_suspension is not None and now >= memory.scale_up_suspension.until:
        memory = replace(memory, scale_up_suspension=None)
    evaluation = memory.scale_up_evaluation
    window = model.policy.scale_up_evaluation_window
    if evaluation is None:
        return memory
    if not window or now - evaluation.time > MAX_EVALUATION_WINDOWS * window + model.policy.startup_timeout:
        return replace(memory, scale_up_evaluation=None)  # rule 5
    if evaluation.joined_replicas < MIN_GROWTH_FACTOR * evaluation.replicas:
        # The window starts once the new consumers read: a rebalance would look like no effect.
        joined = not model.find_unjoined_replicas(now) and model.explain_instability() is None
        count = min(model.plan.replicas, len(model.active)) if joined else 0
        return replace(memory, scale_up_evaluation=replace(evaluation, joined_at=now, joined_replicas=count))
    after = sum_consumption_rates(model.observation, model.policy.catch_up)
    if now - evaluation.joined_at < window or after is None:
        return memory
    suspension = _suspend_if_useless(model, evaluation, after, now) or memory.scale_up_suspension
    return replace(memory, scale_up_evaluation=None, scale_up_suspension=suspension)


def _suspend_if_useless(
    model: GroupModel, evaluation: ScaleUpEvaluation, after: float, now: float
) -> ScaleUpSuspension | None:
    before = evaluation.consumption_rate
    growth = evaluation.joined_replicas / evaluation.replicas
    caught_up = not sum_overdue_backlog(model.observation, model.policy.catch_up)
    if caught_up or after > before * (1 + MIN_GAIN_SHARE * (growth - 1)):  # rule 3
        return None
    readers = format_count(evaluation.joined_replicas, "consumer reads", "consumers read")
    reason = (
        f"{readers} no more than {evaluation.replicas} "
        f"({format_rate(after)}, {format_rate(before)} before): scale-up suspended"
    )
    return ScaleUpSuspension(now + model.policy.scale_up_evaluation_retry, reason)
