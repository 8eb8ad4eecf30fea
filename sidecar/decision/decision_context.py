"""What a rule of a decision looks at, and what it may ask for."""

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
    """What a rule may look at."""

    model: GroupModel
    recommendation: ReplicaRecommendation
    memory: DecisionMemory
    now: float

    @property
    def plan(self) -> GroupPlan:
        """Return the plan in force."""
        return self.model.plan

    def explain_cooldown(self) -> str | None:
        """Tell how long the cooldown still lasts; None where it is over."""
        left = self.model.policy.cooldown - self.memory.seconds_since_change(self.now)
        return f"cooldown for another {left:.0f} s" if left > 0 else None


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """What a rule asks for."""

    action: ScalingAction
    reasons: tuple[str, ...]
    plan: GroupPlan | None = None
    start_count: int = 0
    stop_names: tuple[str, ...] = ()
    expected_plan: PlacementPlan | None = None


def next_plan(
    plan: GroupPlan, policy: AutoscalingPolicy, now: float, reasons: tuple[str, ...]
) -> GroupPlan:
    """Return the plan with a new epoch and the settings in force."""
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
    """Take the count over as it was found."""
    plan = replace(context.plan, replicas=count, time=context.now, reasons=(reason,))
    return DecisionStep(ScalingAction.ADOPT, (reason,), plan)


def drain_replicas(
    context: DecisionContext, names: Sequence[str], replicas: int, reason: str
) -> DecisionStep:
    """Drain these, so that so many are left; a new epoch, unless they own nothing."""
    base = replace(context.plan, replicas=replicas, draining=(*context.plan.draining, *names))
    plan = next_plan(base, context.model.policy, context.now, (reason,))
    if not any(context.model.owned_partitions(name) for name in names):
        plan = replace(plan, epoch=context.plan.epoch)  # nobody has anything to hand over
    shared = context.model.observation.group.is_share_group
    return DecisionStep(
        ScalingAction.DRAIN,
        (reason,),
        plan,
        expected_plan=None if shared else context.model.plan_without(names),
    )
