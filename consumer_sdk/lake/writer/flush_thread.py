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

from trimtab.consumer_sdk.errors import LakeUnavailable
from trimtab.consumer_sdk.lake.retry import Pace
from trimtab.consumer_sdk.lake.writer.flush import Batch, Outcome


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
        self._flights: SimpleQueue[Flight | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, batch: Batch, now: float) -> Flight:
        """Begin a flush."""
        pace = Pace(random.Random(self._rng.random()), threading.Event())  # noqa: S311 - jitter, not secrets
        flight = Flight(batch, now, pace, Future())
        self._flights.put(flight)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="trimtab-stager", daemon=True)
            self._thread.start()
        return flight

    def close(self, patience: float) -> None:
        """Let the thread end; what is under way has been waited for or cancelled.

        Raises LakeUnavailable if the thread still hangs after `patience` seconds; it is left alone.
        """
        self._flights.put(None)
        if self._thread is None:
            return
        self._thread.join(patience)
        if self._thread.is_alive():
            raise LakeUnavailable(
                f"the lake hangs: a flush that was called off did not end within {patience:.0f} s "
                "(lake.patience) and is left behind; its records will be read again. See whether "
                "the catalog and the storage answer"
            )

    def _serve(self) -> None:
        while (flight := self._flights.get()) is not None:
            try:
                flight.result.set_result(self._run(flight.batch, flight.pace))
            except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
                flight.result.set_exception(error)
