"""Leave of a member that the plan has drained: it takes the place of the drain's second round.

A drain moves partitions in two rounds (KIP-429): the member gives them up, then the next owners get them. A
drained member that joined the second round would cost a third one, when its process is stopped. The rules:

1. Only the plan in force lets a member leave: its sidecar stops the process, or keeps it in a later plan.
   `drain()` of the application does not, nor does a static member leave.
2. It leaves in place of the join that follows its release, so the leave costs no rebalance of its own, and
   what the member gave up has been flushed, committed and acknowledged.
3. It leaves only after a round in which a leader of ours took all its partitions away and promised none.
   Such a leader completes its decision although a drained member has left (`rebalance.leader`, rule 1). Where
   all members drain they keep their partitions, so the last one stays. A new member of a drained one's
   name owned nothing, and stays.
"""

import logging
from typing import Any

from trimtab.assignor.rebalance.plan_follower import PlanFollower
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.consumer_sdk.client.settings import ConsumerSettings
from trimtab.consumer_sdk.membership.classic import coordinator
from trimtab.consumer_sdk.membership.classic.timed_assignor import TimedAssignor

log = logging.getLogger("trimtab.consumer_sdk")


class DrainedLeave:
    """Lets a drained member leave the group, and come back; used by the member's thread only."""

    def __init__(self, settings: ConsumerSettings, assignor: TimedAssignor, follower: PlanFollower) -> None:
        self.is_away = False
        self._settings = settings
        self._assignor = assignor
        self._plan_follower = follower

    def stays_away(self, client: Any, plan: GroupPlan | None) -> bool:
        """Leave, or come back, as the plan says; return whether the member is outside the group."""
        if self.is_away and not self._is_drained_by(plan):
            self._come_back(plan)
        elif not self.is_away and self._is_drained_by(plan) and self._is_emptied(client):
            log.info("group %s: drained; leaving in place of the next rebalance", self._settings.group)
            self.is_away = True
            coordinator.leave_group(client, "drained")
        return self.is_away

    def _is_drained_by(self, plan: GroupPlan | None) -> bool:
        settings = self._settings  # rule 1
        return plan is not None and plan.drains(settings.instance) and not settings.is_static

    def _is_emptied(self, client: Any) -> bool:
        generation = coordinator.generation_id(client)  # rules 2 and 3
        is_due = coordinator.must_join(client) and not coordinator.is_joining(client)
        return is_due and self._assignor.is_emptied_in(generation)

    def _come_back(self, plan: GroupPlan | None) -> None:
        log.info("group %s: no longer drained; joining again", self._settings.group)
        if plan is not None:  # part of the decision of its first round, whoever leads that
            self._plan_follower.adopt_existing_plan(plan)
        self.is_away = False
