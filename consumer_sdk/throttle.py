"""A token bucket: gives a consumer a capacity, so that a small machine can show a large group."""

from dataclasses import dataclass
from typing import Final

from trimtab.assignor.clock import Clock

SLICE: Final = 0.1
"""Seconds of capacity that one fetch should take at most, so that the rate is smooth."""


@dataclass(slots=True)
class Throttle:
    """Limits a rate to `rate` bytes/s on average; what was taken too early must be waited for."""

    rate: float
    clock: Clock
    _free_at: float = 0.0
    _mean: float = 200.0  # bytes a record, as seen so far

    def take(self, size: int, records: int) -> None:
        """Account for records of `size` bytes in all."""
        now = self.clock.monotonic()
        self._free_at = max(now, self._free_at) + size / self.rate
        if records:
            self._mean += 0.2 * (size / records - self._mean)

    def wait(self) -> float:
        """Return seconds until more may be taken."""
        return max(0.0, self._free_at - self.clock.monotonic())

    def batch(self, most: int) -> int:
        """Return how many records to fetch at once, between 1 and `most`."""
        return max(1, min(most, int(self.rate * SLICE / max(self._mean, 1.0))))
