"""The flush threads: outcomes are returned, and their end is bounded."""

import random
import threading
from collections.abc import Iterator
from threading import Semaphore

import pyarrow as pa
import pytest

from trimtab.consumer_sdk.errors import LakeUnavailableError
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchRefused, FlushBatch, FlushOutcome
from trimtab.consumer_sdk.lake.flush.flush_threads import FlushThreads

BATCH = FlushBatch("lake.a", {}, pa.table({}))


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """The storage hangs until this is set, at the test's end."""
    event = threading.Event()
    yield event
    event.set()


def test_outcomes_and_errors_are_returned() -> None:
    """The result of a flight raises its error, and the thread lives on."""

    def run(batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
        backoff.raise_if_cancelled()
        if not batch.table:
            raise LakeUnavailableError("away")
        return BatchRefused(batch, {})

    threads = FlushThreads(run, random.Random(1))  # noqa: S311 - jitter
    failed = threads.submit(FlushBatch("", {}, BATCH.records))
    with pytest.raises(LakeUnavailableError, match="away"):
        failed.future.result(timeout=10)
    flight = threads.submit(BATCH)
    assert flight.wait(10)
    assert flight.future.result() == BatchRefused(BATCH, {})
    threads.close(10)


def test_hanging_storage_does_not_hang_the_close(released: threading.Event) -> None:
    """After the timeout it raises, and the thread does not keep the process alive."""
    begun = threading.Event()
    daemons: list[bool] = []

    def run(batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:  # noqa: ARG001 - the interface
        daemons.append(threading.current_thread().daemon)
        begun.set()
        released.wait(20)
        return BatchRefused(batch, {})

    threads = FlushThreads(run, random.Random(1))  # noqa: S311 - jitter
    flight = threads.submit(BATCH)
    assert begun.wait(10)
    flight.cancel()
    with pytest.raises(LakeUnavailableError, match=r"lake hangs.*lake\.flush\.timeout"):
        threads.close(0.01)
    assert not flight.done
    assert daemons == [True]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_flushes_run_side_by_side_up_to_the_limit(parallelism: int) -> None:
    """Of three flushes, `parallelism` begin; the next one begins when one ends."""
    begun, ended = Semaphore(0), Semaphore(0)

    def run(batch: FlushBatch, _: RetryBackoff) -> FlushOutcome:
        begun.release()
        assert ended.acquire(timeout=10)
        return BatchRefused(batch, {})

    threads = FlushThreads(run, random.Random(1), parallelism)  # noqa: S311 - jitter
    for table in ("a", "b", "c"):
        threads.submit(FlushBatch(table, {}, BATCH.records))
    assert not threads.has_capacity
    assert all(begun.acquire(timeout=10) for _ in range(parallelism))
    assert not begun.acquire(timeout=0.05)
    ended.release()
    threads.wait_for_any(10)
    assert len(threads.pop_done()) == 1
    assert begun.acquire(timeout=10)
    ended.release(3)
    threads.close(10)


def test_a_flush_that_ends_while_its_threads_are_closed_has_an_outcome(released: threading.Event) -> None:
    """It may have committed; one that hangs is in flight no more."""

    def run(batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
        released.wait(20) if batch.table == "hangs" else backoff.cancelled.wait(20)
        return BatchRefused(batch, {})

    threads = FlushThreads(run, random.Random(1), 2)  # noqa: S311 - jitter
    threads.submit(FlushBatch("hangs", {}, BATCH.records))
    other = threads.submit(FlushBatch("waits", {}, BATCH.records))
    with pytest.raises(LakeUnavailableError):
        threads.close(1)
    assert threads.pop_done() == [other]
    assert not threads.in_flight


def test_a_wait_between_two_tries_is_no_call_that_does_not_return(
    released: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the call that hangs, once; a failed one has its own line in the log."""
    begun = Semaphore(0)

    def run(batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
        backoff.raise_if_cancelled()
        if batch.table == "fails":
            backoff.raise_if_overdue(LakeUnavailableError("away"))
        begun.release()
        released.wait(20)
        return BatchRefused(batch, {})

    now = 1000.0
    threads = FlushThreads(run, random.Random(1), 2, now=lambda: now)  # noqa: S311 - jitter
    for table in ("hangs", "fails"):
        threads.submit(FlushBatch(table, {}, BATCH.records))
    assert all(begun.acquire(timeout=10) for _ in range(2))
    assert threads.find_stalled(30) == set()
    now += 31
    assert (threads.find_stalled(30), threads.find_failing()) == ({"hangs"}, {"fails"})
    assert threads.find_stalled(30) == {"hangs"}
    assert [line for line in caplog.messages if "has not returned for 30 s" in line] == caplog.messages[:1]
    released.set()
    threads.close(10)


def test_a_flush_thread_without_work_ends_at_once() -> None:
    """Without a submission there is no thread to wait for."""
    FlushThreads(lambda batch, _: BatchRefused(batch, {}), random.Random(1)).close(0)  # noqa: S311 - jitter
