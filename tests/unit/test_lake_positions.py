"""The positions of a writer: what is accepted, how batches chain, where a refused one goes on."""

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import OffsetsWentBack
from trimtab.consumer_sdk.lake.positions import Positions
from trimtab.consumer_sdk.lake.progress import Span

P = TopicPartition("orders", 0)


@pytest.fixture
def positions() -> Positions:
    made = Positions()
    made.assign(P, 100)
    return made


def test_batches_form_a_chain(positions: Positions) -> None:
    """Each span expects the mark that the one before it will leave."""
    positions.accept(P, [100, 101])
    assert positions.cut({P: (100, 102)}) == {P: Span(100, 100, 102)}
    positions.accept(P, [102, 105])
    assert positions.cut({P: (102, 106)}) == {P: Span(102, 102, 106)}


def test_a_partition_that_the_table_does_not_know_expects_nothing() -> None:
    """The first span of a partition asks for a table without a mark."""
    positions = Positions()
    positions.assign(P, None)
    assert positions.accept(P, [40, 41]) == 0
    assert positions.cut({P: (40, 42)}) == {P: Span(None, 40, 42)}


def test_records_of_strangers_are_dropped(positions: Positions) -> None:
    """A record of a partition that is not owned, or no longer, is not taken in."""
    positions.forget([P])
    assert positions.accept(P, [100, 101]) == 2


def test_records_that_were_taken_in_are_dropped(positions: Positions) -> None:
    """An offset is accepted once."""
    positions.accept(P, [100, 101])
    assert positions.accept(P, [100, 101, 102]) == 2


def test_a_topic_that_was_made_anew_is_an_error(positions: Positions) -> None:
    """Offsets below the table's mark right after an assignment are not dropped in silence."""
    with pytest.raises(OffsetsWentBack, match="orders-0 hands out offset 3"):
        positions.accept(P, [3, 4])


def test_a_gap_at_the_start_is_asked_for_once_more(positions: Positions) -> None:
    """Records left over from an earlier ownership are not taken for the first ones.

    A real gap is believed.
    """
    assert positions.doubt(P, [150, 151]) == 100
    assert positions.doubt(P, [150, 151]) is None
    assert positions.accept(P, [150, 151]) == 0


def test_a_gap_that_is_believed_is_told(
    positions: Positions, caplog: pytest.LogCaptureFixture
) -> None:
    """Records that retention took are named: the partition, the mark, the first offset; once."""
    positions.accept(P, [150, 151])
    positions.accept(P, [160])
    (line,) = caplog.messages
    assert line.startswith("offset gap: orders-0: its table holds it up to offset 100, ")
    assert "handed out is 150:" in line


def test_without_a_gap_nothing_is_told(
    positions: Positions, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither where reading goes on at the mark nor where the table knows no mark."""
    positions.accept(P, [100])
    positions.assign(TopicPartition("orders", 1), None)
    positions.accept(TopicPartition("orders", 1), [40])
    assert caplog.messages == []


def test_offsets_that_do_not_rise_are_asked_for_again(positions: Positions) -> None:
    """A run that mixes two ownerships is not believed."""
    assert positions.doubt(P, [100, 101, 100]) == 100


def test_a_refused_batch_goes_on_from_the_tables_mark(positions: Positions) -> None:
    """After a refusal the next span begins at, and expects, what the table says."""
    positions.accept(P, [100, 101])
    spans = positions.cut({P: (100, 102)})
    assert positions.rewind(spans, {P: 101}) == {P: 101}
    assert positions.accept(P, [101, 102]) == 0
    assert positions.cut({P: (101, 103)}) == {P: Span(101, 101, 103)}


def test_a_refused_batch_of_an_unknown_partition_is_read_again_from_its_start() -> None:
    """Where the table still knows nothing, reading begins again where it began."""
    positions = Positions()
    positions.assign(P, None)
    positions.accept(P, [40, 41])
    spans = positions.cut({P: (40, 42)})
    assert positions.rewind(spans, {P: None}) == {P: 40}


def test_only_owned_partitions_are_acknowledged(positions: Positions) -> None:
    """A batch that lands after its partition has gone moves nothing in Kafka."""
    positions.accept(P, [100])
    spans = positions.cut({P: (100, 101)})
    positions.forget([P])
    assert positions.landed(spans) == {}
    assert positions.marks([P]) == {}
