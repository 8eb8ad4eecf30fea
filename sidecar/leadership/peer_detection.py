"""Detects other sidecars of the group by their decisions (rules: `leadership.group_ownership`).

Every iteration publishes a decision, so its author is active. New decisions are read before each
change.
"""

import logging
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from trimtab.common.clock import Clock
from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.leadership.group_ownership import GroupOwnership
from trimtab.sidecar.leadership.leader_election import Leadership
from trimtab.sidecar.records.decision_record import DecisionRecord, SidecarIdentity
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


class DecisionFeed(Protocol):
    """Source of published decisions."""

    def read_new_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return the group's decisions since the last call. Raises BrokerTimeoutError."""
        ...


class PeerAwareLeadership:
    """Leads if the target's leadership does and no peer owns the group."""

    def __init__(
        self,
        own_author: SidecarIdentity,
        decision_feed: DecisionFeed,
        clock: Clock,
        target_leadership: Leadership,
        *,
        take_over: bool,
    ) -> None:
        self._ownership = GroupOwnership(own_author, take_over)
        self._decision_feed = decision_feed
        self._clock = clock
        self._target_leadership = target_leadership
        self._outage = ""
        self._last_logged = ""

    def get_author(self) -> SidecarIdentity:
        """Return our identity with the current ownership term."""
        return self._ownership.own_author

    def is_leader(self) -> bool:
        """Return whether this sidecar may act now; reads new decisions of peers."""
        self._observe_peers()
        if not self._target_leadership.is_leader():
            return False
        self._ownership = self._ownership.claim_ownership(self._clock.monotonic())
        self._log_peer_change()
        return self._ownership.is_owner()

    def get_leader(self) -> str:
        """Return the known leader; empty without one."""
        if not self._target_leadership.is_leader():
            return self._target_leadership.get_leader()
        if self._ownership.own_author.ownership_term:
            return f"{self._ownership.own_author} (this one)"
        peer = self._ownership.find_leading_peer(self._clock.monotonic())
        return self._outage if peer is None else str(peer.author)

    def _observe_peers(self) -> None:
        now, wall = self._clock.monotonic(), self._clock.wall()
        try:
            records = self._decision_feed.read_new_decisions()
            self._ownership = self._ownership.observe_decisions(records, now, wall)
        except BrokerTimeoutError as error:
            self._ownership = self._ownership.observe_outage(now)
            self._outage = f"it is unknown which sidecar ({error})"
        else:
            self._outage = ""

    def _log_peer_change(self) -> None:
        peer = self._ownership.find_leading_peer(self._clock.monotonic())
        is_owner = self._ownership.own_author.ownership_term > 0
        # Logged when it changes: the state is read before each change of each iteration.
        state = "" if peer is None else f"{peer.author.id} {is_owner}"
        if peer is None and self._last_logged:
            log.info("no other sidecar manages this group any more")
        elif peer is not None and state != self._last_logged and is_owner:
            log.info(
                "take-over from %s: no changes until it stands by, at its next iteration. If it never does, "
                "stop it: it is an older version, or may not read decisions",
                peer.author,
            )
        elif peer is not None and state != self._last_logged:
            log.warning(
                "%s manages this group: this sidecar stands by and takes over when that one has "
                "stopped or was silent for %.0f s (--take-over: at once)",
                peer.author,
                peer.silence_timeout,
            )
        self._last_logged = state


def build_author(settings: SidecarSettings, clock: Clock, lease: str) -> SidecarIdentity:
    """Return our identity; `lease` identifies the lock that excludes others, if any."""
    # The lock of a state folder holds on this machine only, and each container may have its own
    # folder at the same path: the identity has machine, device and inode.
    host, pid, since = platform.node(), os.getpid(), clock.wall()
    machine = host
    with suppress(OSError):
        machine = BOOT_ID_FILE.read_text().strip()
    if settings.target == "process" and settings.state_dir is not None:
        lease = f"{machine} {_identify_state_dir(settings.state_dir)}"
    return SidecarIdentity(lease or f"{machine} {pid} {since}", host, pid, since)


def _identify_state_dir(state_dir: Path) -> str:
    try:
        stat = state_dir.stat()
    except OSError:
        return str(state_dir.resolve())
    return f"{stat.st_dev}:{stat.st_ino}"
