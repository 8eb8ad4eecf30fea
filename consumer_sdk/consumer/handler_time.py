"""Measures how long the application works on records. No I/O.

1. The work begins when a call returns records, and ends with the next call for records. A call that only
   serves callbacks, `consume(0)`, ends nothing: `trimtab ingest` makes them during a flush.
2. Time inside a call is no work, whatever it waits for.
3. Several threads that take records in turns end each other's work: the sum is too small then.
"""

from collections.abc import Sized

from trimtab.common.clock import Clock


class HandlerTime:
    """Seconds of work since the consumer was opened; its commits carry them to the sidecar."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._opened_at = clock.monotonic()
        self._opened_wall = clock.wall()
        self._seconds = 0.0
        self._since: float | None = None

    def on_call(self, max_messages: int, now: float) -> None:
        """Note a call for so many records; `now` is monotonic."""
        if max_messages and self._since is not None:
            self._seconds += now - self._since
            self._since = None

    def on_return(self, messages: Sized) -> None:
        """Note that a call returns these records."""
        if messages:
            self._since = self._clock.monotonic()

    def read_facts(self) -> dict[str, float]:
        """Return the work so far and the time since the opening, in seconds, and when that was."""
        now, since = self._clock.monotonic(), self._since  # another thread may commit
        running = 0.0 if since is None else now - since
        return {
            "handling": round(self._seconds + running, 3),
            "uptime": round(now - self._opened_at, 3),
            "opened": round(self._opened_wall, 3),  # of equal names, tells one consumer from the next
        }
