"""What a simulation takes for granted: consumers, time, and what counts as late."""

import math
from dataclasses import dataclass

from trimtab.common.errors import InvalidProblemError


@dataclass(frozen=True, slots=True)
class SimulationSetup:
    """Of one simulation; every consumer is alike.

    `capacity` is what a consumer sustains, in bytes/s; a heuristic fills it up to the share
    `headroom`, in (0, 1]. A tick of the stream lasts `tick` seconds. A moved partition is not read
    for `pause` seconds (at most one tick). A byte is late if it arrives while the oldest unread one
    of its partition has waited longer than `late` seconds.

    The rest is of the lag-threshold autoscaler: the lag that one replica may have, as `threshold`
    seconds of its capacity; what it sees is the committed lag, which trails the real one by half of
    `commit` seconds (the client's auto-commit interval).
    """

    capacity: float = 100.0
    headroom: float = 1.0
    tick: float = 30.0
    pause: float = 3.0
    late: float = 10.0
    threshold: float = 5.0
    commit: float = 5.0

    def __post_init__(self) -> None:
        """Raise InvalidProblemError for figures that make no sense."""
        for name in ("capacity", "tick", "late", "threshold"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidProblemError(f"{name} is {value}; it must be a finite number above 0")
        for name in ("pause", "commit"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidProblemError(
                    f"{name} is {value} s; it must be a finite number from 0 on"
                )
        if not 0 < self.headroom <= 1:
            raise InvalidProblemError(
                f"headroom is {self.headroom}; it must be above 0 and at most 1"
            )
