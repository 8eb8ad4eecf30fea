"""Optimality certificates: an upper bound of a decision's distance from the optimum.

- Certification never delays an iteration: an observation is dropped while the thread is busy. The
  solver runs without the GIL.
- A certificate covers the result of `size` for the present owners with the configured heuristic:
  consumers and moves only. Groups over `MAX_CERTIFIED_PARTITIONS` partitions are skipped.
- A failure is logged once and affects nothing else.
"""

import logging
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from trimtab.assignor.analysis.certificate import Certificate, certify_sizes
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.sidecar.decision.group_model import build_group_model
from trimtab.sidecar.measurement.observation import Observation
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

MAX_CERTIFIED_PARTITIONS: Final = 250
"""Maximum partitions of a certified group; for larger groups the bound is seldom complete."""

CERTIFIER_CLOSE_TIMEOUT_S: Final = 2.0
"""Seconds to wait for the thread at shutdown."""


@dataclass(frozen=True, slots=True)
class TimedCertificate:
    """A certificate with its time (seconds since the epoch) and duration (`elapsed_seconds`)."""

    time: float
    heuristic: str
    move_cost: float
    elapsed_seconds: float
    certificate: Certificate


class DecisionCertifier:
    """Computes one certificate at a time, on a separate thread."""

    def __init__(self, settings: SidecarSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stop = Event()
        self._thread: Thread | None = None
        self._last_certificate: TimedCertificate | None = None
        self._last_warning = ""

    @property
    def last_certificate(self) -> TimedCertificate | None:
        """Return the newest certificate; None before the first."""
        return self._last_certificate

    def offer_observation(self, observation: Observation) -> bool:
        """Start certifying an observation; return False if it is skipped or the thread is busy."""
        busy = self._thread is not None and self._thread.is_alive()
        known = any(speed.weight is not None for speed in observation.write_rates.values())
        if (
            busy
            or observation.plan is None
            or not known
            or len(observation.write_rates) > MAX_CERTIFIED_PARTITIONS
        ):
            return False
        self._thread = Thread(
            target=self._certify_observation,
            args=(observation, observation.plan),
            name="trimtab-certify",
            daemon=True,
        )
        self._thread.start()
        return True

    def wait_for_certificate(self, seconds: float) -> None:
        """Wait up to `seconds` for the certificate in progress."""
        if self._thread is not None:
            self._thread.join(seconds)

    def close(self) -> None:
        """Cancel the certificate in progress."""
        self._stop.set()
        self.wait_for_certificate(CERTIFIER_CLOSE_TIMEOUT_S)

    def _certify_observation(self, observation: Observation, plan: GroupPlan) -> None:
        settings = self._settings
        begun, name = self._clock.monotonic(), settings.effective_heuristic
        at = build_group_model(observation, settings.autoscaling_policy, plan)
        asked = (
            at.build_group(with_draining=False),
            at.build_load(unknown_as_zero=True),
            at.policy.placement,
        )
        try:
            made = certify_sizes(
                asked,
                [name],
                moves_cost=settings.move_cost_weight,
                left=lambda: self._compute_time_left(begun),
            )
        except Exception as error:  # noqa: BLE001  # a solver may raise anything
            self._log_if_new(f"no certificate: {error!r}")
            return
        took = self._clock.monotonic() - begun
        self._last_certificate = TimedCertificate(
            self._clock.wall(), name, settings.move_cost_weight, took, made[name]
        )

    def _compute_time_left(self, started_at: float) -> float:
        spent = self._clock.monotonic() - started_at
        return 0.0 if self._stop.is_set() else self._settings.certify_timeout - spent

    def _log_if_new(self, text: str) -> None:
        if text != self._last_warning:
            log.warning("%s", text)
        self._last_warning = text
