"""Batches: when they go, and that the memory is bounded."""

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.writer.batches import Batches, Limits, Run

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
SIZE = 800


def run(partition: TopicPartition, first: int, rows: int = 100) -> Run:
    offsets = pa.array(range(first, first + rows), pa.int64())
    return Run(partition, first, first + rows, pa.RecordBatch.from_arrays([offsets], ["offset"]))


@pytest.fixture
def batches() -> Batches:
    return Batches(Limits(bytes=10 * SIZE, memory=15 * SIZE, wait=5.0))


def test_a_full_table_is_due(batches: Batches) -> None:
    """A table goes when it holds enough."""
    for n in range(9):
        batches.add("t", run(A, n * 100), now=0.0)
    assert batches.due(1.0) is None
    batches.add("t", run(A, 900), now=1.0)
    assert batches.full
    assert batches.due(1.0) == "t"


def test_an_old_table_is_due(batches: Batches) -> None:
    """A table goes when its oldest record has waited long enough, counted from its first record."""
    batches.add("t", run(A, 0), now=2.0)
    batches.add("t", run(A, 100), now=6.0)
    assert batches.due(6.9) is None
    assert batches.due(7.0) == "t"
    batches.take("t")
    batches.add("t", run(A, 200), now=8.0)
    assert batches.due(8.1) is None


def test_the_plan_makes_a_batch_shorter_and_never_longer(batches: Batches) -> None:
    """What the group's plan allows counts where it is less than the setting."""
    batches.add("t", run(A, 0), now=2.0)
    assert batches.due(3.9, longest=2.0) is None
    assert batches.due(4.0, longest=2.0) == "t"
    assert batches.due(6.9, longest=60.0) is None
    assert batches.due(7.0, longest=60.0) == "t"


def test_the_fullest_goes_when_the_memory_is_used_up(batches: Batches) -> None:
    """Many small tables together cannot hold more than the memory bound."""
    for n in range(8):
        batches.add("t", run(A, n * 100), now=0.0)
        batches.add("u", run(B, n * 100, rows=99), now=0.0)
    assert batches.full
    assert batches.due(0.0) == "t"


def test_what_is_taken_is_in_partition_order_and_gone(batches: Batches) -> None:
    """A batch has each partition's records together, with the range they fill."""
    second = TopicPartition("a", 1)
    batches.add("t", run(second, 7, rows=2), now=0.0)
    batches.add("t", run(A, 0, rows=2), now=0.0)
    batches.add("t", run(second, 9, rows=1), now=0.0)
    taken = batches.take("t")
    assert taken.ranges == {A: (0, 2), second: (7, 10)}
    assert taken.records.column("offset").to_pylist() == [0, 1, 7, 8, 9]
    assert (batches.bytes, batches.tables()) == (0, ())


def test_a_dropped_partition_leaves_nothing_behind(batches: Batches) -> None:
    """Dropping a partition frees its bytes and keeps the others."""
    batches.add("t", run(A, 0), now=0.0)
    batches.add("t", run(TopicPartition("a", 1), 0), now=0.0)
    batches.add("u", run(B, 0), now=0.0)
    batches.drop([A, B])
    assert batches.bytes == SIZE
    assert batches.tables() == ("t",)


def test_nearly_full_concerns_only_the_tables_of_these_partitions(batches: Batches) -> None:
    """A revocation flushes a table only if it is nearly full and holds the partition."""
    for n in range(8):
        batches.add("t", run(A, n * 100), now=0.0)
    batches.add("u", run(B, 0), now=0.0)
    assert batches.nearly_full([A, B]) == ("t",)
    assert batches.nearly_full([B]) == ()
