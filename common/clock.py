"""Clocks: decisions take `now`, loops take a `Clock`, tests inject their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time for a loop, in seconds."""

    def monotonic(self) -> float:
        """Return seconds since a fixed point; never decreases."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch; may jump."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`."""
        ...


class SystemClock:
    """Clock of the machine."""

    monotonic = staticmethod(time.monotonic)  # noqa: TID251 - the one allowed use

    def wall(self) -> float:
        """Return seconds since the epoch; may jump."""
        return time.time()  # noqa: TID251 - the one allowed use

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`."""
        time.sleep(seconds)  # noqa: TID251 - the one allowed use
