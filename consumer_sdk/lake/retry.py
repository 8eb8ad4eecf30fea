"""How long to wait between two tries, and when to stop trying.

A race that was lost is tried again within milliseconds, with jitter, so that two writers do not
meet again; a storage or catalog that is away is asked again after seconds, for as long as the batch
is wanted. Fetching is pushed back meanwhile, because the batch keeps its memory. Whoever no longer
wants the batch sets `cancelled`.
"""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from trimtab.common.clock import Clock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import LakeUnavailableError

log = logging.getLogger("trimtab.lake")

T = TypeVar("T")

RACE_BACKOFF_MIN_S: Final = 0.02
RACE_BACKOFF_MAX_S: Final = 1.0
OUTAGE_BACKOFF_MIN_S: Final = 0.5
OUTAGE_BACKOFF_MAX_S: Final = 10.0


class FlushAbandonedError(Exception):
    """The batch is no longer wanted; `outcome_unknown`: a commit may have gone through."""

    outcome_unknown: bool = False


def backoff_seconds(shortest: float, longest: float, attempt: int, rng: random.Random) -> float:
    """Return seconds before try `attempt` + 1.

    Doubling from `shortest` up to `longest`, jittered by half.
    """
    return float(min(longest, shortest * 2.0 ** min(attempt, 16)) * rng.uniform(0.5, 1.0))


class LakeOverdueError(LakeUnavailableError):
    """The lake did not answer in time; it is not asked again."""

    retryable = False


def bound_by_deadline(deadline: float, clock: Clock, operation: Callable[[], T]) -> Callable[[], T]:
    """Return the operation; after the deadline its LakeUnavailableError is for good."""

    def bounded() -> T:
        try:
            return operation()
        except LakeUnavailableError as error:
            if clock.monotonic() < deadline:
                raise
            raise LakeOverdueError(str(error)) from error

    return bounded


@dataclass(slots=True)
class RetryBackoff:
    """The patience with one batch."""

    rng: random.Random
    cancelled: threading.Event = field(default_factory=threading.Event)

    def raise_if_cancelled(self) -> None:
        """Raise FlushAbandonedError if the batch is no longer wanted."""
        if self.cancelled.is_set():
            raise FlushAbandonedError

    def wait_after_race(self, attempt: int) -> None:
        """Wait after a lost race. Raises FlushAbandonedError."""
        self.cancelled.wait(
            backoff_seconds(RACE_BACKOFF_MIN_S, RACE_BACKOFF_MAX_S, attempt, self.rng)
        )
        self.raise_if_cancelled()

    def wait_after_outage(self, attempt: int) -> float:
        """Wait after a failure of the other side; return the seconds waited at most.

        Raises FlushAbandonedError.
        """
        seconds = backoff_seconds(OUTAGE_BACKOFF_MIN_S, OUTAGE_BACKOFF_MAX_S, attempt, self.rng)
        self.cancelled.wait(seconds)
        self.raise_if_cancelled()
        return seconds

    def retry_until_cancelled(self, what: str, operation: Callable[[], T]) -> T:
        """Return the operation's result.

        On a retryable error say so and try again, until cancelled.
        """
        attempt = 0
        while True:
            self.raise_if_cancelled()
            try:
                return operation()
            except TrimtabError as error:
                if not error.retryable:
                    raise
                log.warning("%s: %s; trying again, nothing is lost", what, error)
            self.wait_after_outage(attempt)
            attempt += 1
