"""The sidecar's member joins, leads, follows and returns as the coordinator tells it to."""

import logging
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from support.ticking import Ticking
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import ReceivedAssignment, decode_assignment
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.kafka_protocol import errors
from trimtab.sidecar.group_lead.group_requests import GroupGeneration
from trimtab.sidecar.group_lead.lead_member import (
    REVOCATION_TIMEOUT_S,
    TOPIC_CHECK_INTERVAL_S,
    LeadMember,
    LeadTask,
)
from trimtab.sidecar.group_lead.lead_round import KnownTopics
from trimtab.sidecar.model.member_names import MemberIdentity


class Coordinator:
    """A group of member "a" and the sidecar's, as its requests see it."""

    def __init__(self) -> None:
        self.generation = 1
        self.leader = "ours"  # "ours": the sidecar's member, whatever its id
        self.is_complete = False
        self.ids = iter(f"trimtab-lead-{n}" for n in range(1000))
        self.owned: dict[str, tuple[int, ...]] = {"a": ()}
        self.partitions = 4
        self.failures: list[type[Exception] | None] = []  # of the next requests
        self.joins: list[str] = []
        self.synced: list[Mapping[str, bytes]] = []
        self.removed: list[str] = []
        self.unknown: dict[str, str] = {}  # topics that the brokers do not tell, and why
        self.client_ids = {"a": "a", "q": "q"}  # by member id
        self.is_eager = False  # its members tell no owned partitions

    def join(self, member_id: str, _metadata: bytes) -> GroupGeneration:
        self.joins.append(member_id)
        own = member_id or next(self.ids)
        leader = own if self.leader == "ours" else self.leader
        subscriptions = {m: self._subscribe(m) for m in self.owned} | {own: b""}
        return GroupGeneration(
            self.generation, own, leader, "range", self.is_complete, subscriptions if leader == own else None
        )

    def _subscribe(self, member: str) -> bytes:
        owned = [] if self.is_eager else list(self.owned[member])
        topic = ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=owned)
        subscription = ConsumerProtocolSubscription(
            version=2, topics=["t"], user_data=b"", owned_partitions=[topic], generation_id=self.generation
        )
        return bytes(subscription.encode())

    def sync(self, _joined: GroupGeneration, assignments: Mapping[str, bytes]) -> None:
        self._fail()
        self.synced.append(assignments)

    def heartbeat(self, _joined: GroupGeneration) -> None:
        self._fail()

    def remove_members(self, members: Iterable[MemberIdentity], _reason: str) -> None:
        self._fail()
        self.removed += [m.id for m in members]

    def describe_members(self) -> tuple[MemberIdentity, ...]:
        return tuple(MemberIdentity(m, client_id, "", None) for m, client_id in self.client_ids.items())

    def describe_assignments(self) -> dict[str, ReceivedAssignment]:
        return {member: self._describe_assignment(owned) for member, owned in self.owned.items()}

    def _describe_assignment(self, owned: tuple[int, ...]) -> ReceivedAssignment:
        topic = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=list(owned))
        assigned = ConsumerProtocolAssignment(version=0, assigned_partitions=[topic], user_data=b"")
        return decode_assignment(bytes(assigned.encode()))

    def fetch_topics(self, names: Collection[str]) -> KnownTopics:
        told = {name: list(range(self.partitions)) for name in names if name not in self.unknown}
        return KnownTopics(told, unknown={t: why for t, why in self.unknown.items() if t in names})

    def _fail(self) -> None:
        if self.failures and (failure := self.failures.pop(0)):
            raise failure


def make_member(coordinator: Any, clock: Ticking | None = None, *, take_lead: bool = False) -> LeadMember:
    return LeadMember(coordinator, PlacementPolicy(), clock or Ticking(), take_lead=take_lead)


def make_task(epoch: int = 1, replicas: int = 1) -> LeadTask:
    target = PlanTarget(epoch, ("a",), 0, {"t": (1, 1, 1, 1)})
    return LeadTask(GroupPlan("g", epoch, 0.0, replicas, "mbf", 1e6, target=target), Load())


def make_unplaced_task(*, known: bool = True) -> LeadTask:
    """Return a plan without a target: it was published before the write rates were known."""
    rates = {TopicPartition("t", n): rate if known else None for n, rate in enumerate((7e5, 2e5, 5e4, 1e4))}
    return LeadTask(GroupPlan("g", 1, 0.0, 2, "steady", 1e6, headroom=0.9), Load(rates))


def read_assigned(coordinator: Coordinator) -> dict[str, tuple[int, ...]]:
    """Return the partitions of the last assignment by member id."""
    last = coordinator.synced[-1]
    return {member: tuple(decode_assignment(data).owned.number.tolist()) for member, data in last.items()}


def test_a_leader_assigns_what_the_plan_says_and_nothing_to_itself() -> None:
    """Its own member is not among the assigned ones."""
    coordinator = Coordinator()
    member = make_member(coordinator)
    member.run_step(make_task)
    assert member.leads
    (assignments,) = coordinator.synced
    assert list(assignments) == ["a"]
    assert len(decode_assignment(assignments["a"]).owned.number) == 4


def test_a_new_plan_starts_a_rebalance() -> None:
    """Once, and with the member's id; the same plan again does nothing."""
    coordinator = Coordinator()
    member = make_member(coordinator)
    for epoch, joins in ((1, 1), (1, 1), (2, 1), (2, 2), (2, 2)):
        member.run_step(partial(make_task, epoch))
        assert len(coordinator.joins) == joins
    assert coordinator.joins == ["", "trimtab-lead-0"]


def test_changed_partitions_start_a_rebalance() -> None:
    """The leader watches the topics of all members."""
    coordinator, clock = Coordinator(), Ticking()
    member = make_member(coordinator, clock)
    member.run_step(make_task)
    coordinator.partitions = 5
    member.run_step(make_task)
    assert not member.must_join
    clock.now += TOPIC_CHECK_INTERVAL_S
    member.run_step(make_task)
    assert member.must_join


def test_a_topic_that_the_brokers_do_not_tell_is_asked_for_again() -> None:
    """Without the right, or for a moment: the sidecar says so, and assigns it once it is told."""
    coordinator, clock = Coordinator(), Ticking()
    coordinator.unknown = {"t": "grant Describe on topic t"}
    member = make_member(coordinator, clock)
    member.run_step(make_task)
    assert member.topic_errors == ("grant Describe on topic t",)
    coordinator.unknown = {}
    clock.now += TOPIC_CHECK_INTERVAL_S
    member.run_step(make_task)
    member.run_step(make_task)
    assert len(decode_assignment(coordinator.synced[-1]["a"]).owned.number) == 4
    assert member.topic_errors == ()


def test_a_topic_that_is_no_longer_told_starts_no_rebalance() -> None:
    """Its partitions stay where they are."""
    coordinator, clock = Coordinator(), Ticking()
    member = make_member(coordinator, clock)
    member.run_step(make_task)
    coordinator.unknown = {"t": "no leader"}
    clock.now += TOPIC_CHECK_INTERVAL_S
    member.run_step(make_task)
    assert not member.must_join


def test_a_plan_that_comes_during_the_wait_is_carried_out_in_that_round() -> None:
    """The members may take minutes to join."""
    coordinator = Coordinator()
    member = make_member(coordinator)
    tasks = [make_task(1)]

    def join(*given: Any) -> GroupGeneration:
        tasks.append(make_task(2))
        return Coordinator.join(coordinator, *given)

    coordinator.join = join
    for _ in range(3):
        member.run_step(lambda: tasks[-1])
    assert len(coordinator.joins) == 1


def test_withheld_partitions_are_not_waited_for_for_ever() -> None:
    """A member that does not join again by itself is made to."""
    coordinator, clock = Coordinator(), Ticking()
    coordinator.owned = {"a": (0, 1, 2, 3), "b": ()}
    task = LeadTask(None, Load())
    member = make_member(coordinator, clock)
    member.run_step(lambda: task)
    assert len(decode_assignment(coordinator.synced[0]["a"]).owned.number) == 2
    member.run_step(lambda: task)
    assert not member.must_join
    clock.now += REVOCATION_TIMEOUT_S
    member.run_step(lambda: task)
    assert member.must_join


@pytest.mark.parametrize("failure", [errors.RebalanceInProgressError, errors.IllegalGenerationError])
def test_a_rebalance_is_joined_with_the_same_id(failure: type[Exception]) -> None:
    """Whoever started it."""
    coordinator = Coordinator()
    member = make_member(coordinator)
    member.run_step(make_task)
    coordinator.failures = [failure]
    member.run_step(make_task)
    member.run_step(make_task)
    assert coordinator.joins == ["", "trimtab-lead-0"]


def test_an_unknown_member_joins_anew() -> None:
    """Its session has expired, and with it what it remembered."""
    coordinator = Coordinator()
    member = make_member(coordinator)
    member.run_step(make_task)
    coordinator.failures = [errors.UnknownMemberError]
    member.run_step(make_task)
    assert not member.leads
    member.run_step(make_task)
    assert coordinator.joins == ["", ""]


def test_a_fenced_member_is_reported() -> None:
    """Another sidecar has its place."""
    coordinator = Coordinator()
    member = make_member(coordinator)
    member.run_step(make_task)
    coordinator.failures = [errors.FencedInstanceError]
    with pytest.raises(errors.FencedInstanceError):
        member.run_step(make_task)
    assert member.joined is None


def test_a_failed_sync_joins_again() -> None:
    """The members may not have got their assignments: they are not remembered."""
    coordinator = Coordinator()
    coordinator.failures = [errors.RebalanceInProgressError]
    member = make_member(coordinator)
    member.run_step(make_task)
    assert not member.leads
    member.run_step(make_task)
    assert member.leads
    assert len(coordinator.synced) == 1


def test_a_lead_is_resumed_without_a_rebalance() -> None:
    """KIP-814: the coordinator has the assignments already, and the plan moves nothing."""
    coordinator = Coordinator()
    coordinator.is_complete, coordinator.owned = True, {"a": (0, 1, 2, 3)}
    member = make_member(coordinator)
    member.run_step(make_task)
    member.run_step(make_task)
    assert member.leads
    assert coordinator.synced == [{}]
    assert not member.must_join


def test_a_resumed_lead_carries_out_what_was_left() -> None:
    """The sidecar before ended between a plan and its rebalance."""
    coordinator = Coordinator()
    coordinator.is_complete, coordinator.owned = True, {"a": (0, 1)}
    member = make_member(coordinator)
    member.run_step(make_task)
    assert member.must_join


def test_a_resumed_lead_logs_why_partitions_move(caplog: pytest.LogCaptureFixture) -> None:
    """Once, although the rebalance that moves them comes with the next step."""
    caplog.set_level(logging.INFO)
    coordinator = Coordinator()
    coordinator.client_ids = {"a": "a", "b": "b"}
    coordinator.is_complete, coordinator.owned = True, {"a": (0, 1), "b": (2, 3)}
    member = make_member(coordinator)
    target = PlanTarget(1, ("a", "b"), 0, {"t": (1, 1, 1, 1)})
    task = LeadTask(GroupPlan("g", 1, 0.0, 2, "mbf", 1e6, target=target), Load())
    member.run_step(lambda: task)
    coordinator.is_complete = False
    member.run_step(lambda: task)
    member.run_step(lambda: task)
    assert [text.split(" (")[0] for text in caplog.messages if "b → a" in text] == ["t-2", "t-3"]


def test_a_resumed_lead_without_a_target_keeps_the_placement() -> None:
    """It was decided before the write rates were known; they are no reason to move partitions now."""
    coordinator = Coordinator()
    coordinator.client_ids = {"a": "a", "b": "b"}
    coordinator.is_complete, coordinator.owned = True, {"a": (0, 1, 2), "b": (3,)}
    member = make_member(coordinator)
    member.run_step(make_unplaced_task)
    assert not member.must_join
    coordinator.is_complete, coordinator.failures = False, [errors.RebalanceInProgressError]
    member.run_step(make_unplaced_task)
    member.run_step(make_unplaced_task)
    assert read_assigned(coordinator) == {"a": (0, 1, 2), "b": (3,)}


@pytest.mark.parametrize("is_eager", [True, False])
def test_a_lead_that_is_taken_keeps_the_placement_as_found(is_eager: bool) -> None:  # noqa: FBT001
    """Also that of the former leader, which joins again under another id."""
    coordinator = Coordinator()
    coordinator.is_eager = is_eager
    coordinator.client_ids = {"a": "a", "b": "b"}
    coordinator.leader, coordinator.owned = "a", {"a": (0, 1, 2), "b": (3,)}
    member = make_member(coordinator, take_lead=True)
    task = make_unplaced_task(known=False)
    member.run_step(lambda: task)
    coordinator.leader, coordinator.generation = "ours", 2
    coordinator.client_ids, coordinator.owned = {"a2": "a", "b": "b"}, {"a2": (), "b": (3,)}
    coordinator.failures = [errors.RebalanceInProgressError]
    member.run_step(lambda: task)
    member.run_step(lambda: task)
    assert read_assigned(coordinator) == {"a2": (0, 1, 2), "b": (3,)}


def test_a_further_member_ends_the_placement_as_found() -> None:
    """Else it would get nothing."""
    coordinator = Coordinator()
    coordinator.is_complete, coordinator.owned = True, {"a": (0, 1, 2, 3)}
    member = make_member(coordinator)
    member.run_step(make_unplaced_task)
    coordinator.is_complete, coordinator.failures = False, [errors.RebalanceInProgressError]
    coordinator.client_ids, coordinator.owned = {"a": "a", "b": "b"}, {"a": (0, 1, 2, 3), "b": ()}
    member.run_step(make_unplaced_task)
    member.run_step(make_unplaced_task)
    coordinator.failures = [errors.RebalanceInProgressError]
    coordinator.owned = {"a": read_assigned(coordinator)["a"], "b": ()}
    member.run_step(make_unplaced_task)
    member.run_step(make_unplaced_task)
    assert read_assigned(coordinator)["b"]


def test_a_follower_takes_ids_until_it_is_next() -> None:
    """The last one comes before the other member in the coordinator's table."""
    coordinator = Coordinator()
    coordinator.leader = "a"
    member = make_member(coordinator)
    member.run_step(make_task)
    assert not member.leads
    assert len(coordinator.joins) > 1
    assert set(coordinator.joins) == {""}
    assert coordinator.removed == []
    joins = len(coordinator.joins)
    member.run_step(make_task)
    assert len(coordinator.joins) == joins


def test_take_lead_removes_the_leader_once() -> None:
    """A second leader is waited for."""
    coordinator = Coordinator()
    coordinator.leader = "a"
    member = make_member(coordinator, take_lead=True)
    member.run_step(make_task)
    assert coordinator.removed == ["a"]
    coordinator.leader, coordinator.generation = "q", 2
    coordinator.failures = [errors.RebalanceInProgressError]
    member.run_step(make_task)
    member.run_step(make_task)
    assert coordinator.removed == ["a"]


def test_take_lead_is_tried_until_it_succeeds() -> None:
    """A coordinator that has moved is no reason to wait for the leader."""
    coordinator = Coordinator()
    coordinator.leader, coordinator.failures = "a", [errors.NotCoordinatorError]
    coordinator.is_complete = True
    member = make_member(coordinator, take_lead=True)
    coordinator.failures.insert(0, None)  # of the follower's sync
    with pytest.raises(errors.NotCoordinatorError):
        member.run_step(make_task)
    member.run_step(make_task)
    assert coordinator.removed == ["a"]


def test_a_place_that_leads_by_its_former_id_starts_a_rebalance() -> None:
    """Before KIP-814 that is all that a returning leader is told."""
    coordinator = Coordinator()
    coordinator.leader = "trimtab-lead-of-before"
    member = make_member(coordinator, take_lead=True)
    member.run_step(make_task)
    assert member.must_join
    assert coordinator.removed == []
