"""A member that the broker assigns to: lease, releases after commits, and the ways out of the group."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from operator import attrgetter
from threading import Event
from threading import enumerate as list_threads
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk import GroupMembershipError
from trimtab.consumer_sdk.client.fair_lock import FairLock
from trimtab.consumer_sdk.client.membership_events import (
    CommitCompleted,
    CommitPosition,
    MembershipEnded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.errors import MissingAclError, UnsupportedByProtocolError
from trimtab.consumer_sdk.membership.broker_assigned import broker_assigned_member as module
from trimtab.consumer_sdk.membership.broker_assigned.broker_assigned_member import BrokerAssignedMember

T, U = TopicPartition("t", 0), TopicPartition("t", 1)
AT_5 = {T: CommitPosition(5, "m\0")}
SESSION_S, POLL_S = 45.0, 300.0


class Plane:
    """Fake of a librdkafka consumer that joins by itself."""

    def __init__(self) -> None:
        self.heartbeats = SimpleNamespace(last_contact=-inf, last_stable_contact=-inf)
        self.on_error: Callable[[Any], bool] = lambda _error: False
        self.access = FairLock()
        self.epoch = 0
        self.is_abandoned = False
        self.log: list[Any] = []
        self.commits: list[Callable[[], None]] = []  # what the next ones do

    def join(self, topics: Any, assigned: Any, revoked: Any, lost: Any) -> None:
        self.topics, self.assigned, self.revoked, self.lost = topics, assigned, revoked, lost

    def commit(self, offsets: list[Any], *, asynchronous: bool) -> list[Any]:
        assert not asynchronous
        with self.access:
            if self.commits:
                self.commits.pop(0)()
            self.log.append([(p.partition, p.offset, p.metadata) for p in offsets])
            return []

    def release(self) -> None:
        with self.access:
            self.log.append("release")

    def unsubscribe(self) -> None:
        self.log.append("unsubscribe")

    def serve(self, timeout: float) -> None:
        self.log.append(timeout)

    def read_generation(self) -> int:
        return self.epoch

    def memberid(self) -> str:
        return "m"

    def wake(self) -> None:
        """Do nothing: nobody waits."""


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def plane() -> Plane:
    return Plane()


@pytest.fixture
def member(plane: Plane, clock: Ticking, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerAssignedMember]:
    """A member that owns partition 0 since now."""
    monkeypatch.setattr(module, "_check_broker", lambda *_: None)
    monkeypatch.setattr(
        module.group_timeouts, "read_session_timeout", lambda settings, *_: settings.session_timeout
    )
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "group.protocol": "consumer"}
    own = {"trimtab.plan.topic": "", "trimtab.write.rate.topic": ""}
    member = BrokerAssignedMember(parse_consumer_settings({**config, **own}), clock, plane)  # type: ignore[arg-type]
    member.start(["t"])
    plane.epoch = 1
    plane.assigned(frozenset({T}))
    assert member.inbox.popleft() == PartitionsAssigned(frozenset({T}), 0)
    yield member
    member._commits.end(10)


def code_of(call: Callable[[], Any]) -> int:
    with pytest.raises(KafkaException) as raised:
        call()
    return int(raised.value.args[0].code())


def fail(code: int) -> Callable[[], None]:
    def raise_error() -> None:
        raise KafkaException(KafkaError(code))

    return raise_error


# -- lease ----------------------------------------------------------------------------------------


def test_only_a_proved_heartbeat_renews_the_lease(member: Any, plane: Plane, clock: Ticking) -> None:
    """An assignment begins it; silence ends it a tenth of the session before the broker does."""
    assert member.holds_lease()
    clock.now += SESSION_S * 0.91
    assert not member.holds_lease()
    plane.heartbeats.last_contact = clock.now - 10
    assert member.holds_lease()


def test_a_shorter_session_timeout_of_the_group_shortens_the_lease(
    member: Any, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for every minute: the admin's change would let two consumers read."""
    monkeypatch.setattr(module.group_timeouts, "read_session_timeout", lambda *_: 10.0)
    clock.now += 61
    member.record_poll()
    for thread in list_threads():
        if thread.name == "trimtab-session-timeout":
            thread.join(10)
    member._plane.heartbeats.last_contact = member._plane.heartbeats.last_stable_contact = clock.now
    clock.now += 8
    assert member.holds_lease()
    clock.now += 2
    assert not member.holds_lease()


def test_an_open_revocation_ends_the_lease(member: Any, plane: Plane, clock: Ticking) -> None:
    """The broker reassigns after the rebalance timeout, although it answers heartbeats."""
    plane.heartbeats.last_stable_contact = clock.now
    clock.now += POLL_S * 0.91
    plane.heartbeats.last_contact = clock.now
    member._last_poll_at = clock.now
    assert not member.holds_lease()


def test_a_late_poll_needs_a_later_heartbeat(member: Any, plane: Plane, clock: Ticking) -> None:
    """librdkafka may have left the group meanwhile, and may not have said so yet."""
    clock.now += POLL_S * 0.95
    plane.heartbeats.last_contact = plane.heartbeats.last_stable_contact = clock.now - 1
    member.record_poll()
    assert not member.holds_lease()
    clock.now += 5
    plane.heartbeats.last_contact = clock.now - 1
    assert member.holds_lease()


def test_a_lost_membership_ends_the_lease_until_partitions_are_assigned(
    member: Any, plane: Plane, clock: Ticking
) -> None:
    """Heartbeats before the loss prove nothing; the next assignment does."""
    plane.heartbeats.last_contact = clock.now
    clock.now += 1
    plane.lost(frozenset({T}))
    assert not member.holds_lease()
    (event,) = member.inbox
    assert isinstance(event, PartitionsLost)
    clock.now += 1
    event.released.set()
    plane.assigned(frozenset({U}))
    assert member.holds_lease()
    assert member.inbox[-1] == PartitionsAssigned(frozenset({U}), 1)


# -- commits and releases -------------------------------------------------------------------------


def test_partitions_are_released_after_the_commit_under_way(member: Any, plane: Plane) -> None:
    """The broker would accept it after the next owner's, and rewind the group."""
    under_way, proceed = Event(), Event()

    def wait() -> None:
        under_way.set()
        assert proceed.wait(10)

    plane.commits = [wait]
    member.commit_async(AT_5, 0, lambda _: True)
    assert under_way.wait(10)
    plane.revoked(frozenset({T}))
    with pytest.raises(KafkaException) as late:
        member.commit(AT_5, 0, timeout=0.01)
    assert late.value.args[0].code() == KafkaError._TIMED_OUT
    (event,) = (e for e in member.inbox if isinstance(e, PartitionsRevoked))
    proceed.set()
    event.released.set()
    event.released.set()
    assert plane.log == [[(0, 5, "m")], "release"]  # the one that was too late is not sent, a release once


@pytest.fixture
def silence(member: Any, plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """A commit waits for a silent coordinator until the event is set."""
    monkeypatch.setattr(module, "RELEASE_WAIT_S", 0.01)
    under_way, answered = Event(), Event()
    plane.commits = [lambda: (under_way.set(), answered.wait(10))]
    member.commit_async(AT_5, 0, lambda _: True)
    assert under_way.wait(10)
    yield answered
    answered.set()


def test_a_release_waits_for_a_silent_coordinator_in_the_background(
    member: Any, plane: Plane, silence: Event, eventually: Callable[..., None]
) -> None:
    """Polls go on meanwhile; the first one after the answer releases."""
    plane.revoked(frozenset({T}))
    member.inbox.popleft().released.set()
    member.record_poll()
    assert plane.log == []
    silence.set()
    eventually(lambda: plane.log == [[(0, 5, "m")]])
    member.record_poll()
    assert plane.log[1:] == ["release"]


def test_a_departure_does_not_wait_for_a_silent_coordinator(
    member: Any, plane: Plane, clock: Ticking, silence: Event
) -> None:
    """The partitions are lost: the group gives them to others after the session timeout."""
    member.stop()
    member.wait(0.01)
    assert not member.is_stopped
    clock.now += 5.1
    member.wait(0.01)
    (event,) = member.inbox
    assert (type(event), event.partitions) == (PartitionsLost, {T})
    event.released.set()
    assert member.is_stopped
    assert plane.is_abandoned
    assert plane.log == []
    assert not silence.is_set()
    with pytest.raises(GroupMembershipError, match="create this consumer again"):
        BrokerAssignedMember(member._settings, clock, plane)  # type: ignore[arg-type]


@pytest.mark.parametrize("lock", ["access", "access._entrance"])
def test_a_commit_in_a_signal_handler_follows_the_queued_ones(member: Any, plane: Plane, lock: str) -> None:
    """Its thread is inside `consume`, or waits for its turn there: the thread of commits waits for it."""
    with attrgetter(lock)(plane):
        member.commit_async(AT_5, 0, lambda _: True)
        member.commit({T: CommitPosition(6, "")}, 0, timeout=0.5)
    assert plane.log == [[(0, 5, "m")], [(0, 6, "")]]


def test_an_interrupted_release_is_made_by_the_next_poll(
    member: Any, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while it waits for a commit: the group would wait for it, and close() for ever."""
    release, interrupts = plane.release, [KeyboardInterrupt, KeyboardInterrupt]

    def interrupt_twice() -> None:
        if interrupts:
            raise interrupts.pop()
        release()

    monkeypatch.setattr(plane, "release", interrupt_twice)
    plane.revoked(frozenset({T}))
    with pytest.raises(KeyboardInterrupt):
        member.inbox.popleft().released.set()
    assert code_of(lambda: member.commit(AT_5, 0, timeout=5)) == KafkaError.ILLEGAL_GENERATION
    with pytest.raises(KeyboardInterrupt):
        member.record_poll()
    member.stop()
    member.wait(0.1)
    member.wait(0.1)
    plane.epoch = 0
    assert member.is_stopped
    assert plane.log == ["unsubscribe", "release", 0.1, 0.1]


def test_a_commit_of_lost_partitions_is_refused(member: Any, plane: Plane) -> None:
    """Also if it was lost while the commit waited for the new member epoch."""
    plane.commits = [fail(KafkaError.STALE_MEMBER_EPOCH)]
    owned = iter([True, False])
    refused = code_of(lambda: member.commit(AT_5, 0, timeout=5, still_owned=lambda _: next(owned)))
    assert refused == KafkaError.ILLEGAL_GENERATION
    plane.lost(frozenset({T}))
    assert code_of(lambda: member.commit(AT_5, 0, timeout=5)) == KafkaError.ILLEGAL_GENERATION
    assert plane.log == []


def test_a_commit_follows_a_new_member_epoch(member: Any, plane: Plane) -> None:
    """A rebalance begins one, and the member learns of it by its next heartbeat."""
    plane.commits = [fail(KafkaError.STALE_MEMBER_EPOCH)] * 3
    member.commit(AT_5, 0, timeout=5)
    assert plane.log == [[(0, 5, "m")]]


def test_the_outcome_of_an_asynchronous_commit_is_an_event(member: Any, plane: Plane) -> None:
    """It has the error, or none."""
    plane.commits = [fail(KafkaError.UNKNOWN_MEMBER_ID)]
    member.commit_async(AT_5, 0, lambda _: True)
    member.commit_async(AT_5, 0, lambda _: True)
    member.commit(AT_5, 0, timeout=5)  # after them
    failed, done = member.inbox
    assert failed.error.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert done == CommitCompleted(AT_5, None)


# -- ways out -------------------------------------------------------------------------------------


def test_a_member_leaves_once_it_has_released(member: Any, plane: Plane) -> None:
    """It has left when the broker has answered."""
    member.stop()
    assert plane.log == ["unsubscribe"]
    plane.revoked(frozenset({T}))
    assert not member.is_stopped
    member.inbox[0].released.set()
    assert not member.is_stopped
    plane.epoch = 0
    assert member.is_stopped
    assert code_of(lambda: member.commit(AT_5, 0, timeout=1)) == KafkaError.ILLEGAL_GENERATION


def test_a_member_that_is_still_joining_leaves_after_the_answer(member: Any, plane: Plane) -> None:
    """librdkafka would not leave: the broker kept partitions for it until the session ends."""
    plane.epoch = 0
    member.stop()
    member.wait(0.1)
    assert plane.log == [0.1]
    plane.epoch = 2
    member.wait(0.1)
    assert plane.log == [0.1, "unsubscribe", 0.1]


def test_a_silent_broker_does_not_hold_up_the_end(member: Any, plane: Plane, clock: Ticking) -> None:
    """After five seconds the session timeout has to do it."""
    member.stop()
    plane.revoked(frozenset({T}))
    member.inbox[0].released.set()
    clock.now += 5.1
    assert member.is_stopped


def test_a_fatal_error_ends_the_membership(member: Any, plane: Plane) -> None:
    """The one of a migration that is blocked names what to do; others are events of the application."""
    text = "Fatal error: Broker: The group id does not exist: ConsumerGroupHeartbeat fatal error"
    assert plane.on_error(KafkaError(KafkaError._FATAL, text))
    (ended,) = member.inbox
    assert isinstance(ended, MembershipEnded)
    assert isinstance(ended.error, GroupMembershipError)
    assert "trimtab doctor" in str(ended.error)
    assert not plane.on_error(KafkaError(KafkaError._PARTITION_EOF))
    assert plane.on_error(KafkaError(KafkaError._MAX_POLL_EXCEEDED))
    assert plane.on_error(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert isinstance(member.inbox[-1].error, MissingAclError)
    assert len(member.inbox) == 2


# -- drain and late polls -------------------------------------------------------------------------


def test_a_drain_hands_over_in_order_and_for_good(member: Any, plane: Plane) -> None:
    """The next poll starts to leave; until the release the partition may be committed."""
    member.drain()
    assert plane.log == []
    member.record_poll()
    assert plane.log == ["unsubscribe"]
    plane.revoked(frozenset({T}))
    member.commit(AT_5, 0, 1)
    member.inbox.popleft().released.set()
    plane.epoch, plane.topics = -1, None
    member.start(["t", "u"])
    member.record_poll()
    assert (plane.topics, plane.log) == (None, ["unsubscribe", [(0, 5, "m")], "release"])
    member.stop()
    assert member.is_stopped


def test_a_static_member_cannot_drain_itself(member: Any) -> None:
    """The broker would keep its partitions; the error says what drains it."""
    member._settings = replace(member._settings, group_instance_id="one")
    with pytest.raises(UnsupportedByProtocolError, match="a sidecar's plan"):
        member.drain()


def test_late_polls_leave_the_group_and_the_next_one_joins_it(
    member: Any, plane: Plane, clock: Ticking
) -> None:
    """The partitions are lost, not revoked: another consumer reads them before the application goes on."""
    member.leave_if_overdue()
    clock.now += POLL_S + 1
    member.leave_if_overdue()
    member.leave_if_overdue()
    plane.revoked(frozenset({T}))
    lost = member.inbox.popleft()
    assert isinstance(lost, PartitionsLost)
    assert code_of(lambda: member.commit(AT_5, 0, 1)) == KafkaError.ILLEGAL_GENERATION
    plane.topics = None
    member.record_poll()
    assert plane.topics is None  # the partition has not been released
    lost.released.set()
    member.record_poll()
    assert plane.topics is None  # the broker has not answered
    plane.epoch = -1
    clock.now += 1
    member.record_poll()
    assert (plane.topics, plane.log) == (["t"], ["unsubscribe", "release"])
    plane.epoch = 3
    plane.assigned(frozenset({T}))
    assert member.holds_lease()


def test_a_member_that_is_away_stops_at_once(member: Any, plane: Plane, clock: Ticking) -> None:
    """There is nothing to wait for."""
    clock.now += POLL_S + 1
    member.leave_if_overdue()
    plane.revoked(frozenset({T}))
    member.inbox.popleft().released.set()
    plane.epoch = -1
    member.stop()
    assert member.is_stopped


def test_the_generation_is_the_member_epoch(member: Any, plane: Plane) -> None:
    """Outside the group it is -1, as in a classic one."""
    assert (member.read_generation(), member.generation_id, member.is_current(0)) == ((1, "m"), 1, True)
    plane.epoch = 0
    assert (member.read_generation(), member.generation_id, member.is_current(0)) == ((-1, ""), -1, False)
