"""Tracks the plan that the group follows and decides when a newer plan needs a rebalance.

Used by the leader only. The rules:

1. A plan is followed once a rebalance, led by any leader, was decided on it.
2. A new epoch, or a new target, needs a rebalance at once, unless the plan requires more members than
   the group has: then the next member's join starts it, and there is one rebalance instead of two.
3. That wait ends when any plan requires no more members than the group has, and after
   `MEMBER_WAIT_TIMEOUT_S`: a quota or a full node may keep the member away. A later plan continues it,
   and starts another one only if it requires more members than those before.
4. A target that was followed with fewer members than planned needs another rebalance when that wait has
   ended: from then on no member keeps partitions above its headroom for those that are *overdue*.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from trimtab.common.control_topics.plan import GroupPlan

MEMBER_WAIT_TIMEOUT_S: Final = 60.0  # for pods that pull images, start and join


class PlanKey(NamedTuple):
    """Identity of a plan: a target changes within an epoch, too."""

    epoch: int = 0  # 0 without a plan
    revision: int = 0  # 0 without a target

    @classmethod
    def of_plan(cls, plan: GroupPlan | None) -> "PlanKey":
        """Return the key of a plan, or of none."""
        if plan is None:
            return NO_PLAN
        return cls(plan.epoch, 0 if plan.target is None else plan.target.revision)


NO_PLAN: Final = PlanKey()


@dataclass(slots=True)
class PlanFollower:
    """Key of the followed plan, and the wait for missing members."""

    followed: PlanKey = NO_PLAN
    group_size: int = 0  # members in the last round led by this member; 0 before the first
    awaited: int = 0  # members that the group waits to have, or has waited to have; 0 once it has them
    awaited_since: float = 0.0  # in seconds
    overdue: PlanKey = NO_PLAN  # of the plan that waits no longer

    def adopt_existing_plan(self, plan: GroupPlan) -> None:
        """Follow a plan that was in force before this member joined."""
        self.followed = PlanKey.of_plan(plan)

    def record_rebalance(self, plan: GroupPlan | None, members: int) -> None:
        """Record a round led on `plan`, or without one, for a number of members."""
        self.followed = PlanKey.of_plan(plan)
        self.group_size = members

    def follow_if_due(self, plan: GroupPlan, now: float) -> bool:
        """Return whether the plan needs a rebalance at `now`; if so, follow it."""
        key = PlanKey.of_plan(plan)
        # The group's size is unknown to a static leader that returned: do not wait then.
        lacks_members = 0 < self.group_size < plan.replicas
        if not lacks_members:
            self.awaited = 0
        elif self._waits_for_members(plan.replicas, now):
            return False
        gives_up = lacks_members and key.revision > 0 and self.overdue != key
        if key == self.followed and not gives_up:
            return False
        self.followed = key
        self.overdue = key if lacks_members else NO_PLAN
        return True

    def is_overdue(self, plan: GroupPlan | None) -> bool:
        """Return whether members that the plan lacks are waited for no longer."""
        return plan is not None and self.overdue == PlanKey.of_plan(plan)

    def _waits_for_members(self, replicas: int, now: float) -> bool:
        if (
            replicas > self.awaited
        ):  # plans come faster than a quota is raised: their own waits would never end
            self.awaited, self.awaited_since = replicas, now
        return now - self.awaited_since < MEMBER_WAIT_TIMEOUT_S
