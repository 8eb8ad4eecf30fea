"""Settings of a simulation: consumers, times, and the limit of late traffic."""

import math
from dataclasses import dataclass

from trimtab.common.errors import InvalidProblemError


@dataclass(frozen=True, slots=True)
class SimulationSetup:
    """Settings of one simulation; all consumers are alike. Times are in seconds."""

    capacity: float = 100.0  # of a consumer, bytes/s
    headroom: float = 1.0  # fraction of it to fill, in (0, 1]
    tick: float = 30.0
    pause: float = 3.0  # a moved partition is not read for it, at most one tick
    late: float = 10.0  # a byte is late if its partition's oldest unread byte has waited longer
    threshold: float = 5.0  # of the lag autoscaler: target lag of a replica ÷ its capacity
    commit: float = 5.0  # the clients' auto-commit interval, which the lag autoscaler sees

    def __post_init__(self) -> None:
        """Raise InvalidProblemError for invalid figures."""
        for name in ("capacity", "tick", "late", "threshold"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidProblemError(f"{name} is {value}; it must be a finite number above 0")
        for name in ("pause", "commit"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidProblemError(f"{name} is {value} s; it must be a finite number from 0 on")
        if not 0 < self.headroom <= 1:
            raise InvalidProblemError(f"headroom is {self.headroom}; it must be above 0 and at most 1")
