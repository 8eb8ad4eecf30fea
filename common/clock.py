"""Clocks: decisions take `now`, loops take a `Clock`, tests inject their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time for a loop, in seconds."""

    def monotonic(self) -> float:
        """Return seconds since a fixed point; never decreases."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch; jumps when the machine's clock is set."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`."""


class SystemClock:
    """Clock of the machine."""

    # the builtin itself: consumers read it for each batch
    monotonic = staticmethod(time.monotonic)  # noqa: TID251 - the one allowed use

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return time.time()  # noqa: TID251 - the one allowed use

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`."""
        time.sleep(seconds)  # noqa: TID251 - the one allowed use
