"""Suspends scale-up when added consumers do not raise throughput, and takes useless ones back.

1. A scale-up is recorded with the group's consumption before it. It is dropped if the count falls.
2. Once the new consumers have joined and the count grew by at least half, consumption is measured
   over a whole window and compared. Further steps in that time are not recorded, but their
   consumption counts.
3. The scale-up was effective if the group is no longer behind, or consumption rose by at least a
   tenth of what the added consumers would add at the previous rate per consumer.
4. Otherwise scale-up is suspended for `scale_up_evaluation_retry` seconds. `min` still applies. Each further
   scale-up without effect doubles the time, up to `MAX_RETRY_FACTOR` times.
5. While every consumer is behind with all it owns, what the group reads is a limit of something else: of the
   sink. It takes as many replicas as read so much at the highest rate per replica before a scale-up. If they
   are fewer than run, scale-up is suspended, too, and once another window has shown the same rate, the group
   is scaled down to them. Otherwise the suspension ends.
6. If these read less over a window, as many as before may run again until the retry.
7. The same where no scale-up has told fewer: if for two windows every consumer was behind with all it owns
   and they read less than `HELD_UP_SHARE` of their capacity together, a third of them is taken back to see
   whether the others read as much; then the next third, down to what the capacity needs. If they do not, it
   is no limit, but a capacity that is set too high: all run again, and none is taken back until another is
   configured; nor if they were not taken back within some windows. It is tried only if nothing forbids to
   stop replicas and to start them again, and if what is written needs no more than run, or `max` run.
8. Unknown consumption proves nothing: scale-up continues, and after some windows the evaluation is
   dropped. So is it when records begin to weigh otherwise, since consumption is then in another unit; rule 7
   then applies anew.
   A window of 0 disables the evaluation.
"""

import math
from dataclasses import replace
from typing import Final

from trimtab.common.units import format_count, format_rate
from trimtab.sidecar.decision.decision import ScalingDecision
from trimtab.sidecar.decision.decision_memory import (
    ConsumptionLimit,
    DecisionMemory,
    ScaleUpEvaluation,
    ScaleUpSuspension,
)
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.decision.learned_capacity import is_behind
from trimtab.sidecar.model.catch_up_policy import CatchUpPolicy, compute_overdue_bytes
from trimtab.sidecar.model.hpa_behavior import Direction, SelectPolicy
from trimtab.sidecar.model.observation import Observation

MIN_GAIN_SHARE: Final = 0.1  # share of the expected gain that counts as effective
MIN_GROWTH_FACTOR: Final = 1.5  # smaller growth drowns in the noise of commits
MEASUREMENT_ERROR: Final = 0.1  # of a rate over a window
MAX_RETRY_FACTOR: Final = 6
HELD_UP_SHARE: Final = 0.75
HELD_UP_WINDOWS: Final = 2.0
SETTLED_WINDOWS: Final = 1.5  # after a drain, whose handover interrupts reading
MAX_EVALUATION_WINDOWS: Final = 3.0  # windows after which a pending evaluation, or an idle trial, is dropped


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
    before, rate = observation.plan, decision.metrics.consumption_rate
    if memory.scale_up_evaluation is not None or before is None or not before.replicas or not rate:
        return memory
    evaluation = ScaleUpEvaluation(now, before.replicas, rate)
    return replace(memory, scale_up_evaluation=evaluation)


def evaluate_scale_up(model: GroupModel, memory: DecisionMemory, now: float) -> DecisionMemory:
    """Evaluate the last scale-up if its window is complete (rules 2 to 8)."""
    memory = _follow_suspension(model, _watch_capacity(model, memory, now), now)
    evaluation = memory.scale_up_evaluation
    window = model.policy.scale_up_evaluation_window
    if evaluation is None:
        return memory
    if not window or now - evaluation.time > MAX_EVALUATION_WINDOWS * window + model.policy.startup_timeout:
        return replace(memory, scale_up_evaluation=None)  # rule 8
    if model.plan.replicas < evaluation.joined_replicas:
        return replace(memory, scale_up_evaluation=None)  # fewer read less
    if evaluation.joined_replicas < MIN_GROWTH_FACTOR * evaluation.replicas:
        # The window starts once the new consumers read: a rebalance would look like no effect.
        joined = not model.find_unjoined_replicas(now) and model.explain_instability() is None
        count = min(model.plan.replicas, len(model.active)) if joined else 0
        return replace(memory, scale_up_evaluation=replace(evaluation, joined_at=now, joined_replicas=count))
    after = sum_consumption_rates(model.observation, model.policy.catch_up)
    if now - evaluation.joined_at < window or after is None:
        return memory
    return _conclude(model, replace(memory, scale_up_evaluation=None), evaluation, after, now)


def _conclude(
    model: GroupModel, memory: DecisionMemory, evaluation: ScaleUpEvaluation, after: float, now: float
) -> DecisionMemory:
    """Return the memory after an evaluation, with a suspension if the scale-up was useless."""
    before = evaluation.consumption_rate
    if not sum_overdue_backlog(model.observation, model.policy.catch_up):
        return replace(memory, useless_scale_ups=0, replica_rate=0.0)
    memory = replace(memory, replica_rate=max(memory.replica_rate, before / evaluation.replicas))
    limit = _find_limit(model, evaluation, memory.replica_rate, after, now)
    growth = evaluation.joined_replicas / evaluation.replicas
    if limit is None and after > before * (1 + MIN_GAIN_SHARE * (growth - 1)):  # rule 3
        return replace(memory, useless_scale_ups=0)
    reason = _explain_suspension(model, evaluation, limit, after)
    return _suspend(model, memory, ScaleUpSuspension(now, reason, limit))


def _suspend(model: GroupModel, memory: DecisionMemory, suspension: ScaleUpSuspension) -> DecisionMemory:
    """Return the memory with a suspension that begins at its `until`."""
    delay = model.policy.scale_up_evaluation_retry * min(2**memory.useless_scale_ups, MAX_RETRY_FACTOR)
    suspension = replace(suspension, until=suspension.until + delay)
    return replace(memory, scale_up_suspension=suspension, useless_scale_ups=memory.useless_scale_ups + 1)


def _watch_capacity(model: GroupModel, memory: DecisionMemory, now: float) -> DecisionMemory:
    """Return the memory, with a suspension that takes replicas back to see what they add (rule 7)."""
    if not sum_overdue_backlog(model.observation, model.policy.catch_up):
        return replace(memory, held_up_since=None, replica_rate=0.0)
    rate = sum_consumption_rates(model.observation, model.policy.catch_up)
    window = model.policy.scale_up_evaluation_window
    if not window or rate is None or not _is_held_up(model, rate, now):
        return replace(memory, held_up_since=None)
    since = memory.held_up_since
    memory = replace(memory, held_up_since=now if since is None or since > now else since)
    evaluation = memory.scale_up_evaluation
    is_measured = evaluation is not None and evaluation.joined_at + window > now
    settled_at = max(memory.held_up_since or now, memory.last_change or 0.0) + HELD_UP_WINDOWS * window
    running = len(model.active)
    fewer = _count_fewer(model, memory, rate, running)
    if is_measured or memory.scale_up_suspension is not None or now < settled_at or fewer >= running:
        return memory
    if memory.vain_trial_capacity == model.policy.placement.capacity or not _may_try_fewer(model, running):
        return memory
    limit = ConsumptionLimit(rate, fewer, running, now, running)
    several = model.consumers_per_replica
    far = f"{format_rate(rate)}, far below their capacity: trying {several * fewer}"
    reason = f"{_count_readers(model, running)} {far}"
    suspension = ScaleUpSuspension(now, reason, limit, fewer)
    return _suspend(model, replace(memory, scale_up_evaluation=None), suspension)


def _is_held_up(model: GroupModel, rate: float, now: float) -> bool:
    room = sum(map(model.capacity_of, model.list_consumers(model.active)))
    is_settled = not model.find_unjoined_replicas(now) and model.explain_instability() is None
    return is_settled and rate < HELD_UP_SHARE * room and _is_behind_everywhere(model)


def _may_try_fewer(model: GroupModel, running: int) -> bool:
    """Return whether replicas can stop and start again, and the load does not need more of them."""
    policy = model.policy
    rules = ((Direction.DOWN, policy.scale_down), (Direction.UP, policy.scale_up))
    if policy.advisory or not model.observation.is_steered:
        return False
    if any(r.select_policy is SelectPolicy.DISABLED or model.explain_pause(d) for d, r in rules):
        return False
    # A scale-up that can still come is compared with what was read before: that costs no reader.
    return running >= policy.max_replicas or model.without_backlog().bound_replicas(1.0) <= running


def _count_fewer(model: GroupModel, memory: DecisionMemory, rate: float, running: int) -> int:
    """Return how many replicas to try next: by the rate of one if that tells fewer, else a third less."""
    capacity = model.policy.placement.capacity * model.consumers_per_replica
    by_rate, by_capacity = (
        max(1, model.policy.min_replicas, math.ceil(rate / each - MEASUREMENT_ERROR)) if each else running
        for each in (memory.replica_rate, capacity)
    )
    # what one has read is no limit of it if there was no more to read
    return by_rate if by_rate < running else max(by_capacity, running - max(1, running // 3))


def _count_readers(model: GroupModel, replicas: int) -> str:
    return format_count(model.consumers_per_replica * replicas, "consumer reads", "consumers read")


def _explain_limit(model: GroupModel, tried: int, fewer: int, rate: float) -> str:
    most = f"{model.consumers_per_replica * fewer} ({format_rate(rate)})"
    cause = "scale-up suspended, the sink behind them is the limit"
    return f"{_count_readers(model, tried)} no more than {most}: {cause}"


def _explain_suspension(
    model: GroupModel, evaluation: ScaleUpEvaluation, limit: ConsumptionLimit | None, after: float
) -> str:
    if limit is not None:
        return _explain_limit(model, limit.tried, limit.replicas, after)
    fewer = model.consumers_per_replica * evaluation.replicas
    figures = f"{format_rate(after)}, {format_rate(evaluation.consumption_rate)} before"
    cause = "scale-up suspended, check the sink, the network and the consumers' logs"
    return f"{_count_readers(model, evaluation.joined_replicas)} no more than {fewer} ({figures}): {cause}"


def _find_limit(
    model: GroupModel, evaluation: ScaleUpEvaluation, replica_rate: float, after: float, now: float
) -> ConsumptionLimit | None:
    """Return the limit that fewer replicas would reach (rule 5); None without one."""
    running = len(model.active)
    needed = max(1, math.ceil(after / replica_rate - MEASUREMENT_ERROR))
    read_less = evaluation.consumption_rate < after * (1 - MEASUREMENT_ERROR)
    if needed >= running or (read_less and needed <= evaluation.replicas):
        return None
    return ConsumptionLimit(after, needed, running, now) if _is_behind_everywhere(model) else None


def _is_behind_everywhere(model: GroupModel) -> bool:
    stuck = model.observation.stuck_partitions
    owned = [m.owned_partitions for m in model.members.values() if m.owned_partitions]
    return bool(owned) and all(is_behind(model, of) and not of <= stuck for of in owned)


def _follow_suspension(model: GroupModel, memory: DecisionMemory, now: float) -> DecisionMemory:
    """Return the memory with the suspension ended, confirmed or relaxed."""
    suspension = memory.scale_up_suspension
    if suspension is None or suspension.limit is None or now >= suspension.until:
        over = suspension is not None and now >= suspension.until
        return replace(memory, scale_up_suspension=None) if over else memory
    limit, most = suspension.limit, suspension.most_replicas
    since = limit.measured_at if most is None else max(limit.measured_at, memory.last_change or 0.0)
    if _is_idle_trial(model, suspension, now - since):
        return _end_trial(model, memory, suspension)
    window = model.policy.scale_up_evaluation_window * (1.0 if most is None else SETTLED_WINDOWS)
    rate = sum_consumption_rates(model.observation, model.policy.catch_up)
    if rate is None or most == limit.tried or now - since < window:
        return memory
    if most is None:
        holds = rate <= limit.rate * (1 + MEASUREMENT_ERROR) and _is_behind_everywhere(model)
        # else they were still getting faster
        suspension = replace(suspension, most_replicas=limit.replicas) if holds else None
    elif len(model.active) <= most:
        return _judge_fewer(model, memory, suspension, rate, now)
    return replace(memory, scale_up_suspension=suspension)


def _is_idle_trial(model: GroupModel, suspension: ScaleUpSuspension, seconds: float) -> bool:
    """Return whether the replicas to try without still run, after so long without a change."""
    limit, most = suspension.limit, suspension.most_replicas
    if limit is None or most is None or not limit.first or most == limit.tried or len(model.active) <= most:
        return False
    return seconds >= MAX_EVALUATION_WINDOWS * model.policy.scale_up_evaluation_window


def _end_trial(model: GroupModel, memory: DecisionMemory, suspension: ScaleUpSuspension) -> DecisionMemory:
    """Return the memory once fewer replicas have read less: as many as before may run."""
    limit = suspension.limit
    if limit is not None and not limit.is_trial:
        return replace(memory, scale_up_suspension=replace(suspension, most_replicas=limit.tried))
    capacity = model.policy.placement.capacity
    return replace(memory, scale_up_suspension=None, vain_trial_capacity=capacity)


def _judge_fewer(
    model: GroupModel, memory: DecisionMemory, suspension: ScaleUpSuspension, rate: float, now: float
) -> DecisionMemory:
    """Return the memory once the replicas that are left have been measured (rules 6 and 7)."""
    limit, most = suspension.limit, suspension.most_replicas
    if limit is None or most is None:
        return memory
    if rate < limit.rate * (1 - MEASUREMENT_ERROR):
        return _end_trial(model, replace(memory, replica_rate=rate / most), suspension)
    if not limit.first or not _is_behind_everywhere(model):
        return memory
    fewer = min(most, _count_fewer(model, memory, limit.rate, most))
    until = suspension.until + now - limit.measured_at  # the search takes its own time
    limit = replace(limit, replicas=fewer, tried=most, measured_at=now)
    reason = _explain_limit(model, limit.first, most, limit.rate)
    return replace(memory, scale_up_suspension=ScaleUpSuspension(until, reason, limit, fewer))
