"""Replicas that exist only in memory: for tests and simulations, ours and users'."""

from collections.abc import Callable
from dataclasses import replace

from trimtab.sidecar.measurement.observation import ReplicaInstance


class InMemoryTarget:
    """Keeps replicas in a dictionary; a stopped one is gone at once. `now` gives start times."""

    advisory = False

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self._last_number = 0
        self._replicas: dict[str, ReplicaInstance] = {}
        self.stopped_names: list[str] = []

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return the replicas there are."""
        return tuple(sorted(self._replicas.values(), key=lambda i: i.name))

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Add so many replicas."""
        names = tuple(f"worker-{self._last_number + n + 1}" for n in range(count))
        self._last_number += count
        for name in names:
            self._replicas[name] = ReplicaInstance(name, alive=True, started_at=self._now())
        return names

    def stop_replica(self, name: str) -> None:
        """Take a replica away."""
        if self._replicas.pop(name, None) is not None:
            self.stopped_names.append(name)

    def kill_replica(self, name: str) -> None:
        """Let a replica die without being asked to."""
        self._replicas[name] = replace(self._replicas[name], alive=False)
