"""Background thread that flushes one batch at a time, so that staging overlaps fetching.

It uses the lake only; positions, batches and the consumer belong to the application's thread.
"""

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from queue import SimpleQueue

from trimtab.consumer_sdk.errors import LakeUnavailableError
from trimtab.consumer_sdk.lake.retry import RetryBackoff
from trimtab.consumer_sdk.lake.writer.flush import FlushBatch, FlushOutcome


@dataclass(frozen=True, slots=True)
class InFlightFlush:
    """A submitted batch."""

    batch: FlushBatch
    started_at: float  # monotonic clock, seconds
    backoff: RetryBackoff
    future: "Future[FlushOutcome]"

    @property
    def done(self) -> bool:
        """Whether the flush has an outcome or an error."""
        return self.future.done()

    def wait(self, seconds: float) -> bool:
        """Wait up to this many seconds; return whether the flush is done."""
        return bool(wait([self.future], timeout=max(0.0, seconds)).done)

    def cancel(self) -> None:
        """Stop retrying; a commit in progress may still succeed."""
        self.backoff.cancelled.set()


class FlushThread:
    """Runs one flush at a time."""

    def __init__(self, run: Callable[[FlushBatch, RetryBackoff], FlushOutcome], rng: random.Random) -> None:
        self._run = run
        self._rng = rng
        self._pending: SimpleQueue[InFlightFlush | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, batch: FlushBatch, now: float) -> InFlightFlush:
        """Queue a flush; start the thread for the first one."""
        backoff = RetryBackoff(random.Random(self._rng.random()), threading.Event())  # noqa: S311 - jitter, not secrets
        flight = InFlightFlush(batch, now, backoff, Future())
        self._pending.put(flight)
        if self._thread is None:
            # A daemon, unlike ThreadPoolExecutor's: hanging storage must not block the exit.
            self._thread = threading.Thread(target=self._run_flushes, name="trimtab-flush", daemon=True)
            self._thread.start()
        return flight

    def close(self, timeout_s: float) -> None:
        """End the thread. Raises LakeUnavailableError if it is alive after `timeout_s` seconds."""
        self._pending.put(None)  # ends the thread after the flight in progress
        if self._thread is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise LakeUnavailableError(
                "the lake hangs: a cancelled flush did not end within lake.flush.timeout and is left "
                "behind; its records will be read again. Check that the catalog and the storage respond"
            )

    def _run_flushes(self) -> None:
        while (flight := self._pending.get()) is not None:
            try:
                flight.future.set_result(self._run(flight.batch, flight.backoff))
            except BaseException as error:  # noqa: BLE001 - the future raises it
                flight.future.set_exception(error)
