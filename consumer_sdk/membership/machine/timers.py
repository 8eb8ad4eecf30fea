"""When a member's next heartbeat is due, and until when it may hand out records.

Rules 9 to 11 of a classic member:

9. Heartbeats go on during a release, and stop from a join's request to its round's end.
10. An answered heartbeat renews the lease from the time it was sent, REBALANCE_IN_PROGRESS included; only one
    without a rebalance renews the second lease. The round's join renews both, from its own time.
11. If another round follows, heartbeats begin after 10 ms, and slow down to the interval.
"""

from math import inf
from typing import Final

from trimtab.consumer_sdk.membership.lease import Lease

FIRST_HEARTBEAT_S: Final = 0.01  # after a join: the shortest time that a revocation takes
INTERVAL_GROWTH: Final = 1.3


class HeartbeatTimer:
    """Due time of the next heartbeat; the interval can be shortened and grows back."""

    def __init__(self, interval: float) -> None:
        self.due_at = inf
        self._configured = self._interval = interval

    def restart(self, now: float, *, is_short: bool) -> None:
        """Begin after a round; `is_short` if another one follows."""
        self._interval = min(FIRST_HEARTBEAT_S, self._configured) if is_short else self._configured
        self.due_at = now + self._interval

    def record_sent(self, now: float) -> None:
        """Set the next due time."""
        self._interval = min(self._interval * INTERVAL_GROWTH, self._configured)
        self.due_at = now + self._interval


class LeasePair:
    """The lease by answered heartbeats, and the one by answers outside of a rebalance (`lease`)."""

    def __init__(self, session_timeout: float, rebalance_timeout: float) -> None:
        self._session = Lease(session_timeout, -inf)
        self._rebalance = Lease(rebalance_timeout, -inf)
        self._lost_at = -inf

    def renew(self, sent_at: float, *, is_stable: bool) -> None:
        """Renew by an answered request; the second lease only if no rebalance is under way."""
        self._session = self._session.renew(sent_at)
        if is_stable:
            self._rebalance = self._rebalance.renew(sent_at)

    def end(self, at: float) -> None:
        """End both; requests sent before this time renew them no more."""
        self._lost_at = at

    def are_valid(self, now: float) -> bool:
        """Return whether records may be handed out."""
        is_after_loss = self._session.last_contact > self._lost_at
        return is_after_loss and self._session.is_valid(now) and self._rebalance.is_valid(now)
