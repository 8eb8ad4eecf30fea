"""Optimality certificates: an upper bound of a decision's distance from the optimum.

A certificate covers the result of `size` for the current owners with the configured heuristic:
consumers and moves only.
"""

import logging
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from trimtab.assignor.analysis.optimality import Certificate, certify_sizes
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.sidecar.decision.group_model import build_group_model
from trimtab.sidecar.measurement.observation import Observation
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

MAX_CERTIFIED_PARTITIONS: Final = 250  # for larger groups the bound is seldom complete in time
CERTIFIER_CLOSE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class TimedCertificate:
    """A certificate, and the time of its completion (seconds since the epoch)."""

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
        plan = observation.plan
        loads = observation.write_rates
        if self._thread is not None and self._thread.is_alive():
            return False  # dropped, not queued: a certificate never delays an iteration
        if plan is None or len(loads) > MAX_CERTIFIED_PARTITIONS:
            return False
        if all(load.weight is None for load in loads.values()):
            return False
        # the solver releases the GIL, so the loop goes on beside it
        args = (observation, plan)
        self._thread = Thread(target=self._certify, args=args, name="trimtab-certify", daemon=True)
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

    def _certify(self, observation: Observation, plan: GroupPlan) -> None:
        s = self._settings
        started_at = self._clock.monotonic()
        model = build_group_model(observation, s.autoscaling_policy, plan)
        group = model.build_group(with_draining=False)
        load = model.build_load(unknown_as_zero=True)
        try:
            certificates = certify_sizes(
                (group, load, model.policy.placement),
                [s.effective_heuristic],
                moves_cost=s.move_cost_weight,
                left=lambda: self._compute_time_left(started_at),
            )
        except Exception as error:  # noqa: BLE001  # a solver may raise anything
            text = f"no certificate: {error!r}"
            if text != self._last_warning:  # the next observation may fail alike
                log.warning("%s", text)
            self._last_warning = text
            return
        self._last_certificate = TimedCertificate(
            self._clock.wall(),
            s.effective_heuristic,
            s.move_cost_weight,
            self._clock.monotonic() - started_at,
            certificates[s.effective_heuristic],
        )

    def _compute_time_left(self, started_at: float) -> float:
        elapsed = self._clock.monotonic() - started_at
        return 0.0 if self._stop.is_set() else self._settings.certify_timeout - elapsed
