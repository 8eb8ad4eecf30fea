"""Listens for other sidecars that steer our group; the rules stand in `sidecar.claims`.

Verdicts are left with each turn, so whoever leaves one is at work. What is new of them is read
before each step that changes something. Where they may not be read nobody can be heard: that is
said once, and holds nothing up.
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
from trimtab.sidecar.reporting.decision_record import DecisionRecord, SidecarIdentity
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


class DecisionFeed(Protocol):
    """Where verdicts are heard."""

    def read_new_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return those of the group that came since the last look. Raises BrokerTimeoutError."""
        ...


class PeerAwareLeadership:
    """A leadership: that of the target (`target_leadership`), as long as no sidecar elsewhere steers."""

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
        """Return us, with the generation that we have now."""
        return self._ownership.own_author

    def is_leader(self) -> bool:
        """Tell whether we may act, now; reads what others left."""
        self._observe_peers()
        if not self._target_leadership.is_leader():
            return False
        self._ownership = self._ownership.claim_ownership(self._clock.monotonic())
        self._log_peer_change()
        return self._ownership.is_owner()

    def get_leader(self) -> str:
        """Return who leads, as far as is known; empty where nobody does."""
        if not self._target_leadership.is_leader():
            return self._target_leadership.get_leader()
        if self._ownership.own_author.generation:
            return f"{self._ownership.own_author} (this one)"
        other = self._ownership.find_leading_peer(self._clock.monotonic())
        return self._outage if other is None else str(other.author)

    def _observe_peers(self) -> None:
        now, wall = self._clock.monotonic(), self._clock.wall()
        try:
            self._ownership = self._ownership.observe_decisions(
                self._decision_feed.read_new_decisions(), now, wall
            )
        except BrokerTimeoutError as error:
            self._ownership = self._ownership.observe_outage(now)
            self._outage = f"it is not known ({error}) whether another sidecar"
        else:
            self._outage = ""

    def _log_peer_change(self) -> None:
        other, mine = (
            self._ownership.find_leading_peer(self._clock.monotonic()),
            self._ownership.own_author.generation > 0,
        )
        said = "" if other is None else f"{other.author.id} {mine}"
        if other is None and self._last_logged:
            log.info("no other sidecar steers this group any more")
        elif other is not None and said != self._last_logged and mine:
            log.warning(
                "%s steers this group, too: nothing is changed here until it stands by. If it does "
                "not, end it: it is of an older version, or may not read verdicts",
                other.author,
            )
        elif other is not None and said != self._last_logged:
            log.warning(
                "%s steers this group: this sidecar stands by, changes nothing, and takes over "
                "when that one has ended or was silent for %.0f s (--take-over: at once)",
                other.author,
                other.silence_timeout,
            )
        self._last_logged = said


def build_author(settings: SidecarSettings, clock: Clock, lease: str) -> SidecarIdentity:
    """Return who we are; `lease` names what keeps us apart from others, empty where nothing does.

    The lock of a state folder holds on this machine only, and of containers each may have its own
    folder at the same path.
    """
    host, pid, since = platform.node(), os.getpid(), clock.wall()
    machine = host
    with suppress(OSError):
        machine = BOOT_ID_FILE.read_text().strip()
    if settings.target == "process" and settings.state_dir is not None:
        lease = f"{machine} {_identify_state_dir(settings.state_dir)}"
    return SidecarIdentity(lease or f"{machine} {pid} {since}", host, pid, since)


def _identify_state_dir(state_dir: Path) -> str:
    try:
        found = state_dir.stat()
    except OSError:
        return str(state_dir.resolve())
    return f"{found.st_dev}:{found.st_ino}"
