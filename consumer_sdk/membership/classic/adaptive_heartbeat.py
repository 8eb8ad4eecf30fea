"""Heartbeats of a member: by the clock of its lease, and more often while a round is to follow."""

from types import SimpleNamespace
from typing import Final

from kafka.coordinator import heartbeat
from kafka.coordinator.heartbeat import (
    Heartbeat,  # pyright: ignore[reportAttributeAccessIssue] # stubs of v2
)

from trimtab.common.clock import SystemClock

FIRST_HEARTBEAT_MS: Final = 10  # after a join: the shortest time that a revocation takes
HEARTBEAT_INTERVAL_GROWTH: Final = 1.3  # per heartbeat, until heartbeat.interval.ms is reached

# Heartbeats by the clock of the lease: by time.monotonic, one sent before a suspension of the machine
# would look like one sent after it, and renew the lease.
heartbeat.time = SimpleNamespace(monotonic=SystemClock.monotonic)  # pyright: ignore[reportAttributeAccessIssue]


class AdaptiveHeartbeat(Heartbeat):  # type: ignore[misc] # kafka-python has no types
    """Heartbeat whose interval can be shortened; it then grows back to `heartbeat.interval.ms`."""

    # Members learn of the second round of a cooperative move (KIP-429) from a heartbeat. With the shortened
    # interval they wait at most a third of the revocation's duration instead of a whole interval, at the
    # cost of about twelve requests per member and move.

    def __init__(self, configured: Heartbeat) -> None:
        super().__init__(**configured.config)
        self._configured_interval_ms: float = configured.config["heartbeat_interval_ms"]

    def shorten_interval(self) -> None:
        """Send the next heartbeats `FIRST_HEARTBEAT_MS` apart, then at growing intervals."""
        self.config["heartbeat_interval_ms"] = min(FIRST_HEARTBEAT_MS, self._configured_interval_ms)

    def sent_heartbeat(self) -> None:
        """Lengthen the interval to the next heartbeat."""
        super().sent_heartbeat()
        longer = self.config["heartbeat_interval_ms"] * HEARTBEAT_INTERVAL_GROWTH
        self.config["heartbeat_interval_ms"] = min(longer, self._configured_interval_ms)
