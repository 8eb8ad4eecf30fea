"""The flush thread: outcomes are returned, and its end is bounded."""

import random
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from trimtab.consumer_sdk.errors import LakeUnavailableError
from trimtab.consumer_sdk.lake.retry import RetryBackoff
from trimtab.consumer_sdk.lake.writer.flush import BatchRefused, FlushBatch, FlushOutcome
from trimtab.consumer_sdk.lake.writer.flush_thread import FlushThread

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

    stager = FlushThread(run, random.Random(1))  # noqa: S311 - jitter
    failed = stager.submit(FlushBatch("", {}, BATCH.records), 0.0)
    with pytest.raises(LakeUnavailableError, match="away"):
        failed.future.result(timeout=10)
    flight = stager.submit(BATCH, 0.0)
    assert flight.wait(10)
    assert flight.future.result() == BatchRefused(BATCH, {})
    stager.close(10)


def test_hanging_storage_does_not_hang_the_close(released: threading.Event) -> None:
    """After the timeout it raises, and the thread does not keep the process alive."""
    begun = threading.Event()
    daemons: list[bool] = []

    def run(batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:  # noqa: ARG001 - the interface
        daemons.append(threading.current_thread().daemon)
        begun.set()
        released.wait(20)
        return BatchRefused(batch, {})

    stager = FlushThread(run, random.Random(1))  # noqa: S311 - jitter
    flight = stager.submit(BATCH, 0.0)
    assert begun.wait(10)
    flight.cancel()
    with pytest.raises(LakeUnavailableError, match=r"lake hangs.*lake\.flush\.timeout"):
        stager.close(0.01)
    assert not flight.done
    assert daemons == [True]


def test_a_flush_thread_without_work_ends_at_once() -> None:
    """Without a submission there is no thread to wait for."""
    FlushThread(lambda batch, _: BatchRefused(batch, {}), random.Random(1)).close(0)  # noqa: S311 - jitter
