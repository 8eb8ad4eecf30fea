"""Batches: when they are due, and that memory is bounded."""

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.options.batch_limits import BatchLimits
from trimtab.consumer_sdk.lake.writer.batches import BatchBuffer, RecordRun

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
SIZE = 800


def run(partition: TopicPartition, first: int, rows: int = 100) -> RecordRun:
    offsets = pa.array(range(first, first + rows), pa.int64())
    return RecordRun(partition, first, first + rows, pa.RecordBatch.from_arrays([offsets], ["offset"]))


@pytest.fixture
def batches() -> BatchBuffer:
    return BatchBuffer(BatchLimits(batch_bytes=10 * SIZE, memory_bytes=15 * SIZE, max_age_s=5.0))


def test_a_full_table_is_due(batches: BatchBuffer) -> None:
    """A table is due at batch.bytes."""
    for n in range(9):
        batches.add_run("t", run(A, n * 100), now=0.0)
    assert batches.find_due_table(1.0) is None
    batches.add_run("t", run(A, 900), now=1.0)
    assert batches.find_full_tables() == {"t"}
    assert batches.find_due_table(1.0) == "t"


def test_an_old_table_is_due(batches: BatchBuffer) -> None:
    """A table is due when its oldest record has reached the maximum age."""
    batches.add_run("t", run(A, 0), now=2.0)
    batches.add_run("t", run(A, 100), now=6.0)
    assert batches.find_due_table(6.9) is None
    assert batches.find_due_table(7.0) == "t"
    batches.pop_table("t")
    batches.add_run("t", run(A, 200), now=8.0)
    assert batches.find_due_table(8.1) is None


def test_the_plan_shortens_a_batch_and_never_extends_it(batches: BatchBuffer) -> None:
    """The plan's age applies if it is below the setting's."""
    batches.add_run("t", run(A, 0), now=2.0)
    assert batches.find_due_table(3.9, max_age_s=2.0) is None
    assert batches.find_due_table(4.0, max_age_s=2.0) == "t"
    assert batches.find_due_table(6.9, max_age_s=60.0) is None
    assert batches.find_due_table(7.0, max_age_s=60.0) == "t"


def test_a_table_may_be_due_at_once(batches: BatchBuffer) -> None:
    """Such as one that is tried; an empty one is not."""
    batches.add_run("t", run(A, 0, rows=1), now=0.0)
    batches.add_run("u", run(B, 0, rows=2), now=0.0)
    assert batches.find_due_table(0.0, at_once={"t", "v"}) == "t"
    assert batches.find_due_table(0.0, in_flight={"t"}, at_once={"t", "v"}) is None


def test_a_table_in_flight_is_not_due(batches: BatchBuffer) -> None:
    """Its next batch continues the one in flight; the next fullest table is due instead."""
    batches.add_run("t", run(A, 0, rows=1500), now=0.0)
    batches.add_run("u", run(B, 0), now=0.0)
    assert batches.find_due_table(0.0, in_flight={"t"}) == "u"
    assert batches.find_due_table(0.0, in_flight={"t", "u"}) is None
    assert batches.find_due_table(0.0) == "t"


def test_the_fullest_table_is_due_when_memory_is_full(batches: BatchBuffer) -> None:
    """Many small tables together stay within the memory limit."""
    for n in range(8):
        batches.add_run("t", run(A, n * 100), now=0.0)
        batches.add_run("u", run(B, n * 100, rows=99), now=0.0)
    assert batches.is_memory_full
    assert batches.find_due_table(0.0) == "t"


def test_memory_is_full_at_its_limit(batches: BatchBuffer) -> None:
    """No table has to be full for that: the fullest one is due."""
    for n in range(8):
        batches.add_run("t", run(A, n * 100), now=0.0)
    for n in range(6):
        batches.add_run("u", run(B, n * 100), now=0.0)
    assert (batches.is_memory_full, batches.find_due_table(0.0)) == (False, None)
    batches.add_run("u", run(B, 600), now=0.0)
    assert (batches.is_memory_full, batches.find_due_table(0.0)) == (True, "t")


def test_one_full_table_is_enough(batches: BatchBuffer) -> None:
    """Another one may be nearly empty."""
    for n in range(10):
        batches.add_run("t", run(A, n * 100), now=0.0)
    batches.add_run("u", run(B, 0), now=0.0)
    assert batches.find_full_tables() == {"t"}


def test_a_popped_batch_is_in_partition_order(batches: BatchBuffer) -> None:
    """It has each partition's records together, with their range, and leaves the buffer."""
    second = TopicPartition("a", 1)
    batches.add_run("t", run(second, 7, rows=2), now=0.0)
    batches.add_run("t", run(A, 0, rows=2), now=0.0)
    batches.add_run("t", run(second, 9, rows=1), now=0.0)
    taken = batches.pop_table("t")
    assert taken.ranges == {A: (0, 2), second: (7, 10)}
    assert taken.records.column("offset").to_pylist() == [0, 1, 7, 8, 9]
    assert (batches.buffered_bytes, batches.list_tables()) == (0, ())


def test_dropping_a_partition_frees_its_bytes(batches: BatchBuffer) -> None:
    """The other partitions stay."""
    batches.add_run("t", run(A, 0), now=0.0)
    batches.add_run("t", run(TopicPartition("a", 1), 0), now=0.0)
    batches.add_run("u", run(B, 0), now=0.0)
    batches.drop_partitions([A, B])
    assert batches.buffered_bytes == SIZE
    assert batches.list_tables() == ("t",)


def test_only_tables_of_the_partitions_count_as_nearly_full(batches: BatchBuffer) -> None:
    """A revocation flushes a table only if it is nearly full and has the partition's records."""
    for n in range(8):
        batches.add_run("t", run(A, n * 100), now=0.0)
    batches.add_run("u", run(B, 0), now=0.0)
    assert batches.find_nearly_full_tables([A, B]) == ("t",)
    assert batches.find_nearly_full_tables([B]) == ()
