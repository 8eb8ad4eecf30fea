"""For how long controllers may not see what the API server has, after it was away. Pure.

1. A controller reads by streams, one for pods and another for counts. When they break it asks
   again after pauses that double, from 0.8 s to 30 s, each up to twice as long by chance
   (client-go).
2. After T seconds the pause under way is at most T + 0.8 s, and twice that by chance. So all
   streams are back 2 T + 2 s after the server is, or a minute.
3. The server was away from its last answer, at the earliest, to its next. Away again before the
   streams are back is one outage: a pause that is not over has not become shorter.

Known is only what we asked meanwhile: an outage between two turns, or before a start, is not.
"""

from dataclasses import dataclass
from typing import Final

MAX_RESYNC_S: Final = 60.0


@dataclass(slots=True)
class ApiOutage:
    """What is known of the last one; times are seconds of the monotonic clock."""

    answered_at: float  # before the last outage, while streams may be broken
    is_away: bool = False
    resynced_at: float = 0.0
    """When all streams are back."""

    def note_failure(self) -> None:
        """Hear that the server did not answer."""
        self.is_away = True

    def note_answer(self, now: float) -> None:
        """Hear that the server answered."""
        if self.is_away:
            self.resynced_at = now + min(MAX_RESYNC_S, 2 * (now - self.answered_at) + 2)
        if now >= self.resynced_at:
            self.answered_at = now
        self.is_away = False

    def compute_resync_left(self, now: float) -> float:
        """Return for how many seconds some stream may still be broken."""
        return max(0.0, self.resynced_at - now)
