"""Where the loop lays down the count, and KEDA's calls pick it up: one value under one lock."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Condition

from trimtab.common.clock import Clock
from trimtab.sidecar.errors import CountUnknown
from trimtab.sidecar.reporting.iteration_report import Report
from trimtab.sidecar.targets.keda.scaler_responses import Patience, Standing, after, count


class Desk:
    """The count that KEDA is told, and whether it may be told; safe for any thread."""

    def __init__(self, patience: Patience, clock: Clock) -> None:
        self._patience = patience
        self._clock = clock
        self._standing = Standing(turned=clock.monotonic())
        self._changed = Condition()

    def begin(self, found: int) -> int:
        """Return the count that was told last; where there is none, go on from the one found."""
        with self._changed:
            if self._standing.count is None:
                self._standing = replace(self._standing, count=found)
            return self._standing.count or 0

    def tell(self, replicas: int) -> None:
        """Tell this count from now on."""
        with self._changed:
            self._standing = replace(self._standing, count=replicas)
            self._changed.notify_all()

    def __call__(self, report: Report) -> None:
        """Take note of a turn."""
        with self._changed:
            self._standing = after(self._standing, report, self._patience, self._clock.monotonic())
            self._changed.notify_all()

    def count(self) -> int:
        """Return how many replicas there are to be. Raises CountUnknown."""
        with self._changed:
            return count(self._standing, self._patience, self._clock.monotonic())

    def wake(self) -> None:
        """Have everybody who waits look whether to go on."""
        with self._changed:
            self._changed.notify_all()

    def activity(self, going: Callable[[], bool]) -> Iterator[bool]:
        """Yield whether any replica is to run, as soon as that is known and at each change.

        Ends when `going` no longer holds; `wake` has it looked at. While it is not known nothing is
        yielded: what was said last stands.
        """
        shown: bool | None = None
        while (shown := self._next(going, shown=shown)) is not None:
            yield shown

    def _next(self, going: Callable[[], bool], *, shown: bool | None) -> bool | None:
        """Wait for something else than was shown; None where it is over."""
        with self._changed:
            while going():
                now = self._active()
                if now is not None and now != shown:
                    return now
                self._changed.wait()
        return None

    def _active(self) -> bool | None:
        try:
            return count(self._standing, self._patience, self._clock.monotonic()) > 0
        except CountUnknown:
            return None
