"""Committed offsets: the fence, trimmed spans, and offsets carried forward."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, TableGaps
from trimtab.consumer_sdk.lake.offsets.table_offsets import (
    CommittedOffsets,
    OffsetSpan,
    find_newest_offsets,
    trim_spans,
    warn_of_offset_cost,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 7)

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 3))
offsets = st.integers(0, 1 << 62)
committed_offsets = st.dictionaries(
    st.sampled_from(["g", "h"]), st.dictionaries(partitions, offsets, min_size=1)
).map(CommittedOffsets)


@given(committed_offsets)
def test_codec_round_trip(before: CommittedOffsets) -> None:
    """Encoding and decoding keep all offsets."""
    assert CommittedOffsets.decode(before.encode(), "t") == before


def test_the_largest_offset_is_kafkas() -> None:
    """An int64; a larger one was written by hand."""
    text = CommittedOffsets({"g": {A: 2**63 - 1}}).encode()
    assert CommittedOffsets.decode(text, "t").next_offset("g", A) == 2**63 - 1
    with pytest.raises(CommittedOffsetsLostError):
        CommittedOffsets.decode(text.replace(str(2**63 - 1), str(2**63)), "t")


@given(committed_offsets, st.dictionaries(partitions, st.tuples(offsets, st.integers(1, 1000))))
def test_offsets_only_advance_and_none_is_dropped(
    before: CommittedOffsets, spans_by_partition: dict[TopicPartition, tuple[int, int]]
) -> None:
    """A commit keeps the offsets of every group, and moves none back."""
    spans = {
        p: OffsetSpan(before.next_offset("g", p), first, first + n)
        for p, (first, n) in spans_by_partition.items()
    }
    after = before.advanced_by("g", spans)
    for group, old_offsets in before.groups.items():
        for partition, offset in old_offsets.items():
            found = after.next_offset(group, partition)
            assert found is not None
            assert found >= offset
            assert found == offset or group == "g"


@pytest.mark.parametrize(
    ("actual", "expected", "fits"),
    [(5, 5, True), (None, None, True), (6, 5, False), (4, 5, False), (5, None, False), (None, 5, False)],
)
def test_fence_accepts_only_the_expected_offset(
    actual: int | None, expected: int | None, *, fits: bool
) -> None:
    """A span is refused unless the table's offset is exactly the expected one."""
    table = CommittedOffsets({"g": {} if actual is None else {A: actual}, "h": {A: 5}})
    conflicts = table.find_conflicts("g", {A: OffsetSpan(expected, 5, 9)})
    assert (conflicts == ()) is fits
    assert fits or (conflicts[0].partition, conflicts[0].actual) == (A, actual)


def test_topics_are_those_of_one_group() -> None:
    """Other groups write other topics into the table."""
    table = CommittedOffsets({"g": {A: 5, B: 0}, "h": {TopicPartition("c", 0): 1}})
    assert table.topics_of("g") == {"a", "b"}
    assert table.topics_of("x") == frozenset()


def test_trim_spans() -> None:
    """After a crash between two commits a table gets only the records above its own offset."""
    batch = {A: OffsetSpan(10, 10, 20), B: OffsetSpan(None, 0, 5)}
    assert trim_spans("g", CommittedOffsets({"g": {A: 15, B: 5}}), batch) == {A: OffsetSpan(15, 15, 20)}
    assert trim_spans("g", CommittedOffsets({"g": {A: 3}}), batch) == {
        A: OffsetSpan(3, 10, 20),
        B: OffsetSpan(None, 0, 5),
    }


def test_trimmed_gaps() -> None:
    """A table that was ahead has the smaller gap, a new one the whole gap."""
    batch = {A: OffsetSpan(10, 30, 40, (OffsetGap(10, 30),))}
    assert trim_spans("g", CommittedOffsets({"g": {A: 20}}), batch) == {
        A: OffsetSpan(20, 30, 40, (OffsetGap(20, 30),))
    }
    assert trim_spans("g", CommittedOffsets({"g": {A: 35}}), batch) == {A: OffsetSpan(35, 35, 40)}
    assert trim_spans("g", CommittedOffsets(), batch) == {A: OffsetSpan(None, 30, 40, (OffsetGap(10, 30),))}


@pytest.mark.parametrize("text", ["", "x", "[]", '{"v":9,"groups":{}}', '{"v":1,"groups":{"g":7}}'])
def test_unreadable_offsets_are_an_error(text: str) -> None:
    """Unreadable offsets are an error, never an empty table."""
    with pytest.raises(CommittedOffsetsLostError, match=r"lake\.orders"):
        CommittedOffsets.decode(text, "lake.orders")


HOSTILE_MARKS = {
    "deep": '{"v":1,"groups":' + '{"a":' * 100_000,
    "infinite": '{"v":1,"groups":{"g":{"t":{"0":Infinity}}}}',
    "fraction": '{"v":1,"groups":{"g":{"t":{"0":4711.9}}}}',
    "text": '{"v":1,"groups":{"g":{"t":{"0":"7"}}}}',
    "truth": '{"v":1,"groups":{"g":{"t":{"0":true}}}}',
    "negative": '{"v":1,"groups":{"g":{"t":{"0":-1}}}}',
    "beyond Kafka's offsets": '{"v":1,"groups":{"g":{"t":{"0":9223372036854775808}}}}',
    "thousands of digits": '{"v":1,"groups":{"g":{"t":{"0":' + "9" * 5000 + "}}}}",
    "negative partition": '{"v":1,"groups":{"g":{"t":{"-1":7}}}}',
    "two spellings of one partition": '{"v":1,"groups":{"g":{"t":{"1":7,"01":9}}}}',
    "a key twice": '{"v":1,"groups":{"g":{"t":{"1":7}},"g":{}}}',
    "no encodable name": '{"v":1,"groups":{"\\ud800":{"t":{"0":7}}}}',
    "version true": '{"v":true,"groups":{}}',
    "no JSON": "\x00\ufffd",
}


@pytest.mark.parametrize("text", HOSTILE_MARKS.values(), ids=HOSTILE_MARKS.keys())
def test_damaged_offsets_are_a_named_error(text: str) -> None:
    """Offsets are read exactly as Trimtab writes them, or refused: never rounded, dropped or a traceback."""
    with pytest.raises(CommittedOffsetsLostError, match=r"table t: trimtab\.offsets cannot be read"):
        CommittedOffsets.decode(text, "t")


@pytest.mark.parametrize("missing", ['{"ranges":[[9,3]],"older":0}', '{"ranges":[[1e9,2e9]],"older":0}'])
def test_damaged_gaps_are_a_named_error(missing: str) -> None:
    """A gap ends behind its beginning, at whole offsets."""
    with pytest.raises(CommittedOffsetsLostError, match=r"trimtab\.gaps cannot be read"):
        TableGaps.decode(f'{{"v":1,"groups":{{"g":{{"t":{{"0":{missing}}}}}}}}}', "t")


@pytest.mark.parametrize(
    ("partitions", "least", "most"), [(1_000, 14_000, 17_000), (10_000, 140_000, 180_000)]
)
def test_the_size_of_offsets_is_known(partitions: int, least: int, most: int) -> None:
    """16 bytes a partition in every snapshot, 19 with the escapes of the metadata file."""
    offsets = {TopicPartition("orders", p): 10**8 + p for p in range(partitions)}
    assert least < len(CommittedOffsets({"g": offsets}).encode()) < most


def test_growing_cost_of_offsets_is_warned_of_in_steps() -> None:
    """10,000 partitions: the first warning after 400 snapshots, and then one for each 64 MB."""
    warned = [n for n in range(1, 2001) if warn_of_offset_cost("lake.orders", 160_000, n)]
    assert warned == [400, 800, 1200, 1600, 2000]
    assert warn_of_offset_cost("lake.orders", 160, 100_000) is None
    assert "its 400 snapshots hold 64.0 MB of offsets" in str(
        warn_of_offset_cost("lake.orders", 160_000, 400)
    )


def test_the_newest_offsets_of_a_history_count() -> None:
    """Compactions and deletions leave none; offsets set by hand count only if there are no others."""
    assert find_newest_offsets("t", [(None, True), ("new", True), ("old", False)], "given") == "new"
    assert find_newest_offsets("t", [(None, True), (None, False)], "given") == "given"
    assert find_newest_offsets("t", [(None, False)], None) is None
    assert find_newest_offsets("t", [], None) is None


def test_offsets_that_may_have_expired_are_lost() -> None:
    """Without them all records would be written again."""
    assert find_newest_offsets("t", [(None, True)], "given") == "given"
    with pytest.raises(CommittedOffsetsLostError, match="have expired"):
        find_newest_offsets("t", [(None, True)], None)
