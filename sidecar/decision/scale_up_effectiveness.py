"""Whether growing helped: more consumers that read no more are a reason to stop growing.

1. A scale-out of a group that is behind is remembered with what the group consumed before it.
2. Once the new ones have joined, and there are half as many more at least, a whole window of
   consumption is awaited and compared. Less would not show above the noise of commits. Further
   steps in that time do not count, but what they bring does.
3. Growing helped if the group is no longer behind, or if it consumes more by at least a tenth of
   what the added consumers would bring were they as good as those before.
4. Where it did not help, nothing is added until a stated time; then growing is tried again. Limits
   stand above this: a minimum is brought about.
5. What is not known proves nothing: then growing goes on, and after some windows the growth is
   forgotten. A window of 0 never looks.
"""

from dataclasses import replace
from typing import Final

from trimtab.common.units import format_rate
from trimtab.sidecar.decision.decision import ScalingDecision
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.decision.scaling_policy import (
    DecisionMemory,
    ScaleUpEvaluation,
    ScaleUpSuspension,
)
from trimtab.sidecar.measurement.observation import Observation
from trimtab.sidecar.measurement.write_rate import CatchUpPolicy, compute_overdue_bytes

MIN_GAIN_SHARE: Final = 0.1
"""Of what the added consumers should bring, that must have come."""

MIN_GROWTH_FACTOR: Final = 1.5
"""Growth of the count below which nothing can be told."""

MAX_EVALUATION_WINDOWS: Final = 3.0
"""Windows after which a growth that could not be judged is forgotten."""


def sum_overdue_backlog(observation: Observation, catch_up: CatchUpPolicy) -> float | None:
    """Return the bytes that wait for longer than allowed; None where none is known.

    What is stuck is not counted: no consumer would work it off.
    """
    counted = (
        s for p, s in observation.write_rates.items() if p not in observation.stuck_partitions
    )
    known = [w for s in counted if (w := compute_overdue_bytes(s, catch_up)) is not None]
    return sum(known) if known else None


def sum_consumption_rates(observation: Observation, catch_up: CatchUpPolicy) -> float | None:
    """Return the bytes/s that the group consumes; None if unknown of a partition behind."""
    missing = (
        s for p, s in observation.write_rates.items() if p not in observation.consumption_rates
    )
    if not observation.consumption_rates or any(
        compute_overdue_bytes(s, catch_up) for s in missing
    ):
        return None
    return sum(observation.consumption_rates.values())


def begin_scale_up_evaluation(
    decision: ScalingDecision, observation: Observation, memory: DecisionMemory, now: float
) -> DecisionMemory:
    """Return the memory with a scale-out whose effect is to be looked at (rule 1)."""
    before, numbers = observation.plan, decision.numbers
    if memory.scale_up_evaluation is not None or before is None or not before.replicas:
        return memory
    if not numbers.consumed or not numbers.late:
        return memory
    return replace(
        memory, scale_up_evaluation=ScaleUpEvaluation(now, before.replicas, numbers.consumed)
    )


def evaluate_scale_up(model: GroupModel, memory: DecisionMemory, now: float) -> DecisionMemory:
    """Return the memory with the effect of the last growth in it, if it is known by now."""
    if memory.scale_up_suspension is not None and now >= memory.scale_up_suspension.until:
        memory = replace(memory, scale_up_suspension=None)
    growth, window = memory.scale_up_evaluation, model.policy.scale_up_evaluation_window
    if growth is None:
        return memory
    if (
        not window
        or now - growth.time > MAX_EVALUATION_WINDOWS * window + model.policy.startup_timeout
    ):
        return replace(memory, scale_up_evaluation=None)
    if growth.joined_replicas < MIN_GROWTH_FACTOR * growth.replicas:
        joined = not model.find_unjoined_replicas(now) and model.explain_instability() is None
        count = min(model.plan.replicas, len(model.active)) if joined else 0
        return replace(
            memory, scale_up_evaluation=replace(growth, joined_at=now, joined_replicas=count)
        )
    if (
        now - growth.joined_at < window
        or sum_consumption_rates(model.observation, model.policy.catch_up) is None
    ):
        return memory
    return replace(
        memory,
        scale_up_evaluation=None,
        scale_up_suspension=_suspend_scale_up(model, growth, now) or memory.scale_up_suspension,
    )


def _suspend_scale_up(
    model: GroupModel, evaluation: ScaleUpEvaluation, now: float
) -> ScaleUpSuspension | None:
    after, before = (
        sum_consumption_rates(model.observation, model.policy.catch_up),
        evaluation.consumption_rate,
    )
    if after is None or not sum_overdue_backlog(model.observation, model.policy.catch_up):
        return None
    if after > before * (
        1 + MIN_GAIN_SHARE * (evaluation.joined_replicas / evaluation.replicas - 1)
    ):
        return None
    reason = (
        f"{evaluation.joined_replicas} consumers read no more than {evaluation.replicas} did "
        f"({format_rate(after)}, {format_rate(before)} before): growing stops, look at the sink, "
        "the network and the consumers' logs"
    )
    return ScaleUpSuspension(now + model.policy.scale_up_evaluation_retry, reason)
