"""Leader election by a Lease (coordination.k8s.io); the rules stand in `sidecar.election`.

A thread looks at the lease every `RETRY` seconds, so that a long turn of the loop does not cost it.
A server that does not answer costs the lead when the last renewal is old enough, not before. What
nobody expected costs it at once and is logged with its trace; the thread goes on and tries again,
and whoever is free of it leads meanwhile.
"""

import logging
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any, Final

from trimtab.common.clock import Clock
from trimtab.common.errors import PeerError
from trimtab.sidecar.leadership.leader_election import LEASE, RETRY, Candidate, Record
from trimtab.sidecar.targets.kubernetes.api_client import Changed, KubeApi

log = logging.getLogger("trimtab.sidecar")

STAMP: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


class Election:
    """One candidate, `me`, for the lease of that name.

    It is one for as long as its loop has asked `leads` within `patience` seconds.
    """

    def __init__(self, api: KubeApi, lease: str, me: str, clock: Clock, patience: float) -> None:
        self._api = api
        self._lease = lease
        self._clock = clock
        self._patience = patience
        self._asked = clock.monotonic()
        self._at = Candidate(me)
        self._led = False
        self._trouble = ""
        self._body: dict[str, Any] | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, name="trimtab-election", daemon=True)

    def start(self) -> None:
        """Begin to look at the lease."""
        self._thread.start()

    def close(self) -> None:
        """End; a lease that is ours is given up, so that the next one need not wait."""
        self._stop.set()
        self._thread.join()
        if self._at.leads(self._clock.monotonic()):
            self._at = self._at.lost()
            try:
                self._write("")
            except (PeerError, Changed) as error:
                log.warning("the lease %s was not given up: %s", self._lease, error)

    def leads(self) -> bool:
        """Tell whether this sidecar may act, now."""
        self._asked = now = self._clock.monotonic()
        return self._at.leads(now)

    def leader(self) -> str:
        """Return who leads, as far as is known; empty where nobody does."""
        return self._at.leader()

    def _run(self) -> None:
        while True:
            self._trouble = self._tried()
            self._say()
            if self._stop.wait(RETRY):
                return

    def _tried(self) -> str:
        """Look at the lease; return what kept us from it, which is logged when it is new."""
        try:
            self._step()
        except Changed:
            self._at = self._at.lost()
        except PeerError as error:
            if str(error) != self._trouble:
                log.warning("lease %s: %s", self._lease, error)
            return str(error)
        except Exception as error:
            self._at = self._at.lost()
            if repr(error) != self._trouble:
                log.exception("lease %s: unexpected; it is tried again", self._lease)
            return repr(error)
        return ""

    def _step(self) -> None:
        self._body = self._api.lease(self._lease)
        record = None if self._body is None else _record(self._body)
        now = self._clock.monotonic()
        self._at = self._at.saw(record, now)
        silent = now - self._asked
        if silent > self._patience:
            self._at = self._at.lost()
            if record is not None and record.holder == self._at.name:
                log.error("lease %s: given up: the loop hangs since %.0f s", self._lease, silent)
                self._write("")
            return
        if not self._at.may_take(now):
            self._at = self._at.lost()
            return
        sent = self._clock.monotonic()
        self._at = self._at.took(_record(self._write(self._at.name)), sent)

    def _write(self, holder: str) -> dict[str, Any]:
        """Write the lease over what was read. Raises Changed, KubernetesAway, KubernetesRefuses."""
        now = datetime.fromtimestamp(self._clock.wall(), UTC).strftime(STAMP)
        before: dict[str, Any] = {} if self._body is None else self._body.get("spec") or {}
        changes = int(before.get("leaseTransitions") or 0)
        spec: dict[str, Any] = {
            "holderIdentity": holder or None,  # an empty one is refused
            "leaseDurationSeconds": int(LEASE),
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now),
            "leaseTransitions": changes,
        }
        if holder and before.get("holderIdentity") != holder:
            spec |= {"acquireTime": now, "leaseTransitions": changes + 1}
        if self._body is None:
            made = self._api.make_lease({"metadata": {"name": self._lease}, "spec": spec})
        else:
            made = self._api.put_lease(self._lease, {**self._body, "spec": spec})
        self._body = made
        return made

    def _say(self) -> None:
        leads = self._at.leads(self._clock.monotonic())
        if leads != self._led:
            log.info("lease %s: %s", self._lease, "we lead" if leads else "we do not lead any more")
        self._led = leads


def _record(body: dict[str, Any]) -> Record:
    spec = body.get("spec") or {}
    version = body["metadata"]["resourceVersion"]
    return Record(
        spec.get("holderIdentity") or "", version, float(spec.get("leaseDurationSeconds") or LEASE)
    )
