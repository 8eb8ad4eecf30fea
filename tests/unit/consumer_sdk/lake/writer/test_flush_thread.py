"""The thread that flushes: outcomes come back, and its end is not waited for without bound."""

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
    """Until this is set, the storage hangs; the test's end sets it."""
    event = threading.Event()
    yield event
    event.set()


def test_outcomes_and_errors_come_back() -> None:
    """Also an error goes to whoever asks for the result, and the thread lives on."""

    def run(batch: FlushBatch, pace: RetryBackoff) -> FlushOutcome:
        pace.raise_if_cancelled()
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


def test_a_storage_that_hangs_does_not_hang_the_close(released: threading.Event) -> None:
    """After the patience there is a named error, and the thread does not hold the process."""
    begun = threading.Event()
    daemons: list[bool] = []

    def run(batch: FlushBatch, pace: RetryBackoff) -> FlushOutcome:  # noqa: ARG001 - the interface
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


def test_a_stager_without_work_ends_at_once() -> None:
    """Nothing was submitted: there is no thread to wait for."""
    FlushThread(lambda batch, _: BatchRefused(batch, {}), random.Random(1)).close(0)  # noqa: S311 - jitter
