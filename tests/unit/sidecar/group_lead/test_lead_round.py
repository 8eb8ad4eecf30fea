"""Clients that repeat nothing follow a plan, whichever form of subscription they send."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import OwnedPartitions
from trimtab.assignor.rebalance.consumer_protocol import ReceivedAssignment
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.group_lead.lead_round import (
    JoinedGroup,
    KnownTopics,
    LeadMemory,
    LedRound,
    build_found_target,
    decide_led_round,
    read_subscriptions,
)

PARTITIONS = 6
TOPICS = KnownTopics({"t": range(PARTITIONS)})
COOPERATIVE = range(1, 4)  # versions of subscriptions that tell the owned partitions


@dataclass
class Client:
    """A client that follows each assignment; version 0 is that of eager clients, which revoke first."""

    version: int
    owned: frozenset[int] = frozenset()
    generation: int = -1
    user_data: bytes = b""

    def subscribe(self) -> bytes:
        topic = ConsumerProtocolSubscription.TopicPartition
        owned = [topic(topic="t", partitions=sorted(self.owned))] if self.owned else []
        return bytes(
            ConsumerProtocolSubscription(
                version=self.version,
                topics=["t"],
                user_data=self.user_data,
                owned_partitions=owned,
                generation_id=self.generation,
            ).encode()
        )

    def follow(self, assignment: bytes, generation: int) -> None:
        decoded = ConsumerProtocolAssignment.decode(assignment)
        assert not decoded.user_data
        self.owned = frozenset(p.partition for p in decoded.partitions())
        self.generation = generation


@dataclass
class Group:
    """Clients by member id, led by the sidecar."""

    clients: dict[str, Client]
    view: LeaderView = field(default_factory=lambda: LeaderView(Load()))
    names: dict[str, str] = field(default_factory=dict[str, str])
    memory: LeadMemory = field(default_factory=LeadMemory)
    generation: int = 0

    def round(self) -> LedRound:
        """Lead a round; no partition is given to a member while another one reads it."""
        self.generation += 1
        before = {m: c.owned if c.generation > 0 else frozenset[int]() for m, c in self.clients.items()}
        subscriptions = read_subscriptions({m: client.subscribe() for m, client in self.clients.items()})
        joined = JoinedGroup(self.generation, subscriptions, self.names, TOPICS)
        led = decide_led_round(joined, self.view, PlacementPolicy(), self.memory)
        self.memory = led.memory
        for member, client in self.clients.items():
            client.follow(led.assignments[member], self.generation)
            others = {m for m, c in self.clients.items() if m != member and c.version}
            assert not any(client.owned & before[other] for other in others)
        return led

    def plan(self, epoch: int, *consumers: int, replicas: int = 2, draining: tuple[str, ...] = ()) -> None:
        """Put a plan in force: the number of each partition's consumer, by the names' order."""
        names = tuple(sorted(set(self.names.values()) - set(draining)))
        target = PlanTarget(epoch, names, 0, {"t": consumers})
        plan = GroupPlan("g", epoch, 0.0, replicas, "mbf", 1e6, target=target, draining=draining)
        self.view = replace(self.view, plan=plan)


def make_group(*versions: int) -> Group:
    clients = {f"rdkafka-{n}": Client(version) for n, version in enumerate(versions)}
    return Group(clients, names={member: f"worker-{n}" for n, member in enumerate(clients)})


@pytest.mark.parametrize("version", COOPERATIVE)
def test_a_cooperative_group_moves_what_the_plan_moves_in_two_rounds(version: int) -> None:
    """A moving partition is read by nobody for a round; the others keep their reader."""
    group = make_group(version, version)
    group.plan(1, 1, 1, 1, 2, 2, 2)
    assert group.round().withheld == 0
    group.plan(2, 1, 1, 2, 2, 2, 1)
    assert group.round().withheld == 2
    assert [sorted(c.owned) for c in group.clients.values()] == [[0, 1], [3, 4]]
    assert group.round().withheld == 0
    assert [sorted(c.owned) for c in group.clients.values()] == [[0, 1, 5], [2, 3, 4]]
    assert not group.round().outcome.is_new_decision


def test_an_eager_group_gets_the_whole_plan_in_one_round() -> None:
    """Eager clients have stopped reading, and claim nothing."""
    group = make_group(0, 0)
    group.plan(1, 1, 1, 1, 2, 2, 2)
    group.round()
    group.plan(2, 1, 1, 2, 2, 2, 1)
    assert group.round().withheld == 0
    assert [sorted(c.owned) for c in group.clients.values()] == [[0, 1, 5], [2, 3, 4]]


def test_an_eager_group_without_a_plan_keeps_its_partitions() -> None:
    """What eager clients do not tell, the leader remembers: a third member gets two, nothing else moves."""
    group = make_group(0, 0)
    group.round()
    before = {m: c.owned for m, c in group.clients.items()}
    group.clients["rdkafka-2"] = Client(0)
    group.round()
    assert Counter(len(c.owned) for c in group.clients.values()) == {2: 3}
    assert all(group.clients[m].owned < owned for m, owned in before.items())


def test_a_claim_of_a_lost_membership_gives_nobody_a_second_reader() -> None:
    """kafka-python's clients claim their old partitions after a lost membership; whoever reads them wins."""
    group = make_group(1, 1)
    group.plan(1, 1, 1, 1, 2, 2, 2)
    group.round()
    read = group.clients["rdkafka-1"].owned
    group.clients["rdkafka-9"] = Client(1, owned=read)
    group.names["rdkafka-9"] = "worker-9"
    group.round()
    assert group.clients["rdkafka-1"].owned < read
    assert len(group.clients["rdkafka-1"].owned) == 2
    assert not group.clients["rdkafka-9"].owned & read


def test_an_early_listing_of_another_leader_is_no_ownership() -> None:
    """A round of another Trimtab leader lists a partition with its next owner; the former one claims it."""
    group = make_group(3, 3)
    group.clients["rdkafka-0"].owned, group.clients["rdkafka-0"].generation = frozenset({0, 1, 2}), 7
    group.clients["rdkafka-1"].owned, group.clients["rdkafka-1"].generation = frozenset({3, 4}), 7
    listed = {"rdkafka-0": (0, 1), "rdkafka-1": (2, 3, 4, 5)}  # 2 is not released, 5 has no owner yet
    owned = {m: OwnedPartitions.from_grouped([("t", numbers)]) for m, numbers in listed.items()}
    group.memory = LeadMemory(7, {m: ReceivedAssignment(one, None) for m, one in owned.items()})
    group.generation = 7
    group.plan(1, 1, 1, 2, 2, 2, 2)
    assert group.round().withheld == 1  # `round` checks that nobody gets what another one reads
    assert [sorted(c.owned) for c in group.clients.values()] == [[0, 1], [3, 4, 5]]
    group.round()
    assert [sorted(c.owned) for c in group.clients.values()] == [[0, 1], [2, 3, 4, 5]]


def test_java_tells_its_generation_in_the_user_data() -> None:
    """CooperativeStickyAssignor did so before KIP-792: an outdated claim loses."""
    old = Client(1, frozenset({0, 1}), user_data=(3).to_bytes(4, "big"))
    new = Client(1, frozenset({0, 1}), user_data=(7).to_bytes(4, "big"))
    read = read_subscriptions({"old": old.subscribe(), "new": new.subscribe()})
    assert (read["old"].generation, read["new"].generation) == (3, 7)


def test_a_drained_member_is_emptied() -> None:
    """The plan names it by the name that its id stands for."""
    group = make_group(3, 3)
    group.plan(1, 1, 1, 1, 2, 2, 2)
    group.round()
    group.plan(2, 1, 1, 1, 1, 1, 1, replicas=1, draining=("worker-1",))
    group.round()
    group.round()
    assert [len(c.owned) for c in group.clients.values()] == [6, 0]


def test_a_topic_that_the_sidecar_may_not_describe_stays_where_it_is() -> None:
    """Its owners keep it; a deleted one is given to nobody."""
    group = make_group(3, 3)
    group.round()
    owned = {m: c.owned for m, c in group.clients.items()}
    subscriptions = read_subscriptions({m: c.subscribe() for m, c in group.clients.items()})
    for topics, kept in ((KnownTopics(), True), (KnownTopics(deleted=frozenset({"t"})), False)):
        joined = JoinedGroup(2, subscriptions, group.names, topics)
        led = decide_led_round(joined, group.view, PlacementPolicy(), group.memory)
        for member, client in group.clients.items():
            client.follow(led.assignments[member], 2)
            assert client.owned == (owned[member] if kept else frozenset())


def test_partitions_are_named_as_the_broker_names_them() -> None:
    """The remembered assignment is that of the members."""
    group = make_group(3)
    group.round()
    remembered = group.memory.assigned["rdkafka-0"].owned.list_partitions()
    assert remembered == [TopicPartition("t", n) for n in range(PARTITIONS)]


def test_a_found_placement_has_only_partitions_that_can_be() -> None:
    """Another leader may have assigned anything; members without a name in the group are left out."""
    owned = OwnedPartitions.from_grouped([("t", [1, -1, 2**31 - 1])])
    memory = LeadMemory(3, {m: ReceivedAssignment(owned, None) for m in ("id-a", "id-gone")})
    found = build_found_target(memory, {"id-a": "a", "id-new": "b"})
    assert found == PlanTarget(3, ("a",), 0, {"t": (0, 1)})
    assert build_found_target(LeadMemory(3), {"id-a": "a"}) is None
