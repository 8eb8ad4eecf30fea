"""Learns how long replicas take from their start until they have joined the group. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from trimtab.sidecar.model.observation import ReplicaInstance

MAX_SAMPLES: Final = 10  # a new image or node type may take another time


@dataclass(frozen=True, slots=True)
class StartupTimes:
    """The newest start-up times; a replica that had joined when it was first seen tells none."""

    seconds: tuple[float, ...] = ()
    starting: frozenset[str] = frozenset()  # instances seen before they joined

    def add_replicas(
        self, replicas: Iterable[ReplicaInstance], joined: Collection[str], now: float
    ) -> "StartupTimes":
        """Return the times with those of replicas that have joined since; `now` is epoch seconds."""
        alive = [one for one in replicas if one.alive]
        took = (now - one.started_at for one in alive if one.name in self.starting and one.name in joined)
        starting = frozenset(one.name for one in alive if one.name not in joined)
        return StartupTimes((*self.seconds, *took)[-MAX_SAMPLES:], starting)

    @property
    def median(self) -> float | None:
        """The median in seconds; None if no replica was seen to join."""
        return median(self.seconds) if self.seconds else None
