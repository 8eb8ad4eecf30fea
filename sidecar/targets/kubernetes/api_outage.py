"""Resync time of Kubernetes controllers after an API server outage. Pure.

1. A controller watches pods and replica counts by separate streams. After a disconnect it retries
   with exponential backoff from 0.8 s to 30 s, with jitter of up to 100 % (client-go).
2. After an outage of T seconds the current backoff is at most T + 0.8 s, doubled by jitter. So all
   watches are re-established within min(2 T + 2 s, 60 s) of the server's return.
3. An outage lasts at most from the last successful response to the next one. A second outage
   before all watches are re-established extends the first: a pending backoff does not shrink.

Only outages during our own calls are observed, not those between two iterations or before a start.
"""

from dataclasses import dataclass
from typing import Final

MAX_RESYNC_S: Final = 60.0  # client-go's longest backoff, 30 s, doubled by jitter


@dataclass(slots=True)
class ApiOutage:
    """State of the last observed outage; times are monotonic seconds."""

    answered_at: float  # last response before the outage, until all watches are re-established
    is_away: bool = False
    resynced_at: float = 0.0  # all watches are re-established by then

    def note_failure(self) -> None:
        """Record that the server did not respond."""
        self.is_away = True

    def note_answer(self, now: float) -> None:
        """Record that the server responded at `now`."""
        if self.is_away:
            self.resynced_at = now + min(MAX_RESYNC_S, 2 * (now - self.answered_at) + 2)
        if now >= self.resynced_at:
            self.answered_at = now  # not before: a second outage extends the first (rule 3)
        self.is_away = False

    def compute_resync_left(self, now: float) -> float:
        """Return the seconds for which a watch may still be disconnected."""
        return max(0.0, self.resynced_at - now)
