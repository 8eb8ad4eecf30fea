"""The one background thread that flushes, so that staging overlaps fetching.

At most one batch is under way: the writer fills the next one meanwhile, and when that is full it
waits. The thread touches the lake only; positions, batches and the consumer belong to the
application's thread.
"""

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from trimtab.consumer_sdk.lake.flush import Batch, Outcome
from trimtab.consumer_sdk.lake.pace import Pace


@dataclass(frozen=True, slots=True)
class Flight:
    """A batch under way; `begun` is seconds of the monotonic clock."""

    batch: Batch
    begun: float
    pace: Pace
    result: "Future[Outcome]"

    @property
    def done(self) -> bool:
        """Whether there is an outcome, or an error."""
        return self.result.done()

    def wait(self, seconds: float) -> bool:
        """Wait for the end; return whether it came."""
        return bool(wait([self.result], timeout=max(0.0, seconds)).done)

    def cancel(self) -> None:
        """Stop trying; a commit that is already under way may still go through."""
        self.pace.cancel.set()


class Stager:
    """Runs one flush at a time."""

    def __init__(self, run: Callable[[Batch, Pace], Outcome], rng: random.Random) -> None:
        self._run = run
        self._rng = rng
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="trimtab-stager")

    def submit(self, batch: Batch, now: float) -> Flight:
        """Begin a flush."""
        pace = Pace(random.Random(self._rng.random()), threading.Event())  # noqa: S311 - jitter, not secrets
        return Flight(batch, now, pace, self._pool.submit(self._run, batch, pace))

    def close(self) -> None:
        """Let the thread end; what is under way has been waited for or cancelled."""
        self._pool.shutdown(wait=True)
