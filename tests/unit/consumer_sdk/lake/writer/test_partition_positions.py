"""Positions of a writer: accepted records, chained batches, rewinds."""

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.offset_reset import OffsetReset
from trimtab.consumer_sdk.errors import OffsetRegressionError, OffsetsExpiredError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan
from trimtab.consumer_sdk.lake.writer.partition_positions import PositionTracker, log_starts

P = TopicPartition("orders", 0)


@pytest.fixture
def positions() -> PositionTracker:
    made = PositionTracker()
    made.assign(P, 100)
    return made


def test_batches_form_a_chain(positions: PositionTracker) -> None:
    """Each span expects the offset that the previous one will commit."""
    positions.accept_run(P, [100, 101])
    assert positions.chain_spans({P: (100, 102)}) == {P: OffsetSpan(100, 100, 102)}
    positions.accept_run(P, [102, 105])
    assert positions.chain_spans({P: (102, 106)}) == {P: OffsetSpan(102, 102, 106)}


def test_the_first_span_of_an_unknown_partition_expects_no_offset() -> None:
    """The table must not know the partition."""
    positions = PositionTracker()
    positions.assign(P, None)
    assert positions.accept_run(P, [40, 41]) == 0
    assert positions.chain_spans({P: (40, 42)}) == {P: OffsetSpan(None, 40, 42)}


@pytest.mark.parametrize(("first", "reset", "lines"), [(40, False, 1), (0, False, 0), (40, True, 0)])
def test_a_new_table_of_an_advanced_group_is_logged(
    caplog: pytest.LogCaptureFixture, first: int, *, reset: bool, lines: int
) -> None:
    """The rows do not reveal that earlier ones are missing; without a committed offset, none are."""
    positions = PositionTracker()
    positions.assign(P, None)
    if reset:
        positions.record_reset(OffsetReset(P, None, first, first + 5, first))
    positions.accept_run(P, [first, first + 1])
    positions.accept_run(P, [first + 2])
    warnings = [line for line in caplog.messages if "already stands at offset 40" in line]
    assert len(warnings) == lines


def test_records_of_unowned_partitions_are_dropped(positions: PositionTracker) -> None:
    """A partition that is not owned, or no longer owned."""
    positions.forget_partitions([P])
    assert positions.accept_run(P, [100, 101]) == 2


def test_accepted_records_are_dropped_the_second_time(positions: PositionTracker) -> None:
    """An offset is accepted once; a run without a new record moves nothing."""
    positions.accept_run(P, [100, 101])
    assert positions.accept_run(P, [100, 101, 102]) == 2
    assert positions.accept_run(P, [100, 101]) == 2
    assert positions.accept_run(P, [102, 103]) == 1


def test_a_recreated_topic_is_an_error(positions: PositionTracker) -> None:
    """Offsets below the table's right after an assignment are not dropped silently."""
    with pytest.raises(OffsetRegressionError, match="orders-0 returned offset 3"):
        positions.accept_run(P, [3, 4])


def test_a_gap_at_the_start_is_requested_once_more(positions: PositionTracker) -> None:
    """Records of an earlier ownership are not taken for the first ones; a real gap is accepted."""
    assert positions.find_reread_offset(P, [150, 151]) == 100
    assert positions.find_reread_offset(P, [150, 151]) is None
    assert positions.accept_run(P, [150, 151]) == 0


def test_a_hole_in_the_log_is_no_gap(positions: PositionTracker) -> None:
    """Compaction and transaction markers leave holes, which no table records."""
    positions.find_reread_offset(P, [150, 151])
    positions.accept_run(P, [150, 151, 160])
    assert positions.chain_spans({P: (150, 161)}) == {P: OffsetSpan(100, 150, 161)}


def test_a_gap_belongs_to_the_span_behind_it(positions: PositionTracker) -> None:
    """Not to an earlier one, and to one only."""
    positions.accept_run(P, [100, 101])
    positions.record_reset(expired(102, 150))
    assert positions.chain_spans({P: (100, 102)}) == {P: OffsetSpan(100, 100, 102)}
    assert positions.accept_run(P, [150, 151]) == 0
    assert positions.chain_spans({P: (150, 152)}) == {P: OffsetSpan(102, 150, 152, (OffsetGap(102, 150),))}
    positions.accept_run(P, [152])
    assert positions.chain_spans({P: (152, 153)}) == {P: OffsetSpan(152, 152, 153)}


def test_a_reset_after_an_assignment_is_not_requested_again(positions: PositionTracker) -> None:
    """The consumer has reported the reset, so the first record is the expected one."""
    positions.record_reset(expired(100, 150))
    assert positions.find_reread_offset(P, [150]) is None
    assert positions.find_reread_offset(P, [155]) == 150


def test_a_gap_of_a_refused_batch_is_kept(positions: PositionTracker) -> None:
    """Reading continues behind the gap, and the next span has the part that the table lacks."""
    positions.record_reset(expired(100, 150))
    positions.accept_run(P, [150])
    spans = positions.chain_spans({P: (150, 151)})
    assert positions.rewind_partitions(spans, {P: 120}) == {P: 150}
    positions.accept_run(P, [150])
    again = positions.chain_spans({P: (150, 151)})
    assert again == {P: OffsetSpan(120, 150, 151, (OffsetGap(120, 150),))}
    positions.confirm_committed(again)
    positions.accept_run(P, [151])
    assert positions.chain_spans({P: (151, 152)}) == {P: OffsetSpan(151, 151, 152)}


def test_a_log_that_ends_below_the_accepted_records_is_an_error(positions: PositionTracker) -> None:
    """For a partition without accepted records, the new log is simply read."""
    shorter = OffsetReset(P, 100, 0, 3, 0)
    with pytest.raises(OffsetRegressionError, match="offset 100 is gone, the log ends at 3"):
        positions.record_reset(shorter)
    positions.assign(P, None)
    positions.record_reset(shorter)  # not a gap
    positions.accept_run(P, [0, 1])
    with pytest.raises(OffsetRegressionError, match="offset 2 is gone, the log ends at 1"):
        positions.record_reset(
            OffsetReset(P, 2, 0, 1, 0)
        )  # accepted records that are not yet written count, too
    assert positions.chain_spans({P: (0, 2)}) == {P: OffsetSpan(None, 0, 2)}


def test_expired_offsets_are_an_error_if_none_may_be_skipped(positions: PositionTracker) -> None:
    """The error has the offsets, the cause and the remedy; unowned partitions are ignored."""
    with pytest.raises(OffsetsExpiredError, match=r"offsets 100 to 149 are gone.*write earliest"):
        positions.record_reset(OffsetReset(P, 100, 150, 200, None))
    positions.record_reset(OffsetReset(TopicPartition("orders", 9), 100, 150, 200, None))


def expired(requested: int, low: int) -> OffsetReset:
    return OffsetReset(P, requested, low, low + 50, low)


@pytest.mark.parametrize("offsets", [[100, 101, 100], [102, 104, 103], [102, 102], [103, 99]])
def test_offsets_that_do_not_ascend_are_requested_again(
    positions: PositionTracker, offsets: list[int]
) -> None:
    """A run that mixes two ownerships is unreliable: it is requested from the next offset to accept."""
    assert positions.find_reread_offset(P, offsets) == 100


def test_a_mixed_run_without_a_position_is_requested_from_its_least_offset() -> None:
    """Only the run itself tells where a partition without a position begins: at its least offset."""
    positions = PositionTracker()
    positions.assign(P, None)
    assert positions.find_reread_offset(P, [41, 40, 42]) == 40


def test_a_refused_partition_continues_at_the_tables_offset(positions: PositionTracker) -> None:
    """The next span begins at, and expects, the table's offset."""
    positions.accept_run(P, [100, 101])
    spans = positions.chain_spans({P: (100, 102)})
    assert positions.rewind_partitions(spans, {P: 101}) == {P: 101}
    assert positions.accept_run(P, [101, 102]) == 0
    assert positions.chain_spans({P: (101, 103)}) == {P: OffsetSpan(101, 101, 103)}


def test_a_partition_whose_table_was_created_again_continues_at_its_last_offset(
    positions: PositionTracker, caplog: pytest.LogCaptureFixture
) -> None:
    """The new table has no offset: the records of the dropped one are not written again."""
    positions.accept_run(P, [100, 101])
    positions.confirm_committed(positions.chain_spans({P: (100, 102)}))
    positions.accept_run(P, [102, 103])
    spans = positions.chain_spans({P: (102, 104)})
    assert positions.rewind_partitions(spans, {P: None}) == {P: 102}
    assert "written on from offset 102" in caplog.text
    positions.accept_run(P, [102, 103])
    again = positions.chain_spans({P: (102, 104)})
    assert again == {P: OffsetSpan(None, 102, 104)}
    assert positions.rewind_partitions(again, {P: None}) == {P: 102}
    assert caplog.text.count("written on") == 1


@pytest.mark.parametrize("first_batch", [[40], [40, 41]])
def test_a_refused_unknown_partition_continues_at_its_start(first_batch: list[int]) -> None:
    """The table still does not know it, so reading starts again at the first offset read.

    Also if the batch behind it is refused first: it is dropped with the records between them.
    """
    positions = PositionTracker()
    positions.assign(P, None)
    positions.accept_run(P, first_batch)
    spans = positions.chain_spans({P: (40, first_batch[-1] + 1)})
    positions.accept_run(P, [50])
    later = positions.chain_spans({P: (50, 51)})
    assert positions.rewind_partitions(later, {P: None}) == {P: 40}
    assert positions.rewind_partitions(spans, {P: None}) == {P: 40}


def test_only_owned_partitions_are_rewound(positions: PositionTracker) -> None:
    """The next owner of a refused batch's partition reads the table itself."""
    positions.accept_run(P, [100])
    spans = positions.chain_spans({P: (100, 101)})
    positions.forget_partitions([P])
    assert positions.rewind_partitions(spans, {P: 100}) == {}


def test_records_fetched_before_a_rewind_are_not_taken_for_the_requested_ones(
    positions: PositionTracker,
) -> None:
    """Those beyond are requested again, once for each rewind; those below are dropped without an error."""
    for _ in range(2):
        positions.accept_run(P, [100, 101, 102])
        spans = positions.chain_spans({P: (100, 103)})
        positions.rewind_partitions(spans, {P: 101})
        assert positions.accept_run(P, [99, 100]) == 2
        assert positions.find_reread_offset(P, [103]) == 101
        assert positions.find_reread_offset(P, [103]) is None


def test_only_owned_partitions_are_committed_to_kafka(positions: PositionTracker) -> None:
    """A batch committed after the loss of its partition moves no offset in Kafka."""
    positions.accept_run(P, [100])
    spans = positions.chain_spans({P: (100, 101)})
    positions.forget_partitions([P])
    assert positions.confirm_committed(spans) == {}
    assert positions.committed_offsets([P]) == {}


def test_a_committed_batch_moves_the_offset_of_its_partition(positions: PositionTracker) -> None:
    """A revocation commits it to Kafka; a partition unknown to the table has none."""
    new = TopicPartition("orders", 1)
    positions.assign(new, None)
    assert positions.committed_offsets([P, new]) == {P: 100}
    positions.accept_run(P, [100])
    spans = positions.chain_spans({P: (100, 101)})
    assert positions.committed_offsets([P]) == {P: 100}
    assert positions.confirm_committed(spans) == {P: 101}
    assert positions.committed_offsets([P, new]) == {P: 101}


def test_unwritten_ranges_are_accepted_and_not_committed(positions: PositionTracker) -> None:
    """The writer names them when it gives them up; a partition without new records has none."""
    new, unread = TopicPartition("orders", 1), TopicPartition("orders", 2)
    for partition in (new, unread):
        positions.assign(partition, None)
    assert positions.unwritten_ranges() == {}
    positions.accept_run(P, [100, 101])
    positions.accept_run(new, [40, 45])
    spans = positions.chain_spans({P: (100, 102)})
    assert positions.unwritten_ranges() == {P: (100, 102), new: (40, 46)}
    positions.confirm_committed(spans)
    assert positions.unwritten_ranges() == {new: (40, 46)}


def test_the_log_tells_where_assigned_partitions_start(caplog: pytest.LogCaptureFixture) -> None:
    """At the table's offset or, if the table has none, at the group's, which a new group does not have."""
    with caplog.at_level("INFO", logger="trimtab.lake"):
        log_starts({P: 40, TopicPartition("orders", 1): None}, resets_to_end=False)
    new = "not in the table yet, so at the group's offset or, if it has none, by auto.offset.reset: orders-1"
    assert caplog.messages == [f"assigned orders-0 at 40; {new}"]


def test_outcomes_of_an_earlier_assignment_change_nothing() -> None:
    """The partition was lost and assigned again meanwhile, where the table then was (seed 60477)."""
    positions = PositionTracker()
    positions.assign(P, 100)
    positions.accept_run(P, [100, 101])
    cancelled = positions.chain_spans({P: (100, 102)})
    positions.forget_partitions([P])
    positions.assign(P, 102)
    assert positions.rewind_partitions(cancelled, {P: 100}) == {}
    assert positions.confirm_committed(cancelled) == {}
    assert positions.committed_offsets([P]) == {P: 102}
    assert positions.accept_run(P, [102]) == 0


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_batch_has_one_outcome(positions: PositionTracker, *, is_refused: bool) -> None:
    """A span leaves the chain with it: a second outcome changes nothing, and a long run keeps no spans."""
    positions.accept_run(P, [100, 101])
    spans = positions.chain_spans({P: (100, 102)})
    if is_refused:
        assert positions.rewind_partitions(spans, {P: 100}) == {P: 100}
    else:
        assert positions.confirm_committed(spans) == {P: 102}
    assert positions.confirm_committed(spans) == {}
    assert positions.rewind_partitions(spans, {P: 100}) == {}
