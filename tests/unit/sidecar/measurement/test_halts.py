"""Halted partitions, from what their consumer writes into its commits' metadata."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.commit_metadata import (
    COMMIT_METADATA_TERMINATOR,
    MAX_HALT_REASON,
    add_facts,
    describe_halt,
)
from trimtab.sidecar.measurement.halts import MAX_REASON, describe_halts, parse_halts

A, B, C = (TopicPartition("a", number) for number in range(3))


def test_reasons_are_read_as_they_are_written() -> None:
    """Beside other facts, in any alphabet, and cut as long ones are."""
    metadata = {
        A: describe_halt("no column ü") + COMMIT_METADATA_TERMINATOR,
        B: add_facts(describe_halt("x" * 2 * MAX_HALT_REASON), {"handling": 1.0}),
        C: add_facts("", {"handling": 1.0}),
    }
    assert parse_halts(metadata) == {A: "no column ü", B: "x" * MAX_HALT_REASON}
    assert MAX_REASON == MAX_HALT_REASON


@pytest.mark.parametrize("character", ["\U0001f4a5", "\ud800", "\0", '"', "\x85"])
def test_no_reason_is_longer_than_brokers_take(character: str) -> None:
    """They would refuse the commit; a lone surrogate of a file's name is in no message."""
    metadata = add_facts(describe_halt(2 * MAX_HALT_REASON * character), {"handling": 1.0})
    assert len(metadata.encode()) < 4096
    expected = "?" if character == "\ud800" else character
    assert parse_halts({A: metadata}) == {A: MAX_HALT_REASON * expected}


@given(st.text() | st.builds(json.dumps, st.dictionaries(st.just("halted"), st.integers() | st.none())))
def test_metadata_of_others_tells_nothing(text: str) -> None:
    """Any client may write any."""
    assert parse_halts({A: text}) == {}


@pytest.mark.parametrize("text", ["[" * 90_000, "\0", '{"halted": ""}'])
def test_hostile_metadata_tells_nothing(text: str) -> None:
    """Deep nesting ends in no error."""
    assert parse_halts({A: text}) == {}


def test_each_reason_is_one_sentence() -> None:
    """With its first partition."""
    text = "a-0 (and 1 more) are not read: no column; a-2 is not read: refused"
    assert describe_halts({B: "no column", A: "no column", C: "refused"}, len(text)) == text


@pytest.mark.parametrize(("count", "named"), [(12, 12), (100, 15)])
def test_long_reasons_hide_no_partition(count: int, named: int) -> None:
    """The reasons of the first partitions would fill the message."""
    halts = {TopicPartition(f"t{at:03}", 0): f"{at} " + "x" * MAX_REASON for at in range(count)}
    text = describe_halts(halts, 1000)
    assert len(text) <= 1000
    assert [f"t{at:03}-0 is not read: {at} x" in text for at in range(named)] == [True] * named
    assert text.endswith("…" if named == count else f"and {count - named} more reasons")
