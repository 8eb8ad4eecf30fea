"""Tells a broker that starts slowly, on a busy machine, from one that no longer starts.

1. It progresses while it writes to its log or uses the processor: each whole second of it counts.
2. Without progress for `BROKER_STALL_S` it has failed, and after `BROKER_START_TIMEOUT_S` in any case.
"""

from pathlib import Path
from typing import Final, NamedTuple

BROKER_STALL_S: Final = 60.0  # an idle JVM uses half a second of the processor in it
BROKER_START_TIMEOUT_S: Final = 600.0

_USER_TIME_FIELD: Final = 11  # in /proc/PID/stat, after the name; the system's time follows
_TICKS_PER_S: Final = 100  # USER_HZ, the same on all of Linux's architectures


class StartEffort(NamedTuple):
    """What a broker's start has cost; it changes with each progress."""

    pid: int = 0  # one process formats the storage, the next one is the broker
    cpu_seconds: int = 0
    log_bytes: int = 0


class StartProgress:
    """Watches one start; times are seconds of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self._began_at = self._progressed_at = now
        self._effort = StartEffort()

    def explain_failure(self, now: float, effort: StartEffort) -> str:
        """Return why the start has failed; "" while it may succeed."""
        if effort != self._effort:
            self._effort, self._progressed_at = effort, now
        if now - self._progressed_at > BROKER_STALL_S:
            return f"it made no progress for {BROKER_STALL_S:.0f} s"
        if now - self._began_at > BROKER_START_TIMEOUT_S:
            return f"it is not ready after {BROKER_START_TIMEOUT_S:.0f} s"
        return ""


def read_start_effort(pid: int, log_file: Path) -> StartEffort:
    """Return the effort so far; 0 seconds for a process that is gone, or on a system without /proc."""
    return StartEffort(pid, _read_cpu_ticks(pid) // _TICKS_PER_S, log_file.stat().st_size)


def _read_cpu_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[_USER_TIME_FIELD : _USER_TIME_FIELD + 2]))
