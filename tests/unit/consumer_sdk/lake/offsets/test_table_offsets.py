"""Marks: the fence, the trim, and what is carried forward."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan, trim_spans

A, B = TopicPartition("a", 0), TopicPartition("b", 7)

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 3))
offsets = st.integers(0, 1 << 62)
marks = st.dictionaries(st.sampled_from(["g", "h"]), st.dictionaries(partitions, offsets, min_size=1)).map(
    CommittedOffsets
)


@given(marks)
def test_marks_survive_the_way_through_json(before: CommittedOffsets) -> None:
    """What is written in a snapshot is read back as it was."""
    assert CommittedOffsets.decode(before.encode(), "t") == before


@given(marks, st.dictionaries(partitions, st.tuples(offsets, st.integers(1, 1000))))
def test_marks_only_go_forward_and_none_is_dropped(
    before: CommittedOffsets, wanted: dict[TopicPartition, tuple[int, int]]
) -> None:
    """A commit keeps every mark of every group, and moves none back."""
    spans = {p: OffsetSpan(before.next_offset("g", p), first, first + n) for p, (first, n) in wanted.items()}
    after = before.advanced_by("g", spans)
    for group, known in before.groups.items():
        for partition, offset in known.items():
            found = after.next_offset(group, partition)
            assert found is not None
            assert found >= offset
            assert found == offset or group == "g"


@pytest.mark.parametrize(
    ("mark", "expected", "fits"),
    [(5, 5, True), (None, None, True), (6, 5, False), (4, 5, False), (5, None, False), (None, 5, False)],
)
def test_the_fence_lets_in_only_the_expected_mark(
    mark: int | None, expected: int | None, *, fits: bool
) -> None:
    """A span is refused unless the table stands exactly where the span began."""
    table = CommittedOffsets({"g": {} if mark is None else {A: mark}, "h": {A: 5}})
    clashes = table.find_conflicts("g", {A: OffsetSpan(expected, 5, 9)})
    assert (clashes == ()) is fits
    assert fits or (clashes[0].partition, clashes[0].actual) == (A, mark)


def test_another_table_trims_what_it_has() -> None:
    """After a crash between two commits only what lies above a table's own mark is left."""
    batch = {A: OffsetSpan(10, 10, 20), B: OffsetSpan(None, 0, 5)}
    assert trim_spans("g", CommittedOffsets({"g": {A: 15, B: 5}}), batch) == {A: OffsetSpan(15, 15, 20)}
    assert trim_spans("g", CommittedOffsets({"g": {A: 3}}), batch) == {
        A: OffsetSpan(3, 10, 20),
        B: OffsetSpan(None, 0, 5),
    }


def test_another_table_lacks_what_lies_above_its_own_mark() -> None:
    """A table that was further on has the smaller gap, one that knows nothing the whole."""
    batch = {A: OffsetSpan(10, 30, 40, (OffsetGap(10, 30),))}
    assert trim_spans("g", CommittedOffsets({"g": {A: 20}}), batch) == {
        A: OffsetSpan(20, 30, 40, (OffsetGap(20, 30),))
    }
    assert trim_spans("g", CommittedOffsets({"g": {A: 35}}), batch) == {A: OffsetSpan(35, 35, 40)}
    assert trim_spans("g", CommittedOffsets(), batch) == {A: OffsetSpan(None, 30, 40, (OffsetGap(10, 30),))}


@pytest.mark.parametrize("text", ["", "x", "[]", '{"v":9,"groups":{}}', '{"v":1,"groups":{"g":7}}'])
def test_illegible_marks_are_named_and_never_taken_for_none(text: str) -> None:
    """A table with marks that cannot be read is not a table without marks."""
    with pytest.raises(CommittedOffsetsLostError, match=r"lake\.orders"):
        CommittedOffsets.decode(text, "lake.orders")
