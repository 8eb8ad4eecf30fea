"""Gaps: how they are merged, bounded, written and read."""

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
def test_merging_keeps_every_offset_and_nothing_else(found: list[OffsetGap]) -> None:
    """Ranges come out in rising order, apart from each other, and cover the same offsets."""
    one = merge_gaps(found)
    assert offsets(one) == offsets(tuple(found))
    assert all(left.next < right.first for left, right in pairwise(one))


@given(st.lists(gaps), st.integers(0, 220))
def test_a_mark_cuts_gaps_off(found: list[OffsetGap], mark: int) -> None:
    """What lies below a mark is no gap of that table; reading goes on behind a gap."""
    assert offsets(clip_gaps(merge_gaps(found), mark)) == {n for n in offsets(tuple(found)) if n >= mark}
    reached = skip_gaps(merge_gaps(found), mark)
    assert reached not in offsets(tuple(found))


def test_a_table_remembers_the_newest_and_counts_the_rest() -> None:
    """However many gaps there have been, the property stays small and the sum right."""
    known = MissingOffsets()
    for n in range(MAX_TRACKED_RANGES + 30):
        known = known.with_gaps([OffsetGap(10 * n, 10 * n + 3)])
    assert len(known.ranges) == MAX_TRACKED_RANGES
    assert known.ranges[-1] == OffsetGap(10 * (MAX_TRACKED_RANGES + 29), 10 * (MAX_TRACKED_RANGES + 29) + 3)
    assert (known.untracked_count, known.offset_count) == (90, 3 * (MAX_TRACKED_RANGES + 30))


@given(st.dictionaries(st.sampled_from("gh"), st.lists(gaps, min_size=1)))
def test_gaps_survive_the_way_through_json(found: dict[str, list[OffsetGap]]) -> None:
    """What is written into the property is read back as it was."""
    known = TableGaps()
    for group, ranges in found.items():
        known = known.with_group_gaps(group, {P: ranges})
    assert TableGaps.decode(known.encode(), "t") == known


def test_the_property_can_be_read_by_a_person() -> None:
    """Group, topic, partition, ranges: the form that docs/lake.md shows."""
    text = TableGaps().with_group_gaps("lake", {P: [OffsetGap(10, 25)]}).encode()
    assert json.loads(text) == {
        "v": 1,
        "groups": {"lake": {"a.b": {"3": {"ranges": [[10, 25]], "older": 0}}}},
    }
    assert TableGaps.decode(None, "t") == TableGaps()
    assert TableGaps().missing_offsets("lake", P) == MissingOffsets()


@pytest.mark.parametrize("text", ["x", "[]", '{"v":9,"groups":{}}', '{"v":1,"groups":{"g":7}}'])
def test_an_illegible_property_is_named(text: str) -> None:
    """Nobody takes it for no gaps; the error says how to be rid of it."""
    with pytest.raises(CommittedOffsetsLostError, match=r"lake\.orders.*UNSET TBLPROPERTIES"):
        TableGaps.decode(text, "lake.orders")
