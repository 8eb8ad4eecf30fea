"""Commit metadata of a queue's trackers."""

import pytest

from trimtab.common.kmq_offset_metadata import OpenMessages, decode_open_messages


def test_counts_round_trip() -> None:
    """Counts are decoded as encoded; the NUL that confluent-kafka needs is ignored."""
    counts = OpenMessages(7, 1, 2)
    assert decode_open_messages(counts.encode() + "\0") == counts


@pytest.mark.parametrize("metadata", ["", "x", "[]", '{"read":-1}', '{"read":1,"working":1.5}', "[" * 3000])
def test_metadata_of_other_programs_counts_as_none(metadata: str) -> None:
    """Any client may commit in this group, with any metadata."""
    assert decode_open_messages(metadata) is None
