"""Leader election by a Lease (coordination.k8s.io); `leader_election` has the rules.

- A thread renews the lease every `LEASE_RETRY_PERIOD_S` seconds, independent of the loop's pace.
- An unresponsive API server costs the lead only when the last renewal has expired.
- An unexpected error costs the lead at once and is logged with its traceback; the thread retries,
  and another sidecar may lead meanwhile.
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
    """Candidate `identity` for the lease `lease_name`."""

    def __init__(
        self, api: KubernetesApi, lease_name: str, identity: str, clock: Clock, hang_timeout: float
    ) -> None:
        self._api = api
        self._lease_name = lease_name
        self._clock = clock
        self._hang_timeout = hang_timeout  # seconds without a call of `is_leader` (rule 6)
        self._leads_called_at = clock.monotonic()
        self._candidate = LeaseCandidate(identity)
        self._was_leading = False
        self._last_error = ""
        self._lease_body: dict[str, Any] | None = None
        self._stop = Event()
        self._thread = Thread(target=self._renew_periodically, name="trimtab-election", daemon=True)

    def start(self) -> None:
        """Start the renewal thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop renewing and release an own lease, so another sidecar can lead at once."""
        self._stop.set()
        self._thread.join()
        if self._candidate.is_leader(self._clock.monotonic()):
            self._candidate = self._candidate.step_down()  # before the write frees the lease
            try:
                self._write_lease("")
            except (PeerError, ResourceConflictError) as error:
                log.warning("lease %s could not be released: %s", self._lease_name, error)

    def is_leader(self) -> bool:
        """Return whether this sidecar is the leader now."""
        self._leads_called_at = now = self._clock.monotonic()
        return self._candidate.is_leader(now)

    def get_leader(self) -> str:
        """Return the identity of the known leader; empty without one."""
        return self._candidate.get_leader()

    def _renew_periodically(self) -> None:
        while True:
            self._last_error = self._try_renew()
            self._log_leadership_change()
            if self._stop.wait(LEASE_RETRY_PERIOD_S):
                return

    def _try_renew(self) -> str:
        """Acquire or renew the lease; return the error text, logged when it is new."""
        # An outage alone costs no lead: `leads_until` ends it when the last renewal expires.
        try:
            self._acquire_or_renew()
        except ResourceConflictError:
            self._candidate = self._candidate.step_down()
        except PeerError as error:
            if str(error) != self._last_error:
                log.warning("lease %s: %s", self._lease_name, error)
            return str(error)
        except Exception as error:  # a thread that ends unseen would leave the group without a leader
            self._candidate = self._candidate.step_down()
            if repr(error) != self._last_error:
                log.exception("lease %s: unexpected error; retrying", self._lease_name)
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
                log.error("lease %s: released: the control loop hangs for %.0f s", self._lease_name, silent)
                self._write_lease("")
            return
        if not self._candidate.can_acquire(now):
            self._candidate = self._candidate.step_down()
            return
        sent = self._clock.monotonic()  # before the call: it may take seconds (rule 3)
        renewed = _parse_lease(self._write_lease(self._candidate.identity))
        self._candidate = self._candidate.record_renewal(renewed, sent)

    def _write_lease(self, holder: str) -> dict[str, Any]:
        """Create the lease, or replace the version that was read."""
        now = datetime.fromtimestamp(self._clock.wall(), UTC).strftime(LEASE_TIME_FORMAT)
        before: dict[str, Any] = {} if self._lease_body is None else self._lease_body.get("spec") or {}
        changes = int(before.get("leaseTransitions") or 0)
        spec: dict[str, Any] = {
            "holderIdentity": holder or None,  # the API rejects an empty string
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
        is_leader = self._candidate.is_leader(self._clock.monotonic())
        if is_leader != self._was_leading:
            log.info("lease %s: %s", self._lease_name, "acquired" if is_leader else "lost")
        self._was_leading = is_leader


def _parse_lease(body: dict[str, Any]) -> LeaseRecord:
    spec = body.get("spec") or {}
    version = body["metadata"]["resourceVersion"]
    duration = float(spec.get("leaseDurationSeconds") or LEASE_DURATION_S)
    return LeaseRecord(spec.get("holderIdentity") or "", version, duration)
