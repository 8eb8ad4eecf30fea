"""Leader election by a renewed lease, as a state machine. Pure.

1. The holder of a lease holds it for `LEASE_DURATION_S` seconds from its last renewal.
2. Clocks are not compared: a candidate counts the seconds since it *observed* a change of the
   record, by its own clock, and may acquire the lease once they reach the record's duration. Times
   in the record are informational.
3. A leader acts until `LEASE_RENEW_DEADLINE_S` seconds after it *sent* its last successful renewal:
   its actions end well before another candidate may acquire the lease.
4. A record is replaced only in the version that was read: of two concurrent acquisitions one fails.
5. A released lease, or one never acquired, is free at once.
6. A process whose control loop has not called `is_leader` for too long releases its lease, and is
   no candidate until the loop calls again.

The rules are those of client-go's leader election; rule 3 leaves more room.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Final, Protocol

from trimtab.sidecar.errors import NotLeaderError

LEASE_DURATION_S: Final = 12.0
LEASE_RENEW_DEADLINE_S: Final = 6.0  # of acting; client-go's 10 of 15 s leave less room for a slow call
LEASE_RETRY_PERIOD_S: Final = 1.5  # between two renewals


class Leadership(Protocol):
    """Leadership of this sidecar, checked before each change."""

    # Only the control loop may call: a call proves that the loop is alive (rule 6).
    def is_leader(self) -> bool:
        """Return whether this sidecar may act now."""
        ...

    def get_leader(self) -> str:
        """Return the known leader; empty without one."""
        ...


def require_leadership(leadership: Leadership) -> None:
    """Raise NotLeaderError if another sidecar may be active."""
    if not leadership.is_leader():
        leader = leadership.get_leader() or "unknown"
        raise NotLeaderError(f"another sidecar is active, or the lease was lost; leader: {leader}")


class SoleLeader:
    """Leadership without other sidecars."""

    def is_leader(self) -> bool:
        """Return True."""
        return True

    def get_leader(self) -> str:
        """Return this sidecar."""
        return "this sidecar"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A lease as read."""

    holder_identity: str
    resource_version: str  # changes with every renewal
    duration_s: float = LEASE_DURATION_S


@dataclass(frozen=True, slots=True)
class LeaseCandidate:
    """State of one candidate; times are of its own monotonic clock, in seconds."""

    identity: str
    record: LeaseRecord | None = None
    observed_at: float = -inf  # of the last change of `record`
    leads_until: float = -inf

    def observe_record(self, record: LeaseRecord | None, now: float) -> "LeaseCandidate":
        """Update the observed record."""
        return self if record == self.record else replace(self, record=record, observed_at=now)

    def can_acquire(self, now: float) -> bool:
        """Return whether the lease is ours to renew, or free."""
        record = self.record
        if record is None or record.holder_identity in ("", self.identity):
            return True
        return now - self.observed_at >= record.duration_s  # the holder's duration, not ours

    def record_renewal(self, record: LeaseRecord, sent_at: float) -> "LeaseCandidate":
        """Record a renewal sent at `sent_at` and accepted."""
        return replace(self, record=record, observed_at=sent_at, leads_until=sent_at + LEASE_RENEW_DEADLINE_S)

    def step_down(self) -> "LeaseCandidate":
        """Stop leading at once."""
        return replace(self, leads_until=-inf)

    def is_leader(self, now: float) -> bool:
        """Return whether this candidate leads at `now`."""
        return now < self.leads_until

    def get_leader(self) -> str:
        """Return the known leader; empty without one."""
        return "" if self.record is None else self.record.holder_identity
