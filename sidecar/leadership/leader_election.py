"""Which of several sidecars leads: a lease that is renewed, as a state machine. Pure.

1. A lease is held by whoever its record names, for `LEASE_DURATION_S` seconds from its last renewal.
2. Nobody compares clocks: a candidate counts the seconds since it has *seen* the record change, by
   its own clock, and takes the lease when that is as long as the record says. Times in the record
   are for people.
3. A leader acts until `LEASE_RENEW_DEADLINE_S` seconds after it *sent* its last successful renewal: well before
   anybody else may take the lease, so that what it had begun is over.
4. A record is replaced only in the version that was read: of two that take it at once one is told
   that it came too late.
5. A lease that its holder gave up, or never took, is free at once.
6. A process that renews and does nothing else is no leader: whose loop has not asked whether it
   leads for too long gives its lease up, and is no candidate until the loop asks again.

The rules are those of client-go's leader election; rule 3 leaves more room.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Final, Protocol

from trimtab.sidecar.errors import NotLeaderError

LEASE_DURATION_S: Final = 12.0
LEASE_RENEW_DEADLINE_S: Final = 6.0
LEASE_RETRY_PERIOD_S: Final = 1.5
"""Seconds: how long a lease lasts, how long a leader acts on it, how often it is looked at."""


class Leadership(Protocol):
    """Whether this sidecar is the one that acts; asked before each step that changes something.

    By asking the loop shows that it goes on, so nobody else is to ask.
    """

    def is_leader(self) -> bool:
        """Tell whether we may act, now."""
        ...

    def get_leader(self) -> str:
        """Return who leads, as far as is known; empty where nobody does."""
        ...


def require_leadership(leadership: Leadership) -> None:
    """Raise NotLeaderError if another sidecar may be at work by now."""
    if not leadership.is_leader():
        leader = leadership.get_leader() or "whoever takes it"
        raise NotLeaderError(
            f"another sidecar was heard, or the lease is not ours by now; leading: {leader}"
        )


class SoleLeader:
    """There is no other sidecar."""

    def is_leader(self) -> bool:
        """Tell that we may act."""
        return True

    def get_leader(self) -> str:
        """Return that it is us."""
        return "this sidecar"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A lease as it was read; `resource_version` changes with every renewal, `duration_s` is its length."""

    holder_identity: str
    resource_version: str
    duration_s: float = LEASE_DURATION_S


@dataclass(frozen=True, slots=True)
class LeaseCandidate:
    """What one sidecar knows; times by its own monotonic clock, in seconds.

    `observed_at` is when `record` was seen to change, `leads_until` how long we may act.
    """

    identity: str
    record: LeaseRecord | None = None
    observed_at: float = -inf
    leads_until: float = -inf

    def observe_record(self, record: LeaseRecord | None, now: float) -> "LeaseCandidate":
        """Take in the record as it is."""
        return self if record == self.record else replace(self, record=record, observed_at=now)

    def can_acquire(self, now: float) -> bool:
        """Tell whether the lease is ours to renew, or free."""
        record = self.record
        if record is None or record.holder_identity in ("", self.identity):
            return True
        return now - self.observed_at >= record.duration_s

    def record_renewal(self, record: LeaseRecord, sent_at: float) -> "LeaseCandidate":
        """Take in that a renewal sent at `sent_at` was accepted."""
        return replace(
            self, record=record, observed_at=sent_at, leads_until=sent_at + LEASE_RENEW_DEADLINE_S
        )

    def step_down(self) -> "LeaseCandidate":
        """Take in that we no longer lead."""
        return replace(self, leads_until=-inf)

    def is_leader(self, now: float) -> bool:
        """Tell whether we may act."""
        return now < self.leads_until

    def get_leader(self) -> str:
        """Return who leads, as far as is known; empty where nobody does."""
        return "" if self.record is None else self.record.holder_identity
