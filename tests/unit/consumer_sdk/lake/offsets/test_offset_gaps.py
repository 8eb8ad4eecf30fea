"""Gaps: merged, limited, encoded and decoded."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import (
    MAX_TRACKED_RANGES,
    MissingOffsets,
    OffsetGap,
    TableGaps,
    clip_gaps,
    merge_gaps,
    skip_gaps,
)

P = TopicPartition("a.b", 3)
gaps = st.tuples(st.integers(0, 200), st.integers(1, 20)).map(lambda g: OffsetGap(g[0], sum(g)))


def offsets(found: tuple[OffsetGap, ...]) -> set[int]:
    return {offset for gap in found for offset in range(*gap)}


@given(st.lists(gaps))
def test_merge_keeps_exactly_the_offsets(found: list[OffsetGap]) -> None:
    """Merged ranges ascend, are disjoint, and cover the same offsets."""
    one = merge_gaps(found)
    assert offsets(one) == offsets(tuple(found))
    assert all(left.next < right.first for left, right in pairwise(one))


@given(st.lists(gaps), st.integers(0, 220))
def test_clip_and_skip(found: list[OffsetGap], committed: int) -> None:
    """Offsets below the committed one are no gap of the table; reads continue after a gap."""
    assert offsets(clip_gaps(merge_gaps(found), committed)) == {
        n for n in offsets(tuple(found)) if n >= committed
    }
    following = skip_gaps(merge_gaps(found), committed)
    assert following not in offsets(tuple(found))


@given(st.lists(gaps), st.lists(gaps))
def test_later_gaps_add_to_earlier_ones(first: list[OffsetGap], second: list[OffsetGap]) -> None:
    """A table forgets no gap when another one is recorded."""
    known = TableGaps().with_group_gaps("lake", {P: first}).with_group_gaps("lake", {P: second})
    assert offsets(known.missing_offsets("lake", P).ranges) == offsets((*first, *second))


def test_a_gap_ends_before_its_next_offset() -> None:
    """The offset behind a gap is in the table, and adjacent gaps are one."""
    before, after = OffsetGap(3, 7), OffsetGap(7, 9)
    assert clip_gaps((before, after), 7) == (after,)
    assert merge_gaps((after, before)) == (OffsetGap(3, 9),)
    assert (skip_gaps((before,), 2), skip_gaps((before,), 6), skip_gaps((before,), 7)) == (2, 7, 7)
    assert skip_gaps((before,), None) is None


@pytest.mark.parametrize("ranges", ["[[5,5]]", "[[5,4]]", "[[1,4],[4,6]]", "[[7,8],[1,2]]", "[[1,5],[3,6]]"])
def test_ranges_that_no_writer_records_are_an_error(ranges: str) -> None:
    """Empty, adjacent, overlapping or descending ranges were changed by hand."""
    text = f'{{"v":1,"groups":{{"g":{{"t":{{"0":{{"ranges":{ranges},"older":0}}}}}}}}}}'
    with pytest.raises(CommittedOffsetsLostError):
        TableGaps.decode(text, "lake.orders")


def test_newest_ranges_are_kept_and_older_ones_counted() -> None:
    """The number of ranges is limited, and the offset count stays exact."""
    known = MissingOffsets()
    for n in range(MAX_TRACKED_RANGES + 30):
        known = known.with_gaps([OffsetGap(10 * n, 10 * n + 3)])
    assert len(known.ranges) == MAX_TRACKED_RANGES
    assert known.ranges[-1] == OffsetGap(10 * (MAX_TRACKED_RANGES + 29), 10 * (MAX_TRACKED_RANGES + 29) + 3)
    assert (known.untracked_count, known.offset_count) == (90, 3 * (MAX_TRACKED_RANGES + 30))


@given(st.dictionaries(st.sampled_from("gh"), st.lists(gaps, min_size=1)))
def test_codec_round_trip(found: dict[str, list[OffsetGap]]) -> None:
    """Encoding and decoding keep all gaps."""
    known = TableGaps()
    for group, ranges in found.items():
        known = known.with_group_gaps(group, {P: ranges})
    assert TableGaps.decode(known.encode(), "t") == known


def test_form_of_the_property() -> None:
    """The property has the form of docs/lake.md: group, topic, partition, ranges."""
    text = TableGaps().with_group_gaps("lake", {P: [OffsetGap(10, 25)]}).encode()
    assert json.loads(text) == {
        "v": 1,
        "groups": {"lake": {"a.b": {"3": {"ranges": [[10, 25]], "older": 0}}}},
    }
    assert TableGaps.decode(None, "t") == TableGaps()
    assert TableGaps().missing_offsets("lake", P) == MissingOffsets()


@pytest.mark.parametrize("text", ["x", "[]", '{"v":9,"groups":{}}', '{"v":1,"groups":{"g":7}}'])
def test_unreadable_property_is_an_error(text: str) -> None:
    """An unreadable property is an error with the statement that drops it."""
    with pytest.raises(CommittedOffsetsLostError, match=r"lake\.orders.*UNSET TBLPROPERTIES"):
        TableGaps.decode(text, "lake.orders")
