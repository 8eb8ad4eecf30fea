"""Which plan the group follows, as one member knows it, and when a newer one needs a rebalance.

Only the leader asks, and by these rules:

1. A plan is followed when a rebalance was decided on it, which any leader does.
2. A new epoch needs a rebalance at once, unless it wants more members than there are: then the one
   that is on its way starts it by joining, and there is one rebalance, not two.
3. That wait ends when the plan wants no more than there are, of whatever epoch that is, and after
   `PATIENCE`: who is awaited may never come (a quota, a node that is full).
"""

from dataclasses import dataclass
from typing import Final

from trimtab.common.control_topics.values import GroupPlan

PATIENCE: Final = 60.0
"""Seconds that a new epoch may wait for members; a pod takes some to pull, start and join."""


@dataclass(slots=True)
class Following:
    """The plan that was followed last; `epoch` is 0 where there was none."""

    epoch: int = 0
    size: int = 0
    """Members of the group when we led last, 0 where we never did."""

    awaited: int = 0
    """Epoch that waits for members."""

    since: float = 0.0

    def found(self, plan: GroupPlan) -> None:
        """Note a plan that was in force before we came: it is no news."""
        self.epoch = plan.epoch

    def decided(self, plan: GroupPlan | None, members: int) -> None:
        """Note that we decided on a plan, None where there was none, for so many members."""
        self.epoch = 0 if plan is None else plan.epoch
        self.size = members

    def due(self, plan: GroupPlan, now: float) -> bool:
        """Tell whether a plan needs a rebalance now, in seconds of a clock; it is followed then."""
        if plan.epoch == self.epoch or self._waits(plan, now):
            return False
        self.epoch = plan.epoch
        return True

    def _waits(self, plan: GroupPlan, now: float) -> bool:
        if not self.size or plan.replicas <= self.size:
            return False
        if self.awaited != plan.epoch:
            self.awaited, self.since = plan.epoch, now
        return now - self.since < PATIENCE
