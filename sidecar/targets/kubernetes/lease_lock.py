"""Leader election by a Lease (coordination.k8s.io); the rules stand in `sidecar.election`.

A thread looks at the lease every `LEASE_RETRY_PERIOD_S` seconds, so that a long turn of the loop
does not cost it. A server that does not answer costs the lead when the last renewal is old enough,
not before. What nobody expected costs it at once and is logged with its trace; the thread goes on
and tries again, and whoever is free of it leads meanwhile.
"""

import logging
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any, Final

from trimtab.common.clock import Clock
from trimtab.common.errors import PeerError
from trimtab.sidecar.leadership.leader_election import (
    LEASE_DURATION_S,
    LEASE_RETRY_PERIOD_S,
    LeaseCandidate,
    LeaseRecord,
)
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ResourceConflictError

log = logging.getLogger("trimtab.sidecar")

LEASE_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


class LeaseElection:
    """One candidate, `identity`, for the lease of that name.

    It is one for as long as its loop has asked `is_leader` within `hang_timeout` seconds.
    """

    def __init__(
        self, api: KubernetesApi, lease_name: str, identity: str, clock: Clock, hang_timeout: float
    ) -> None:
        self._api = api
        self._lease_name = lease_name
        self._clock = clock
        self._hang_timeout = hang_timeout
        self._leads_called_at = clock.monotonic()
        self._candidate = LeaseCandidate(identity)
        self._was_leading = False
        self._last_error = ""
        self._lease_body: dict[str, Any] | None = None
        self._stop = Event()
        self._thread = Thread(target=self._renew_periodically, name="trimtab-election", daemon=True)

    def start(self) -> None:
        """Begin to look at the lease."""
        self._thread.start()

    def close(self) -> None:
        """End; a lease that is ours is given up, so that the next one need not wait."""
        self._stop.set()
        self._thread.join()
        if self._candidate.is_leader(self._clock.monotonic()):
            self._candidate = self._candidate.step_down()
            try:
                self._write_lease("")
            except (PeerError, ResourceConflictError) as error:
                log.warning("the lease %s was not given up: %s", self._lease_name, error)

    def is_leader(self) -> bool:
        """Tell whether this sidecar may act, now."""
        self._leads_called_at = now = self._clock.monotonic()
        return self._candidate.is_leader(now)

    def get_leader(self) -> str:
        """Return who leads, as far as is known; empty where nobody does."""
        return self._candidate.get_leader()

    def _renew_periodically(self) -> None:
        while True:
            self._last_error = self._try_renew()
            self._log_leadership_change()
            if self._stop.wait(LEASE_RETRY_PERIOD_S):
                return

    def _try_renew(self) -> str:
        """Look at the lease; return what kept us from it, which is logged when it is new."""
        try:
            self._acquire_or_renew()
        except ResourceConflictError:
            self._candidate = self._candidate.step_down()
        except PeerError as error:
            if str(error) != self._last_error:
                log.warning("lease %s: %s", self._lease_name, error)
            return str(error)
        except Exception as error:
            self._candidate = self._candidate.step_down()
            if repr(error) != self._last_error:
                log.exception("lease %s: unexpected; it is tried again", self._lease_name)
            return repr(error)
        return ""

    def _acquire_or_renew(self) -> None:
        self._lease_body = self._api.read_lease(self._lease_name)
        record = None if self._lease_body is None else _parse_lease(self._lease_body)
        now = self._clock.monotonic()
        self._candidate = self._candidate.observe_record(record, now)
        silent = now - self._leads_called_at
        if silent > self._hang_timeout:
            self._candidate = self._candidate.step_down()
            if record is not None and record.holder_identity == self._candidate.identity:
                log.error(
                    "lease %s: given up: the loop hangs since %.0f s", self._lease_name, silent
                )
                self._write_lease("")
            return
        if not self._candidate.can_acquire(now):
            self._candidate = self._candidate.step_down()
            return
        sent = self._clock.monotonic()
        self._candidate = self._candidate.record_renewal(
            _parse_lease(self._write_lease(self._candidate.identity)), sent
        )

    def _write_lease(self, holder: str) -> dict[str, Any]:
        """Write the lease over what was read.

        Raises ResourceConflictError, KubernetesUnavailableError, KubernetesRejectedError.
        """
        now = datetime.fromtimestamp(self._clock.wall(), UTC).strftime(LEASE_TIME_FORMAT)
        before: dict[str, Any] = (
            {} if self._lease_body is None else self._lease_body.get("spec") or {}
        )
        changes = int(before.get("leaseTransitions") or 0)
        spec: dict[str, Any] = {
            "holderIdentity": holder or None,  # an empty one is refused
            "leaseDurationSeconds": int(LEASE_DURATION_S),
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now),
            "leaseTransitions": changes,
        }
        if holder and before.get("holderIdentity") != holder:
            spec |= {"acquireTime": now, "leaseTransitions": changes + 1}
        if self._lease_body is None:
            made = self._api.create_lease({"metadata": {"name": self._lease_name}, "spec": spec})
        else:
            made = self._api.replace_lease(self._lease_name, {**self._lease_body, "spec": spec})
        self._lease_body = made
        return made

    def _log_leadership_change(self) -> None:
        leads = self._candidate.is_leader(self._clock.monotonic())
        if leads != self._was_leading:
            log.info(
                "lease %s: %s", self._lease_name, "we lead" if leads else "we do not lead any more"
            )
        self._was_leading = leads


def _parse_lease(body: dict[str, Any]) -> LeaseRecord:
    spec = body.get("spec") or {}
    version = body["metadata"]["resourceVersion"]
    return LeaseRecord(
        spec.get("holderIdentity") or "",
        version,
        float(spec.get("leaseDurationSeconds") or LEASE_DURATION_S),
    )
