"""A clock for tests: time that only moves when it is told to."""


class Ticking:
    """Seconds since an arbitrary start; a sleep is over at once."""

    def __init__(self, now: float = 1_000.0, epoch: float = 1.7e9) -> None:
        self.now = now
        self._epoch = epoch

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self._epoch + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
