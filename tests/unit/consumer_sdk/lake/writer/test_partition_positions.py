"""The positions of a writer: what is accepted, how batches chain, where a refused one goes on."""

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.offset_reset import OffsetReset
from trimtab.consumer_sdk.errors import OffsetRegressionError, OffsetsExpiredError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan
from trimtab.consumer_sdk.lake.writer.partition_positions import PositionTracker

P = TopicPartition("orders", 0)


@pytest.fixture
def positions() -> PositionTracker:
    made = PositionTracker()
    made.assign(P, 100)
    return made


def test_batches_form_a_chain(positions: PositionTracker) -> None:
    """Each span expects the mark that the one before it will leave."""
    positions.accept_run(P, [100, 101])
    assert positions.chain_spans({P: (100, 102)}) == {P: OffsetSpan(100, 100, 102)}
    positions.accept_run(P, [102, 105])
    assert positions.chain_spans({P: (102, 106)}) == {P: OffsetSpan(102, 102, 106)}


def test_a_partition_that_the_table_does_not_know_expects_nothing() -> None:
    """The first span of a partition asks for a table without a mark."""
    positions = PositionTracker()
    positions.assign(P, None)
    assert positions.accept_run(P, [40, 41]) == 0
    assert positions.chain_spans({P: (40, 42)}) == {P: OffsetSpan(None, 40, 42)}


@pytest.mark.parametrize(("first", "reset", "lines"), [(40, False, 1), (0, False, 0), (40, True, 0)])
def test_a_new_table_of_a_group_that_stands_further_on_is_told(
    caplog: pytest.LogCaptureFixture, first: int, *, reset: bool, lines: int
) -> None:
    """Nobody sees from the rows that older ones are missing; where no offset was, none are."""
    positions = PositionTracker()
    positions.assign(P, None)
    if reset:
        positions.record_reset(OffsetReset(P, None, first, first + 5, first))
    positions.accept_run(P, [first, first + 1])
    positions.accept_run(P, [first + 2])
    told = [line for line in caplog.messages if "already stands at offset 40" in line]
    assert len(told) == lines


def test_records_of_strangers_are_dropped(positions: PositionTracker) -> None:
    """A record of a partition that is not owned, or no longer, is not taken in."""
    positions.forget_partitions([P])
    assert positions.accept_run(P, [100, 101]) == 2


def test_records_that_were_taken_in_are_dropped(positions: PositionTracker) -> None:
    """An offset is accepted once."""
    positions.accept_run(P, [100, 101])
    assert positions.accept_run(P, [100, 101, 102]) == 2


def test_a_topic_that_was_made_anew_is_an_error(positions: PositionTracker) -> None:
    """Offsets below the table's mark right after an assignment are not dropped in silence."""
    with pytest.raises(OffsetRegressionError, match="orders-0 returned offset 3"):
        positions.accept_run(P, [3, 4])


def test_a_gap_at_the_start_is_asked_for_once_more(positions: PositionTracker) -> None:
    """Records left over from an earlier ownership are not taken for the first ones.

    A real gap is believed.
    """
    assert positions.find_reread_offset(P, [150, 151]) == 100
    assert positions.find_reread_offset(P, [150, 151]) is None
    assert positions.accept_run(P, [150, 151]) == 0


def test_a_hole_of_the_log_is_no_gap(positions: PositionTracker) -> None:
    """Compaction and the markers of transactions leave holes: no table is told of them."""
    positions.find_reread_offset(P, [150, 151])
    positions.accept_run(P, [150, 151, 160])
    assert positions.chain_spans({P: (150, 161)}) == {P: OffsetSpan(100, 150, 161)}


def test_what_was_skipped_goes_with_the_records_behind_it(positions: PositionTracker) -> None:
    """The gap is told with the first span behind it, not before it, and not twice."""
    positions.accept_run(P, [100, 101])
    positions.record_reset(expired(102, 150))
    assert positions.chain_spans({P: (100, 102)}) == {P: OffsetSpan(100, 100, 102)}
    assert positions.accept_run(P, [150, 151]) == 0
    assert positions.chain_spans({P: (150, 152)}) == {P: OffsetSpan(102, 150, 152, (OffsetGap(102, 150),))}
    positions.accept_run(P, [152])
    assert positions.chain_spans({P: (152, 153)}) == {P: OffsetSpan(152, 152, 153)}


def test_a_skip_right_after_an_assignment_is_not_asked_for_again(positions: PositionTracker) -> None:
    """The consumer has said why the first record is another one; so it is the one expected."""
    positions.record_reset(expired(100, 150))
    assert positions.find_reread_offset(P, [150]) is None
    assert positions.find_reread_offset(P, [155]) == 150


def test_a_gap_of_a_refused_batch_is_told_again(positions: PositionTracker) -> None:
    """Reading goes on behind the gap, and the next span carries what the table still lacks."""
    positions.record_reset(expired(100, 150))
    positions.accept_run(P, [150])
    spans = positions.chain_spans({P: (150, 151)})
    assert positions.rewind_partitions(spans, {P: 120}) == {P: 150}
    positions.accept_run(P, [150])
    assert positions.chain_spans({P: (150, 151)}) == {P: OffsetSpan(120, 150, 151, (OffsetGap(120, 150),))}
    positions.confirm_committed({P: OffsetSpan(120, 150, 151)})
    positions.accept_run(P, [151])
    assert positions.chain_spans({P: (151, 152)}) == {P: OffsetSpan(151, 151, 152)}


def test_a_log_that_ends_below_what_was_read_is_an_error(positions: PositionTracker) -> None:
    """Where the table holds something of the partition; else the new log is simply read."""
    shorter = OffsetReset(P, 100, 0, 3, 0)
    with pytest.raises(OffsetRegressionError, match="offset 100 is gone, the log ends at 3"):
        positions.record_reset(shorter)
    positions.assign(P, None)
    positions.record_reset(shorter)
    positions.accept_run(P, [0, 1])
    with pytest.raises(OffsetRegressionError, match="offset 2 is gone, the log ends at 1"):
        positions.record_reset(OffsetReset(P, 2, 0, 1, 0))  # what waits to be written is something, too
    assert positions.chain_spans({P: (0, 2)}) == {P: OffsetSpan(None, 0, 2)}


def test_where_nothing_may_be_skipped_the_error_has_a_name(positions: PositionTracker) -> None:
    """It says which offsets, what happened and what to write; strangers are let be."""
    with pytest.raises(OffsetsExpiredError, match=r"offsets 100 to 149 are gone.*write earliest"):
        positions.record_reset(OffsetReset(P, 100, 150, 200, None))
    positions.record_reset(OffsetReset(TopicPartition("orders", 9), 100, 150, 200, None))


def expired(asked: int, low: int) -> OffsetReset:
    return OffsetReset(P, asked, low, low + 50, low)


def test_offsets_that_do_not_rise_are_asked_for_again(positions: PositionTracker) -> None:
    """A run that mixes two ownerships is not believed."""
    assert positions.find_reread_offset(P, [100, 101, 100]) == 100


def test_a_refused_batch_goes_on_from_the_tables_mark(positions: PositionTracker) -> None:
    """After a refusal the next span begins at, and expects, what the table says."""
    positions.accept_run(P, [100, 101])
    spans = positions.chain_spans({P: (100, 102)})
    assert positions.rewind_partitions(spans, {P: 101}) == {P: 101}
    assert positions.accept_run(P, [101, 102]) == 0
    assert positions.chain_spans({P: (101, 103)}) == {P: OffsetSpan(101, 101, 103)}


def test_a_refused_batch_of_an_unknown_partition_is_read_again_from_its_start() -> None:
    """Where the table still knows nothing, reading begins again where it began."""
    positions = PositionTracker()
    positions.assign(P, None)
    positions.accept_run(P, [40, 41])
    spans = positions.chain_spans({P: (40, 42)})
    assert positions.rewind_partitions(spans, {P: None}) == {P: 40}


def test_only_owned_partitions_are_acknowledged(positions: PositionTracker) -> None:
    """A batch that lands after its partition has gone moves nothing in Kafka."""
    positions.accept_run(P, [100])
    spans = positions.chain_spans({P: (100, 101)})
    positions.forget_partitions([P])
    assert positions.confirm_committed(spans) == {}
    assert positions.committed_offsets([P]) == {}
