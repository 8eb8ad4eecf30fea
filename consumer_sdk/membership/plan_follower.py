"""Which plan the group follows, as one member knows it, and when a newer one needs a rebalance.

Only the leader asks, and by these rules:

1. A plan is followed when a rebalance was decided on it, which any leader does.
2. A new epoch needs a rebalance at once, unless it wants more members than there are: then the one
   that is on its way starts it by joining, and there is one rebalance, not two.
3. That wait ends when the plan wants no more than there are, of whatever epoch that is, and after
   `MEMBER_WAIT_TIMEOUT_S`: who is awaited may never come (a quota, a node that is full).
"""

from dataclasses import dataclass
from typing import Final

from trimtab.common.control_topics.plan import GroupPlan

MEMBER_WAIT_TIMEOUT_S: Final = 60.0
"""Seconds that a new epoch may wait for members; a pod takes some to pull, start and join."""


@dataclass(slots=True)
class PlanFollower:
    """The plan that was followed last; `followed_epoch` is 0 where there was none."""

    followed_epoch: int = 0
    group_size: int = 0
    """Members of the group when we led last, 0 where we never did."""

    awaited_epoch: int = 0
    """Epoch that waits for members."""

    awaited_since: float = 0.0

    def adopt_existing_plan(self, plan: GroupPlan) -> None:
        """Note a plan that was in force before we came: it is no news."""
        self.followed_epoch = plan.epoch

    def record_rebalance(self, plan: GroupPlan | None, members: int) -> None:
        """Note that we decided on a plan, None where there was none, for so many members."""
        self.followed_epoch = 0 if plan is None else plan.epoch
        self.group_size = members

    def follow_if_due(self, plan: GroupPlan, now: float) -> bool:
        """Tell whether a plan needs a rebalance now, in seconds of a clock; it is followed then."""
        if plan.epoch == self.followed_epoch or self._waits_for_members(plan, now):
            return False
        self.followed_epoch = plan.epoch
        return True

    def _waits_for_members(self, plan: GroupPlan, now: float) -> bool:
        if not self.group_size or plan.replicas <= self.group_size:
            return False
        if self.awaited_epoch != plan.epoch:
            self.awaited_epoch, self.awaited_since = plan.epoch, now
        return now - self.awaited_since < MEMBER_WAIT_TIMEOUT_S
