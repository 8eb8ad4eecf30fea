"""The one background thread that flushes, so that staging overlaps fetching.

At most one batch is under way: the writer fills the next one meanwhile, and when that is full it
waits. The thread touches the lake only; positions, batches and the consumer belong to the
application's thread.

It is a daemon, unlike a thread of ThreadPoolExecutor, which the interpreter waits for at its end: a
storage that hangs must not keep a process from ending. What is cut off is read again.
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
    """A batch under way; `started_at` is seconds of the monotonic clock."""

    batch: FlushBatch
    started_at: float
    backoff: RetryBackoff
    future: "Future[FlushOutcome]"

    @property
    def done(self) -> bool:
        """Whether there is an outcome, or an error."""
        return self.future.done()

    def wait(self, seconds: float) -> bool:
        """Wait for the end; return whether it came."""
        return bool(wait([self.future], timeout=max(0.0, seconds)).done)

    def cancel(self) -> None:
        """Stop trying; a commit that is already under way may still go through."""
        self.backoff.cancelled.set()


class FlushThread:
    """Runs one flush at a time."""

    def __init__(
        self, run: Callable[[FlushBatch, RetryBackoff], FlushOutcome], rng: random.Random
    ) -> None:
        self._run = run
        self._rng = rng
        self._pending: SimpleQueue[InFlightFlush | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, batch: FlushBatch, now: float) -> InFlightFlush:
        """Begin a flush."""
        pace = RetryBackoff(random.Random(self._rng.random()), threading.Event())  # noqa: S311 - jitter, not secrets
        flight = InFlightFlush(batch, now, pace, Future())
        self._pending.put(flight)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_flushes, name="trimtab-flush", daemon=True
            )
            self._thread.start()
        return flight

    def close(self, timeout_s: float) -> None:
        """Let the thread end; what is under way has been waited for or cancelled.

        Raises LakeUnavailableError if the thread still hangs after `timeout_s` seconds; it is left alone.
        """
        self._pending.put(None)
        if self._thread is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise LakeUnavailableError(
                "the lake hangs: a cancelled flush did not end within lake.flush.timeout and is left "
                "behind; its records will be read again. Check that the catalog and the storage answer"
            )

    def _run_flushes(self) -> None:
        while (flight := self._pending.get()) is not None:
            try:
                flight.future.set_result(self._run(flight.batch, flight.backoff))
            except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
                flight.future.set_exception(error)
