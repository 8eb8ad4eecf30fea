"""Which of several sidecars leads: a lease that is renewed, as a state machine. Pure.

1. A lease is held by whoever its record names, for `LEASE` seconds from its last renewal.
2. Nobody compares clocks: a candidate counts the seconds since it has *seen* the record change, by
   its own clock, and takes the lease when that is as long as the record says. Times in the record
   are for people.
3. A leader acts until `ACTS` seconds after it *sent* its last successful renewal: well before
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

from trimtab.sidecar.errors import NotLeading

LEASE: Final = 12.0
ACTS: Final = 6.0
RETRY: Final = 1.5
"""Seconds: how long a lease lasts, how long a leader acts on it, how often it is looked at."""


class Leadership(Protocol):
    """Whether this sidecar is the one that acts; asked before each step that changes something.

    By asking the loop shows that it goes on, so nobody else is to ask.
    """

    def leads(self) -> bool:
        """Tell whether we may act, now."""
        ...

    def leader(self) -> str:
        """Return who leads, as far as is known; empty where nobody does."""
        ...


def insist(leadership: Leadership) -> None:
    """Raise NotLeading if another sidecar may be at work by now."""
    if not leadership.leads():
        leader = leadership.leader() or "whoever takes it"
        raise NotLeading(
            f"another sidecar was heard, or the lease is not ours by now; leading: {leader}"
        )


class Alone:
    """There is no other sidecar."""

    def leads(self) -> bool:
        """Tell that we may act."""
        return True

    def leader(self) -> str:
        """Return that it is us."""
        return "this sidecar"


@dataclass(frozen=True, slots=True)
class Record:
    """A lease as it was read; `version` changes with every renewal, `seconds` is its length."""

    holder: str
    version: str
    seconds: float = LEASE


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one sidecar knows; times by its own monotonic clock, in seconds.

    `since` is when `record` was seen to change, `until` how long we may act.
    """

    name: str
    record: Record | None = None
    since: float = -inf
    until: float = -inf

    def saw(self, record: Record | None, now: float) -> "Candidate":
        """Take in the record as it is."""
        return self if record == self.record else replace(self, record=record, since=now)

    def may_take(self, now: float) -> bool:
        """Tell whether the lease is ours to renew, or free."""
        record = self.record
        if record is None or record.holder in ("", self.name):
            return True
        return now - self.since >= record.seconds

    def took(self, record: Record, sent: float) -> "Candidate":
        """Take in that a renewal sent at `sent` was accepted."""
        return replace(self, record=record, since=sent, until=sent + ACTS)

    def lost(self) -> "Candidate":
        """Take in that we no longer lead."""
        return replace(self, until=-inf)

    def leads(self, now: float) -> bool:
        """Tell whether we may act."""
        return now < self.until

    def leader(self) -> str:
        """Return who leads, as far as is known; empty where nobody does."""
        return "" if self.record is None else self.record.holder
