"""Each rule of `classic_member`, against a model of the group's coordinator."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.group_model import TOPIC, Client, World, encode_assignment
from trimtab.assignor.rebalance.user_data import AssignmentUserData
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_protocol import apis
from trimtab.consumer_sdk.client.commit_metadata import encode_confirmation, encode_release
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.machine.values import (
    NO_ANSWER,
    Assigned,
    CommitAnswered,
    CoordinatorLost,
    Ended,
    Left,
    Lost,
    Phase,
    Revoked,
    RoundEnded,
)

P0, P1, P2, P3 = ALL = [TopicPartition(TOPIC, n) for n in range(4)]
AT = {P0: CommitPosition(5)}


@pytest.fixture
def world() -> World:
    return World()


def fail_next(client: Client, api: Any, **fields: Any) -> None:
    """Answer the next request of this kind so."""
    handle = client.model.handle

    def answer(request: Any, now: float, respond: Any) -> None:
        if request.api is api:
            client.model.handle = handle  # type: ignore[method-assign]
            respond(SimpleNamespace(**fields))
        else:
            handle(request, now, respond)

    client.model.handle = answer  # type: ignore[method-assign]


def end_round(client: Client, assigned: set[TopicPartition], **decision: Any) -> None:
    """Have the next round end with this assignment, by a decision of our leader."""
    user_data = AssignmentUserData("d1", **decision).encode() if decision else None
    client.member.assign = lambda _given, topics, now: type(client.member).assign(  # type: ignore[method-assign]
        client.member,
        {client.member.member_id: encode_assignment(frozenset(assigned), user_data)},
        topics,
        now,
    )
    client.member.request_rejoin()


def test_a_member_joins_leads_and_owns_all(world: World) -> None:
    """Rules 1 to 3: coordinator, metadata, a join without id, one with it, sync."""
    one = world.add()
    world.settle()
    kinds = [request.api.name for request in one.requests]
    assert kinds == ["FindCoordinator", "Metadata", "JoinGroup", "JoinGroup", "SyncGroup", "Metadata"]
    assert [r.fields["member_id"] for r in one.sent(apis.JOIN_GROUP)] == ["", "m1"]
    assert one.reads == set(ALL) == one.member.owned
    assert one.member.is_leader
    assert one.member.holds_lease(world.now)


def test_a_second_member_gets_half_in_two_rounds(world: World) -> None:
    """Rules 9 and 12: what is revoked is released before the next join; nobody reads twice."""
    first = world.add()
    world.settle()
    first.holds = True
    second = world.add()
    world.advance(1)
    assert first.happened(Revoked)[0].partitions == {P1, P3}
    assert second.reads == set()
    beats = len(first.sent(apis.HEARTBEAT))
    world.advance(3)
    assert len(first.sent(apis.HEARTBEAT)) >= beats + 10
    first.reads -= {P1, P3}
    first.member.release(world.now)
    world.advance(1)
    assert (first.reads, second.reads) == ({P0, P2}, {P1, P3})
    assert world.model.generation == 3


def test_the_leader_follows_new_partitions(world: World) -> None:
    """Rule 2: the metadata that the leader decided on has changed."""
    one = world.add(metadata_max_age=1.0)
    world.settle()
    world.model.partitions = 6
    world.advance(2)
    assert len(one.reads) == 6


def test_a_lost_membership_claims_nothing(world: World) -> None:
    """Rule 3: by a heartbeat, and by the answer to a join."""
    one = world.add()
    world.settle()
    for api in (apis.HEARTBEAT, apis.JOIN_GROUP):
        world.model.members.clear()
        if api is apis.JOIN_GROUP:
            one.member.request_rejoin()
        world.advance(1)
        assert one.happened(Lost)[-1].partitions == set(ALL)
        assert one.reads == set(ALL)
    assert one.member.epoch == 2
    claims = [r.fields["protocols"][0]["metadata"] for r in one.sent(apis.JOIN_GROUP)[-2:]]
    assert claims[0] == claims[1] == one.sent(apis.JOIN_GROUP)[0].fields["protocols"][0]["metadata"]


@pytest.mark.parametrize(("instance", "losses"), [(None, 0), ("i1", 1)])
def test_an_illegal_generation_loses_only_a_static_members_partitions(
    world: World, instance: str | None, losses: int
) -> None:
    """Rule 4."""
    one = world.add(group_instance_id=instance)
    world.settle()
    fail_next(one, apis.HEARTBEAT, error_code=22)
    world.advance(1)
    assert len(one.happened(Lost)) == losses
    assert one.reads == set(ALL)


@pytest.mark.parametrize("code", [82, 30, 23, 81])
def test_a_fatal_error_ends_the_member(world: World, code: int) -> None:
    """Rule 5: its partitions are lost, it joins no more, and its commits fail."""
    one = world.add()
    world.settle()
    fail_next(one, apis.HEARTBEAT, error_code=code)
    world.advance(1)
    assert [e.code for e in one.happened(Ended)] == [code]
    assert one.happened(Lost)[0].partitions == set(ALL)
    count = len(one.requests)
    one.member.commit(AT)
    world.advance(30)
    assert len(one.requests) == count
    assert one.happened(CommitAnswered)[0].code == 25
    assert not one.member.holds_lease(world.now)


@pytest.mark.parametrize("code", [14, 27, -1, 15, 16])
@pytest.mark.parametrize("api", [apis.JOIN_GROUP, apis.SYNC_GROUP], ids=["join", "sync"])
def test_other_errors_of_a_join_are_retried(world: World, api: Any, code: int) -> None:
    """Rules 1, 5 and 19: the join stays due, and nothing is lost."""
    one = world.add()
    world.settle()
    fail_next(one, api, error_code=code, member_id="", protocol_name=None)
    one.member.request_rejoin()
    world.advance(3)
    assert one.member.phase is Phase.STABLE
    assert one.member.generation >= 2
    assert not one.happened(Lost)
    assert bool(one.happened(CoordinatorLost)) == (code in (15, 16))


def test_denied_topics_end_the_member_unless_they_are_anothers(world: World) -> None:
    """Rule 2."""
    one = world.add(metadata_max_age=0.5)
    world.settle()
    other = SimpleNamespace(name="other", error_code=29, is_internal=False, partitions=[])
    own = SimpleNamespace(
        name=TOPIC, error_code=0, is_internal=False, partitions=world.model.list_partitions()
    )
    fail_next(one, apis.METADATA, brokers=[], topics=[own, other])
    world.advance(0.6)
    assert one.member.phase is Phase.STABLE
    own.error_code = 29
    fail_next(one, apis.METADATA, brokers=[], topics=[own])
    world.advance(0.6)
    assert one.happened(Ended) == [Ended(29, frozenset({TOPIC}))]


def test_a_member_leaves_and_comes_back(world: World) -> None:
    """Rule 8: the lease ends before the request; a static member sends none (rule 6)."""
    one, static = world.add(), world.add(group_instance_id="i1")
    world.advance(2)
    one.member.leave("closing", world.now)
    assert not one.member.holds_lease(world.now)
    static.member.leave("closing", world.now)
    world.settle()
    assert one.happened(Left)
    assert static.happened(Left)
    assert len(one.sent(apis.LEAVE_GROUP)) == 1
    assert not static.sent(apis.LEAVE_GROUP)
    assert one.reads == static.reads == set()
    one.member.come_back()
    world.advance(8)
    assert one.reads == set(ALL)
    assert one.member.holds_lease(world.now)


def test_without_polls_a_member_leaves_until_the_next(world: World) -> None:
    """Rule 7."""
    one = world.add()
    world.settle()
    world.now += 20.0
    world.settle()
    assert one.happened(Left)
    world.now += 5.0
    world.settle()
    assert one.reads == set()
    world.advance(1)
    assert one.reads == set(ALL)


def test_the_lease_counts_from_the_heartbeats_request(world: World) -> None:
    """Rule 10: silence ends it a tenth before the session."""
    one = world.add()
    world.advance(1)
    last = one.sent(apis.HEARTBEAT)[-1].sent_at
    one.is_cut = True
    assert one.member.holds_lease(last + 5.39)
    assert not one.member.holds_lease(last + 5.41)


def test_a_late_answer_renews_the_lease_from_its_request(world: World) -> None:
    """Rule 10: the group counts from when it heard from the member, at the latest from its request."""
    one = world.add()
    world.settle()
    sent_at = one.member.next_due(world.now)
    beat = one.member.next_request(sent_at)
    assert beat is not None
    one.member.on_response(beat, SimpleNamespace(error_code=0), sent_at + 2)
    assert one.member.holds_lease(sent_at + 5.39)
    assert not one.member.holds_lease(sent_at + 5.41)


def test_in_a_rebalance_only_the_second_lease_runs_out(world: World) -> None:
    """Rule 10: heartbeats are answered, but the coordinator waits no longer than the rebalance timeout."""
    first = world.add()
    world.settle()
    first.holds = True
    end_round(first, {P0})
    world.settle()
    joined = first.member.joined_at
    world.model.state, world.model.began = "preparing", world.now
    world.advance(17)
    assert first.member.holds_lease(world.now)
    world.advance(2)
    assert world.now - joined > 18
    assert not first.member.holds_lease(world.now)


def test_heartbeats_are_frequent_while_another_round_follows(world: World) -> None:
    """Rule 11."""
    one = world.add()
    world.settle()
    end_round(one, set(ALL), round_follows=True)
    world.settle()
    now = world.now
    gaps: list[float] = []
    for _ in range(20):
        due = one.member.next_due(now)
        gaps.append(round(due - now, 3))
        now = world.now = due
        world.settle()
    assert gaps[:3] == [0.01, 0.013, 0.017]
    assert gaps[-1] == 0.25


@pytest.mark.parametrize("data", [b"\0\1\0\0\0\7", b"", encode_assignment(frozenset(ALL), b"{")])
def test_a_hostile_assignment_reads_nothing(world: World, data: bytes) -> None:
    """Rule 13: unreadable bytes, and unreadable user data."""
    one = world.add()
    world.settle()
    fail_next(one, apis.SYNC_GROUP, error_code=0, protocol_name="trimtab", assignment=data)
    one.holds = True
    one.member.request_rejoin()
    world.settle()
    assert one.happened(Revoked)[0].partitions == set(ALL)
    assert one.member.phase is Phase.STABLE
    assert not one.member.owned


def test_an_assignment_of_other_topics_changes_nothing(world: World) -> None:
    """Rule 13."""
    one = world.add()
    world.settle()
    end_round(one, {TopicPartition("u", 0)})
    world.settle()
    assert one.happened(RoundEnded)[-1].fault
    assert one.member.owned == set(ALL)
    assert one.member.is_join_due


def test_partitions_of_topics_left_are_released_before_the_join(world: World) -> None:
    """Rule 1: the release may commit, since the member is still in its generation."""
    one = world.add()
    world.settle()
    one.holds = True
    one.member.subscribe(["u"], world.now)
    world.settle()
    assert one.happened(Revoked)[0].partitions == set(ALL)
    one.member.commit(AT)
    world.settle()
    assert one.happened(CommitAnswered)[0].code == 0
    joins = len(one.sent(apis.JOIN_GROUP))
    one.member.release(world.now)
    world.settle()
    assert len(one.sent(apis.JOIN_GROUP)) == joins + 1


def test_commits_carry_the_generation_and_are_checked_at_the_request(world: World) -> None:
    """Rules 15 and 18."""
    one = world.add()
    world.settle()
    one.member.commit(AT)
    one.member.commit(AT, lambda: False)
    world.settle()
    assert sorted(e.code for e in one.happened(CommitAnswered)) == [0, 22]
    assert len(one.sent(apis.OFFSET_COMMIT)) == 1
    assert world.model.offsets[P0] == (5, "m1", 1)
    rows = [SimpleNamespace(partition_index=n, error_code=code) for n, code in ((0, 3), (1, 0))]
    fail_next(one, apis.OFFSET_COMMIT, topics=[SimpleNamespace(name=TOPIC, partitions=rows)])
    one.member.commit({**AT, P1: CommitPosition(1)})
    world.settle()
    assert (one.happened(CommitAnswered)[-1].code, one.happened(CommitAnswered)[-1].refused) == (0, {P0: 3})


def test_commits_fail_during_a_join_and_outside_the_group(world: World) -> None:
    """Rule 15."""
    one = world.add()
    one.member.commit(AT)
    world.settle()
    other = world.add()
    world.settle()
    one.holds = True
    one.member.request_rejoin()
    one.run(world.now)
    assert one.member.is_joining
    one.member.commit(AT)
    one.run(world.now)
    assert [e.code for e in one.happened(CommitAnswered)] == [25, 27]
    assert other.member.is_joining


@pytest.mark.parametrize("code", [22, 25, 27])
def test_a_refused_commit_joins_again(world: World, code: int) -> None:
    """Rules 3 and 4: the partitions are lost if the group does not know the member."""
    one = world.add()
    world.settle()
    rows = [SimpleNamespace(partition_index=0, error_code=code)]
    fail_next(one, apis.OFFSET_COMMIT, topics=[SimpleNamespace(name=TOPIC, partitions=rows)])
    one.member.commit(AT)
    world.advance(8)
    assert world.model.generation == 2
    assert len(one.happened(Lost)) == (code == 25)


def test_a_broken_connection_loses_no_membership(world: World) -> None:
    """Rules 17 and 19: open commits have no answer, the coordinator is found again."""
    one = world.add()
    world.settle()
    one.is_cut = True
    one.member.commit(AT)
    world.settle()
    one.member.on_disconnect(world.now)
    one.is_cut = False
    world.advance(1)
    assert one.happened(CommitAnswered)[0].code == NO_ANSWER
    assert len(one.sent(apis.FIND_COORDINATOR)) == 2
    assert not one.happened(Lost)
    assert world.model.generation == 1


def test_a_late_answer_is_a_broken_connection(world: World) -> None:
    """Rule 19: an answer that comes after all changes nothing."""
    one = world.add(request_timeout=2.0)
    world.settle()
    one.is_cut = True
    world.advance(2.5)
    assert "Heartbeat" in one.happened(CoordinatorLost)[0].why
    late = one.sent(apis.HEARTBEAT)[0]
    one.member.on_response(late, SimpleNamespace(error_code=25), world.now)
    assert one.member.generation == 1


def test_pauses_between_failures_grow(world: World) -> None:
    """Rule 19."""
    one = world.add()
    one.is_cut = True
    pauses: list[float] = []
    for _ in range(6):
        world.settle()
        one.member.on_disconnect(world.now)
        pauses.append(one.member.next_due(world.now) - world.now)
        world.now += pauses[-1]
    assert pauses[0] < 0.13
    assert 0.7 < pauses[-1] <= 1.2


def release_in_an_only_round(world: World) -> tuple[Client, dict[TopicPartition, CommitPosition]]:
    one = world.add(starts_at_release=True)
    world.settle()
    one.holds = True
    end_round(one, {P0, P1}, starts_at_release=True, is_only_round=True)
    world.settle()
    token = one.member.round.token
    last = {p: CommitPosition(9, encode_confirmation(encode_release(1.0, token))) for p in (P2, P3)}
    return one, last


def test_a_confirmed_release_is_the_only_round(world: World) -> None:
    """Rule 12."""
    one, last = release_in_an_only_round(world)
    one.member.release(world.now, last, world.now)
    world.advance(2)
    assert world.model.generation == 2
    assert world.model.offsets[P2][0] == 9


@pytest.mark.parametrize("why", ["none", "partial", "doubtful", "late", "unanswered"])
def test_another_release_has_a_second_round(world: World, why: str) -> None:
    """Rules 12 and 17."""
    one, last = release_in_an_only_round(world)
    if why == "partial":
        del last[P2]
    if why == "doubtful":
        one.member.commit(AT, lambda: False)
        world.settle()
    one.is_cut = why == "unanswered"
    began = world.now - 2.0 if why == "late" else world.now
    one.member.release(world.now, None if why == "none" else last, began)
    world.settle()
    if one.is_cut:
        one.member.on_disconnect(world.now)
        one.is_cut = False
    world.advance(2)
    assert world.model.generation == 3


def watch_a_release(world: World) -> Client:
    one = world.add(starts_at_release=True)
    world.settle()
    promised = ((TOPIC, (1,)),)
    end_round(one, {P0, P1}, starts_at_release=True, is_only_round=True, promised=promised)
    world.advance(0.1)
    assert one.member.owned == {P0}  # the promised one is withheld
    return one


def find(one: Client, metadata: str) -> None:
    row = SimpleNamespace(partition_index=1, metadata=metadata, error_code=0)
    topics = [SimpleNamespace(name=TOPIC, partitions=[row])]
    fail_next(one, apis.OFFSET_FETCH, groups=[SimpleNamespace(error_code=0, topics=topics)])


def test_a_promised_partition_begins_at_its_release(world: World) -> None:
    """Rules 14 and 16: its commits wait for the confirmation, and later ones behind them."""
    one = watch_a_release(world)
    released = encode_release(1.0, one.member.round.token)
    find(one, encode_release(1.0, "1:other"))
    world.now += 0.06
    for _ in range(2):
        one.run(world.now)
    assert one.member.owned == {P0}
    find(one, released)
    world.now += 0.06
    for _ in range(2):
        one.run(world.now)
    assert one.member.owned == {P0, P1}
    assert one.happened(Assigned)[-1].partitions == {P1}
    one.member.commit({P1: CommitPosition(3)})
    one.member.commit(AT)
    one.run(world.now)
    assert not one.sent(apis.OFFSET_COMMIT)
    find(one, encode_confirmation(released))
    world.now += 0.06
    for _ in range(3):
        one.run(world.now)
    assert [list(r.subject.offsets) for r in one.sent(apis.OFFSET_COMMIT)] == [[P1], [P0]]
    assert world.model.generation == 3


def test_an_overdue_release_requests_a_round(world: World) -> None:
    """Rule 14, and rule 9 of `release_watch`."""
    one = watch_a_release(world)
    world.advance(25)
    assert world.model.generation == 3
    world.advance(2)
    assert world.model.generation == 4
    assert one.reads == {P0}


class Histories(RuleBasedStateMachine):
    """Members come, go, die, hold releases, lose connections; the coordinator moves and expires members."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @precondition(lambda self: len(self.world.clients) < 5)
    @rule(instance=st.booleans())
    def join(self, *, instance: bool) -> None:
        self.world.add(group_instance_id=f"i{len(self.world.clients)}" if instance else None)
        self.world.settle()

    @precondition(lambda self: self.world.clients)
    @rule(
        data=st.data(), what=st.sampled_from(["die", "cut", "heal", "leave", "hold", "free", "break", "ask"])
    )
    def disturb(self, data: st.DataObject, what: str) -> None:
        one = data.draw(st.sampled_from(self.world.clients))
        now = self.world.now
        if what == "die":
            one.is_dead = True
        elif what in ("cut", "heal"):
            one.is_cut = what == "cut"
        elif what == "leave":
            one.member.leave("a test", now)
        elif what == "hold":
            one.holds = True
        elif what == "free":
            one.holds = False
            one.reads &= one.member.owned
            one.member.release(now)
        elif what == "break":
            one.pending.clear()
            one.member.on_disconnect(now)
        else:
            one.member.commit({p: CommitPosition(1) for p in one.reads} or AT)
        self.world.settle()

    @rule(seconds=st.floats(0.01, 8.0))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule()
    def move(self) -> None:
        self.world.model.moved = True
        self.world.settle()

    @invariant()
    def one_reader(self) -> None:
        """No partition has two members that may hand out its records."""
        readers = [
            p
            for one in self.world.clients
            if one.member.holds_lease(self.world.now) and not one.is_dead
            for p in one.reads
        ]
        assert len(readers) == len(set(readers))

    @invariant()
    def rest(self) -> None:
        """A member that waits has nothing due: a driver would spin."""
        for one in self.world.clients:
            if not one.is_dead:
                assert one.member.next_due(self.world.now) > self.world.now

    def teardown(self) -> None:
        """Once all is well again the living members share all partitions."""
        for one in self.world.clients:
            one.is_cut = one.holds = False
            one.pending.clear()
            one.reads &= one.member.owned
            one.member.release(self.world.now)
        self.world.advance(60)
        living = [one for one in self.world.clients if not one.is_dead and one.member._is_wanted]
        if living:
            assert sorted(p for one in living for p in one.reads) == ALL


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
