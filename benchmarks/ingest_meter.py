"""Resources of a process and its descendants from /proc: CPU seconds, and resident memory by sampling.

Memory is the proportional set size, which divides shared pages among their processes. Otherwise a
JVM that forks to run a small command would count twice.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

TICKS = os.sysconf("SC_CLK_TCK")
EVERY = 0.2
"""Seconds between two samples of the memory."""


def list_descendants(pid: int) -> Iterator[tuple[int, list[str]]]:
    """Yield pid and /proc/PID/stat, from the state on, of a process and all its descendants."""
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:  # it has just ended
                continue
            stats[int(entry.name)] = text.rpartition(")")[2].split()
    pids = [pid]
    for one in pids:
        pids += [child for child, stat in stats.items() if int(stat[1]) == one]
        if one in stats:
            yield one, stats[one]


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of the tree, children that have ended included."""
    return sum(sum(map(int, stat[11:15])) for _, stat in list_descendants(pid)) / TICKS


def measure_resident_bytes(pid: int) -> int:
    """Return the resident memory of the tree in bytes."""
    return sum(_read_shared_memory(one) for one, _ in list_descendants(pid))


def _read_shared_memory(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it has just ended
        return 0
    sizes = (line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(next(sizes, "0")) * 1024


class Peak:
    """Samples the resident memory of a tree in a thread until `end`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = Event()
        self._bytes = 0
        self._thread = Thread(target=self._sample)
        self._thread.start()

    def end(self) -> int:
        """Stop sampling; return the peak in bytes."""
        self._stop.set()
        self._thread.join()
        return self._bytes

    def _sample(self) -> None:
        while not self._stop.is_set():
            self._bytes = max(self._bytes, measure_resident_bytes(self._pid))
            self._stop.wait(EVERY)
