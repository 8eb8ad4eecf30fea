"""State of partitions: what other clients commit is no error."""

from typing import cast

import pytest
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.partition_state import PartitionState

P = TopicPartition("orders", 0)
HUGE = '{"released": 1' + "0" * 400 + "}"
HOSTILE = [
    "x",
    "[1]",
    "{}",
    "[" * 4000,
    HUGE,
    *(f'{{"released": {n}}}' for n in ("NaN", "-Infinity", -1, '"5"')),
]


@pytest.mark.parametrize("metadata", ["", *HOSTILE])
def test_other_commit_metadata_is_no_release_time(metadata: str) -> None:
    """It stays committed: an error would end each next owner, infinity would stay in each commit."""
    state = PartitionState()
    state.record_release_time(RawPartition(*P, 5, metadata))
    state.record_first_read(P, 1e9)
    assert (state.released_at, state.commit_metadata) == ({}, {})


def test_metadata_that_cannot_be_decoded_is_no_release_time() -> None:
    """confluent-kafka decodes it when it is read."""

    class Undecodable:
        @property
        def metadata(self) -> str:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    state = PartitionState()
    state.record_release_time(cast("RawPartition", Undecodable()))
    assert state.released_at == {}


def test_a_handover_is_committed() -> None:
    """The seconds from the release to the first record."""
    state = PartitionState()
    state.record_release_time(RawPartition(*P, 5, '{"released": 100.5}'))
    state.record_first_read(P, 101.0)
    assert state.commit_metadata == {P: '{"handover": 0.5, "at": 101.0}\0'}
