"""Limits fetches by bytes instead of records, and optionally to a rate (token bucket).

A rate limit gives each consumer of a demo a capacity, so that one machine can run a large group.
"""

from dataclasses import dataclass
from math import inf
from typing import Final

from trimtab.common.clock import Clock

THROTTLE_SLICE_S: Final = 0.1  # of capacity in one fetch: more would make the rate uneven


@dataclass(slots=True)
class FetchThrottle:
    """Limits one fetch to `chunk_bytes` bytes and all fetches to `bytes_per_s`, both on average."""

    clock: Clock
    chunk_bytes: float
    bytes_per_s: float | None = None  # no limit
    _free_at: float = 0.0
    _mean_record_bytes: float = 1000.0  # an assumption until the first fetch

    def record_fetch(self, size: int, records: int) -> None:
        """Record a fetch of `size` bytes in total."""
        if records:
            mean = size / records
            previous = self._mean_record_bytes
            # Up at once, down slowly: large records must not exceed the limit.
            self._mean_record_bytes = max(mean, previous + 0.2 * (mean - previous))
        if self.bytes_per_s is not None:
            self._free_at = max(self.clock.monotonic(), self._free_at) + size / self.bytes_per_s

    def remaining_wait_s(self) -> float:
        """Return the seconds until the next fetch."""
        return 0.0 if self.bytes_per_s is None else max(0.0, self._free_at - self.clock.monotonic())

    def limit_records(self, max_records: int) -> int:
        """Return the number of records to fetch, between 1 and `max_records`."""
        rate = inf if self.bytes_per_s is None else self.bytes_per_s
        chunk = min(self.chunk_bytes, rate * THROTTLE_SLICE_S)
        return max(1, min(max_records, int(chunk / max(self._mean_record_bytes, 1.0))))
