"""Replicas that exist only in memory: for tests and simulations, ours and users'."""

from collections.abc import Callable
from dataclasses import replace

from trimtab.sidecar.measurement.observation import Instance


class Memory:
    """Keeps replicas in a dictionary; a stopped one is gone at once. `now` gives start times."""

    advisory = False

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self._given = 0
        self._replicas: dict[str, Instance] = {}
        self.stopped: list[str] = []

    def replicas(self) -> tuple[Instance, ...]:
        """Return the replicas there are."""
        return tuple(sorted(self._replicas.values(), key=lambda i: i.name))

    def add(self, count: int) -> tuple[str, ...]:
        """Add so many replicas."""
        names = tuple(f"worker-{self._given + n + 1}" for n in range(count))
        self._given += count
        for name in names:
            self._replicas[name] = Instance(name, alive=True, started=self._now())
        return names

    def stop(self, name: str) -> None:
        """Take a replica away."""
        if self._replicas.pop(name, None) is not None:
            self.stopped.append(name)

    def kill(self, name: str) -> None:
        """Let a replica die without being asked to."""
        self._replicas[name] = replace(self._replicas[name], alive=False)
