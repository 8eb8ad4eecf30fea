"""The one door to time: decisions take `now`, loops take a `Clock`, tests bring their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """What a loop may ask of time; seconds throughout."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch; may jump."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clock."""

    monotonic = staticmethod(time.monotonic)  # noqa: TID251 - this is the door

    def wall(self) -> float:
        """Seconds since the epoch; may jump."""
        return time.time()  # noqa: TID251 - this is the door

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # noqa: TID251 - this is the door
