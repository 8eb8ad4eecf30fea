"""Certificates beside the decisions: how far what the heuristic wants is from the optimum, at most.

Rules of this file:
- Nothing here delays a turn. An offer is taken when the thread is idle and dropped when it is not;
  the thread ends with its certificate. The solver runs outside the interpreter's lock.
- It certifies what `size` decides from the present owners with the configured heuristic: consumers
  and moves only. Groups beyond `LARGEST` partitions are left alone.
- What fails is logged once and costs nothing but the certificate.
"""

import logging
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from trimtab.assignor.analysis.certificate import Certificate, certify_sizes
from trimtab.common.clock import Clock
from trimtab.common.control_topics.values import GroupPlan
from trimtab.sidecar.decision.group_model import situation
from trimtab.sidecar.measurement.observation import Observation
from trimtab.sidecar.settings.settings import Settings

log = logging.getLogger("trimtab.sidecar")

LARGEST: Final = 250
"""Partitions of a group that is certified; beyond it the bound would seldom be complete."""

PATIENCE: Final = 2.0
"""Seconds to wait for the thread at the end."""


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate, when it was made (seconds since the epoch), and how long that took."""

    time: float
    heuristic: str
    moves_cost: float
    seconds: float
    certificate: Certificate


class Certifier:
    """Makes one certificate at a time, on a thread of its own."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stop = Event()
        self._thread: Thread | None = None
        self._last: Certified | None = None
        self._said = ""

    @property
    def last(self) -> Certified | None:
        """Return the newest certificate; None before the first."""
        return self._last

    def offer(self, seen: Observation) -> bool:
        """Certify what was seen, if there is something to and the thread is idle; tell if so."""
        busy = self._thread is not None and self._thread.is_alive()
        known = any(speed.weight is not None for speed in seen.speeds.values())
        if busy or seen.plan is None or not known or len(seen.speeds) > LARGEST:
            return False
        self._thread = Thread(
            target=self._certify, args=(seen, seen.plan), name="trimtab-certify", daemon=True
        )
        self._thread.start()
        return True

    def wait(self, seconds: float) -> None:
        """Wait for the certificate that is being made."""
        if self._thread is not None:
            self._thread.join(seconds)

    def close(self) -> None:
        """Cut short what is being made."""
        self._stop.set()
        self.wait(PATIENCE)

    def _certify(self, seen: Observation, plan: GroupPlan) -> None:
        settings = self._settings
        begun, name = self._clock.monotonic(), settings.chosen
        at = situation(seen, settings.policy, plan)
        asked = (
            at.group(with_draining=False),
            at.load(unknown_is_nothing=True),
            at.policy.placement,
        )
        try:
            made = certify_sizes(
                asked, [name], moves_cost=settings.moves_cost, left=lambda: self._left(begun)
            )
        except Exception as error:  # noqa: BLE001  # a solver may raise anything
            self._say(f"no certificate: {error!r}")
            return
        took = self._clock.monotonic() - begun
        self._last = Certified(self._clock.wall(), name, settings.moves_cost, took, made[name])

    def _left(self, begun: float) -> float:
        spent = self._clock.monotonic() - begun
        return 0.0 if self._stop.is_set() else self._settings.certify_limit - spent

    def _say(self, text: str) -> None:
        if text != self._said:
            log.warning("%s", text)
        self._said = text
