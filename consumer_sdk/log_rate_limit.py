"""Writes librdkafka's log to Python's logger `trimtab.librdkafka`, with repeated lines limited.

While a broker is unreachable librdkafka writes dozens of equal lines per second. Of lines that
differ in numbers only, one is logged per `LOG_REPEAT_INTERVAL_S`. An application that sets `logger`
gets every line.
"""

import logging
import re
from typing import Final

from trimtab.common.clock import Clock, SystemClock

LOG_REPEAT_INTERVAL_S: Final = 30.0
QUIET_LOG_LEVEL: Final = 2  # of librdkafka: hides connection attempts, which Trimtab logs once itself
MAX_REMEMBERED_LINES: Final = 200
_DIGITS: Final = re.compile(r"[0-9]+")


class RateLimitFilter(logging.Filter):
    """Passes a record unless a similar one passed recently."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._last_logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record."""
        text = _DIGITS.sub("#", record.getMessage())
        now = self._clock.monotonic()
        if now - self._last_logged_at.get(text, -LOG_REPEAT_INTERVAL_S) < LOG_REPEAT_INTERVAL_S:
            return False
        if len(self._last_logged_at) >= MAX_REMEMBERED_LINES:
            self._last_logged_at.clear()  # a few repeated lines are cheaper than an LRU
        self._last_logged_at[text] = now
        return True


LIBRDKAFKA_LOGGER: Final = logging.getLogger("trimtab.librdkafka")
LIBRDKAFKA_LOGGER.addFilter(RateLimitFilter())
