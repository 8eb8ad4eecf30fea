"""The watch for released partitions: when it looks, what a join waits for, what is not committed yet."""

from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.commit_metadata import encode_confirmation, encode_release, parse_release
from trimtab.consumer_sdk.membership.classic import coordinator
from trimtab.consumer_sdk.membership.release_watch import (
    CONFIRMATION_TIMEOUT_S,
    FIRST_LOOK_S,
    JOIN_DELAY_S,
    MAX_LOOK_INTERVAL_S,
    ReleaseWatch,
)

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)
ROUND = "7:abc"
CLIENT: Any = None


class Coordinator:
    """Stand-in for the coordinator: released partitions, and whether they can be claimed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released: frozenset[TopicPartition] = frozenset()
        self.confirmed: frozenset[TopicPartition] = frozenset()
        self.claimable = True
        self.is_away = False
        self.looks = 0
        monkeypatch.setattr(coordinator, "find_released", self.find_released)
        monkeypatch.setattr(coordinator, "claim_partitions", lambda *_: self.claimable)

    def find_released(
        self, _client: Any, partitions: frozenset[TopicPartition], token: str, _timeout: float
    ) -> dict[TopicPartition, bool]:
        self.looks += 1
        if self.is_away:
            raise KafkaConnectionError
        return {p: p in self.confirmed for p in self.released & partitions} if token == ROUND else {}


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """Coordinator of the group."""
    return Coordinator(monkeypatch)


def watch() -> ReleaseWatch:
    return ReleaseWatch((P, Q), 7, ROUND, 0.0)


def test_it_begins_what_is_released_once(group: Coordinator) -> None:
    """A released partition is begun once, the other one stays promised."""
    one = watch()
    group.released = frozenset({P})
    assert coordinator.begin_released(one, CLIENT, FIRST_LOOK_S / 2) == frozenset()
    assert coordinator.begin_released(one, CLIENT, FIRST_LOOK_S) == {P}
    assert one.promised == {Q}
    assert coordinator.begin_released(one, CLIENT, 1.0) == frozenset()


def test_it_begins_nothing_that_a_join_does_not_claim(group: Coordinator) -> None:
    """A join that has begun goes without the partition, so the round assigns it."""
    one = watch()
    group.released, group.claimable = frozenset({P}), False
    assert coordinator.begin_released(one, CLIENT, 1.0) == frozenset()
    assert one.promised == {P, Q}
    assert not one.is_unconfirmed(1.0)


def test_looks_become_rarer_and_a_silent_coordinator_is_no_error(group: Coordinator) -> None:
    """A long flush of the owner costs few requests."""
    one = watch()
    group.is_away = True
    for milliseconds in range(1000):
        assert coordinator.begin_released(one, CLIENT, milliseconds / 1000) == frozenset()
        assert one.wait(milliseconds / 1000) < 2 * MAX_LOOK_INTERVAL_S
    assert 15 < group.looks < 40


def test_a_due_join_waits_shortly_for_releases(group: Coordinator) -> None:
    """It does not wait once all are begun, nor for an owner that takes longer."""
    one = watch()
    assert not one.delays_join(1.0, is_due=False)
    assert one.delays_join(2.0, is_due=True)
    assert not one.delays_join(2.0 + 2 * JOIN_DELAY_S, is_due=True)
    group.released = frozenset({P, Q})
    other = watch()
    assert coordinator.begin_released(other, CLIENT, 1.0) == {P, Q}
    assert not other.delays_join(1.0, is_due=True)


def test_begun_partitions_are_not_committed_before_their_round(group: Coordinator) -> None:
    """For as long as the former owner may repeat its last commit, at most."""
    one = watch()
    assert not one.is_unconfirmed(1.0)
    group.released = frozenset({P})
    coordinator.begin_released(one, CLIENT, 1.0)
    assert one.is_unconfirmed(1.0, [P, Q])
    assert not one.is_unconfirmed(1.0, [Q])
    assert not one.is_unconfirmed(1.0 + CONFIRMATION_TIMEOUT_S)


def test_a_confirmation_ends_the_wait(group: Coordinator) -> None:
    """In an only round the watch looks on until the former owner has confirmed its last commit."""
    one = ReleaseWatch((P, Q), 7, ROUND, 0.0, is_only_round=True)
    group.released = frozenset({P})
    assert coordinator.begin_released(one, CLIENT, 1.0) == {P}
    group.released, group.confirmed = frozenset({P, Q}), frozenset({Q})
    assert coordinator.begin_released(one, CLIENT, 2.0) == {Q}
    assert one.is_unconfirmed(2.0, [P])
    assert not one.is_unconfirmed(2.0, [Q])
    group.confirmed = frozenset({P, Q})
    assert one.list_awaited(2.1) == {P}
    assert coordinator.begin_released(one, CLIENT, 3.0) == frozenset()
    assert not one.is_unconfirmed(3.0)
    assert not one.list_awaited(3.0)


def test_a_watch_of_two_rounds_looks_for_releases_only(group: Coordinator) -> None:
    """The second round confirms them."""
    one = watch()
    group.released = frozenset({P, Q})
    assert coordinator.begin_released(one, CLIENT, 1.0) == {P, Q}
    assert one.is_unconfirmed(1.0)
    assert not one.list_awaited(1.0)


def test_the_metadata_of_a_release_names_its_round() -> None:
    """Commits of other rounds, and of other clients, are no release in this one."""
    assert parse_release(encode_release(5.25, ROUND)) == (5.25, ROUND, False)
    assert parse_release(encode_confirmation(encode_release(5.25, ROUND))) == (5.25, ROUND, True)
    assert parse_release(encode_release(5.25, "")) == (5.25, "", False)
    assert parse_release(None).token == parse_release('{"round": "7:abc"}').token == ""


def test_a_release_that_is_never_seen_takes_a_second_round_once(group: Coordinator) -> None:
    """The owner has left or has released by then, and a coordinator out of sync may have lost the release."""
    one = ReleaseWatch((P,), 7, ROUND, 0.0, is_only_round=True)
    late = 300.0 + CONFIRMATION_TIMEOUT_S
    assert not one.takes_second_round(late, 300.0)
    assert one.takes_second_round(late + 0.1, 300.0)
    assert not one.takes_second_round(late + 0.2, 300.0)
    assert not watch().takes_second_round(late + 0.1, 300.0)  # it has its second round anyway
    begun = ReleaseWatch((P,), 7, ROUND, 0.0, is_only_round=True)
    group.released = frozenset({P})
    coordinator.begin_released(begun, CLIENT, FIRST_LOOK_S)
    assert not begun.takes_second_round(late + 0.1, 300.0)
