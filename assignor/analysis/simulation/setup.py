"""Settings of a simulation: consumers, times, and the limit of late traffic."""

import math
from dataclasses import dataclass

from trimtab.common.errors import InvalidProblemError


@dataclass(frozen=True, slots=True)
class SimulationSetup:
    """Settings of one simulation; all consumers are alike.

    `capacity` is a consumer's in bytes/s; a heuristic fills the fraction `headroom` of it, in
    (0, 1]. A tick lasts `tick` seconds. A moved partition is not read for `pause` seconds, at most
    one tick. A byte is late if it arrives while the oldest unread byte of its partition has waited
    longer than `late` seconds.

    For the lag-threshold autoscaler, `threshold` is the target lag of a replica in seconds of its
    capacity, and `commit` the client's auto-commit interval in seconds: the committed lag trails
    the real one by half of it.
    """

    capacity: float = 100.0
    headroom: float = 1.0
    tick: float = 30.0
    pause: float = 3.0
    late: float = 10.0
    threshold: float = 5.0
    commit: float = 5.0

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
