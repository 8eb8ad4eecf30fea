"""How long to wait between two tries, and when to stop trying.

A race that was lost is tried again within milliseconds, with jitter, so that two writers do not
meet again; a storage or catalog that is away is asked again after seconds, for as long as the batch
is wanted. Fetching is pushed back meanwhile, because the batch keeps its memory. Whoever no longer
wants the batch sets `cancel`.
"""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from trimtab.common.clock import Clock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import LakeUnavailable

log = logging.getLogger("trimtab.lake")

T = TypeVar("T")

RACE_FIRST: Final = 0.02
RACE_MOST: Final = 1.0
AWAY_FIRST: Final = 0.5
AWAY_MOST: Final = 10.0


class Abandoned(Exception):
    """The batch is no longer wanted; `unsure`: a commit may have gone through."""

    unsure: bool = False


def delay(first: float, most: float, attempt: int, rng: random.Random) -> float:
    """Return seconds before try `attempt` + 1.

    Doubling from `first` up to `most`, jittered by half.
    """
    return float(min(most, first * 2.0 ** min(attempt, 16)) * rng.uniform(0.5, 1.0))


class OverdueError(LakeUnavailable):
    """The lake did not answer in time; it is not asked again."""

    retryable = False


def until(deadline: float, clock: Clock, operation: Callable[[], T]) -> Callable[[], T]:
    """Return the operation; after the deadline its LakeUnavailable is for good."""

    def bounded() -> T:
        try:
            return operation()
        except LakeUnavailable as error:
            if clock.monotonic() < deadline:
                raise
            raise OverdueError(str(error)) from error

    return bounded


@dataclass(slots=True)
class Pace:
    """The patience with one batch."""

    rng: random.Random
    cancel: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise Abandoned if the batch is no longer wanted."""
        if self.cancel.is_set():
            raise Abandoned

    def race(self, attempt: int) -> None:
        """Wait after a lost race. Raises Abandoned."""
        self.cancel.wait(delay(RACE_FIRST, RACE_MOST, attempt, self.rng))
        self.check()

    def away(self, attempt: int) -> float:
        """Wait after a failure of the other side; return the seconds waited at most.

        Raises Abandoned.
        """
        seconds = delay(AWAY_FIRST, AWAY_MOST, attempt, self.rng)
        self.cancel.wait(seconds)
        self.check()
        return seconds

    def persist(self, what: str, operation: Callable[[], T]) -> T:
        """Return the operation's result.

        On a retryable error say so and try again, until cancelled.
        """
        attempt = 0
        while True:
            self.check()
            try:
                return operation()
            except TrimtabError as error:
                if not error.retryable:
                    raise
                log.warning("%s: %s; trying again, nothing is lost", what, error)
            self.away(attempt)
            attempt += 1
