"""State of partitions: what other clients commit is no error."""

from typing import cast

import pytest
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.membership_events import CommitPosition
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


@pytest.fixture
def owner() -> PartitionState:
    """An owner that has committed offset 5."""
    state = PartitionState(committed_offsets={P: 5})
    state.add_owned([P])
    return state


def test_a_queued_commit_is_known_before_its_answer(owner: PartitionState) -> None:
    """The last commit of a release follows it, and must not rewind it."""
    owner.begin_commit({P: CommitPosition(9)}, waits=False)
    assert owner.committed_offsets == {P: 9}


def test_a_commit_whose_caller_waits_is_unknown_until_its_answer(owner: PartitionState) -> None:
    """The last commit would rewind it, or commit what the caller is told to be refused."""
    commit = {P: CommitPosition(9)}
    owner.begin_commit(commit, waits=True)
    assert owner.committed_offsets == {}
    owner.on_committed(commit)
    assert owner.committed_offsets == {P: 9}


@pytest.mark.parametrize("later_waits", [True, False])
def test_an_answer_does_not_replace_a_later_commit(owner: PartitionState, *, later_waits: bool) -> None:
    """Two threads commit: the last commit repeats the second one's offset, or none."""
    earlier = {P: CommitPosition(9)}
    owner.begin_commit(earlier, waits=True)
    owner.begin_commit({P: CommitPosition(12)}, waits=later_waits)
    owner.on_committed(earlier)
    assert owner.committed_offsets == ({} if later_waits else {P: 12})


def test_a_refused_commit_is_not_made_by_the_release(owner: PartitionState) -> None:
    """The application is told of the error, and may read its records again."""
    refused = {P: CommitPosition(9)}
    owner.begin_commit(refused, waits=False)
    owner.on_refused(refused)
    assert owner.committed_offsets == {}
    owner.begin_commit(refused, waits=False)
    owner.begin_commit({P: CommitPosition(12)}, waits=False)
    owner.on_refused(refused)
    assert owner.committed_offsets == {P: 12}


@pytest.mark.parametrize("waits", [True, False])
def test_what_was_fetched_at_the_beginning_replaces_no_commit(owner: PartitionState, *, waits: bool) -> None:
    """A thread that still holds records may commit before the answer arrives."""
    owner.begin_commit({P: CommitPosition(9)}, waits=waits)
    owner.add_fetched_commits({P: 5})
    assert owner.committed_offsets == ({} if waits else {P: 9})


def test_an_answer_after_the_release_is_forgotten(owner: PartitionState) -> None:
    """Other members may have committed since."""
    commit = {P: CommitPosition(9)}
    owner.begin_commit(commit, waits=True)
    owner.remove_partitions([P])
    owner.add_owned([P])
    owner.on_committed(commit)
    assert owner.committed_offsets == {}
