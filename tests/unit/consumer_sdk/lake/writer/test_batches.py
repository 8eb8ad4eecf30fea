"""Batches: when they go, and that the memory is bounded."""

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.writer.batches import BatchBuffer, BatchLimits, RecordRun

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
SIZE = 800


def run(partition: TopicPartition, first: int, rows: int = 100) -> RecordRun:
    offsets = pa.array(range(first, first + rows), pa.int64())
    return RecordRun(partition, first, first + rows, pa.RecordBatch.from_arrays([offsets], ["offset"]))


@pytest.fixture
def batches() -> BatchBuffer:
    return BatchBuffer(BatchLimits(batch_bytes=10 * SIZE, memory_bytes=15 * SIZE, max_age_s=5.0))


def test_a_full_table_is_due(batches: BatchBuffer) -> None:
    """A table goes when it holds enough."""
    for n in range(9):
        batches.add_run("t", run(A, n * 100), now=0.0)
    assert batches.find_due_table(1.0) is None
    batches.add_run("t", run(A, 900), now=1.0)
    assert batches.is_full
    assert batches.find_due_table(1.0) == "t"


def test_an_old_table_is_due(batches: BatchBuffer) -> None:
    """A table goes when its oldest record has waited long enough, counted from its first record."""
    batches.add_run("t", run(A, 0), now=2.0)
    batches.add_run("t", run(A, 100), now=6.0)
    assert batches.find_due_table(6.9) is None
    assert batches.find_due_table(7.0) == "t"
    batches.pop_table("t")
    batches.add_run("t", run(A, 200), now=8.0)
    assert batches.find_due_table(8.1) is None


def test_the_plan_makes_a_batch_shorter_and_never_longer(batches: BatchBuffer) -> None:
    """What the group's plan allows counts where it is less than the setting."""
    batches.add_run("t", run(A, 0), now=2.0)
    assert batches.find_due_table(3.9, max_age_s=2.0) is None
    assert batches.find_due_table(4.0, max_age_s=2.0) == "t"
    assert batches.find_due_table(6.9, max_age_s=60.0) is None
    assert batches.find_due_table(7.0, max_age_s=60.0) == "t"


def test_the_fullest_goes_when_the_memory_is_used_up(batches: BatchBuffer) -> None:
    """Many small tables together cannot hold more than the memory bound."""
    for n in range(8):
        batches.add_run("t", run(A, n * 100), now=0.0)
        batches.add_run("u", run(B, n * 100, rows=99), now=0.0)
    assert batches.is_full
    assert batches.find_due_table(0.0) == "t"


def test_what_is_taken_is_in_partition_order_and_gone(batches: BatchBuffer) -> None:
    """A batch has each partition's records together, with the range they fill."""
    second = TopicPartition("a", 1)
    batches.add_run("t", run(second, 7, rows=2), now=0.0)
    batches.add_run("t", run(A, 0, rows=2), now=0.0)
    batches.add_run("t", run(second, 9, rows=1), now=0.0)
    taken = batches.pop_table("t")
    assert taken.ranges == {A: (0, 2), second: (7, 10)}
    assert taken.records.column("offset").to_pylist() == [0, 1, 7, 8, 9]
    assert (batches.buffered_bytes, batches.list_tables()) == (0, ())


def test_a_dropped_partition_leaves_nothing_behind(batches: BatchBuffer) -> None:
    """Dropping a partition frees its bytes and keeps the others."""
    batches.add_run("t", run(A, 0), now=0.0)
    batches.add_run("t", run(TopicPartition("a", 1), 0), now=0.0)
    batches.add_run("u", run(B, 0), now=0.0)
    batches.drop_partitions([A, B])
    assert batches.buffered_bytes == SIZE
    assert batches.list_tables() == ("t",)


def test_nearly_full_concerns_only_the_tables_of_these_partitions(batches: BatchBuffer) -> None:
    """A revocation flushes a table only if it is nearly full and holds the partition."""
    for n in range(8):
        batches.add_run("t", run(A, n * 100), now=0.0)
    batches.add_run("u", run(B, 0), now=0.0)
    assert batches.find_nearly_full_tables([A, B]) == ("t",)
    assert batches.find_nearly_full_tables([B]) == ()
