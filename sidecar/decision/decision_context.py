"""What a rule of a decision looks at, and what it may ask for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.assignor.model import Plan
from trimtab.common.control_topics.values import GroupPlan
from trimtab.sidecar.decision.decision import Action
from trimtab.sidecar.decision.group_model import Situation
from trimtab.sidecar.decision.recommendation import Sizing
from trimtab.sidecar.decision.scaling_policy import Memory, ScalePolicy


@dataclass(frozen=True, slots=True)
class Turn:
    """What a rule may look at."""

    at: Situation
    sizing: Sizing
    memory: Memory
    now: float

    @property
    def plan(self) -> GroupPlan:
        """Return the plan in force."""
        return self.at.plan

    def cooling(self) -> str | None:
        """Tell how long the cool-down still lasts; None where it is over."""
        left = self.at.policy.cool_down - self.memory.since_change(self.now)
        return f"cool-down for another {left:.0f} s" if left > 0 else None


@dataclass(frozen=True, slots=True)
class Step:
    """What a rule asks for."""

    action: Action
    reasons: tuple[str, ...]
    plan: GroupPlan | None = None
    add: int = 0
    stop: tuple[str, ...] = ()
    expected: Plan | None = None


def next_plan(
    plan: GroupPlan, policy: ScalePolicy, now: float, reasons: tuple[str, ...]
) -> GroupPlan:
    """Return the plan with a new epoch and the settings in force."""
    return replace(
        plan,
        epoch=plan.epoch + 1,
        time=now,
        heuristic=policy.placement.heuristic,
        capacity=policy.placement.capacity,
        headroom=policy.placement.headroom,
        capacities=plan.capacities if policy.learn else {},
        reasons=reasons,
    )


def adopt(turn: Turn, count: int, reason: str) -> Step:
    """Take the count over as it was found."""
    plan = replace(turn.plan, replicas=count, time=turn.now, reasons=(reason,))
    return Step(Action.ADOPT, (reason,), plan)


def drained(turn: Turn, names: Sequence[str], replicas: int, reason: str) -> Step:
    """Drain these, so that so many are left; a new epoch, unless they own nothing."""
    base = replace(turn.plan, replicas=replicas, draining=(*turn.plan.draining, *names))
    plan = next_plan(base, turn.at.policy, turn.now, (reason,))
    if not any(turn.at.owned(name) for name in names):
        plan = replace(plan, epoch=turn.plan.epoch)  # nobody has anything to hand over
    shared = turn.at.seen.group.shared
    return Step(Action.DRAIN, (reason,), plan, expected=None if shared else turn.at.without(names))
