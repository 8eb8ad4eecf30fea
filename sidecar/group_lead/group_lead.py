"""Leads a classic group in a thread of its own, so that a slow coordinator delays no decision.

1. The member (`lead_member`) works while this sidecar manages the group. Otherwise it is silent, and
   another sidecar's may take its place.
2. A member whose place was taken tries again after `FENCED_RETRY_S` if its sidecar still manages the
   group: until then one of the two sidecars has stood by.
3. An error of the brokers is told as the status and retried. The thread never ends by one.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.kafka_protocol.errors import (
    FencedInstanceError,
    GroupDeniedError,
    InconsistentGroupProtocolError,
    KafkaRequestError,
    RequestAbortedError,
)
from trimtab.sidecar.carrier_thread import CarrierThread
from trimtab.sidecar.group_lead.group_requests import GroupGeneration, GroupRequests
from trimtab.sidecar.group_lead.lead_member import LeadMember, LeadTask
from trimtab.sidecar.model.observation import TargetStatus
from trimtab.sidecar.plan_carrier import CarrierStatus, build_load
from trimtab.sidecar.settings.settings import SidecarSettings

STEP_INTERVAL_S: Final = 0.5  # between heartbeats, and the delay of a new plan
ERROR_RETRY_S: Final = 1.0
FENCED_RETRY_S: Final = 10.0
WAIT_REPORT_S: Final = 10.0  # of one step, after which it is no longer told that the sidecar leads

log = logging.getLogger("trimtab.sidecar")


class GroupLead:
    """Plan carrier of a classic group."""

    def __init__(
        self,
        settings: SidecarSettings,
        clock: Clock,
        read_target_status: Callable[[], TargetStatus] = TargetStatus,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._read_target_status = read_target_status
        self._thread = CarrierThread("trimtab-lead", self._step, self._close_requests)
        self._retry_at = -inf  # after an error
        self._report_wait_at = inf
        self._task: LeadTask | None = None  # None: another sidecar manages the group
        self._status = CarrierStatus(is_steering=False, text="joining the group")
        policy = replace(settings.autoscaling_policy.placement, consolidate=False)  # without a plan
        self._requests = GroupRequests(settings, clock, self._thread.ending)
        self._member = LeadMember(
            self._requests,
            policy,
            clock,
            take_lead=settings.take_lead,
            consumers_per_replica=settings.consumers_per_replica,
        )

    def carry_out(
        self, plan: GroupPlan | None, write_rates: Mapping[TopicPartition, PartitionLoad]
    ) -> CarrierStatus:
        """Carry out this plan from now on; return the status so far."""
        self._task = LeadTask(plan, build_load(write_rates), self._read_target_status().replicas_by_address)
        self._thread.wake()
        if self._status.is_steering and self._clock.monotonic() >= self._report_wait_at:
            text = "waits for the coordinator, or for the group's members to join"
            self._report(is_steering=False, text=text)
        return self._status

    def stand_by(self) -> CarrierStatus:
        """Leave the group to another sidecar's member."""
        self._task = None
        self._report(is_steering=False, text="ready to lead the group")
        return self._status

    def close(self) -> None:
        """End the thread; the group keeps this member's place for `lead-session-timeout`."""
        self._thread.end()
        if self._member.leads:
            seconds = self._settings.lead_session_timeout
            log.info("the lead of group %s stays with this sidecar for %g s", self._settings.group, seconds)

    def _step(self) -> float:
        task = self._task
        if task is not None and self._clock.monotonic() >= self._retry_at:
            self._try_step(task)
        due = task is not None and self._member.must_join and self._retry_at == -inf
        return 0.0 if due else STEP_INTERVAL_S

    def _close_requests(self) -> None:
        self._requests.close()

    def _try_step(self, task: LeadTask) -> None:
        self._retry_at, self._report_wait_at = -inf, self._clock.monotonic() + WAIT_REPORT_S
        try:
            self._member.run_step(lambda: self._task or task)
            self._report_state()
        except RequestAbortedError as error:
            log.debug("%s", error)
        except Exception as error:
            self._requests.close()  # the coordinator may have moved to another broker
            is_fenced = isinstance(error, FencedInstanceError)
            self._retry_at = self._clock.monotonic() + (FENCED_RETRY_S if is_fenced else ERROR_RETRY_S)
            text = explain_failure(error, self._settings)
            if not isinstance(error, KafkaRequestError) and text != self._status.text:
                log.exception("an error of the lead, not of the brokers")
            self._report(is_steering=False, text=text, errors=(text,))
        finally:
            self._report_wait_at = inf

    def _report_state(self) -> None:
        joined = self._member.joined
        if joined is not None:
            text = "leads the group" if joined.leads else explain_follower(joined)
            self._report(is_steering=joined.leads, text=text, errors=self._member.topic_errors)

    def _report(self, *, is_steering: bool, text: str, errors: tuple[str, ...] = ()) -> None:
        if (text, errors) == (self._status.text, self._status.errors):
            return
        self._status = CarrierStatus(is_steering, text, self._clock.wall(), errors)


def explain_follower(joined: GroupGeneration) -> str:
    """Return who assigns the partitions instead, and what to do."""
    if not joined.leader_id:  # Kafka 4 lets classic members into such groups
        return (
            "unsteered: the group uses group.protocol=consumer, so the brokers assign its partitions; "
            "start the sidecar without lead, which carries plans to the broker plugin (docs/any-client.md)"
        )
    return (
        f"unsteered: member {joined.leader_id} leads with its own {joined.assignor} assignor until it "
        "leaves: restart the consumers one by one, or start the sidecar with --take-lead"
    )


def explain_failure(error: Exception, settings: SidecarSettings) -> str:
    """Return why the group is not led, and what to do."""
    group = settings.group
    if isinstance(error, GroupDeniedError):
        return f"cannot lead group {group}: grant Read on group {group}"
    if isinstance(error, InconsistentGroupProtocolError):
        offered = ", ".join(settings.lead_assignors)
        return (
            f"cannot lead group {group}: its members use none of {offered}; add theirs to lead-assignors, "
            "unless they are Kafka Streams' or Kafka Connect's"
        )
    if isinstance(error, FencedInstanceError):
        return f"another sidecar has taken the lead of group {group}"
    return f"cannot lead group {group}: {str(error) or type(error).__name__}"
