"""Retries with exponential backoff and jitter, until the batch is cancelled or its patience has run out."""

# Waits are seeded, for the simulation, and end at once when cancelled; stamina offers neither.

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from trimtab.common.clock import SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.common.type_vars import ResultT

log = logging.getLogger("trimtab.lake")

RACE_BACKOFF_MIN_S: Final = 0.02  # another writer's commit takes milliseconds
RACE_BACKOFF_MAX_S: Final = 1.0
OUTAGE_BACKOFF_MIN_S: Final = 0.5  # catalog or storage need seconds to return
OUTAGE_BACKOFF_MAX_S: Final = 10.0


class FlushAbandonedError(Exception):
    """The batch was cancelled."""


def backoff_seconds(shortest: float, longest: float, attempt: int, rng: random.Random) -> float:
    """Return the delay after `attempt` in seconds: doubles from `shortest` up to `longest`."""
    # Jitter of up to a half keeps two writers that met from meeting again.
    return float(min(longest, shortest * 2.0 ** min(attempt, 16)) * rng.uniform(0.5, 1.0))


@dataclass(slots=True)
class RetryBackoff:
    """Retry state of one batch; set `cancelled` to end its waits and retries.

    `urgent` is set when somebody waits for the batch. Errors that are retried are raised `patience_s` after
    the first one since the last success. One thread retries; others read `failing_since` and `called_at`.
    """

    rng: random.Random
    cancelled: threading.Event = field(default_factory=threading.Event)
    urgent: threading.Event = field(default_factory=threading.Event)
    patience_s: float = inf
    now: Callable[[], float] = SystemClock.monotonic
    failing_since: float | None = None
    called_at: float = inf  # when the latest call into the lake began

    def raise_if_cancelled(self) -> None:
        """Raise FlushAbandonedError if the batch was cancelled; called before each call into the lake."""
        self.called_at = self.now()
        if self.cancelled.is_set():
            raise FlushAbandonedError

    def raise_if_overdue(self, error: TrimtabError) -> None:
        """Raise an error that must not be retried any more."""
        now = self.now()
        self.failing_since = now if self.failing_since is None else self.failing_since
        if now - self.failing_since >= self.patience_s:
            raise error

    def wait_after_race(self, attempt: int) -> None:
        """Wait after a lost race. Raises FlushAbandonedError."""
        self._wait(RACE_BACKOFF_MIN_S, RACE_BACKOFF_MAX_S, attempt)

    def wait_after_outage(self, attempt: int) -> None:
        """Wait after an outage. Raises FlushAbandonedError."""
        self._wait(OUTAGE_BACKOFF_MIN_S, OUTAGE_BACKOFF_MAX_S, attempt)

    def _wait(self, shortest: float, longest: float, attempt: int) -> None:
        self.cancelled.wait(backoff_seconds(shortest, longest, attempt, self.rng))
        self.raise_if_cancelled()

    def retry_until_cancelled(self, what: str, operation: Callable[[], ResultT]) -> ResultT:
        """Return the operation's result; log and retry retryable errors until cancelled or overdue."""
        attempt = 0
        while True:
            self.raise_if_cancelled()
            try:
                result = operation()
            except TrimtabError as error:
                if not error.retryable:
                    raise
                self.raise_if_overdue(error)
                log.warning("%s: %s; retrying, no record is lost", what, error)
            else:
                self.failing_since = None
                return result
            self.wait_after_outage(attempt)
            attempt += 1
