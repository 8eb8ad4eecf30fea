"""Tracks the plan that the group follows and decides when a newer plan needs a rebalance.

Used by the leader only. The rules:

1. A plan is followed once a rebalance, led by any leader, was decided on it.
2. A new epoch needs a rebalance at once, unless it requires more members than the group has: then
   the next member's join starts it, and there is one rebalance instead of two.
3. That wait ends when a plan of any epoch requires no more members than the group has, and after
   `MEMBER_WAIT_TIMEOUT_S`: a quota or a full node may keep the member away.
"""

from dataclasses import dataclass
from typing import Final

from trimtab.common.control_topics.plan import GroupPlan

MEMBER_WAIT_TIMEOUT_S: Final = 60.0  # for pods that pull images, start and join


@dataclass(slots=True)
class PlanFollower:
    """Epochs of the followed and of the awaited plan; 0 without a plan."""

    followed_epoch: int = 0
    group_size: int = 0  # members in the last round led by this member; 0 before the first
    awaited_epoch: int = 0  # of the plan that waits for members
    awaited_since: float = 0.0  # in seconds

    def adopt_existing_plan(self, plan: GroupPlan) -> None:
        """Follow a plan that was in force before this member joined."""
        self.followed_epoch = plan.epoch

    def record_rebalance(self, plan: GroupPlan | None, members: int) -> None:
        """Record a round led on `plan`, or without one, for a number of members."""
        self.followed_epoch = 0 if plan is None else plan.epoch
        self.group_size = members

    def follow_if_due(self, plan: GroupPlan, now: float) -> bool:
        """Return whether the plan needs a rebalance at `now`; if so, follow it."""
        if plan.epoch == self.followed_epoch or self._waits_for_members(plan, now):
            return False
        self.followed_epoch = plan.epoch
        return True

    def _waits_for_members(self, plan: GroupPlan, now: float) -> bool:
        # The group's size is unknown to a static leader that returned: do not wait then.
        if not self.group_size or plan.replicas <= self.group_size:
            return False
        if self.awaited_epoch != plan.epoch:  # each epoch has a wait of its own
            self.awaited_epoch, self.awaited_since = plan.epoch, now
        return now - self.awaited_since < MEMBER_WAIT_TIMEOUT_S
