"""The sidecar's member of a classic group: joins it, leads it if it can, and carries out plans in it.

1. It joins with a `group.instance.id` that all sidecars of the group share, and never leaves: one that
   restarts or takes over gets its place, and the lead with it, without a rebalance (KIP-345, KIP-814).
   The coordinator waits `lead-session-timeout` for it.
2. It subscribes to no topic, so that it gets no partition while another member leads.
3. A group keeps its leader until that one leaves. In a running group this member follows until then,
   and takes new member ids until as few members as possible would be elected before it (`succession`):
   a static member may do so without a rebalance. With `take-lead` it makes these and the leader leave
   once, in one request; they join again by themselves.
4. It keeps the placement as found, when it comes to lead and when it resumes a lead, unless the plan has
   a target: one without was made before the write rates were known. A further member ends that.
5. As the leader it starts a rebalance for a new plan (`plan_follower`), for changed partitions, and if
   withheld partitions have not been given up after `REVOCATION_TIMEOUT_S`: a member that revokes joins
   again by itself, unless its assignor is an eager one.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from trimtab.assignor.clients.leader_plugin import log_round, subscribed_topics
from trimtab.assignor.model import Load, PlacementPolicy
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.plan_follower import PlanFollower
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.kafka_protocol.errors import (
    FencedInstanceError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from trimtab.sidecar.group_lead.group_requests import GroupGeneration, GroupRequests
from trimtab.sidecar.group_lead.lead_round import (
    JoinedGroup,
    KnownTopics,
    LeadMemory,
    LedRound,
    build_found_target,
    decide_led_round,
    read_subscriptions,
    recall_owners,
)
from trimtab.sidecar.group_lead.succession import can_advance, list_members_ahead
from trimtab.sidecar.model.member_names import MemberIdentity, name_members
from trimtab.sidecar.plan_carrier import LEAD_CLIENT_ID

log = logging.getLogger("trimtab.sidecar")

TOPIC_CHECK_INTERVAL_S: Final = 10.0  # Java clients look every 5 minutes
REVOCATION_TIMEOUT_S: Final = 3.0
NO_TOPICS: Final = b"\x00\x01" + bytes(12)  # subscription version 1: no topic, user data or partition
MAX_NEW_IDS: Final = 200  # in a generation: the coordinator logs each of them
TRIES_PER_PLACE: Final = 20  # after which one more member ahead will do
TAKE_LEAD_REASON: Final = "trimtab sidecar --take-lead"


@dataclass(frozen=True, slots=True)
class LeadTask:
    """What the sidecar wants carried out."""

    plan: GroupPlan | None
    load: Load
    replicas_by_address: Mapping[str, str] = field(default_factory=dict[str, str])


class LeadMember:
    """Member of one group; for one thread. Its methods raise KafkaRequestError."""

    def __init__(
        self,
        requests: GroupRequests,
        policy: PlacementPolicy,
        clock: Clock,
        *,
        take_lead: bool,
        consumers_per_replica: int = 1,
    ) -> None:
        self.joined: GroupGeneration | None = None  # None: not in the group, or not known to be
        self._requests = requests
        self._policy = policy
        self._clock = clock
        self._takes_lead = take_lead
        self._consumers_per_replica = consumers_per_replica
        self._member_id = ""
        self._rejoins = False
        self._memory = LeadMemory()
        self._found: PlanTarget | None = None  # rule 4
        self._plan_follower = PlanFollower()
        self._topics = KnownTopics()
        self._next_topic_check_at = inf
        self._revoked_by = inf  # time by which withheld partitions should have been revoked

    @property
    def leads(self) -> bool:
        """Whether this member leads the group."""
        return self.joined is not None and self.joined.leads

    @property
    def must_join(self) -> bool:
        """Whether the next step joins."""
        return self.joined is None or self._rejoins

    @property
    def topic_errors(self) -> tuple[str, ...]:
        """Why topics of the led group are unknown."""
        return tuple(self._topics.unknown.values()) if self.leads else ()

    def run_step(self, read_task: Callable[[], LeadTask]) -> None:
        """Join if necessary, else send a heartbeat and check whether a rebalance is due."""
        try:
            if self.joined is None or self.must_join:
                self._join(read_task)
            else:
                self._requests.heartbeat(self.joined)
                self._rejoins = self._is_rebalance_due(read_task())
        except (RebalanceInProgressError, IllegalGenerationError):
            self._rejoins = True
        except UnknownMemberError:
            self._forget_membership()
        except FencedInstanceError:
            self._forget_membership()
            raise

    def _forget_membership(self) -> None:
        self._member_id, self.joined, self._memory, self._found = "", None, LeadMemory(), None

    def _join(self, read_task: Callable[[], LeadTask]) -> None:
        # a request to rejoin that comes from now on is about the next generation
        self._rejoins = False
        joined = self._requests.join(self._member_id, NO_TOPICS)
        self._member_id, self.joined = joined.member_id, None
        task = read_task()  # the others may have taken minutes to join
        led = self._decide(self._build_group(joined, task), task) if joined.must_assign else None
        self._requests.sync(joined, {} if led is None else led.assignments)
        self.joined = joined
        if led is not None:
            self._record_round(led, task)
            log_round(led.outcome)
        elif joined.leads:
            self._resume_lead(joined, task)
        else:
            self._follow(joined, task)

    def _build_group(self, joined: GroupGeneration, task: LeadTask) -> JoinedGroup:
        raw = joined.subscriptions or {}
        subscriptions = read_subscriptions({m: raw[m] for m in raw.keys() - {joined.member_id}})
        names = self._name_members(self._requests.describe_members(), task)
        self._topics = self._requests.fetch_topics(subscribed_topics(subscriptions))
        return JoinedGroup(joined.generation, subscriptions, names, self._topics)

    def _name_members(self, members: Iterable[MemberIdentity], task: LeadTask) -> dict[str, str]:
        return name_members(members, task.replicas_by_address, self._consumers_per_replica)

    def _decide(self, group: JoinedGroup, task: LeadTask) -> LedRound:
        overdue = self._plan_follower.is_overdue(task.plan)
        plan = self._complete_plan(task.plan, len(group.subscriptions))
        view = LeaderView(task.load, plan, members_overdue=overdue)
        return decide_led_round(group, view, self._policy, self._memory)

    def _complete_plan(self, plan: GroupPlan | None, members: int) -> GroupPlan | None:
        """Return the plan, with the placement as found if it has no target (rule 4)."""
        found = self._found
        if plan is None or found is None:
            return plan
        if plan.target is not None or members > found.size:
            self._found = None
            return plan
        return replace(plan, target=found)

    def _recall_assignments(self, generation: int, names: Mapping[str, str]) -> None:
        self._memory = LeadMemory(generation, self._requests.describe_assignments())
        self._found = build_found_target(self._memory, names)

    def _resume_lead(self, joined: GroupGeneration, task: LeadTask) -> None:
        """Continue a lead without a rebalance (KIP-814), unless the plan in force moves something."""
        # the sidecar before may have ended between the publication of a plan and its rebalance
        group = self._build_group(joined, task)
        self._recall_assignments(joined.generation, group.names)
        led = self._decide(recall_owners(group, self._memory), task)
        self._rejoins = bool(led.outcome.moves)
        if not self._rejoins:  # else the next round decides that, and logs it
            self._record_round(led, task)

    def _record_round(self, led: LedRound, task: LeadTask) -> None:
        now = self._clock.monotonic()
        self._memory = led.memory
        self._plan_follower.record_rebalance(task.plan, len(led.assignments))
        self._next_topic_check_at = now + TOPIC_CHECK_INTERVAL_S
        self._revoked_by = now + REVOCATION_TIMEOUT_S if led.withheld else inf

    def _is_rebalance_due(self, task: LeadTask) -> bool:
        if not self.leads:
            return False
        now = self._clock.monotonic()
        plan = task.plan
        if plan is not None and self._plan_follower.follow_if_due(plan, now):
            log.info("plan %d of group %s: %s", plan.epoch, plan.group, "; ".join(plan.reasons))
            return True
        return now >= self._revoked_by or self._have_topics_changed(now)

    def _have_topics_changed(self, now: float) -> bool:
        if now < self._next_topic_check_at:
            return False
        self._next_topic_check_at = now + TOPIC_CHECK_INTERVAL_S
        return self._requests.fetch_topics(self._topics.names).has_changed(self._topics)

    def _follow(self, joined: GroupGeneration, task: LeadTask) -> None:
        members = {m.id: m for m in self._requests.describe_members()}
        self._recall_assignments(joined.generation, self._name_members(members.values(), task))
        if joined.leader_id.startswith(f"{LEAD_CLIENT_ID}-"):
            # the place of this member leads, by its former id: before KIP-814 that is all it is told
            self._rejoins = True
            return
        others = members.keys() - {joined.member_id, joined.leader_id}
        self._seek_succession(others)
        if self._takes_lead and not self._rejoins and joined.leader_id in members:
            # the leader last: whoever leaves before it takes part in no election
            removed = [*sorted(list_members_ahead(self._member_id, others)), joined.leader_id]
            self._rejoins = True  # to try again, unless it succeeds
            self._requests.remove_members([members[m] for m in removed], TAKE_LEAD_REASON)
            self._takes_lead = self._rejoins = False
            log.warning("take-lead: made to leave the group once: %s", ", ".join(removed))

    def _seek_succession(self, others: Collection[str]) -> None:
        for tried in range(MAX_NEW_IDS):
            if self._rejoins or not can_advance(self._member_id, others, tried // TRIES_PER_PLACE):
                return
            renamed = self._requests.join("", NO_TOPICS)
            self._member_id = renamed.member_id
            # a rebalance has begun meanwhile: its assignments are still to be fetched, or made
            self._rejoins = self.joined is None or renamed.generation != self.joined.generation
            self.joined = renamed
