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
from trimtab.sidecar.errors import KafkaAway
from trimtab.sidecar.leadership.group_ownership import Claims
from trimtab.sidecar.leadership.leader_election import Leadership
from trimtab.sidecar.reporting.decision_record import Author, VerdictRecord
from trimtab.sidecar.settings.settings import Settings

log = logging.getLogger("trimtab.sidecar")

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Verdicts(Protocol):
    """Where verdicts are heard."""

    def news(self) -> tuple[VerdictRecord, ...]:
        """Return those of the group that came since the last look. Raises KafkaAway."""
        ...


class Hearing:
    """A leadership: that of the target (`within`), as long as no sidecar elsewhere steers."""

    def __init__(
        self, me: Author, verdicts: Verdicts, clock: Clock, within: Leadership, *, force: bool
    ) -> None:
        self._claims = Claims(me, force)
        self._verdicts = verdicts
        self._clock = clock
        self._within = within
        self._deaf = ""
        self._said = ""

    def author(self) -> Author:
        """Return us, with the generation that we have now."""
        return self._claims.me

    def leads(self) -> bool:
        """Tell whether we may act, now; reads what others left."""
        self._listen()
        if not self._within.leads():
            return False
        self._claims = self._claims.claimed(self._clock.monotonic())
        self._say()
        return self._claims.leads()

    def leader(self) -> str:
        """Return who leads, as far as is known; empty where nobody does."""
        if not self._within.leads():
            return self._within.leader()
        if self._claims.me.generation:
            return f"{self._claims.me} (this one)"
        other = self._claims.other(self._clock.monotonic())
        return self._deaf if other is None else str(other.author)

    def _listen(self) -> None:
        now, wall = self._clock.monotonic(), self._clock.wall()
        try:
            self._claims = self._claims.heard(self._verdicts.news(), now, wall)
        except KafkaAway as error:
            self._claims = self._claims.deaf(now)
            self._deaf = f"it is not known ({error}) whether another sidecar"
        else:
            self._deaf = ""

    def _say(self) -> None:
        other, mine = self._claims.other(self._clock.monotonic()), self._claims.me.generation > 0
        said = "" if other is None else f"{other.author.id} {mine}"
        if other is None and self._said:
            log.info("no other sidecar steers this group any more")
        elif other is not None and said != self._said and mine:
            log.warning(
                "%s steers this group, too: nothing is changed here until it stands by. If it does "
                "not, end it: it is of an older version, or may not read verdicts",
                other.author,
            )
        elif other is not None and said != self._said:
            log.warning(
                "%s steers this group: this sidecar stands by, changes nothing, and takes over "
                "when that one has ended or was silent for %.0f s (--take-over: at once)",
                other.author,
                other.patience,
            )
        self._said = said


def author(settings: Settings, clock: Clock, lease: str) -> Author:
    """Return who we are; `lease` names what keeps us apart from others, empty where nothing does.

    The lock of a state folder holds on this machine only, and of containers each may have its own
    folder at the same path.
    """
    host, pid, since = platform.node(), os.getpid(), clock.wall()
    machine = host
    with suppress(OSError):
        machine = BOOT.read_text().strip()
    if settings.target == "process" and settings.state is not None:
        lease = f"{machine} {_folder(settings.state)}"
    return Author(lease or f"{machine} {pid} {since}", host, pid, since)


def _folder(state: Path) -> str:
    try:
        found = state.stat()
    except OSError:
        return str(state.resolve())
    return f"{found.st_dev}:{found.st_ino}"
