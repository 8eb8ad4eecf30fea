"""Limits fetches by bytes instead of records, and optionally to a rate (token bucket).

A rate limit gives each consumer of a demo a capacity, so that one machine can run a large group.
"""

from dataclasses import dataclass
from typing import Final

from trimtab.common.clock import Clock

THROTTLE_SLICE_S: Final = 0.1
"""Seconds of capacity in one fetch, so that the rate is smooth."""


@dataclass(slots=True)
class FetchThrottle:
    """Limits one fetch to `chunk_bytes` bytes and all fetches to `bytes_per_s` (None: no limit).

    Both limits hold on average: an excess is made up for by waiting.
    """

    clock: Clock
    chunk_bytes: float
    bytes_per_s: float | None = None
    _free_at: float = 0.0
    _mean_record_bytes: float = 1000.0  # an assumption until the first fetch

    def record_fetch(self, size: int, records: int) -> None:
        """Record a fetch of `size` bytes in total."""
        if records:
            mean = size / records
            # Up at once, down slowly: large records must not exceed the limit.
            self._mean_record_bytes = max(
                mean, self._mean_record_bytes + 0.2 * (mean - self._mean_record_bytes)
            )
        if self.bytes_per_s is not None:
            self._free_at = max(self.clock.monotonic(), self._free_at) + size / self.bytes_per_s

    def remaining_wait_s(self) -> float:
        """Return the seconds until the next fetch."""
        return 0.0 if self.bytes_per_s is None else max(0.0, self._free_at - self.clock.monotonic())

    def limit_records(self, max_records: int) -> int:
        """Return the number of records to fetch, between 1 and `max_records`."""
        chunk = (
            self.chunk_bytes
            if self.bytes_per_s is None
            else min(self.chunk_bytes, self.bytes_per_s * THROTTLE_SLICE_S)
        )
        return max(1, min(max_records, int(chunk / max(self._mean_record_bytes, 1.0))))
