"""What an error of one table or partition stops, and how it goes on; needs neither Spark nor a broker."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition as RawPartition

from support.lake.writer_stand_ins import (
    CONFIG,
    OFFSETS,
    EmptyConsumer,
    Lake,
    ManualClock,
    MemoryTable,
    OtherRecord,
    Record,
    StartConsumer,
    UnavailableLake,
)
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.offset_reset import OffsetReset
from trimtab.consumer_sdk.errors import (
    CommittedOffsetsLostError,
    LakeUnavailableError,
    OffsetsExpiredError,
    TableSchemaMismatchError,
    TableWriteError,
    TransformError,
)
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchCommitted, BatchFlusher, BatchRefused, FlushBatch
from trimtab.consumer_sdk.lake.flush.flush_threads import wait_for_flushes
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter


class UnreadableRecord(Record):
    """A record that cannot be converted."""

    def timestamp(self) -> tuple[int, int]:
        raise RuntimeError("unexpected")


def test_a_record_that_cannot_be_converted_halts_its_table_alone() -> None:
    """The position has not passed it: no later record of the table is taken, and those of others are."""
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"lake.table": "lake.{topic}"}, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1), RawPartition("b", 1)])
    writer.write([Record(0)])
    for records in ([UnreadableRecord(1)], [Record(2)], [OtherRecord(0)]):
        writer.write(records)
    assert writer._positions.unwritten_ranges() == {TopicPartition("b", 1): (0, 1)}  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(TableWriteError, match="unexpected RuntimeError"):
        writer.raise_if_halted()
    writer.__exit__(RuntimeError)


def test_a_partition_whose_first_record_cannot_be_converted_begins_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No position is known before it: later records must not take its place."""
    consumer, clock = StartConsumer(), ManualClock()
    monkeypatch.setattr(BatchFlusher, "flush_batch", lambda _, batch, __: BatchCommitted(batch, ()))
    writer = LakeWriter(consumer, CONFIG, lake=Lake(), clock=clock)
    writer.on_assign(None, [RawPartition("a", 1)])
    writer.write([UnreadableRecord(7), Record(8)])
    writer.write([Record(9)])
    clock.now += 5.0
    writer.write([])
    assert consumer.offsets == [("a", 7)]
    writer.write([Record(7), Record(8)])
    writer.close()


def lose_offsets(*_: Any, **__: Any) -> Any:
    raise CommittedOffsetsLostError("lake.b: its offsets are lost")


class DamagedTable(MemoryTable):
    """A table whose offsets are lost."""

    read_offsets = lose_offsets


def test_a_table_without_its_offsets_is_not_read_until_they_are_restored() -> None:
    """The other topics of the assignment start; the next assignment reads the restored offsets."""

    lake, consumer = Lake(), StartConsumer()
    damaged: dict[str, Any] = {"lake.b": DamagedTable("lake.b")}
    lake.open_table = lambda name: damaged.get(name, MemoryTable(name, OFFSETS))  # type: ignore[method-assign]
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


def test_a_table_without_its_offsets_is_read_again_by_itself(eventually: Callable[..., None]) -> None:
    """As the other engine restores them: no restart, and no assignment, is needed."""
    lake, consumer, clock = Lake(), StartConsumer(), ManualClock()
    openers: dict[str, Any] = {"lake.b": lambda _: DamagedTable("lake.b")}
    lake.open_table = lambda name: openers.get(name, Lake().open_table)(name)  # type: ignore[method-assign]
    writer = LakeWriter(consumer, CONFIG | {"lake.table": "lake.{topic}"}, lake=lake, clock=clock)
    writer.on_assign(None, [RawPartition("a", 0), RawPartition("b", 0)])
    writer.write([OtherRecord(20, 0)])
    assert (consumer.started, consumer.stopped) == (["a"], ["b"])
    openers["lake.b"] = UnavailableLake().open_table
    for mended in (False, True):
        clock.now += 10.0
        writer.write([])
        eventually(lambda: writer.write([]) or not writer._halts.asked)  # pyright: ignore[reportPrivateUsage]
        assert consumer.offsets == [("a", 10), ("b", 20)][: 1 + mended]
        openers.clear()
    writer.close()


@pytest.mark.parametrize("error", [CommittedOffsetsLostError, TableSchemaMismatchError, TransformError])
def test_an_error_of_a_table_halts_it_alone_and_it_resumes(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Its records are in no table; its partition is stopped at the next one, and read from there later."""
    flushed: list[str] = []

    def flush_batch(_: BatchFlusher, batch: FlushBatch, __: RetryBackoff) -> BatchCommitted:
        flushed.extend(partition.topic for partition in batch.spans)
        if flushed.count("b") == 1 and "b" in batch.table:
            raise error("lake.b")
        return BatchCommitted(batch, ())

    monkeypatch.setattr(BatchFlusher, "flush_batch", flush_batch)
    consumer, clock = StartConsumer(), ManualClock()
    writer = LakeWriter(consumer, CONFIG | {"lake.table": "lake.{topic}"}, lake=Lake(), clock=clock)
    writer.on_assign(None, [RawPartition("a", 1), RawPartition("b", 1)])
    writer.write([Record(0), OtherRecord(0)])
    for _ in range(2):
        with pytest.raises(error, match=r"lake\.b"):
            writer.flush()
        writer.write([OtherRecord(1)])
    assert (sorted(flushed), {*consumer.stopped}, consumer.started) == (["a", "b"], {"b"}, [])
    clock.now += 5.0
    writer.write([])
    assert consumer.offsets == [("b", 0)]
    writer.write([OtherRecord(0), OtherRecord(1)])
    writer.close()
    assert sorted(flushed) == ["a", "b", "b"]


def refuse_rows(_: Any) -> Any:
    raise TableSchemaMismatchError("lake.b: no column for n int")


def test_a_table_that_is_the_only_one_ends_no_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every partition of it is halted, with records in the batch or without; `write` goes on."""
    monkeypatch.setattr(BatchFlusher, "flush_batch", lambda _, batch, __: refuse_rows(batch))
    metrics = LakeMetrics()
    writer = LakeWriter(EmptyConsumer(), CONFIG, lake=Lake(), metrics=metrics)
    writer.on_assign(None, [RawPartition("a", number) for number in range(3)])
    writer.write([Record(10, 0)])
    for _ in range(2):
        with pytest.raises(TableSchemaMismatchError, match="no column"):
            writer.flush()
        writer.write([])
    assert metrics.registry.get_sample_value("trimtab_halted_partitions", {"topic": "a"}) == 3
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
    with pytest.raises(TableSchemaMismatchError):
        writer.flush()
    assert not writer._positions.unwritten_ranges()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(TableSchemaMismatchError):
        writer.close()


class CommittingConsumer(StartConsumer):
    """Keeps the commits, and loses its logs when told."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[tuple[str, int, int, str]] = []
        self.resets: list[OffsetReset] = []

    def commit(self, *, offsets: Any, asynchronous: bool = True) -> None:  # noqa: ARG002 - the interface
        self.commits.extend((p.topic, p.partition, p.offset, p.metadata or "") for p in offsets)

    def pop_offset_resets(self) -> list[OffsetReset]:
        found, self.resets = self.resets, []
        return found


def test_the_group_is_told_of_a_halt_once_and_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a commit of the unchanged offset; partitions without a record have none to commit yet."""
    broken = [True]

    def flush_batch(_: BatchFlusher, batch: FlushBatch, __: RetryBackoff) -> BatchCommitted:
        return refuse_rows(batch) if broken else BatchCommitted(batch, ())

    monkeypatch.setattr(BatchFlusher, "flush_batch", flush_batch)
    clock, consumer = ManualClock(), CommittingConsumer()
    told = consumer.commits
    writer = LakeWriter(consumer, CONFIG, lake=Lake(), clock=clock)
    writer.on_assign(None, [RawPartition("a", number) for number in range(3)])  # the table knows a-0 up to 10
    writer.write([Record(4)])
    with pytest.raises(TableSchemaMismatchError):
        writer.flush()
    for _ in range(2):
        writer.write([])
    reason = '{"halted": "lake.b: no column for n int"}'
    assert told == [("a", 0, 10, reason), ("a", 1, 4, reason)]
    broken.clear()
    clock.now += 5.0
    writer.write([])
    writer.write([Record(4)])
    writer.flush()
    writer.write([])
    assert told[2:] == [("a", 1, 5, ""), ("a", 0, 10, ""), ("a", 1, 5, "")]
    writer.close()


@pytest.mark.parametrize("by_event", [True, False])
def test_the_group_is_told_of_a_topic_that_was_created_again(by_event: bool) -> None:  # noqa: FBT001
    """At the start of its log: a table of its own then has all of it, which one that starts at 10 has not."""
    consumer = CommittingConsumer()
    writer = LakeWriter(consumer, CONFIG, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 0)])
    if by_event:
        consumer.resets = [OffsetReset(TopicPartition("a", 0), 10, 2, 5, 2)]
    for _ in range(2):
        writer.write([] if by_event else [Record(2, 0)])
    ((topic, number, offset, reason),) = consumer.commits
    assert (topic, number, offset) == ("a", 0, 2)
    assert "created again" in reason
    writer.on_revoke(None, [RawPartition("a", 0)])
    assert len(consumer.commits) == 1
    writer.__exit__(KeyError)


class UpperCaseRecord(Record):
    """A record of topic A, whose table would be that of topic a."""

    def topic(self) -> str:
        return "A"


def test_the_group_is_told_of_a_topic_whose_table_is_another_ones() -> None:
    """Once its first record says where the group stands."""
    consumer = CommittingConsumer()
    writer = LakeWriter(consumer, CONFIG, lake=Lake())
    writer.on_assign(None, [RawPartition("A", 1)])
    writer.write([])
    assert consumer.commits == []
    for _ in range(2):
        writer.write([UpperCaseRecord(7)])
    ((topic, number, offset, reason),) = consumer.commits
    assert (topic, number, offset) == ("A", 1, 7)
    assert "both map to table" in reason
    assert {*consumer.stopped} == {"A"}
    writer.__exit__(KeyError)


def test_the_reason_is_committed_before_no_record_that_is_unwritten() -> None:
    """Records that were read before the log expired are in no table yet, nor is their partition."""
    consumer = CommittingConsumer()
    writer = LakeWriter(consumer, CONFIG, lake=Lake())
    writer.on_assign(None, [RawPartition("a", 1)])
    writer.write([Record(10), Record(11)])
    consumer.resets = [OffsetReset(TopicPartition("a", 1), 12, 15, 20, None)]
    writer.write([])
    assert [commit[:3] for commit in consumer.commits] == [("a", 1, 10)]
    writer.__exit__(KeyError)


class OutageLake(Lake):
    """A lake whose tables are unreachable for a flush until they are mended."""

    def __init__(self, *unreachable: str) -> None:
        super().__init__(on_call=self._fail)
        self.unreachable = {*unreachable}
        self.failures: Counter[str] = Counter()

    def _fail(self, table: str, call: str) -> None:
        if table in self.unreachable and threading.current_thread().name == "trimtab-flush":
            self.failures[table] += 1
            raise LakeUnavailableError(f"{table}: {call} refused (403)")


class LogConsumer(StartConsumer):
    """Reads logs of 30 records of the topics a and b, partition 1, as far as they are assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[str, int] = {"a": 0, "b": 0}

    def incremental_assign(self, partitions: Any) -> None:
        super().incremental_assign(partitions)
        self.positions |= {partition.topic: partition.offset for partition in partitions}

    def incremental_unassign(self, partitions: Any) -> None:
        super().incremental_unassign(partitions)
        for partition in partitions:
            self.positions.pop(partition.topic, None)

    def poll(self, count: int = 2) -> list[Record]:
        records: list[Record] = []
        for topic, at in self.positions.items():
            end = min(30, at + count)
            records += [(Record if topic == "a" else OtherRecord)(offset) for offset in range(at, end)]
            self.positions[topic] = end
        return records


class OutageRig:
    """A writer of two tables on a clock that each wait of a flush and each poll advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *unreachable: str, **config: Any) -> None:
        self.lake, self.clock, self.consumer = OutageLake(*unreachable), ManualClock(), LogConsumer()
        self.metrics = LakeMetrics()

        def wait(backoff: RetryBackoff, shortest: float, *_: float) -> None:
            backoff.raise_if_cancelled()
            self.clock.now += shortest
            backoff.cancelled.wait(0.01)

        monkeypatch.setattr(RetryBackoff, "_wait", wait)
        settings = CONFIG | {"batch.max.age": "1 s", "lake.flush.timeout": "30 s"} | config
        self.writer = LakeWriter(
            self.consumer, settings, lake=self.lake, clock=self.clock, metrics=self.metrics
        )
        self.writer.on_assign(None, [RawPartition("a", 1), RawPartition("b", 1)])

    def run_until(self, condition: Callable[[], bool], *, seconds: float = 1.0) -> float:
        """Return the seconds that it took."""
        begun = self.clock.now
        for _ in range(5000):
            if condition():
                return self.clock.now - begun
            self.writer.write(self.consumer.poll())
            self.clock.now += seconds
            wait_for_flushes(self.writer._flushes.in_flight.values(), 0.02)  # pyright: ignore[reportPrivateUsage]
        raise AssertionError("it never happens")

    def is_halted(self, table: str) -> bool:
        return self.metrics.registry.get_sample_value("trimtab_halted_tables", {"table": table}) == 1

    def is_written(self, table: str) -> bool:
        return len(self.lake.tables[table].places) == 30

    def check(self) -> None:
        self.writer.close()
        for table in self.lake.tables.values():
            assert sorted(table.places) == [(1, offset) for offset in range(30)]


def test_an_outage_of_one_table_halts_it_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After lake.flush.timeout: before that it is retried, since most outages are short."""
    rig = OutageRig(monkeypatch, "lake.b", **{"lake.flush.parallelism": 1})
    assert rig.run_until(lambda: rig.is_halted("lake.b")) >= 30
    assert rig.lake.failures["lake.b"] > 10
    rig.run_until(lambda: rig.is_written("lake.a"))
    assert any("lake.b halted, which touches no other table" in line for line in caplog.messages)
    with pytest.raises(LakeUnavailableError, match=r"lake\.b: open_table refused \(403\)"):
        rig.writer.raise_if_halted()
    rig.lake.unreachable.clear()
    rig.run_until(lambda: rig.is_written("lake.b") and not rig.is_halted("lake.b"))
    rig.check()


def test_a_trial_in_an_outage_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds its flush thread no longer than that, at most every 15 seconds."""
    rig = OutageRig(monkeypatch, "lake.b")
    rig.run_until(lambda: rig.is_halted("lake.b"))
    rig.lake.failures.clear()
    begun = rig.clock.now
    rig.run_until(lambda: rig.clock.now - begun > 3000, seconds=5)
    assert 3000 / 40 <= rig.lake.failures["lake.b"] <= 3000 / 15 + 5
    rig.lake.unreachable.clear()
    rig.run_until(lambda: rig.is_written("lake.b"))
    rig.check()


def test_a_part_that_is_committed_mends_no_halt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of the batch fails: it is read on behind the part, and the halt is over once it is written."""
    caplog.set_level("INFO", "trimtab.lake")
    flush_batch, failing, tried = BatchFlusher.flush_batch, [True], list[int]()

    def flush_in_parts(flusher: BatchFlusher, batch: FlushBatch, backoff: RetryBackoff) -> Any:
        ((partition, span),) = batch.spans.items()
        if batch.table != "lake.b" or not failing:
            return flush_batch(flusher, batch, backoff)
        tried.append(span.first)
        error = LakeUnavailableError("lake.b: the rest is refused (403)")
        if span.first:
            raise error
        part = FlushBatch(batch.table, {partition: replace(span, next=1)}, batch.records[:1])
        assert isinstance(flush_batch(flusher, part, backoff), BatchCommitted)
        return BatchRefused(batch, {partition: 1}, error=error)

    monkeypatch.setattr(BatchFlusher, "flush_batch", flush_in_parts)
    rig = OutageRig(monkeypatch)
    rig.run_until(lambda: len(tried) > 3)
    assert {*tried[1:]} == {1}
    failing.clear()
    rig.run_until(lambda: rig.is_written("lake.b") and not rig.is_halted("lake.b"))
    told = [line.split()[1] for line in caplog.messages if line.startswith("lake.b ")]
    assert told == ["halted,", "resumed:"]
    rig.check()


def test_an_outage_of_all_tables_ends_nothing_and_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is halted, however long it takes; half a minute after the return all are written."""
    rig = OutageRig(monkeypatch, "lake.a", "lake.b")
    rig.run_until(lambda: rig.is_halted("lake.a") and rig.is_halted("lake.b"))
    begun = rig.clock.now
    rig.run_until(lambda: rig.clock.now - begun > 3600, seconds=5)
    rig.lake.unreachable.clear()
    assert rig.run_until(lambda: rig.is_written("lake.a") and rig.is_written("lake.b")) < 60
    assert not any(map(rig.is_halted, rig.lake.tables))
    rig.check()


def test_a_full_table_in_an_outage_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not fetched while its batch is full, and read on after the outage; it is not even halted."""
    limits = {"batch.bytes": "2 kB", "batch.memory": "1 MB", "lake.flush.timeout": "1 h"}
    rig = OutageRig(monkeypatch, "lake.b", **limits)
    rig.run_until(lambda: rig.is_written("lake.a"))
    assert "b" not in rig.consumer.positions
    assert rig.lake.tables["lake.b"].places == []
    rig.lake.unreachable.clear()
    rig.run_until(lambda: rig.is_written("lake.b"))
    assert not rig.is_halted("lake.b")
    rig.check()


def test_a_full_table_whose_call_does_not_return_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be slow: it is named once, not halted, and its batch is written once when the call returns."""
    rig = OutageRig(monkeypatch, **{"batch.bytes": "2 kB", "batch.memory": "1 MB"})
    returned, polls = threading.Event(), Counter[str]()

    def hang(table: str, call: str) -> None:
        if table == "lake.b" and call == "open_table":
            returned.wait(20)

    def consume(*_: float) -> list[Any]:
        rig.clock.now += 1.0
        polls["while full"] += 1
        if polls["while full"] > 100:
            returned.set()
        return []

    rig.lake.on_call = hang
    monkeypatch.setattr(rig.consumer, "consume", consume)
    rig.run_until(lambda: rig.is_written("lake.a"))
    assert "lake.b" not in rig.lake.tables or not rig.lake.tables["lake.b"].places
    assert "b" not in rig.consumer.positions
    rig.run_until(lambda: rig.clock.now > 2000, seconds=50)
    returned.set()
    rig.run_until(lambda: rig.is_written("lake.b"))
    assert not any("halted" in line for line in caplog.messages)
    assert sum("lake.b: a call into the lake has not returned for 30 s" in m for m in caplog.messages) == 1
    rig.check()


def test_a_held_partition_that_is_revoked_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one held that was assigned again: it is fetched from the table's offset."""
    limits = {"batch.bytes": "2 kB", "batch.memory": "1 MB", "lake.flush.timeout": "10 s"}
    rig = OutageRig(monkeypatch, "lake.b", **limits)
    rig.run_until(lambda: "b" not in rig.consumer.positions)
    rig.writer.on_lost(None, [RawPartition("b", 1)])
    rig.run_until(lambda: rig.is_written("lake.a"))
    assert rig.consumer.positions == {"a": 30}
    rig.lake.unreachable.clear()
    rig.writer.on_assign(None, [RawPartition("b", 1)])
    rig.consumer.positions["b"] = 0  # the group has no offset
    rig.run_until(lambda: rig.is_written("lake.b"))
    rig.check()
