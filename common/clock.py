"""Clocks: decisions take `now`, loops take a `Clock`, tests inject their own."""

import time
from functools import partial
from typing import Final, Protocol

# Linux's CLOCK_MONOTONIC stands still while the machine is suspended: a lease would stay valid. Other
# platforms have no CLOCK_BOOTTIME; there the time of a suspension does not count.
_MONOTONIC_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Source of time for a loop, in seconds."""

    def monotonic(self) -> float:
        """Return seconds since a fixed point, also those of a suspended machine; never decreases."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch; jumps when the machine's clock is set."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`."""


class SystemClock:
    """Clock of the machine."""

    # without a Python function in between: consumers read it for each batch
    monotonic = staticmethod(partial(time.clock_gettime, _MONOTONIC_CLOCK))

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return time.time()  # noqa: TID251 - the one allowed use

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`."""
        time.sleep(seconds)  # noqa: TID251 - the one allowed use
