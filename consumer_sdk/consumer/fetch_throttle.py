"""How much to fetch at once, and how fast: bounded by bytes, whatever a record's size.

With a rate, a token bucket gives a consumer a capacity, so that a small machine can show a large
group.
"""

from dataclasses import dataclass
from typing import Final

from trimtab.common.clock import Clock

THROTTLE_SLICE_S: Final = 0.1
"""Seconds of capacity that one fetch should take at most, so that the rate is smooth."""


@dataclass(slots=True)
class FetchThrottle:
    """Bounds a fetch to `chunk_bytes` bytes, and all fetches to `bytes_per_s` bytes/s (None: no limit).

    Both hold on average: what was taken too early must be waited for.
    """

    clock: Clock
    chunk_bytes: float
    bytes_per_s: float | None = None
    _free_at: float = 0.0
    _mean_record_bytes: float = 1000.0  # bytes a record, as seen so far

    def record_fetch(self, size: int, records: int) -> None:
        """Account for records of `size` bytes in all."""
        if records:
            mean = size / records
            self._mean_record_bytes = max(
                mean, self._mean_record_bytes + 0.2 * (mean - self._mean_record_bytes)
            )
        if self.bytes_per_s is not None:
            self._free_at = max(self.clock.monotonic(), self._free_at) + size / self.bytes_per_s

    def remaining_wait_s(self) -> float:
        """Return seconds until more may be taken."""
        return 0.0 if self.bytes_per_s is None else max(0.0, self._free_at - self.clock.monotonic())

    def limit_records(self, max_records: int) -> int:
        """Return how many records to fetch at once, between 1 and `max_records`."""
        chunk = (
            self.chunk_bytes
            if self.bytes_per_s is None
            else min(self.chunk_bytes, self.bytes_per_s * THROTTLE_SLICE_S)
        )
        return max(1, min(max_records, int(chunk / max(self._mean_record_bytes, 1.0))))
