"""What a member claims, confirms and tells a transaction while partitions change their owner."""

import asyncio
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.structs import TopicPartition as KafkaPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.commit_metadata import encode_release
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.classic import coordinator, group_commits
from trimtab.consumer_sdk.membership.classic.member import MAX_RELEASE_S, GroupMember

P = TopicPartition("orders", 0)
LAST = {P: CommitPosition(5, encode_release(5.0, "7:abc"))}


class Member:
    """Stand-in for a member of generation 7: its time, and when its confirmation is sent and answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sent_at: float, answered_at: float) -> None:
        self.client, self.membership_epoch, self._closing = None, 0, Event()
        self.now, self.sent = 0.0, False
        self._clock = SimpleNamespace(monotonic=lambda: self.now)
        self._assignor = SimpleNamespace(is_only_round_in=lambda _generation: True)
        self._times = sent_at, answered_at
        monkeypatch.setattr(coordinator, "generation_id", lambda _client: 7)
        monkeypatch.setattr(group_commits, "confirm_release", self._confirm)

    async def _confirm(self, _client: Any, _offsets: Any, still_member: Any) -> bool:
        self.now = self._times[0]
        self.sent = still_member()
        self.now = self._times[1]
        return self.sent

    def confirm(self) -> bool:
        GroupMember.confirm_release(self, LAST, 0, 0.0)  # type: ignore[arg-type]
        return asyncio.run(GroupMember.send_confirmation(self, frozenset(LAST)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sent_at", "answered_at", "is_sent", "is_confirmed"),
    [
        (0.1, 0.2, True, True),
        (MAX_RELEASE_S, MAX_RELEASE_S, False, False),
        (0.1, MAX_RELEASE_S, True, False),  # it may have been late: a second round fences what follows
    ],
)
def test_a_late_confirmation_is_not_sent_and_a_late_answer_does_not_count(
    monkeypatch: pytest.MonkeyPatch, sent_at: float, answered_at: float, *, is_sent: bool, is_confirmed: bool
) -> None:
    """The next owner commits after a time: a confirmation that comes later would rewind its offset."""
    member = Member(monkeypatch, sent_at, answered_at)
    assert member.confirm() == is_confirmed
    assert member.sent == is_sent


def test_a_transaction_waits_until_a_former_owner_has_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain commit of the former owner would undo the offset that the transaction commits."""
    states = iter([True, True, False])
    member: Any = SimpleNamespace(client=None, _has_unconfirmed_partitions=lambda: next(states))
    monkeypatch.setattr(coordinator, "read_generation", lambda _client: (7, next(states, "m")))
    assert GroupMember.read_generation(member) == (7, "m")


@pytest.mark.parametrize(
    ("topics", "rejoining", "is_claimed"),
    [({"orders"}, False, True), ({"clicks"}, False, False), (None, False, False), ({"orders"}, True, False)],
)
def test_what_the_application_no_longer_subscribes_to_is_not_claimed(
    topics: set[str] | None, *, rejoining: bool, is_claimed: bool
) -> None:
    """kafka-python refuses such partitions by an error that would end the member."""
    assigned: list[KafkaPartition] = []
    subscription = SimpleNamespace(
        subscription=topics, assigned_partitions=set, assign_from_subscribed=assigned.extend
    )
    generation = SimpleNamespace(generation_id=7)
    group = SimpleNamespace(rejoining=rejoining, _generation=generation, _subscription=subscription)
    claim = coordinator._claim_partitions(group, {KafkaPartition(*P)}, 7)
    assert asyncio.run(claim) is is_claimed
    assert assigned == [KafkaPartition(*P)] * is_claimed
