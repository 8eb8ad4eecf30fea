"""How much to fetch at once, and how fast: bounded by bytes, whatever a record's size.

With a rate, a token bucket gives a consumer a capacity, so that a small machine can show a large
group.
"""

from dataclasses import dataclass
from typing import Final

from trimtab.common.clock import Clock

SLICE: Final = 0.1
"""Seconds of capacity that one fetch should take at most, so that the rate is smooth."""


@dataclass(slots=True)
class Throttle:
    """Bounds a fetch to `chunk` bytes, and all fetches to `rate` bytes/s (None: no limit).

    Both hold on average: what was taken too early must be waited for.
    """

    clock: Clock
    chunk: float
    rate: float | None = None
    _free_at: float = 0.0
    _mean: float = 1000.0  # bytes a record, as seen so far

    def take(self, size: int, records: int) -> None:
        """Account for records of `size` bytes in all."""
        if records:
            mean = size / records
            self._mean = max(mean, self._mean + 0.2 * (mean - self._mean))
        if self.rate is not None:
            self._free_at = max(self.clock.monotonic(), self._free_at) + size / self.rate

    def wait(self) -> float:
        """Return seconds until more may be taken."""
        return 0.0 if self.rate is None else max(0.0, self._free_at - self.clock.monotonic())

    def batch(self, most: int) -> int:
        """Return how many records to fetch at once, between 1 and `most`."""
        chunk = self.chunk if self.rate is None else min(self.chunk, self.rate * SLICE)
        return max(1, min(most, int(chunk / max(self._mean, 1.0))))
