"""librdkafka's log through Python's, each line once in a while.

While a broker is away librdkafka writes tens of lines a second that say the same. They come by the
logger `trimtab.librdkafka`, and of lines that differ in numbers alone one in `LOG_REPEAT_INTERVAL_S` seconds. Who
gives a `logger` of their own gets every line.
"""

import logging
import re
from typing import Final

from trimtab.common.clock import Clock, SystemClock

LOG_REPEAT_INTERVAL_S: Final = 30.0
"""Seconds for which the same line is not repeated."""

MAX_REMEMBERED_LINES: Final = 200
"""Lines that are remembered; past that all are forgotten."""

_DIGITS: Final = re.compile(r"[0-9]+")


class RateLimitFilter(logging.Filter):
    """Lets a line through if nothing like it came lately."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._last_logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is to be written."""
        text = _DIGITS.sub("#", record.getMessage())
        now = self._clock.monotonic()
        if now - self._last_logged_at.get(text, -LOG_REPEAT_INTERVAL_S) < LOG_REPEAT_INTERVAL_S:
            return False
        if len(self._last_logged_at) >= MAX_REMEMBERED_LINES:
            self._last_logged_at.clear()
        self._last_logged_at[text] = now
        return True


LIBRDKAFKA_LOGGER: Final = logging.getLogger("trimtab.librdkafka")
LIBRDKAFKA_LOGGER.addFilter(RateLimitFilter())
