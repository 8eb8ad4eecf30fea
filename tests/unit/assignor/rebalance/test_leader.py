"""A round of a rebalance: one decision per cause, completed in the next round, never two owners."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from support.named_rounds import JoinedMember, assign_by_name, assignments, sent_user_data
from trimtab.assignor.heuristics import registry
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData, group_by_topic
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.consumer_sdk.membership.classic.received_assignment import withhold_promised

PARTITIONS = [TopicPartition("t", n) for n in range(8)]
BLIND = LeaderView(Load())


class Group:
    """Members that follow every assignment, as cooperative clients do."""

    def __init__(self, *names: str) -> None:
        self.owned: dict[str, frozenset[TopicPartition]] = dict.fromkeys(names, frozenset())
        self.data = {name: MemberUserData(instance=name) for name in names}
        self.generation = 0
        self.missed: dict[str, int] = {}  # rounds that a member has missed

    def round(self, view: LeaderView = BLIND, policy: PlacementPolicy | None = None) -> RebalanceRound:
        joined = [
            JoinedMember(
                n, frozenset({"t"}), self.data[n], self.owned[n], self.generation - self.missed.get(n, 0)
            )
            for n in self.owned
        ]
        outcome = assign_by_name(joined, PARTITIONS, view, policy or PlacementPolicy())
        for name in self.owned:
            self.owned[name] = assignments(outcome)[name].assigned
            user_data = sent_user_data(outcome, name)
            self.data[name] = MemberUserData(
                instance=name,
                decision_fingerprint=user_data.decision_fingerprint,
                promised=user_data.promised,
            )
        self.generation += 1
        return outcome

    def join(self, name: str) -> None:
        self.owned[name] = frozenset()
        self.data[name] = MemberUserData(instance=name)

    def everything(self) -> list[TopicPartition]:
        return sorted(p for owned in self.owned.values() for p in owned)


def plan(epoch: int, draining: Iterable[str] = (), replicas: int = 2) -> GroupPlan:
    return GroupPlan("g", epoch, 0.0, replicas, "mbf", 100.0, draining=tuple(draining))


def test_the_second_round_completes_the_first() -> None:
    """The second round assigns the promises of the first; it makes no new decision."""
    group = Group("a")
    group.round()
    group.join("b")
    first = group.round()
    assert first.is_new_decision
    assert len(group.everything()) < len(PARTITIONS)
    promised = {n: assignments(first)[n].assigned | assignments(first)[n].promised for n in "ab"}
    second = group.round()
    assert not second.is_new_decision
    assert group.owned == promised
    assert group.everything() == PARTITIONS


def test_all_members_learn_that_another_round_follows() -> None:
    """A round follows as long as a partition is withheld, and all members must join it."""
    group = Group("a")
    group.round()
    group.join("b")
    for more in (True, False):
        outcome = group.round()
        user_data = decode_user_data(outcome)
        assert {data.round_follows for data in user_data.values()} == {more}
        plain = {name: replace(data, starts_at_release=False) for name, data in user_data.items()}
        assert plain == {name: sent_user_data(outcome, name) for name in "ab"}


def decode_user_data(outcome: RebalanceRound) -> dict[str, AssignmentUserData]:
    """Return what a round tells each member."""
    return {
        member: AssignmentUserData.decode(ConsumerProtocolAssignment.decode(sent).user_data)
        for member, sent in outcome.encode().items()
    }


def test_a_promised_partition_is_read_at_its_release_if_one_member_claims_it() -> None:
    """The release of one of two claimants does not tell that the other has stopped."""
    group = Group("a")
    group.round()
    group.join("b")
    told = decode_user_data(group.round())
    assert (told["a"].starts_at_release, told["b"].starts_at_release) == (False, True)
    contested = Group("a", "c")
    contested.owned = dict.fromkeys("ac", frozenset(PARTITIONS))
    contested.join("b")
    told = decode_user_data(contested.round())
    assert told["b"].promised
    assert not told["b"].starts_at_release


def test_co_partitioned_topics_wait_for_the_second_round() -> None:
    """Their partitions of one number change their consumer together."""
    group = Group("a")
    group.round()
    group.join("b")
    told = decode_user_data(group.round(policy=PlacementPolicy(co_partitioned=(("t", "u"),))))
    assert told["b"].promised
    assert not told["b"].starts_at_release


def make_knowing_group(*names: str) -> Group:
    """Return a group in which the last member joins, and all confirm their releases."""
    group = Group(*names[:-1])
    group.round()
    group.join(names[-1])
    group.data = {name: replace(data, confirms_releases=True) for name, data in group.data.items()}
    return group


def test_one_round_moves_partitions_of_members_that_confirm_releases() -> None:
    """The assignment lists what is promised, which the member withholds until its release."""
    group = make_knowing_group("a", "b")
    outcome = group.round()
    encoded = {name: ConsumerProtocolAssignment.decode(sent) for name, sent in outcome.encode().items()}
    assert all(data.is_only_round for data in decode_user_data(outcome).values())
    assert sum(len(sent.partitions()) for sent in encoded.values()) == len(PARTITIONS)
    assert assignments(outcome)["b"] == replace(assignments(outcome)["b"], assigned=frozenset())
    withheld = withhold_promised(outcome.encode()["b"])
    assert ConsumerProtocolAssignment.decode(withheld).partitions() == []
    assert withhold_promised(outcome.encode()["a"]) == outcome.encode()["a"]
    assert not any(data.is_only_round for data in decode_user_data(group.round()).values())


@pytest.mark.parametrize("older", ["a", "b"])
def test_a_giver_or_taker_of_an_older_version_needs_two_rounds(older: str) -> None:
    """It would begin before the release, or confirm none."""
    group = make_knowing_group("a", "b")
    group.data[older] = replace(group.data[older], confirms_releases=False)
    assert not group.round().is_only_round


def test_a_giver_that_is_left_with_nothing_needs_two_rounds() -> None:
    """The sidecar would stop it while it still flushes."""
    group = make_knowing_group("a", "b")
    assert not group.round(LeaderView(Load(), plan(1, draining=["a"]))).is_only_round


def test_contested_and_co_partitioned_partitions_need_two_rounds() -> None:
    """One claimant's release does not tell that the other has stopped, nor that the others of a task have."""
    group = make_knowing_group("a", "b")
    assert not group.round(policy=PlacementPolicy(co_partitioned=(("t", "u"),))).is_only_round
    contested = make_knowing_group("a", "c", "b")
    contested.owned["c"] = contested.owned["a"]
    assert not contested.round().is_only_round


def test_a_round_in_between_keeps_the_promise() -> None:
    """If a member rejoins before the old owner has revoked, the target stays the same."""
    group = Group("a")
    group.round()
    group.join("b")
    held = group.owned["a"]
    first = group.round()
    target = assignments(first)["b"].assigned | assignments(first)["b"].promised
    group.owned["a"] = held  # the old owner is still flushing
    again = group.round()
    assert not again.is_new_decision
    assert assignments(again)["b"].promised == target
    group.round()
    assert group.owned["b"] == target


@given(
    st.sampled_from(registry.list_heuristics()),
    st.integers(1, 5),
    st.lists(st.floats(0, 200), min_size=8, max_size=8),
)
def test_rounds_without_a_cause_move_nothing(heuristic: str, members: int, rates: list[float]) -> None:
    """Further rounds with the same cause move nothing, for any heuristic and write rates."""
    group = Group(*(f"m{n}" for n in range(members)))
    policy = PlacementPolicy(heuristic=heuristic, capacity=100.0)
    group.round(policy=policy)
    before = dict(group.owned)
    view = LeaderView(Load(write_rates=dict(zip(PARTITIONS, rates, strict=True))))
    outcome = group.round(view, policy)
    assert not outcome.is_new_decision
    assert group.owned == before


def test_a_new_epoch_is_a_cause() -> None:
    """A plan in force consolidates the load; its draining members end empty."""
    load = Load(write_rates=dict.fromkeys(PARTITIONS, 10.0))
    group = Group("a", "b", "c")
    group.round(LeaderView(load))
    assert all(group.owned.values())
    for _ in range(3):
        group.round(LeaderView(load, plan(1, draining=["b"])))
    assert not group.owned["b"]
    assert group.everything() == PARTITIONS
    for _ in range(3):
        group.round(LeaderView(load, plan(2, replicas=1)))
    assert sorted(len(owned) for owned in group.owned.values()) == [0, 0, 8]


def test_a_learned_capacity_limits_its_member() -> None:
    """The plan's capacity of an instance counts, unless the member has its own."""
    group, rates = Group("a", "b"), dict.fromkeys(PARTITIONS, 20.0)
    learned = replace(plan(1), capacities={"a": 40.0, "b": 160.0})
    group.round(LeaderView(Load(write_rates=rates), learned))
    group.round(LeaderView(Load(write_rates=rates), learned))
    assert {name: len(owned) for name, owned in group.owned.items()} == {"a": 2, "b": 6}
    group.data["a"] = MemberUserData(capacity=100.0, instance="a")
    outcome = group.round(LeaderView(Load(write_rates=rates), replace(learned, epoch=2)))
    assert outcome.snapshot.resolve_members(learned)[0].capacity == 100.0


def test_a_drained_member_that_leaves_is_no_cause() -> None:
    """Its partitions have moved already: no new decision is made when it leaves."""
    view = LeaderView(Load(write_rates=dict.fromkeys(PARTITIONS, 10.0)), plan(1, draining=["b"]))
    group = Group("a", "b", "c")
    for _ in range(3):
        group.round(view)
    before = {name: owned for name, owned in group.owned.items() if name != "b"}
    group.owned.pop("b")
    assert not group.round(view).is_new_decision
    assert group.owned == before


def test_a_member_that_left_is_a_cause() -> None:
    """Its partitions go to the others at once, since no member must revoke them."""
    group = Group("a", "b")
    group.round()
    gone = group.owned.pop("b")
    group.data.pop("b")
    outcome = group.round()
    assert outcome.is_new_decision
    assert gone <= group.owned["a"]
    assert {m.partition for m in outcome.moves} >= gone


def test_a_member_that_returns_with_an_old_decision_gets_partitions() -> None:
    """What it repeats was decided before it was removed from the group, and its share given away."""
    group = Group("a", "b")
    group.round()
    data = group.data.pop("b")
    del group.owned["b"]
    group.round()
    assert len(group.owned["a"]) == len(PARTITIONS)
    group.join("b")
    group.data["b"], group.missed["b"] = data, 1
    assert group.round().is_new_decision
    group.missed.clear()
    group.round()
    assert len(group.owned["a"]) == len(group.owned["b"])


def test_the_newest_promise_of_a_partition_counts() -> None:
    """Decided again for one cause, it was promised to another, and the first one missed that."""
    group = Group("a")
    group.round()
    for name in "bz":
        group.join(name)
    target = assignments(group.round())
    for name, generation in (("b", 2), ("z", 1)):
        group.data[name] = replace(group.data[name], generation=generation)
    stale = group_by_topic(target["b"].promised | target["z"].promised)
    group.data["z"] = replace(group.data["z"], promised=stale)
    outcome = group.round()
    assert not outcome.is_new_decision
    for name in "bz":
        assert group.owned[name] == target[name].promised


def test_members_of_another_assignor_keep_their_partitions() -> None:
    """In a rolling upgrade members without user data keep what they own."""
    owned = {"a": frozenset(PARTITIONS[:4]), "b": frozenset(PARTITIONS[4:])}
    joined = [JoinedMember(n, frozenset({"t"}), MemberUserData(), owned[n], 3) for n in "ab"]
    outcome = assign_by_name(joined, PARTITIONS, BLIND, PlacementPolicy(heuristic="sticky"))
    assert {n: assignments(outcome)[n].assigned for n in "ab"} == owned


@pytest.mark.parametrize(
    "partitions",
    [
        [*PARTITIONS, TopicPartition("t", 8)],
        PARTITIONS[:-1],
        [*PARTITIONS[:-1], TopicPartition("t", 9)],
        [*PARTITIONS[:-1], TopicPartition("u", 7)],
        [TopicPartition("u", p.partition) for p in PARTITIONS],
    ],
)
def test_other_partitions_are_a_cause(partitions: list[TopicPartition]) -> None:
    """One more, one less, another number or another topic gives another decision."""
    joined = [JoinedMember("a", frozenset("tu"), MemberUserData())]
    causes = [
        assign_by_name(joined, p, BLIND, PlacementPolicy()).decision_fingerprint
        for p in (PARTITIONS, partitions)
    ]
    assert causes[0] != causes[1]


def test_the_order_of_members_is_no_cause() -> None:
    """The fingerprint does not depend on the order of members, topics and partitions."""
    joined = [JoinedMember(n, frozenset("tu"), MemberUserData(capacity=5.0)) for n in "ab"]
    one = assign_by_name(joined, PARTITIONS, BLIND, PlacementPolicy())
    other = assign_by_name(joined[::-1], PARTITIONS[::-1], BLIND, PlacementPolicy())
    assert one.decision_fingerprint == other.decision_fingerprint
    assert assignments(one) == assignments(other)
