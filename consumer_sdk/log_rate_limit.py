"""librdkafka's log through Python's, each line once in a while.

While a broker is away librdkafka writes tens of lines a second that say the same. They come by the
logger `trimtab.librdkafka`, and of lines that differ in numbers alone one in `EVERY` seconds. Who
gives a `logger` of their own gets every line.
"""

import logging
import re
from typing import Final

from trimtab.common.clock import Clock, SystemClock

EVERY: Final = 30.0
"""Seconds for which the same line is not repeated."""

KEPT: Final = 200
"""Lines that are remembered; past that all are forgotten."""

_NUMBERS: Final = re.compile(r"[0-9]+")


class Sparing(logging.Filter):
    """Lets a line through if nothing like it came lately."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is to be written."""
        text = _NUMBERS.sub("#", record.getMessage())
        now = self._clock.monotonic()
        if now - self._said.get(text, -EVERY) < EVERY:
            return False
        if len(self._said) >= KEPT:
            self._said.clear()
        self._said[text] = now
        return True


LIBRDKAFKA: Final = logging.getLogger("trimtab.librdkafka")
LIBRDKAFKA.addFilter(Sparing())
