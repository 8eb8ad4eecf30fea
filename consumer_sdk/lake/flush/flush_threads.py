"""Background threads that flush batches of different tables side by side, so that staging overlaps fetching.

They use the lake only; positions, batches and the consumer belong to the application's thread.

Rules:

1. At most `parallelism` flushes run at a time; further ones wait for a free thread. A flush holds its
   thread for `patience_s` in an outage, and for as long as a call into the lake takes to fail.
2. A table has one flush in flight: its next batch continues where that one ends.
3. A flush that is late is cancelled, and waited for once more: when the writer is closed.
4. A call into the lake that does not return may be slow, such as the staging of a large batch, or hang for
   good; nothing tells which. So it is neither cancelled nor halted: its table is not fetched while its batch
   is full, and the log names it once.
"""

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from math import inf
from queue import SimpleQueue

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.errors import LakeUnavailableError
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import FlushBatch, FlushOutcome

log = logging.getLogger("trimtab.lake")


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
        wait_for_flushes([self], seconds)
        return self.done

    def hasten(self) -> None:
        """Wait for no compaction any more."""
        self.backoff.urgent.set()

    def cancel(self) -> None:
        """Stop retrying; a commit in progress may still succeed."""
        self.backoff.cancelled.set()


def wait_for_flushes(flushes: Iterable[InFlightFlush], seconds: float) -> None:
    """Wait up to this many seconds until all flushes are done."""
    wait([flush.future for flush in flushes], timeout=max(0.0, seconds))


class FlushThreads:
    """Runs at most `parallelism` flushes at a time; used by the application's thread only."""

    def __init__(
        self,
        run: Callable[[FlushBatch, RetryBackoff], FlushOutcome],
        rng: random.Random,
        parallelism: int = 1,
        now: Callable[[], float] = SystemClock.monotonic,
    ) -> None:
        self._run = run
        self._rng = rng
        self._parallelism = parallelism
        self._now = now
        self._pending: SimpleQueue[InFlightFlush | None] = SimpleQueue()
        self._thread_count = 0
        self._in_flight: dict[str, InFlightFlush] = {}  # by table
        self._stalled: set[str] = set()  # of rule 4, which the log has named
        self._any_ended = threading.Event()

    @property
    def in_flight(self) -> Mapping[str, InFlightFlush]:
        """The submitted flushes by table, until `pop_done` returns them."""
        return self._in_flight

    @property
    def has_capacity(self) -> bool:
        """Whether another flush would run at once."""
        return len(self._in_flight) < self._parallelism

    def find_failing(self) -> set[str]:
        """Return the tables whose flush retries a call into the lake that failed."""
        return {t for t, flight in self._in_flight.items() if flight.backoff.failing_since is not None}

    def find_stalled(self, limit_s: float) -> set[str]:
        """Return the tables whose flush waits for a call into the lake for longer than this (rule 4)."""
        begun_by = self._now() - limit_s
        running = {t: flight for t, flight in self._in_flight.items() if not flight.done}
        # a flush that waits between two tries is in no call
        stalled = {t for t, f in running.items() if f.backoff.called_at < begun_by} - self.find_failing()
        for table in sorted(stalled - self._stalled):
            log.warning(
                "%s: a call into the lake has not returned for %.0f s (lake.flush.timeout); the table waits "
                "for it, the others are written. Check that the catalog and the storage respond",
                table,
                limit_s,
            )
        self._stalled = stalled
        return stalled

    def find_tables(self, partitions: Collection[TopicPartition]) -> list[str]:
        """Return the tables whose batches in flight have records of these partitions."""
        return [t for t, f in self._in_flight.items() if not f.batch.spans.keys().isdisjoint(partitions)]

    def submit(self, batch: FlushBatch, patience_s: float = inf) -> InFlightFlush:
        """Queue a flush of a table that has none in flight; start a thread for it if one is allowed."""
        assert batch.table not in self._in_flight
        rng = random.Random(self._rng.random())  # noqa: S311 - jitter, not secrets
        backoff = RetryBackoff(rng, threading.Event(), patience_s=patience_s, now=self._now)
        flight = InFlightFlush(batch, self._now(), backoff, Future())
        self._in_flight[batch.table] = flight
        self._pending.put(flight)
        if self._thread_count < min(self._parallelism, len(self._in_flight)):
            self._thread_count += 1
            # A daemon, unlike ThreadPoolExecutor's: hanging storage must not block the exit.
            threading.Thread(target=self._run_flushes, name="trimtab-flush", daemon=True).start()
        return flight

    def wait_for_any(self, seconds: float) -> None:
        """Wait up to this many seconds until a flush ends, or has ended since the last `pop_done`."""
        self._any_ended.wait(seconds)

    def pop_done(self) -> list[InFlightFlush]:
        """Remove and return the flushes that are done, in the order of their submission."""
        self._any_ended.clear()  # before the look: the end of a flush after it is not missed
        done = [flight for flight in self._in_flight.values() if flight.done]
        for flight in done:
            del self._in_flight[flight.batch.table]
        return done

    def close(self, timeout_s: float) -> None:
        """Cancel all flushes and end the threads; `pop_done` returns those that end within `timeout_s`.

        Raises LakeUnavailableError if one does not, such as in a call into the JVM.
        """
        flights = list(self._in_flight.values())
        for flight in flights:
            flight.cancel()
        wait_for_flushes(flights, timeout_s)
        self._in_flight = {flight.batch.table: flight for flight in flights if flight.done}
        for _ in range(self._thread_count):
            self._pending.put(None)  # ends a thread after its flush
        if not all(flight.done for flight in flights):
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
            self._any_ended.set()
