"""Pilots: members without partitions that carry a plan to the broker's assignor, in a thread of their own.

1. The group is described when something may have changed: the plan, the pilots' member epoch (it rises
   when a member joins or leaves, and with the partitions of a topic), or what the broker wants the
   members to own if that is not yet the plan.
2. A heartbeat of a pilot would convert a classic group: without a described group of the new protocol
   none is sent. Without `protocol: consumer` none is sent, either, if the broker assigns by another
   assignor than the plugin (`assignor_vote`). Whether `uniform` is the plugin, its coordinator tells.
3. A plan is told as carried out once the broker's target is that of the plan. The members follow at their
   next heartbeats: the group's interval is set to `SHORT_INTERVAL_MS` if the broker allows it. A target
   that the broker does not follow for `CARRY_TIMEOUT_S` is sent again as a higher one, since that of another
   sidecar may be in force; then less and less often.
4. Pilots do not leave when the sidecar ends: its successor replaces them, or they time out.
"""

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final, NamedTuple
from uuid import UUID

from trimtab.assignor.model import Load, TopicPartition
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.plan_follower import PlanFollower
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.kafka_protocol.apis import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT, METADATA
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.kafka_protocol.errors import (
    GroupDeniedError,
    KafkaRequestError,
    TopicDeniedError,
    UnsupportedAssignorError,
)
from trimtab.common.units import format_count
from trimtab.sidecar.carrier_thread import CarrierThread
from trimtab.sidecar.kafka.brokers import connect_brokers, describe_group
from trimtab.sidecar.kafka.consumer_group import parse_group
from trimtab.sidecar.model.observation import ObservedGroup, TargetStatus
from trimtab.sidecar.pilot.assignor_vote import AssignorVote
from trimtab.sidecar.pilot.carried_target import CarriedTarget, build_carried_target, has_lost_consumer
from trimtab.sidecar.pilot.group_heartbeat import shorten_group_heartbeat
from trimtab.sidecar.pilot.installed_assignors import (
    ASSIGNORS_CONFIG,
    UNIFORM_NAME,
    is_plugin,
    read_installed_assignors,
)
from trimtab.sidecar.pilot.membership import ASSIGNOR_NAME, PilotMembership, carry_pieces
from trimtab.sidecar.pilot.plan_format import encode_plan
from trimtab.sidecar.plan_carrier import PILOT_CLIENT_ID, CarrierStatus, build_load
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

HEARTBEAT_INTERVAL_S: Final = 0.5
IDLE_INTERVAL_S: Final = 2.0  # while there is nothing to carry, or nobody follows
CARRY_TIMEOUT_S: Final = 5.0  # doubles with each further try; the broker's target follows within one second
STANDING_BY: Final = CarrierStatus(is_steering=False, text="ready to carry plans to the group")
NO_PLUGIN: Final = (
    f"{ASSIGNORS_CONFIG} of the brokers names no assignor {ASSIGNOR_NAME!r}: install the broker "
    "plugin (docs/any-client.md)"
)

UNREADABLE_ASSIGNORS: Final = (
    f"; if {UNIFORM_NAME!r} is the plugin there, grant DescribeConfigs on the cluster ({ASSIGNORS_CONFIG})"
)


class PilotTask(NamedTuple):
    """What the sidecar wants carried out."""

    plan: GroupPlan
    load: Load
    replicas_by_address: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A described group, and its topics."""

    group: ObservedGroup
    topic_ids: Mapping[str, str]  # Kafka's Uuid as text
    partitions: Mapping[str, list[int]]


class PilotSession:
    """The pilots of one group: their memberships and the target that they carry. For one thread."""

    def __init__(self, settings: SidecarSettings, clock: Clock, brokers: Brokers) -> None:
        self._settings = settings
        self._clock = clock
        self._brokers = brokers
        self._topic = f"{settings.plan_topic}.pilot"
        self._pilots: tuple[PilotMembership, ...] = ()
        self._target: CarriedTarget | None = None
        self._topic_ids: Mapping[str, str] = {}
        self._cause: object = None  # of the last description (rule 1)
        self._follower = PlanFollower()
        self._vote = AssignorVote(is_allowed=settings.protocol == "consumer")
        self._assignor = ASSIGNOR_NAME  # the group's
        self._has_plugin = True  # whether that is the plugin, by whatever name
        self._assignor_hint = ""
        # higher with each text, also across restarts: the plugin carries out the highest
        self._revision = int(clock.wall() * 1e6)
        self._members: frozenset[str] = frozenset()
        self._tries = 0  # of the target
        self._carry_again_at = inf
        self._heartbeat_note: str | None = None
        self.off_plan = 0  # partitions that the broker's target gives to another member
        self.problem = "the group has not been described yet"  # why there are no pilots; empty if there are

    @property
    def is_steering(self) -> bool:
        """Whether the broker's target is that of the plan."""
        return not (self.problem or self.off_plan) and self._target is not None

    def describe(self, plan: GroupPlan) -> str:
        """Return the state in a sentence."""
        if self.problem:
            return f"unsteered: {self.problem}"
        if self._is_ignored:
            return self._explain_ignored_plan(plan)
        if self.off_plan:
            off_plan = format_count(self.off_plan, "partition")
            return f"plan {plan.epoch} is on its way: the broker gives {off_plan} to others"
        assignor = "" if self._assignor == ASSIGNOR_NAME else f" (by the assignor {self._assignor!r})"
        return "; ".join(filter(None, (f"the broker assigns as planned{assignor}", self._heartbeat_note)))

    @property
    def _is_ignored(self) -> bool:
        return self.off_plan > 0 and self._tries > 1

    def _explain_ignored_plan(self, plan: GroupPlan) -> str:
        off_plan = format_count(self.off_plan, "partition")
        text = f"unsteered: the broker gives {off_plan} to others than plan {plan.epoch} does"
        if self._has_plugin:
            return text
        return f"{text}, by the assignor {self._assignor!r}, which members name (docs/any-client.md)"

    def explain_error(self, error: Exception) -> str:
        """Return the error's text, or what to install or to grant."""
        if isinstance(error, UnsupportedAssignorError):
            return NO_PLUGIN
        if isinstance(error, GroupDeniedError):
            return f"grant Read on group {self._settings.group}"
        if isinstance(error, TopicDeniedError):
            return f"grant Describe on topics {self._topic}-1 and {self._topic}-2"
        return str(error) or type(error).__name__

    def step(self, task: PilotTask) -> float:
        """Carry out the task; return the seconds until the next step.

        Raises KafkaRequestError.
        """
        try:
            return self._step(task)
        except Exception:
            self.stand_by()
            raise

    def stand_by(self) -> None:
        """Join again at the next step: until then another sidecar's pilots may have taken the place."""
        self._pilots = tuple(pilot.record_loss() for pilot in self._pilots)
        self._vote.record_cause()
        self._cause = None

    def _step(self, task: PilotTask) -> float:
        plan = task.plan
        self._follower.follow_if_due(plan, self._clock.monotonic())
        cause = (id(plan), self._follower.is_overdue(plan), [pilot.epoch for pilot in self._pilots])
        if self.off_plan or self.problem or cause != self._cause:
            self._decide(task)
            self._cause = cause
        if self.problem:
            return IDLE_INTERVAL_S
        before = self._pilots
        self._pilots = tuple(self._send_heartbeat(pilot) for pilot in before)
        if [p.epoch for p in before] != [p.epoch for p in self._pilots]:
            self._check_vote()
        if before != self._pilots or any(pilot.is_pending for pilot in self._pilots):
            return 0.0
        return IDLE_INTERVAL_S if self._is_ignored else HEARTBEAT_INTERVAL_S

    def _decide(self, task: PilotTask) -> None:
        view = self._describe_group(task)
        if view is not None:
            self._identify_assignor(view.group.assignor or "")
        self.problem = self._find_problem(view)
        if view is None or self.problem:
            self._pilots = ()
            return
        if self._heartbeat_note is None:
            self._heartbeat_note = shorten_group_heartbeat(self._brokers, self._settings.group)
        group, plan = view.group, task.plan
        self._prepare_vote(group)
        self._follower.record_rebalance(plan, len(group.members))
        overdue = self._follower.is_overdue(plan) or has_lost_consumer(plan, group)
        leader_view = LeaderView(task.load, plan, members_overdue=overdue)
        policy = self._settings.autoscaling_policy.placement
        target = build_carried_target(group, view.partitions, leader_view, policy, self._target)
        # a topic that was deleted and created again has another id
        if target is not self._target or view.topic_ids != self._topic_ids or not self._pilots:
            self._tries = 0
            self._vote.record_cause()
            self._carry(target, plan.epoch, view.topic_ids)
        elif self.off_plan and self._clock.monotonic() >= self._carry_again_at:
            self._carry(target, plan.epoch, view.topic_ids)
        self.off_plan = len(target.list_differences(group))

    def _find_problem(self, view: DescribedGroup | None) -> str:
        if view is None:
            return f"group {self._settings.group} is no group of the new protocol (group.protocol=consumer)"
        if not view.group.members:
            return "the group has no members"
        named = self._settings.protocol == "consumer"
        if not named and not self._has_plugin:
            text = f"the broker assigns by {self._assignor!r}; protocol=consumer asks for the plugin"
            return text + self._assignor_hint
        return ""

    def _identify_assignor(self, assignor: str) -> None:
        if assignor == self._assignor and self._has_plugin:
            return
        is_asked = assignor == UNIFORM_NAME
        installed = read_installed_assignors(self._brokers, self._settings.group) if is_asked else None
        self._assignor, self._has_plugin = assignor, is_plugin(assignor, installed)
        self._assignor_hint = UNREADABLE_ASSIGNORS if is_asked and installed is None else ""

    def _describe_group(self, task: PilotTask) -> DescribedGroup | None:
        described = describe_group(self._brokers, self._settings.group, CONSUMER_GROUP_DESCRIBE)
        if described is None:
            return None
        per_replica = self._settings.consumers_per_replica
        group, plan = parse_group(described, task.replicas_by_address, per_replica), task.plan
        topics = {topic for member in group.members for topic in member.topics or ()}
        topics |= set(() if plan.target is None else plan.target.partitions)
        wanted = {"topics": [{"name": name} for name in sorted(topics)]}
        found = [t for t in self._brokers.ask(METADATA, wanted).topics if not t.error_code]
        return DescribedGroup(
            group,
            {t.name: format_topic_id(t.topic_id) for t in found},
            {t.name: [p.partition_index for p in t.partitions] for t in found},
        )

    def _carry(self, target: CarriedTarget, epoch: int, topic_ids: Mapping[str, str]) -> None:
        self._revision += 1
        self._carry_again_at = self._clock.monotonic() + CARRY_TIMEOUT_S * 2**self._tries
        self._tries += 1
        self._target, self._topic_ids = target, topic_ids
        if target.note:
            log.info("%s", target.note)
        numbered = replace(target.target, revision=self._revision)
        racks = encode_plan(epoch, numbered, topic_ids, {member: member for member in target.members})
        self._pilots = carry_pieces(self._pilots, racks)

    def _prepare_vote(self, group: ObservedGroup) -> None:
        members = frozenset(member.id for member in group.members)
        if members != self._members:
            self._members = members
            self._vote.record_cause()
        if self._vote.is_missing(has_plugin=self._has_plugin):
            self._vote.is_cast = True
            self._pilots = tuple(pilot.record_loss() for pilot in self._pilots)  # a vote comes with a join

    def _check_vote(self) -> None:
        if not self._vote.is_tied(self._clock.monotonic()):
            return
        log.warning(
            "group %s starts one assignment after the other, since as many members name another assignor: "
            "the sidecar asks for the plugin no more (docs/any-client.md)",
            self._settings.group,
        )
        for pilot in self._pilots:
            self._ask_coordinator(pilot.build_leave())
        self._vote.is_taken_back, self._vote.is_cast = True, False
        self._pilots = tuple(pilot.record_loss() for pilot in self._pilots)

    def _send_heartbeat(self, pilot: PilotMembership) -> PilotMembership:
        assignor = ASSIGNOR_NAME if self._vote.is_cast else None
        fields = pilot.build_heartbeat(self._topic, assignor)
        response = self._ask_coordinator(fields)
        return pilot.record_response(response.member_epoch)

    def _ask_coordinator(self, fields: Mapping[str, Any]) -> Any:
        named = {"group_id": self._settings.group, **fields}
        return self._brokers.ask_coordinator(self._settings.group, CONSUMER_GROUP_HEARTBEAT, named)


class PlanPilot:
    """Carries plans to groups of the new protocol (`PlanCarrier`)."""

    def __init__(
        self,
        settings: SidecarSettings,
        clock: Clock,
        get_assignor: Callable[[], str | None],
        read_target_status: Callable[[], TargetStatus] = TargetStatus,
    ) -> None:
        """`get_assignor` returns the assignor of the last described group; None for a classic one."""
        self._read_target_status = read_target_status
        self._clock = clock
        self._get_assignor = get_assignor
        brokers = connect_brokers(settings, clock, PILOT_CLIENT_ID)
        self._session = PilotSession(settings, clock, brokers)
        self._task: PilotTask | None = None
        self._status = STANDING_BY
        self._thread = CarrierThread("trimtab-pilot", self._step, brokers.close)

    def carry_out(
        self, plan: GroupPlan | None, write_rates: Mapping[TopicPartition, PartitionLoad]
    ) -> CarrierStatus | None:
        """Carry out this plan from now on; None in a classic group, whose members do that."""
        if self._get_assignor() is None and not self._thread.is_alive:
            return None
        if plan is not None:
            addresses = self._read_target_status().replicas_by_address
            self._task = PilotTask(plan, build_load(write_rates), addresses)
            self._thread.wake()
        return self._status

    def stand_by(self) -> CarrierStatus | None:
        """Send no heartbeats: the pilots of another sidecar replace these."""
        self._task = None
        self._report(STANDING_BY)
        return self._status if self._thread.is_alive else None

    def close(self) -> None:
        """End the thread (rule 4)."""
        self._thread.end()

    def _step(self) -> float:
        task = self._task
        if task is not None:
            return self._try_step(task)
        self._session.stand_by()
        return IDLE_INTERVAL_S

    def _try_step(self, task: PilotTask) -> float:
        try:
            pause = self._session.step(task)
        except Exception as error:
            text = f"pilot: {self._session.explain_error(error)}"
            if not isinstance(error, KafkaRequestError) and text not in self._status.errors:
                log.exception("an error of the pilot, not of the brokers")
            # while brokers are away the group keeps its target
            is_outage = isinstance(error, KafkaRequestError) and error.retryable
            is_steering = self._status.is_steering and is_outage
            self._report(CarrierStatus(is_steering, self._status.text if is_outage else text, errors=(text,)))
            return HEARTBEAT_INTERVAL_S
        self._report(CarrierStatus(self._session.is_steering, self._session.describe(task.plan)))
        return pause

    def _report(self, status: CarrierStatus) -> None:
        is_same = status.is_steering == self._status.is_steering
        since = self._status.since if is_same else self._clock.wall()
        self._status = replace(status, since=since)


def format_topic_id(topic_id: UUID) -> str:
    """Return a topic id as Kafka writes it."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
