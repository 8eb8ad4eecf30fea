"""Lease: how long this process may hand out records without an answer from the coordinator.

The broker reassigns a member's partitions after a session timeout of silence. The data plane hands
out records only while the last *answered* heartbeat was *sent* less than a session timeout ago,
minus a margin. A frozen process, a dead member thread and a cut network end the lease by
themselves; the next answered heartbeat renews it. After a lost or ended membership only contacts
sent later count.

In a rebalance the coordinator also reassigns the partitions of a member that does not join again
within the rebalance timeout, although it answers the member's heartbeats. A second lease covers
that: it starts when the last heartbeat without a rebalance, or the last join, was sent.
"""

from dataclasses import dataclass, replace
from typing import Final

LEASE_MARGIN: Final = 0.1  # fraction of the timeout, for the way to the broker and the time to react


@dataclass(frozen=True, slots=True)
class Lease:
    """Right to hand out records, until `timeout` seconds after the last contact with the broker."""

    timeout: float
    last_contact: float  # in monotonic seconds

    def renew_by_heartbeat(self, sent_at: float, received_at: float) -> "Lease":
        """Return the lease renewed by a heartbeat; an unanswered heartbeat renews nothing."""
        # By the send time: the broker's timer started no earlier.
        return self.renew(sent_at) if received_at >= sent_at else self

    def renew(self, sent_at: float) -> "Lease":
        """Return the lease renewed by an answered request, sent at `sent_at`."""
        # `poll` calls this several times for each record, and hardly any call brings a later time.
        return self if sent_at <= self.last_contact else replace(self, last_contact=sent_at)

    def is_valid(self, now: float) -> bool:
        """Return whether the lease holds at `now`."""
        return now - self.last_contact < self.timeout * (1 - LEASE_MARGIN)
