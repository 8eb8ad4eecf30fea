"""Records of a partition that a reader keeps from read to read."""

import pyarrow as pa
import pytest

from trimtab.consumer_sdk.lake.bridge.partition_tail import PartitionTail
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap


def batch(*offsets: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"offset": pa.array(offsets, pa.int64())})


def select(tail: PartitionTail, first: int, end: int) -> list[int]:
    return [n for part in tail.select(OffsetGap(first, end)) for n in part.column("offset").to_pylist()]


@pytest.fixture
def tail() -> PartitionTail:
    """Offsets 10 to 17, without 13, which a transaction marker has."""
    made = PartitionTail(10, 10)
    made.add_batch(batch(10, 11, 12))
    made.add_batch(batch(14, 15, 16, 17))
    return made


def test_a_range_is_cut_out_of_batches(tail: PartitionTail) -> None:
    """Its first offset is inside, its end is not."""
    assert select(tail, 12, 16) == [12, 14, 15]
    assert select(tail, 13, 14) == []
    assert tail.next == 18


def test_dropped_records_are_forgotten_and_the_others_stay(tail: PartitionTail) -> None:
    """The table has them; the reader continues without another fetch."""
    tail.drop_before(12)
    assert select(tail, 12, 18) == [12, 14, 15, 16, 17]
    tail.drop_before(14)
    assert len(tail.batches) == 1
    assert tail.continues_at(14)
    assert tail.continues_at(18)


def test_offsets_that_are_not_held_must_be_fetched(tail: PartitionTail) -> None:
    """Below, after a rollback of the table; above, after a long pause of the reader."""
    tail.drop_before(14)
    assert not tail.continues_at(13)
    assert not tail.continues_at(19)
