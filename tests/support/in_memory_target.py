"""Target that keeps replicas in memory, for tests and simulations."""

from collections.abc import Callable
from dataclasses import replace

from trimtab.sidecar.model.observation import ReplicaInstance


class InMemoryTarget:
    """Keeps replicas in a dictionary; stopped replicas disappear at once."""

    advisory = False

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now  # start time of new replicas, in seconds
        self._last_number = 0  # names are never reused
        self._replicas: dict[str, ReplicaInstance] = {}
        self.stopped_names: list[str] = []

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        """Return all replicas, sorted by name."""
        return tuple(sorted(self._replicas.values(), key=lambda i: i.name))

    def add_replicas(self, count: int) -> tuple[str, ...]:
        """Add `count` replicas and return their names."""
        names = tuple(f"worker-{self._last_number + n + 1}" for n in range(count))
        self._last_number += count
        for name in names:
            self._replicas[name] = ReplicaInstance(name, alive=True, started_at=self._now())
        return names

    def stop_replica(self, name: str) -> None:
        """Remove a replica."""
        if self._replicas.pop(name, None) is not None:
            self.stopped_names.append(name)

    def kill_replica(self, name: str) -> None:
        """Mark a replica as dead, as after a crash."""
        self._replicas[name] = replace(self._replicas[name], alive=False)
