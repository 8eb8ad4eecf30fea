"""Runs `trimtab doctor`'s checks for the page, in a thread, only while somebody asks for them."""

from collections.abc import Sequence
from dataclasses import asdict
from threading import Lock, Thread
from typing import Any, Final

from trimtab.common.clock import Clock
from trimtab.common.errors import TrimtabError
from trimtab.sidecar.diagnostics.doctor.all_checks import run_all_checks
from trimtab.sidecar.diagnostics.doctor.checks import Finding, failed
from trimtab.sidecar.diagnostics.doctor.shard_checks import run_shard_checks
from trimtab.sidecar.settings.settings import SidecarSettings

MAX_AGE_S: Final = 60.0  # of findings, before the checks run again
CHECKS_REMEDY: Final = "run `trimtab doctor` on this machine"


class DoctorRuns:
    """The newest findings about a group."""

    def __init__(self, settings: SidecarSettings, clock: Clock, shard_topic: str | None = None) -> None:
        """Check the group, and the shards of sidecars that divide the groups by `shard_topic`."""
        self._settings = settings
        self._shard_topic = shard_topic
        self._clock = clock
        self._lock = Lock()
        self._thread: Thread | None = None
        self._time: float | None = None
        self._findings: Sequence[Finding] = ()

    def ask(self, *, again: bool = False) -> dict[str, Any]:
        """Return the newest findings; run the checks if those are old, or `again`."""
        with self._lock:
            is_old = self._time is None or self._clock.wall() - self._time > MAX_AGE_S
            if (is_old or again) and not self._is_running():
                self._thread = Thread(target=self._run, name="trimtab-doctor", daemon=True)
                self._thread.start()
            findings = [asdict(one) for one in self._findings]
            return {"running": self._is_running(), "time": self._time, "findings": findings}

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for the checks in progress."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        try:
            findings = run_all_checks(self._settings, self._clock)
            if self._shard_topic is not None:
                findings += run_shard_checks(self._settings, self._shard_topic, self._clock)
        except TrimtabError as error:
            findings = [failed("doctor", str(error), CHECKS_REMEDY)]
        except Exception as error:  # noqa: BLE001  # the page shows it; the sidecar goes on
            findings = [failed("doctor", f"the checks ended: {error!r}", CHECKS_REMEDY)]
        self._findings, self._time = findings, self._clock.wall()
