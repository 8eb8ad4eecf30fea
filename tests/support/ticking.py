"""A manual clock for tests."""


class Ticking:
    """Clock that only advances when `now` is set or `sleep` is called; `sleep` returns at once."""

    def __init__(self, now: float = 1_000.0, epoch: float = 1.7e9) -> None:
        self.now = now
        self._epoch = epoch

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self._epoch + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
