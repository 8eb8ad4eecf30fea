"""The lease: how long this process may read without having heard from the group's coordinator.

The broker gives a member's partitions away when it has heard nothing for the session timeout. So
the data plane may hand out records only while the last heartbeat that the broker *answered* was
*sent* less than a session timeout ago, less a margin. A frozen process, a dead member thread and a
cut network all end the lease without anybody's help; a heartbeat that is answered again renews it.
It says nothing once the membership is lost, or left: then only what is sent later counts.

In a rebalance the coordinator also gives away what a member holds that has not joined again within
the rebalance timeout, however many of its heartbeats it has answered. That is a second lease: it
began when the last heartbeat was sent that found no rebalance, or the last join.
"""

from dataclasses import dataclass, replace
from typing import Final

LEASE_MARGIN: Final = 0.1
"""Share of the session timeout kept back: the way to the broker, and the time to notice."""


@dataclass(frozen=True, slots=True)
class Lease:
    """When the broker surely knew us last, and its timeout; by our own clock in seconds."""

    timeout: float
    last_contact: float

    def renew_by_heartbeat(self, sent_at: float, received_at: float) -> "Lease":
        """Take in the times of a heartbeat; an unanswered one counts nothing."""
        return self.renew(sent_at) if received_at >= sent_at else self

    def renew(self, sent_at: float) -> "Lease":
        """Take in when something was sent that the broker has answered as to a member."""
        return replace(self, last_contact=max(self.last_contact, sent_at))

    def is_valid(self, now: float) -> bool:
        """Say whether records may be handed out."""
        return now - self.last_contact < self.timeout * (1 - LEASE_MARGIN)
