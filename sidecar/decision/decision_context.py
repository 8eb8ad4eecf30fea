"""Input and output of a decision rule, and the plans that several rules build."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.assignor.model import PlacementPlan
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.sidecar.decision.decision import ScalingAction
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.decision.recommendation import ReplicaRecommendation
from trimtab.sidecar.decision.scaling_policy import AutoscalingPolicy, DecisionMemory


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """Input of a decision rule; `now` is seconds since the epoch."""

    model: GroupModel
    recommendation: ReplicaRecommendation
    memory: DecisionMemory
    now: float

    @property
    def plan(self) -> GroupPlan:
        """Return the plan in force."""
        return self.model.plan

    def explain_cooldown(self) -> str | None:
        """Return how long the cooldown still lasts; None if it is over."""
        left = self.model.policy.cooldown - self.memory.seconds_since_change(self.now)
        return f"cooldown for another {left:.0f} s" if left > 0 else None


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """Output of a decision rule; `expected_plan` is the placement the leader should make."""

    action: ScalingAction
    reasons: tuple[str, ...]
    plan: GroupPlan | None = None
    start_count: int = 0
    stop_names: tuple[str, ...] = ()
    expected_plan: PlacementPlan | None = None


def next_plan(plan: GroupPlan, policy: AutoscalingPolicy, now: float, reasons: tuple[str, ...]) -> GroupPlan:
    """Return the plan in the next epoch, with the settings in force."""
    return replace(
        plan,
        epoch=plan.epoch + 1,
        time=now,
        heuristic=policy.placement.heuristic,
        capacity=policy.placement.capacity,
        headroom=policy.placement.headroom,
        capacities=plan.capacities if policy.learned_capacity_bounds else {},
        reasons=reasons,
    )


def adopt_count(context: DecisionContext, count: int, reason: str) -> DecisionStep:
    """Record the observed count in the plan, in the same epoch."""
    plan = replace(context.plan, replicas=count, time=context.now, reasons=(reason,))
    return DecisionStep(ScalingAction.ADOPT, (reason,), plan)


def drain_replicas(
    context: DecisionContext, names: Sequence[str], replicas: int, reason: str
) -> DecisionStep:
    """Drain `names`, which leaves `replicas`; new epoch unless they own nothing."""
    base = replace(context.plan, replicas=replicas, draining=(*context.plan.draining, *names))
    plan = next_plan(base, context.model.policy, context.now, (reason,))
    if not any(context.model.owned_partitions(name) for name in names):
        plan = replace(plan, epoch=context.plan.epoch)  # no partition to hand over
    shared = context.model.observation.group.is_share_group
    return DecisionStep(
        ScalingAction.DRAIN,
        (reason,),
        plan,
        expected_plan=None if shared else context.model.plan_without(names),
    )
