"""Promises of the writer that need neither Spark nor a broker."""

import ast
import re
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.offset_reset import OffsetReset
from trimtab.consumer_sdk.errors import (
    CommittedOffsetsLostError,
    LakeUnavailableError,
    OffsetsExpiredError,
    TableSchemaMismatchError,
)
from trimtab.consumer_sdk.lake.interfaces import Frame, LakeTable, Records, StagedFiles, VersionedOffsets
from trimtab.consumer_sdk.lake.offsets.offset_gaps import TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.retry import RetryBackoff
from trimtab.consumer_sdk.lake.writer import writer as writer_module
from trimtab.consumer_sdk.lake.writer.flush import BatchCommitted, BatchFlusher, BatchRefused, FlushBatch
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

CONFIG: dict[str, Any] = {"group.id": "g", "enable.auto.commit": False, "lake.warehouse": "lake"}
OFFSETS = CommittedOffsets({"g": {TopicPartition("a", 0): 10}})


class EmptyConsumer:
    """A consumer without records."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:  # noqa: ARG002 - the interface
        return []

    def incremental_assign(self, partitions: Any) -> None: ...
    def incremental_unassign(self, partitions: Any) -> None: ...
    def commit(self, *, offsets: Any, asynchronous: bool = True) -> None: ...

    def pop_offset_resets(self) -> list[OffsetReset]:
        return []

    def batch_max_age_s(self) -> float | None:
        return None


class Table:
    """A table that knows partition a-0 and only its offsets are read."""

    name = "lake.a"

    def read_offsets(self, *, refresh: bool = True) -> VersionedOffsets:  # noqa: ARG002 - never stale
        return VersionedOffsets(OFFSETS, OFFSETS.encode())

    def has_committed(self, attempt: str) -> bool:
        raise AssertionError(attempt)

    def stage_rows(self, frame: Frame, attempt: str) -> StagedFiles:
        raise AssertionError(frame, attempt)

    def read_gaps(self) -> TableGaps:
        raise AssertionError

    def read_property(self, name: str) -> str | None:
        raise AssertionError(name)

    def commit(
        self,
        staged: StagedFiles,
        offsets: CommittedOffsets,
        expected: VersionedOffsets,
        gaps: TableGaps | None = None,
    ) -> None:
        raise AssertionError(staged, offsets, expected, gaps)

    def delete_staged_files(self, staged: StagedFiles) -> None:
        raise AssertionError(staged)


class Lake:
    """A lake whose every table is that one."""

    def to_frame(self, records: Records) -> Frame:
        raise AssertionError(records)

    def is_empty(self, frame: Frame) -> bool:
        raise AssertionError(frame)

    def open_table(self, name: str) -> LakeTable | None:  # noqa: ARG002 - the interface
        return Table()

    def create_table(self, name: str, frame: Frame) -> LakeTable:
        raise AssertionError(name, frame)

    def close(self) -> None: ...


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
    flight = writer._flushes.submit(batch, 0.0)  # pyright: ignore[reportPrivateUsage] - no batch of its own
    assert begun.wait(10)
    flight.cancel()
    with pytest.raises(LakeUnavailableError, match=r"lake\.a.*lake\.flush\.timeout"):
        writer.close()
    assert any(line.startswith("the lake hangs") for line in caplog.messages)
    assert not flight.done
    released.set()


class UnavailableLake(Lake):
    """A lake that fails every call."""

    def open_table(self, name: str) -> LakeTable | None:
        raise LakeUnavailableError(f"{name}: catalog or storage do not answer")


class Record:
    """A record of topic a."""

    def __init__(self, offset: int, partition: int = 1) -> None:
        self._offset = offset
        self._partition = partition

    def topic(self) -> str:
        return "a"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"x" * 1000

    def headers(self) -> None:
        return None

    def error(self) -> None:
        return None


def test_stop_ends_a_write_that_waits_for_the_lake(caplog: pytest.LogCaptureFixture) -> None:
    """Ending takes lake.flush.timeout while flushes are retried, and logs the lost offsets."""
    stop = threading.Event()
    settings = CONFIG | {"batch.bytes": "1 kB", "lake.flush.timeout": "100 ms"}
    lake = Lake()
    writer = LakeWriter(EmptyConsumer(), settings, lake=lake)
    writer.on_assign(None, [RawPartition("a", 1)])
    lake.open_table = UnavailableLake().open_table  # type: ignore[method-assign]
    writer.write([Record(0), Record(1)], stop=stop)
    threading.Timer(0.2, stop.set).start()
    started_at = time.monotonic()
    writer.write([Record(2), Record(3)], stop=stop)  # the memory is full until the lake answers
    with pytest.raises(LakeUnavailableError, match=r"within .*lake\.flush\.timeout"):
        writer.close()
    assert time.monotonic() - started_at < 5
    (given_up,) = [line for line in caplog.messages if "given up" in line]
    assert "a-1 offsets 0-3" in given_up


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


class UnreadableRecord(Record):
    """A record that cannot be converted."""

    def timestamp(self) -> tuple[int, int]:
        raise RuntimeError("unexpected")


def test_an_application_that_goes_on_after_an_error_loses_nothing() -> None:
    """The position has not passed the records, and each later call raises the error again."""
    writer = LakeWriter(EmptyConsumer(), CONFIG, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1)])
    writer.write([Record(0)])
    for records in ([UnreadableRecord(1)], [Record(2)], []):
        with pytest.raises(RuntimeError, match="unexpected"):
            writer.write(records)
    (accepted,) = writer._positions.unwritten_ranges().values()  # pyright: ignore[reportPrivateUsage]
    assert accepted == (0, 1)
    writer.__exit__(RuntimeError)


def test_an_unexpected_error_of_a_flush_ends_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batch is gone: the next one must not be committed over the hole."""

    def fail(*_: Any) -> BatchCommitted:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(BatchFlusher, "flush_batch", fail)
    writer = LakeWriter(EmptyConsumer(), CONFIG, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1)])
    writer.write([Record(0)])
    for call in (writer.flush, writer.flush, lambda: writer.write([Record(1)])):
        with pytest.raises(RuntimeError, match="unexpected"):
            call()
    writer.__exit__(RuntimeError)


def test_a_revocation_survives_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition is released, and the next call raises the error."""

    def fail(*_: Any) -> BatchCommitted:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(BatchFlusher, "flush_batch", fail)
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"batch.bytes": "1 kB"}, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1)])
    writer.write([Record(0)])
    writer.on_revoke(None, [RawPartition("a", 1)])
    with pytest.raises(RuntimeError, match="unexpected"):
        writer.write([])
    writer.__exit__(RuntimeError)


class OtherRecord(Record):
    """A record of topic b."""

    def topic(self) -> str:
        return "b"


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


class StartConsumer(EmptyConsumer):
    """Keeps the partitions that are started and stopped."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []

    def incremental_assign(self, partitions: Any) -> None:
        self.started += [partition.topic for partition in partitions]

    def incremental_unassign(self, partitions: Any) -> None:
        self.stopped += [partition.topic for partition in partitions]


def lose_offsets(*_: Any, **__: Any) -> Any:
    raise CommittedOffsetsLostError("lake.b: its offsets are lost")


def test_a_table_without_its_offsets_is_not_read_until_they_are_restored() -> None:
    """The other topics of the assignment start; the next assignment reads the restored offsets."""

    class DamagedTable(Table):
        read_offsets = lose_offsets

    lake, consumer = Lake(), StartConsumer()
    damaged: dict[str, Any] = {"lake.b": DamagedTable()}
    lake.open_table = lambda name: damaged.get(name, Table())  # type: ignore[method-assign]
    writer = LakeWriter(consumer, CONFIG | {"lake.table": "lake.{topic}"}, lake=lake)
    writer.on_assign(None, [RawPartition("a", 0), RawPartition("b", 0)])
    assert consumer.started == ["a"]
    with pytest.raises(CommittedOffsetsLostError, match=r"lake\.b"):
        writer.close()

    writer = LakeWriter(consumer, CONFIG | {"lake.table": "lake.{topic}"}, lake=lake)
    writer.on_assign(None, [RawPartition("b", 0)])
    damaged.clear()
    writer.on_assign(None, [RawPartition("b", 0)])
    writer.close()


def test_a_partition_that_came_back_is_not_halted_by_its_earlier_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch belongs to an assignment that was lost; the table's offsets were read again since."""
    lost = threading.Event()

    def flush_batch(_: BatchFlusher, batch: FlushBatch, __: RetryBackoff) -> BatchCommitted:
        assert lost.wait(20)
        return lose_offsets(batch)

    monkeypatch.setattr(BatchFlusher, "flush_batch", flush_batch)
    consumer = StartConsumer()
    writer = LakeWriter(consumer, CONFIG | {"batch.bytes": "1 kB"}, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 0)])
    writer.write([Record(10, 0)])
    writer.on_lost(None, [RawPartition("a", 0)])
    writer.on_assign(None, [RawPartition("a", 0)])
    lost.set()
    writer.close()
    assert consumer.stopped == []


def test_records_before_expired_offsets_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """One consume() may return records and the expiry behind them: the log has these no longer."""
    flushed: list[tuple[int, int]] = []

    def flush_batch(_: BatchFlusher, batch: FlushBatch, __: RetryBackoff) -> BatchCommitted:
        flushed.extend((span.first, span.next) for span in batch.spans.values())
        return BatchCommitted(batch, ())

    class ExpiringConsumer(EmptyConsumer):
        def __init__(self) -> None:
            self.resets = [OffsetReset(TopicPartition("a", 0), 12, 15, 20, None)]

        def pop_offset_resets(self) -> list[OffsetReset]:
            found, self.resets = self.resets, []
            return found

    monkeypatch.setattr(BatchFlusher, "flush_batch", flush_batch)
    writer = LakeWriter(ExpiringConsumer(), CONFIG, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 0)])
    writer.write([Record(10, 0), Record(11, 0)])
    with pytest.raises(OffsetsExpiredError):
        writer.close()
    assert flushed == [(10, 12)]


def test_offsets_lost_before_a_commit_halt_the_batch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are in no table; the partition is stopped at its next record, and close tells why."""
    flushed: list[str] = []

    def flush_batch(_: BatchFlusher, batch: FlushBatch, __: RetryBackoff) -> BatchCommitted:
        flushed.extend(partition.topic for partition in batch.spans)
        return lose_offsets(batch) if "b" in flushed else BatchCommitted(batch, ())

    monkeypatch.setattr(BatchFlusher, "flush_batch", flush_batch)
    consumer = StartConsumer()
    writer = LakeWriter(consumer, CONFIG | {"lake.table": "lake.{topic}"}, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1), RawPartition("b", 1)])
    writer.write([Record(0), OtherRecord(0)])
    writer.flush()
    writer.write([OtherRecord(1)])
    writer.flush()
    assert (flushed, consumer.stopped) == (["a", "b"], ["b"])
    with pytest.raises(CommittedOffsetsLostError, match=r"lake\.b"):
        writer.close()


def refuse_rows(_: Any) -> Any:
    raise TableSchemaMismatchError("lake.b: no column for n int")


def test_rows_that_do_not_fit_end_a_writer_without_another_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every partition of the table is halted, with records in the batch or without: write() raises, too."""
    monkeypatch.setattr(BatchFlusher, "flush_batch", lambda _, batch, __: refuse_rows(batch))
    writer = LakeWriter(EmptyConsumer(), CONFIG, lake=Lake())
    writer.on_assign(None, [RawPartition("a", number) for number in range(3)])
    writer.write([Record(10, 0)])
    for call in (writer.flush, lambda: writer.write([]), writer.flush):
        with pytest.raises(TableSchemaMismatchError, match="no column"):
            call()
    writer.__exit__(KeyError)


def test_a_revocation_gives_up_the_batch_that_the_one_in_flight_has_halted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch behind it holds the same table's rows; the other topic goes on afterwards."""
    revoked = threading.Event()

    def flush_batch(_: BatchFlusher, batch: FlushBatch, __: RetryBackoff) -> BatchCommitted:
        assert revoked.wait(20)
        return refuse_rows(batch) if batch.table.endswith(".a") else BatchCommitted(batch, ())

    class SoonRevoking(LakeWriter):
        def _reach_step(self, step: str) -> None:
            if step == "revoking":
                revoked.set()

    monkeypatch.setattr(BatchFlusher, "flush_batch", flush_batch)
    writer = SoonRevoking(EmptyConsumer(), CONFIG | {"batch.bytes": "1 kB"}, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 0), RawPartition("a", 1), RawPartition("b", 1)])
    writer.write([Record(10, 0)])  # in flight
    writer._buffer_messages([Record(0)])  # pyright: ignore[reportPrivateUsage] # nearly full behind it
    writer.on_revoke(None, [RawPartition("a", 1)])
    writer.write([OtherRecord(0)])
    writer.flush()
    assert not writer._positions.unwritten_ranges()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(TableSchemaMismatchError):
        writer.close()


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
