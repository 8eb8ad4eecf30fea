"""Promises of the writer that need neither Spark nor a broker."""

import ast
import re
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as RawPartition

from support.lake.writer_stand_ins import CONFIG, EmptyConsumer, Lake, ManualClock, OtherRecord, Record
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import LakeUnavailableError, SparkSessionError
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush import flush_threads
from trimtab.consumer_sdk.lake.flush.flush import BatchCommitted, BatchFlusher, BatchRefused, FlushBatch
from trimtab.consumer_sdk.lake.flush.flush_threads import InFlightFlush
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable
from trimtab.consumer_sdk.lake.writer import writer as writer_module
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter


@pytest.mark.parametrize(
    ("reset", "partition", "lines"), [("latest", 0, 1), ("latest", 1, 0), ("earliest", 0, 0)]
)
def test_a_reset_to_the_end_is_logged_for_partitions_with_an_offset(
    caplog: pytest.LogCaptureFixture, reset: str, partition: int, lines: int
) -> None:
    """A partition that the table knows would lose records that still exist."""
    config = CONFIG | {"auto.offset.reset": reset}
    with LakeWriter(EmptyConsumer(), config, lake=Lake()) as writer:
        writer.on_assign(None, [RawPartition("a", partition)])
    warnings = [line for line in caplog.messages if "auto.offset.reset=latest" in line]
    assert len(warnings) == lines
    assert all("a-0" in line for line in warnings)


def test_a_hanging_lake_does_not_hang_the_close(caplog: pytest.LogCaptureFixture) -> None:
    """It ends after lake.flush.timeout, and the log reports the hanging lake."""
    begun, released = threading.Event(), threading.Event()

    class Hanging(Lake):
        def open_table(self, name: str) -> LakeTable | None:
            begun.set()
            released.wait(20)
            return super().open_table(name)

    batch = FlushBatch("lake.a", {}, pa.table({}))
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"lake.flush.timeout": "10 ms"}, lake=Hanging())
    flight = writer._flushes.submit(batch)  # pyright: ignore[reportPrivateUsage] - no batch of its own
    assert begun.wait(10)
    flight.cancel()
    with pytest.raises(LakeUnavailableError, match=r"lake\.a.*lake\.flush\.timeout"):
        writer.close()
    assert any(line.startswith("the lake hangs") for line in caplog.messages)
    assert not flight.done
    released.set()


def test_stop_ends_a_write_that_waits_for_the_lake(caplog: pytest.LogCaptureFixture) -> None:
    """Ending takes lake.flush.timeout while a call hangs, and logs the lost offsets."""
    stop, released = threading.Event(), threading.Event()
    settings = CONFIG | {"batch.bytes": "1 kB", "lake.flush.timeout": "100 ms"}
    lake = Lake()
    writer = LakeWriter(EmptyConsumer(), settings, lake=lake)
    writer.on_assign(None, [RawPartition("a", 1)])
    lake.open_table = lambda _: released.wait(20) and None  # type: ignore[assignment, method-assign]
    writer.write([Record(0), Record(1)], stop=stop)
    threading.Timer(0.2, stop.set).start()
    started_at = time.monotonic()
    writer.write([Record(2), Record(3)], stop=stop)  # the memory is full until the lake answers
    with pytest.raises(LakeUnavailableError, match=r"within .*lake\.flush\.timeout"):
        writer.close()
    assert time.monotonic() - started_at < 5
    (given_up,) = [line for line in caplog.messages if "given up" in line]
    assert "a-1 offsets 0-3" in given_up
    released.set()


def test_a_hanging_flush_is_waited_for_once(caplog: pytest.LogCaptureFixture) -> None:
    """close() waits lake.flush.timeout twice: for the flush, and for its cancellation."""
    released = threading.Event()
    lake = Lake()
    timeout_s = 2.0
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"lake.flush.timeout": "2 s"}, lake=lake)
    writer.on_assign(None, [RawPartition("a", 1)])
    lake.open_table = lambda _: released.wait(20) and None  # type: ignore[assignment, method-assign]
    writer.write([Record(0)])
    started_at = time.monotonic()
    with pytest.raises(LakeUnavailableError):
        writer.close()
    writer.on_revoke(None, [RawPartition("a", 1)])
    assert time.monotonic() - started_at < 2.8 * timeout_s
    assert any(line.startswith("the lake hangs") for line in caplog.messages)
    released.set()


def test_a_revocation_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group waits for it: a flush that is late is cancelled, and not waited for again."""
    released, lake, clock = threading.Event(), Lake(), ManualClock()

    def wait_in_vain(flights: Iterable[InFlightFlush], seconds: float) -> None:
        if any(not flight.done for flight in flights):
            clock.now += seconds

    for module in (writer_module, flush_threads):
        monkeypatch.setattr(module, "wait_for_flushes", wait_in_vain)
    settings = CONFIG | {"batch.bytes": "1 kB", "lake.flush.timeout": "30 s"}
    writer = LakeWriter(EmptyConsumer(), settings, lake=lake, clock=clock)
    writer.on_assign(None, [RawPartition("a", 1)])
    lake.open_table = lambda _: released.wait(20) and None  # type: ignore[assignment, method-assign]
    writer.write([Record(0)])
    writer.on_revoke(None, [RawPartition("a", 1)])
    assert clock.now == ManualClock.now + 30
    assert writer._flushes.in_flight["lake.a"].backoff.cancelled.is_set()  # pyright: ignore[reportPrivateUsage] - it is not visible
    released.set()
    writer.__exit__(KeyError)


def test_a_flush_that_hung_and_ended_is_no_hanging_lake(caplog: pytest.LogCaptureFixture) -> None:
    """After a flush that ended late, close() waits for the thread as usual and reports no hang."""
    released = threading.Event()
    lake = Lake()
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"lake.flush.timeout": "100 ms"}, lake=lake)
    writer.on_assign(None, [RawPartition("a", 1)])
    lake.open_table = lambda _: released.wait(20) and None  # type: ignore[assignment, method-assign]
    writer.write([Record(0)])
    with pytest.raises(LakeUnavailableError):
        writer.flush()
    flight = writer._flushes.in_flight["lake.a"]  # pyright: ignore[reportPrivateUsage] - its end is not visible
    released.set()
    assert flight.wait(10)
    writer.close()
    assert not any(line.startswith("the lake hangs") for line in caplog.messages)


def test_a_batch_that_landed_is_not_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application error ends the writer after the commit: Kafka gets the offset, the log none."""
    consumer, commits = EmptyConsumer(), list[Any]()
    consumer.commit = lambda **given: commits.append(given["offsets"])  # type: ignore[method-assign]

    def commit(_: BatchFlusher, batch: FlushBatch, __: RetryBackoff) -> BatchCommitted:
        return BatchCommitted(batch, ())

    monkeypatch.setattr(BatchFlusher, "flush_batch", commit)
    writer = LakeWriter(consumer, CONFIG | {"batch.bytes": "1 kB"}, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1)])
    writer.write([Record(0)])
    flight = writer._flushes.in_flight["lake.a"]  # pyright: ignore[reportPrivateUsage] - its end is not visible
    assert flight.wait(10)
    writer.__exit__(KeyError)
    assert [(p.topic, p.partition, p.offset) for offsets in commits for p in offsets] == [("a", 1, 1)]
    assert not any("given up" in line for line in caplog.messages)


class LogConsumer(EmptyConsumer):
    """A consumer of a-1 with the offsets 0 to 5, from the position of its assignment."""

    def __init__(self) -> None:
        self.next = 0
        self.committed: list[int] = []

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:  # noqa: ARG002 - the interface
        first, self.next = self.next, min(6, self.next + num_messages)
        return [Record(offset) for offset in range(first, self.next)]

    def incremental_assign(self, partitions: Any) -> None:
        (partition,) = partitions
        self.next = partition.offset

    def commit(self, *, offsets: Any, asynchronous: bool = True) -> None:  # noqa: ARG002 - the interface
        self.committed += [partition.offset for partition in offsets]


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_records_fetched_before_a_flush_are_written_after_it(
    monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """`flush` between `consume` and `write`: no offset of an unwritten record is committed, and none lost.

    A refused batch moves the consumer back, but only once the records in the application's hands are in.
    """
    flushed: list[range] = []
    refusals = iter([True] * refused)

    def flush_batch(_: BatchFlusher, batch: FlushBatch, __: RetryBackoff) -> BatchCommitted | BatchRefused:
        if next(refusals, False):
            return BatchRefused(batch, {p: span.expected for p, span in batch.spans.items()})
        flushed.extend(range(span.first, span.next) for span in batch.spans.values())
        return BatchCommitted(batch, ())

    monkeypatch.setattr(BatchFlusher, "flush_batch", flush_batch)
    consumer = LogConsumer()
    writer = LakeWriter(consumer, CONFIG | {"batch.max.age": "1 h"}, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1)])
    for _ in range(9):
        fetched = consumer.consume(2)
        writer.flush()
        assert max(consumer.committed, default=0) == max((batch.stop for batch in flushed), default=0)
        writer.write(fetched)
    writer.close()
    assert [offset for batch in flushed for offset in batch] == list(range(6))
    assert consumer.committed[-1] == 6


def test_the_example_in_the_docstring_is_code() -> None:
    """The indented block of the module's docstring parses as the loop."""
    found = re.search(r"\n\n(    with .*?)\n\n", writer_module.__doc__ or "", re.DOTALL)
    assert found is not None
    (loop,) = ast.parse(textwrap.dedent(found[1])).body
    assert isinstance(loop, ast.With)
    assert "lake.write(consumer.consume(5000, timeout=0.2))" in ast.unparse(loop.body[-1])


def fail_with(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def test_an_error_that_concerns_all_ends_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batch is gone: the next one must not be committed over the hole."""
    monkeypatch.setattr(BatchFlusher, "flush_batch", fail_with(SparkSessionError("the JVM is gone")))
    writer = LakeWriter(EmptyConsumer(), CONFIG, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1)])
    writer.write([Record(0)])
    for call in (writer.flush, writer.flush, lambda: writer.write([Record(1)])):
        with pytest.raises(SparkSessionError):
            call()
    writer.__exit__(RuntimeError)


def test_a_revocation_survives_an_error_that_concerns_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition is released, and the next call raises the error."""
    monkeypatch.setattr(BatchFlusher, "flush_batch", fail_with(SparkSessionError("the JVM is gone")))
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"batch.bytes": "1 kB"}, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1)])
    writer.write([Record(0)])
    writer.on_revoke(None, [RawPartition("a", 1)])
    with pytest.raises(SparkSessionError):
        writer.write([])
    writer.__exit__(RuntimeError)


class DeniedEvent(Record):
    """librdkafka's event of a topic with Describe and without Read."""

    def topic(self) -> str:
        return "b"

    def error(self) -> Any:
        return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_a_topic_without_read_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """A pattern may find such a topic at any time: the log names it, the other topics are written."""
    writer = LakeWriter(EmptyConsumer(), CONFIG, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1), RawPartition("b", 1)])
    writer.write([Record(0), DeniedEvent(0), Record(1)])
    (accepted,) = writer._positions.unwritten_ranges().values()  # pyright: ignore[reportPrivateUsage]
    assert accepted == (0, 2)
    assert any("grant Read on topic b" in line for line in caplog.messages)
    writer.__exit__(KeyError)


class GatedFlushes:
    """Flushes of every table, each of which waits until its table is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.gates = {table: threading.Event() for table in ("lake.a", "lake.b")}
        monkeypatch.setattr(BatchFlusher, "flush_batch", self._flush)

    def _flush(self, batch: FlushBatch, backoff: RetryBackoff) -> BatchCommitted | BatchRefused:
        self.begun.append(batch.table)
        while not self.gates[batch.table].wait(0.01):
            if backoff.cancelled.is_set():
                return BatchRefused(batch, {p: span.expected for p, span in batch.spans.items()})
        return BatchCommitted(batch, ())

    def open(self) -> None:
        for gate in self.gates.values():
            gate.set()


SIDE_BY_SIDE = CONFIG | {"batch.bytes": "1 kB", "lake.table": "lake.{topic}", "lake.flush.timeout": "20 s"}


def start_writer(config: dict[str, Any]) -> LakeWriter:
    writer = LakeWriter(EmptyConsumer(), config, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1), RawPartition("b", 1)])
    return writer


@pytest.mark.parametrize(("parallelism", "tables"), [(1, 1), (2, 2)])
def test_tables_are_flushed_side_by_side(
    monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None], parallelism: int, tables: int
) -> None:
    """`lake.flush.parallelism` tables at a time; a table's next batch waits for its previous one."""
    flushes = GatedFlushes(monkeypatch)
    writer = start_writer(SIDE_BY_SIDE | {"lake.flush.parallelism": parallelism, "batch.memory": "1 MB"})
    writer.write([Record(0)])
    writer.write([OtherRecord(0)], stop=stopped())
    writer.write([Record(1)], stop=stopped())
    eventually(lambda: len(flushes.begun) >= tables)
    assert sorted(flushes.begun) == ["lake.a", "lake.b"][:tables]
    flushes.open()
    writer.close()
    assert sorted(flushes.begun) == ["lake.a", "lake.a", "lake.b"]


def test_a_handover_waits_for_the_flush_of_its_table_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition a-1 moves while the storage of table b does not answer."""
    flushes = GatedFlushes(monkeypatch)
    writer = start_writer(SIDE_BY_SIDE)
    writer.write([Record(0)])
    writer.write([OtherRecord(0)])
    threading.Timer(0.1, flushes.gates["lake.a"].set).start()
    writer.on_revoke(None, [RawPartition("a", 1)])
    assert not writer._positions.committed_offsets([TopicPartition("a", 1)])  # pyright: ignore[reportPrivateUsage] # forgotten
    assert list(writer._flushes.in_flight) == ["lake.b"]  # pyright: ignore[reportPrivateUsage]
    flushes.open()
    writer.close()


def test_a_handover_waits_for_no_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush that it waits for becomes urgent; other tables' flushes may go on waiting."""
    flushes = GatedFlushes(monkeypatch)
    writer = start_writer(SIDE_BY_SIDE)
    writer.write([Record(0)])
    writer.write([OtherRecord(0)])
    flights = dict(writer._flushes.in_flight)  # pyright: ignore[reportPrivateUsage]
    flushes.gates["lake.a"].set()
    writer.on_revoke(None, [RawPartition("a", 1)])
    assert {table: flight.backoff.urgent.is_set() for table, flight in flights.items()} == {
        "lake.a": True,
        "lake.b": False,
    }
    flushes.open()
    writer.close()


def test_a_flush_names_the_tables_that_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are cancelled after one lake.flush.timeout together, and only the late one is named."""
    flushes = GatedFlushes(monkeypatch)
    late = {"batch.max.age": "1 h", "batch.bytes": "1 MB", "lake.flush.timeout": "3 s"}
    writer = start_writer(SIDE_BY_SIDE | late)
    flushes.gates["lake.a"].set()
    writer.write([Record(0), OtherRecord(0)])
    with pytest.raises(LakeUnavailableError, match=r"^lake\.b: the lake did not accept"):
        writer.flush()
    assert writer._positions.unwritten_ranges() == {TopicPartition("b", 1): (0, 1)}  # pyright: ignore[reportPrivateUsage]
    writer.__exit__(KeyError)


def test_lost_partitions_cancel_the_flush_of_their_table_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other table's flush goes on."""
    flushes = GatedFlushes(monkeypatch)
    writer = start_writer(SIDE_BY_SIDE)
    writer.write([Record(0)])
    writer.write([OtherRecord(0)])
    flights = dict(writer._flushes.in_flight)  # pyright: ignore[reportPrivateUsage]
    writer.on_lost(None, [RawPartition("a", 1)])
    assert flights["lake.a"].wait(10)
    assert not flights["lake.b"].done
    flushes.open()
    writer.close()


def stopped() -> threading.Event:
    """Return a stop event that is set: `write` does not wait for the lake."""
    event = threading.Event()
    event.set()
    return event
