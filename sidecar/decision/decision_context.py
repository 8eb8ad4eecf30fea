"""Input and output of a decision rule, and the plans that several rules build."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab.assignor.model import PlacementPlan
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.units import format_rate
from trimtab.sidecar.decision.decision import ScalingAction
from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.decision.recommendation import ReplicaRecommendation
from trimtab.sidecar.measurement.record_cost import COST_TOLERANCE
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.observation import Observation


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """Input of a decision rule."""

    model: GroupModel
    recommendation: ReplicaRecommendation
    memory: DecisionMemory
    now: float  # seconds since the epoch

    @property
    def plan(self) -> GroupPlan:
        """Plan in force."""
        return self.model.plan

    @property
    def policy(self) -> AutoscalingPolicy:
        """Policy in force at `now`."""
        return self.model.policy

    @property
    def observation(self) -> Observation:
        """Observation to decide on."""
        return self.model.observation

    def explain_cooldown(self) -> str | None:
        """Return how long the cooldown still lasts; None if it is over."""
        left = self.policy.cooldown - self.memory.seconds_since_change(self.now)
        return f"cooldown for another {left:.0f} s" if left > 0 else None

    def amend_plan(self, reason: str, **changes: Any) -> GroupPlan:
        """Return the plan in force with `changes`, in the same epoch."""
        # Only a new epoch makes the leader rebalance, so this plan moves nothing.
        return replace(self.plan, time=self.now, reasons=(reason,), **changes)

    def next_plan(self, reason: str, **changes: Any) -> GroupPlan:
        """Return the plan in force with `changes` and the settings in force, in the next epoch."""
        return start_epoch(self.amend_plan(reason, **changes), self.policy)


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """Output of a decision rule."""

    action: ScalingAction
    reasons: tuple[str, ...]
    plan: GroupPlan | None = None
    start_count: int = 0
    stop_names: tuple[str, ...] = ()
    placed: PlacementPlan | None = None  # the placement of the plan's target


def hold(*reasons: str) -> DecisionStep:
    """Return a step that changes nothing."""
    return DecisionStep(ScalingAction.HOLD, reasons)


def start_epoch(plan: GroupPlan, policy: AutoscalingPolicy) -> GroupPlan:
    """Return the plan in its next epoch, with the settings in force."""
    return replace(
        plan,
        epoch=plan.epoch + 1,
        heuristic=policy.placement.heuristic,
        capacity=policy.placement.capacity,
        headroom=policy.placement.headroom,
        co_partitioned=policy.placement.co_partitioned,
        capacities={} if _explain_stale_capacities(plan, policy) else plan.capacities,
    )


def list_changed_settings(plan: GroupPlan, policy: AutoscalingPolicy) -> list[str]:
    """Return what `start_epoch` would change in the plan, as text."""
    desired = policy.placement
    changed: list[str] = []
    if plan.heuristic != desired.heuristic:
        changed.append(f"heuristic {plan.heuristic} -> {desired.heuristic}")
    if plan.headroom != desired.headroom:
        changed.append(f"headroom {plan.headroom} -> {desired.headroom}")
    if plan.capacity != desired.capacity:
        changed.append(f"capacity {format_rate(plan.capacity)} -> {format_rate(desired.capacity)}")
    if plan.co_partitioned != desired.co_partitioned:
        groups = "; ".join(map(",".join, desired.co_partitioned)) or "none"
        changed.append(f"co-partitioned topics: {groups}")
    if plan.capacities and (stale := _explain_stale_capacities(plan, policy)):
        changed.append(stale)
    return changed


def _explain_stale_capacities(plan: GroupPlan, policy: AutoscalingPolicy) -> str | None:
    if policy.learned_capacity_bounds is None:
        return "capacities are no longer learned"
    # Two sidecars learn nearly the same cost: a difference that is not worth moves is none of the unit.
    told = zip(plan.record_weights, policy.record_weights, strict=True)
    if any(abs(planned - used) > COST_TOLERANCE * used for planned, used in told):
        return "cost of records, so capacities are learned anew"
    return None


def adopt_count(context: DecisionContext, count: int, reason: str) -> DecisionStep:
    """Record the observed count in the plan, in the same epoch."""
    return DecisionStep(ScalingAction.ADOPT, (reason,), context.amend_plan(reason, replicas=count))


def drain_replicas(
    context: DecisionContext, names: Sequence[str], replicas: int, reason: str
) -> DecisionStep:
    """Drain `names`, which leaves `replicas`; new epoch unless they own nothing."""
    # Replicas without partitions have nothing to hand over: a rebalance would only cost time.
    owning = any(context.model.owned_partitions(name) for name in names)
    make = context.next_plan if owning else context.amend_plan
    plan = make(reason, replicas=replicas, draining=(*context.plan.draining, *names))
    return DecisionStep(ScalingAction.DRAIN, (reason,), plan)


def attach_target(context: DecisionContext, step: DecisionStep) -> DecisionStep:
    """Return the step with the target of its plan, if the plan moves partitions or adds replicas.

    Without a known write rate, where nothing is owned, and where all consumers drain, the plan has none:
    the leader decides.
    """
    plan, before = step.plan, context.plan
    if plan is None or not _requires_placement(step.action, plan, before):
        return step
    model = context.model
    # A replica that no longer drains may be all that is left: where all drain, all go on reading.
    if plan.capacities != before.capacities or not {*before.draining}.issubset(plan.draining):
        model = replace(model, plan=replace(before, capacities=plan.capacities, draining=plan.draining))
    names = tuple(name for name in model.running if name not in plan.draining)
    places = max(0, plan.replicas - len(names))
    if model.sized is None or not (names or places):
        return replace(step, plan=replace(plan, target=None))
    placed = step.placed or model.place_on(names, places)
    consumers = model.list_consumers(names)
    places *= context.policy.consumers_per_replica
    target = PlanTarget.from_assignment(_next_revision(context), consumers, places, placed.assignment)
    return replace(step, plan=replace(plan, target=target), placed=placed)


def _next_revision(context: DecisionContext) -> int:
    # The time, so that none is repeated, after a plan without a target or by a sidecar that takes over.
    last = 0 if context.plan.target is None else context.plan.target.revision
    return max(last + 1, int(context.now * 1e6))


def _requires_placement(action: ScalingAction, plan: GroupPlan, before: GroupPlan) -> bool:
    if plan.epoch > before.epoch:
        return True
    # An adopted count is that of replicas which run already: it moves nothing.
    return action is not ScalingAction.ADOPT and plan.replicas > before.replicas
