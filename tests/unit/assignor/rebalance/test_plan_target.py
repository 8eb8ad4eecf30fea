"""A plan's target: the leader carries it out exactly, and repairs only what changed meanwhile."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.named_rounds import JoinedMember, assign_by_name, assignments, sent_user_data
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound
from trimtab.assignor.rebalance.plan_target import name_members
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget

PARTITIONS = [TopicPartition("t", n) for n in range(6)]
RATES = dict.fromkeys(PARTITIONS, 20.0)
Owned = dict[str, set[int]]


class Group:
    """Members that follow every assignment, as cooperative clients do; partitions of topic t by number."""

    def __init__(self, owned: Mapping[str, Iterable[int]], *, topics: str = "t", **capacity: float) -> None:
        self.topics = dict.fromkeys(owned, frozenset(topics))
        self.data = {n: MemberUserData(capacity=capacity.get(n), instance=n) for n in owned}
        self.owned = {
            name: frozenset(TopicPartition("t", n) for n in numbers) for name, numbers in owned.items()
        }
        self.rates: dict[TopicPartition, float] = dict(RATES)
        self.generation = 0
        self.generations: dict[str, int] = {}  # of members that missed rounds
        self.members_overdue = False
        self.load_replica_racks: Callable[[PartitionIndex], ReplicaRacks] | None = None
        self.moved = 0  # partitions that changed their reader

    def round(
        self, plan: GroupPlan | None, *, partitions: Iterable[TopicPartition] = PARTITIONS
    ) -> RebalanceRound:
        joined = [
            JoinedMember(
                f"id-{n}",
                self.topics[n],
                self.data[n],
                self.owned[n],
                self.generations.get(n, self.generation),
            )
            for n in self.owned
        ]
        view = LeaderView(
            Load(self.rates), plan, self.load_replica_racks, members_overdue=self.members_overdue
        )
        outcome = assign_by_name(joined, list(partitions), view, PlacementPolicy("sticky"))
        self.moved += sum(move.source is not None for move in outcome.moves)
        for name in self.owned:
            self.owned[name] = assignments(outcome)[f"id-{name}"].assigned
            sent = sent_user_data(outcome, f"id-{name}")
            self.data[name] = replace(
                self.data[name],
                decision_fingerprint=sent.decision_fingerprint,
                promised=sent.promised,
                generation=self.generation + 1,
            )
        self.generation += 1
        return outcome

    def settle(self, plan: GroupPlan | None, **given: Any) -> Owned:
        """Two rounds: revoke, assign; the partition numbers that each member reads then."""
        self.round(plan, **given)
        last = self.round(plan, **given)
        assert not last.is_new_decision
        return self.reads()

    def reads(self) -> Owned:
        return {name: {p.partition for p in owned} for name, owned in self.owned.items()}

    def join(self, name: str, capacity: float | None = None) -> None:
        self.owned[name], self.topics[name] = frozenset(), frozenset("t")
        self.data[name] = MemberUserData(capacity=capacity, instance=name)

    def leave(self, name: str) -> None:
        del self.owned[name], self.data[name], self.topics[name]


def plan_of(
    shares: Mapping[str, Iterable[int]], places: int = 0, *, revision: int = 1, **fields: Any
) -> GroupPlan:
    """A plan with capacity 100 and headroom 0.9, whose target gives each consumer these partitions of t."""
    by_name = {name: [TopicPartition("t", n) for n in numbers] for name, numbers in shares.items()}
    names = [name for name in shares if not name.startswith("+")]
    target = PlanTarget.from_assignment(revision, names, places, by_name)
    return replace(GroupPlan("g", 7, 0.0, len(shares), "mbf", 100.0, 0.9, target=target), **fields)


def test_without_known_rates_a_target_is_carried_out_too() -> None:
    """The sidecar knew them when it decided."""
    group = Group({"a": range(6), "b": ()})
    group.rates = {}
    assert group.settle(plan_of({"a": [0], "b": range(1, 6)})) == {"a": {0}, "b": {1, 2, 3, 4, 5}}


def test_a_heuristic_that_the_leader_lacks_does_not_keep_it_from_the_target() -> None:
    """The decision is made already."""
    group = Group({"a": range(6), "b": ()})
    plan = plan_of({"a": [0], "b": range(1, 6)}, heuristic="of-a-later-version")
    assert group.settle(plan) == {"a": {0}, "b": {1, 2, 3, 4, 5}}


def test_a_joiner_takes_a_place() -> None:
    """Until then its share stays with the owners; nothing is reported as elsewhere afterwards."""
    group = Group({"a": range(6)})
    plan = plan_of({"a": [0, 1, 2], "+1": [3, 4, 5]}, 1)
    first = group.round(plan)
    assert (group.reads(), list(first.moves)) == ({"a": set(range(6))}, [])
    assert first.note == "plan 7 carried out; 3 partitions elsewhere: 1 consumer has yet to join"
    group.join("pod-x9")
    outcome = group.round(plan)
    assert (outcome.off_plan, outcome.note) == (0, "plan 7 carried out")
    group.round(plan)
    assert group.reads() == {"a": {0, 1, 2}, "pod-x9": {3, 4, 5}}


@pytest.mark.parametrize("order", ["yz", "zy"])
def test_joiners_one_by_one_move_what_joiners_at_once_do(order: str) -> None:
    """The second joiner does not reshuffle the first's, nor when it comes before the first's second round."""
    plan = plan_of({"a": [0, 1], "+1": [2, 3], "+2": [4, 5]}, 2)
    for rounds in (1, 2):
        group = Group({"a": range(6)})
        for name in order:
            group.join(name)
            for _ in range(rounds):
                group.round(plan)
        assert group.settle(plan) == {"a": {0, 1}, order[0]: {2, 3}, order[1]: {4, 5}}
        assert group.moved == 4


@pytest.mark.parametrize("claimed", [1, 3], ids=["then", "now"])
def test_a_member_that_missed_rounds_does_not_insist_on_its_promises(claimed: int) -> None:
    """Another one stands for its consumer; JoinGroup's answer may tell the generation of a missed round."""
    plan = plan_of({"a": [0, 1, 2], "+1": [3, 4, 5]}, 1)
    group = Group({"a": range(6), "late": ()})
    group.round(plan)
    data = group.data["late"]
    assert data.promised
    group.leave("late")
    group.join("y")
    group.settle(plan)
    group.join("late")
    group.data["late"] = data
    group.generations["late"] = claimed
    assert group.generation == 3
    group.round(plan)
    assert group.reads() == {"a": {0, 1, 2}, "y": {3, 4, 5}, "late": set()}


def test_a_move_whose_giver_and_receiver_miss_the_answer_of_the_round_is_carried_out() -> None:
    """They claim its generation, which the answer to JoinGroup told, and repeat what was decided before."""
    group = Group({"a": [0, 1, 2, 3], "b": [4, 5], "c": ()})
    before = plan_of({"a": [0, 1, 2, 3], "b": [4, 5], "c": []})
    group.settle(before)
    missed = {name: (group.owned[name], group.data[name]) for name in "ab"}
    plan = plan_of({"a": [0, 1, 2], "b": [3, 4, 5], "c": []}, revision=2)
    group.round(plan)
    for name, (owned, data) in missed.items():
        group.owned[name], group.data[name] = owned, data
    group.round(plan)
    assert group.settle(plan) == {"a": {0, 1, 2}, "b": {3, 4, 5}, "c": set()}


def test_overdue_members_leave_no_one_overloaded() -> None:
    """Rule 6: a quota keeps two of three joiners away; what fits on the first leaves the overloaded owner."""
    plan = plan_of({"a": [0, 1], "+1": [2], "+2": [3, 4], "+3": [5]}, 3)
    group = Group({"a": range(6), "y": ()})
    assert group.settle(plan) == {"a": {0, 1, 3, 4, 5}, "y": {2}}
    group.members_overdue = True
    assert group.settle(plan) == {"a": {0, 1, 4, 5}, "y": {2, 3}}
    group.members_overdue = False  # another leader, which does not know for how long
    assert group.settle(plan) == {"a": {0, 1, 4, 5}, "y": {2, 3}}
    group.join("z")
    assert group.settle(plan) == {"a": {0, 1, 5}, "y": {2}, "z": {3, 4}}


def test_a_replacement_takes_the_share_of_the_dead() -> None:
    """Also under another name, as a pod of a Deployment; and every consumer may be replaced in turn."""
    share = {"a": [0, 1, 2], "b": [3, 4, 5]}
    group, plan = Group(share), plan_of(share)
    group.settle(plan)
    group.leave("b")
    assert group.settle(plan) == {"a": set(range(6))}
    group.join("y")
    assert group.settle(plan) == {"a": {0, 1, 2}, "y": {3, 4, 5}}
    group.leave("a")
    group.settle(plan)
    group.join("x")
    assert sorted(group.settle(plan).values(), key=min) == [{0, 1, 2}, {3, 4, 5}]


def test_a_consumer_that_returns_takes_its_share_back() -> None:
    """From whoever repaired its absence."""
    share = {"a": [0, 1, 2], "b": [3, 4, 5]}
    group, plan = Group(share), plan_of(share)
    group.settle(plan)
    group.leave("b")
    group.settle(plan)
    group.join("b")
    assert group.settle(plan) == {"a": {0, 1, 2}, "b": {3, 4, 5}}


def test_a_plan_that_names_nobody_who_is_here_is_decided_anew() -> None:
    """As without a target: the load of 120 needs two members of 90; the log says why."""
    group, plan = Group({"x": (), "y": ()}), plan_of({"a": range(6)})
    outcome = group.round(plan)
    assert outcome.note == "plan 7 names no consumer that is here: its placement is decided anew"
    assert sorted(map(len, group.owned.values())) == [2, 4]
    assert not group.round(plan).is_new_decision


def test_the_partitions_of_a_dead_consumer_go_where_there_is_room() -> None:
    """Rules 1 and 4: the largest first, each to the emptiest with room; nothing else moves."""
    group = Group({"a": [0], "b": [1, 2], "c": ()})
    group.rates = dict(zip(PARTITIONS, [20.0, 20.0, 20.0, 60.0, 40.0, 5.0], strict=True))
    outcome = group.round(plan_of({"a": [0], "b": [1, 2], "c": [], "dead": [3, 4, 5]}))
    assert group.reads() == {"a": {0, 4}, "b": {1, 2, 5}, "c": {3}}
    assert outcome.off_plan == 3
    assert outcome.note == "plan 7 carried out; 3 partitions elsewhere: dead left"


def test_where_nothing_has_room_the_least_full_takes_more() -> None:
    """An overloaded group reads everything nevertheless: 110 of 90 here, where b would be at 60 of 45."""
    group = Group({"a": [0, 1, 2, 3], "b": ()}, b=50.0)
    group.rates |= dict.fromkeys(PARTITIONS[4:], 30.0)
    plan = plan_of({"a": [0, 1, 2, 3], "dead": [4, 5], "b": []}, capacities={"b": 50.0})
    assert group.settle(plan) == {"a": {0, 1, 2, 3, 5}, "b": {4}}


def test_a_partition_of_an_absent_consumer_stays_with_its_owner() -> None:
    """Rule 3: the repairer of one round keeps it in the next, however the rates change."""
    plan = plan_of({"a": [0, 1], "b": [2, 3], "dead": [4, 5]})
    group = Group({"a": [0, 1], "b": [2, 3]})
    before = group.settle(plan)
    group.rates = {p: 1.0 + p.partition * 15 for p in PARTITIONS}
    assert group.settle(replace(plan, epoch=8)) == before


def test_a_new_partition_goes_where_there_is_room() -> None:
    """The plan does not know it, so it is on no other consumer than planned."""
    share = {"a": [0, 1, 2, 3], "b": [4, 5]}
    group = Group(share)
    outcome = group.round(plan_of(share), partitions=[*PARTITIONS, TopicPartition("t", 6)])
    assert group.reads() == {"a": {0, 1, 2, 3}, "b": {4, 5, 6}}
    assert (outcome.fault, outcome.off_plan) == ("", 0)


def test_a_scale_up_before_the_join_overfills_nobody() -> None:
    """Rule 2: a move waits where the receiver still holds what an absent consumer is to take."""
    share = {"a": [0, 1, 4], "b": [2, 3], "+1": [5]}
    group = Group({"a": [0, 1, 5], "b": [2, 3, 4]})
    group.rates[PARTITIONS[5]] = 50.0
    assert group.settle(plan_of(share, 1)) == {"a": {0, 1, 5}, "b": {2, 3, 4}}
    group.join("c")
    assert group.settle(plan_of(share, 1)) == {"a": {0, 1, 4}, "b": {2, 3}, "c": {5}}


def test_a_move_waits_where_its_receiver_holds_a_partition_that_the_plan_does_not_know() -> None:
    """Rule 2, with all consumers present: the next plan has a place for the partition."""
    share = {"a": [0, 1, 2], "b": [3, 4, 5]}
    group = Group({"a": [0, 1], "b": [2, 3, 4, 5]})
    unknown = TopicPartition("t", 6)
    group.owned["a"] |= {unknown}
    group.rates[unknown] = 40.0
    partitions = [*PARTITIONS, unknown]
    assert group.settle(plan_of(share), partitions=partitions) == {"a": {0, 1, 6}, "b": {2, 3, 4, 5}}
    assert group.settle(plan_of({"a": [0, 1, 2], "b": [3, 4, 5, 6]}, revision=2), partitions=partitions) == {
        "a": {0, 1, 2},
        "b": {3, 4, 5, 6},
    }


def test_what_a_waiting_move_would_free_waits_with_it() -> None:
    """Rule 2 along a chain: c keeps its own for b, since b keeps its own for a."""
    group = Group({"a": [0, 1, 2, 3], "b": [4], "c": [5]})
    group.rates |= {PARTITIONS[4]: 80.0, PARTITIONS[5]: 80.0}
    plan = plan_of({"a": [4], "b": [5], "+1": [0, 1, 2, 3], "c": []}, 1)
    assert group.settle(plan) == {"a": {0, 1, 2, 3}, "b": {4}, "c": {5}}


def test_a_draining_member_is_emptied_whatever_the_target_says() -> None:
    """It drains by itself, on SIGTERM; its owners' partitions do not wait for room."""
    share = {"a": [0, 1, 2], "b": [3, 4, 5]}
    group = Group(share)
    group.data["b"] = replace(group.data["b"], draining=True)
    assert group.settle(plan_of(share)) == {"a": set(range(6)), "b": set()}


def test_a_member_gets_nothing_of_a_topic_that_it_does_not_subscribe_to() -> None:
    """Rule 1: as after a change of its subscription."""
    group = Group({"a": range(6), "b": ()})
    group.topics["b"] = frozenset("u")
    outcome = group.round(plan_of({"a": [0, 1, 2], "b": [3, 4, 5]}))
    assert group.reads() == {"a": set(range(6)), "b": set()}
    assert outcome.note == "plan 7 carried out; 3 partitions elsewhere: b does not subscribe to t"


def test_a_place_is_not_taken_by_a_member_that_cannot_read_it() -> None:
    """A joiner with other topics leaves the place to the next one."""
    group, plan = Group({"a": range(6)}), plan_of({"a": [0, 1, 2], "+1": [3, 4, 5]}, 1)
    group.join("b")
    group.topics["b"] = frozenset("u")
    group.settle(plan)
    group.join("c")
    assert group.settle(plan) == {"a": {0, 1, 2}, "b": set(), "c": {3, 4, 5}}


def test_a_smaller_member_than_planned_takes_what_it_can() -> None:
    """Rule 5: the least load above its headroom goes where it fits."""
    group = Group({"a": [0, 1], "b": [2, 3, 4, 5]}, b=50.0)
    plan = plan_of({"a": [0, 1], "b": [2, 3, 4, 5]})
    assert group.settle(plan) == {"a": {0, 1, 2, 3}, "b": {4, 5}}
    assert group.round(plan).note == ""
    assert group.settle(replace(plan, epoch=8)) == {"a": {0, 1, 2, 3}, "b": {4, 5}}


def test_a_member_whose_own_capacity_the_plan_knew_keeps_its_share() -> None:
    """Also above its headroom, as planned."""
    share = {"a": [0, 1], "b": [2, 3, 4, 5]}
    group = Group(share, b=50.0)
    assert group.settle(plan_of(share, capacities={"b": 50.0})) == {"a": {0, 1}, "b": {2, 3, 4, 5}}


def test_a_joiner_beyond_the_plan_takes_only_what_is_too_much() -> None:
    """Rule 5: the least load above headroom comes to it."""
    share = {"a": [0, 1, 2, 3, 4], "b": [5]}
    group = Group(share)
    plan = plan_of(share)
    group.settle(plan)
    group.join("c")
    assert group.settle(plan) == {"a": {1, 2, 3, 4}, "b": {5}, "c": {0}}
    group.rates = dict.fromkeys(PARTITIONS, 10.0)
    group.join("d")
    assert group.settle(plan) == {"a": {0, 1, 2, 3, 4}, "b": {5}, "c": set(), "d": set()}


@pytest.mark.parametrize(
    ("heuristic", "rates"),
    [("steady", {}), ("mbf", {}), ("sticky", {}), ("lag-aware", {}), ("sticky", RATES), ("lag-aware", RATES)],
)
def test_joiners_beyond_the_plan_read_where_no_load_says_what_is_too_much(
    heuristic: str, rates: dict[TopicPartition, float]
) -> None:
    """As after scaling by hand once the sidecar is gone: six members for two consumers read one each."""
    share = {"a": [0, 1, 2], "b": [3, 4, 5]}
    group, plan = Group(share), plan_of(share, heuristic=heuristic)
    group.rates = rates
    assert group.settle(plan) == {"a": {0, 1, 2}, "b": {3, 4, 5}}
    for name in "cdef":
        group.join(name)
    outcome = group.round(plan)
    assert outcome.note == "plan 7 has no place for c, d, e and 1 more: its placement is decided anew"
    assert (outcome.fault, outcome.off_plan) == ("", 0)
    assert not group.round(plan).is_new_decision
    assert sorted(map(len, group.owned.values())) == [1] * 6
    for name in "cdef":
        group.leave(name)
    assert group.settle(plan) == {"a": {0, 1, 2}, "b": {3, 4, 5}}


def test_a_plan_that_comes_between_the_two_rounds_is_carried_out() -> None:
    """What was promised, and is unclaimed by now, goes straight to its newer consumer."""
    group = Group({"a": range(6), "b": (), "c": ()})
    group.round(plan_of({"a": [0, 1], "b": [2, 3, 4, 5], "c": []}))
    newer = plan_of({"a": [0, 1], "b": [2], "c": [3, 4, 5]}, revision=2)
    outcome = group.round(newer)
    assert outcome.assigned_now.all()
    assert group.reads() == {"a": {0, 1}, "b": {2}, "c": {3, 4, 5}}


def test_a_death_between_the_two_rounds_is_repaired() -> None:
    """Its promises are unclaimed; every partition is read after the second round."""
    plan = plan_of({"a": [0, 1], "b": [2, 3], "c": [4, 5]})
    group = Group({"a": range(6), "b": (), "c": ()})
    group.round(plan)
    group.leave("c")
    group.round(plan)
    assert Counter(map(len, group.owned.values())) == {3: 2}
    assert group.reads()["b"] > {2, 3}


def test_a_leader_of_the_version_before_does_no_harm() -> None:
    """It decides by the heuristic; the next leader of this version carries the target out, once."""
    share = {"a": [0, 2, 4], "b": [1, 3, 5]}
    group, plan = Group({"a": range(6), "b": ()}), plan_of(share)
    group.round(replace(plan, target=None))
    group.round(plan)
    group.round(plan)
    assert group.settle(plan) == {name: set(numbers) for name, numbers in share.items()}


def test_another_revision_is_a_cause_and_none_gives_the_fingerprint_of_before() -> None:
    """So a decision of a version before, or of an older target, is never completed as this one's."""
    plan = plan_of({"a": range(6)})
    plans = [plan, replace(plan, target=replace(plan.target, revision=2)), replace(plan, target=None)]  # type: ignore[type-var]
    prints = [Group({"a": range(6)}).round(p).decision_fingerprint for p in plans]
    assert len(set(prints)) == 3
    assert prints[2] == "37d34bb1db3580ad"  # as versions without targets compute it


def test_a_target_that_cannot_be_used_gives_way_to_the_plans_heuristic() -> None:
    """Here a consumer number that no decoder lets through."""
    plan = plan_of({"a": range(6)})
    object.__setattr__(plan.target, "partitions", {"t": ("x",)})
    outcome = Group({"a": range(6)}).round(plan)
    assert outcome.fault.endswith("; decided instead by plan 7 without its target")


def test_shared_and_empty_instance_names_are_replaced_by_member_ids() -> None:
    """Of librdkafka clients without a client id, all are called "rdkafka"."""
    ids, instances = ["1", "2", "3", "4"], ["w", "rdkafka", "rdkafka", ""]
    assert name_members(ids, instances) == ("w", "2", "3", "4")


def test_members_that_share_a_name_stand_for_its_numbered_consumers() -> None:
    """Threads of a worker with one instance name; both drain with their worker."""
    group = Group({"w1-a": range(6), "w1-b": (), "w2-a": (), "w2-b": ()})
    for name, data in group.data.items():
        group.data[name] = replace(data, instance=name[:2])
    plan = plan_of({"w1/1": [0, 1], "w1/2": [2], "w2/1": [3, 4], "w2/2": [5]})
    assert group.settle(plan) == {"w1-a": {0, 1}, "w1-b": {2}, "w2-a": {3, 4}, "w2-b": {5}}
    drained = replace(plan_of({"w2/1": [0, 3, 4], "w2/2": [1, 2, 5]}), epoch=8, draining=("w1",))
    assert group.settle(drained) == {"w1-a": set(), "w1-b": set(), "w2-a": {0, 3, 4}, "w2-b": {1, 2, 5}}


def test_a_joiner_stands_for_a_draining_consumer() -> None:
    """It takes the share at once; the log tells what is elsewhere until then."""
    share = {"a": [0, 1, 2], "b": [3, 4, 5]}
    group, plan = Group(share), plan_of(share)
    group.settle(plan)
    group.data["b"] = replace(group.data["b"], draining=True)
    outcome = group.round(replace(plan, epoch=8))
    assert outcome.note == "plan 8 carried out; 3 partitions elsewhere: b drains"
    group.join("y")
    assert group.settle(plan) == {"a": {0, 1, 2}, "b": set(), "y": {3, 4, 5}}


@pytest.mark.parametrize(("owned", "takes"), [([0, 1], [0, 1, 2, 3]), ([0], [4, 5])])
def test_a_joiner_that_has_half_of_a_consumers_partitions_stands_for_it(
    owned: list[int], takes: list[int]
) -> None:
    """With less it takes the first of those that are gone."""
    group = Group({"a": [n for n in range(6) if n not in owned], "x": owned})
    plan = plan_of({"a": [], "gone-1": [4, 5], "gone-2": [0, 1, 2, 3]})
    assert group.settle(plan)["x"] == {*takes, *owned}


def test_a_joiner_with_a_third_of_a_consumers_partitions_does_not_stand_for_it() -> None:
    """Less than half may be a repair."""
    group = Group({"a": [0, 1, 3, 4, 5], "x": [2]})
    plan = plan_of({"a": [0], "gone-1": [4, 5], "gone-2": [1, 2, 3]})
    assert group.settle(plan) == {"a": {0, 1, 3}, "x": {2, 4, 5}}


def test_joiners_take_places_before_the_shares_of_those_who_are_gone() -> None:
    """A place each, if they come at once."""
    plan = plan_of({"a": [0], "gone": [1], "+1": [2, 3], "+2": [4, 5]}, 2)
    group = Group({"a": range(6)})
    group.join("x")
    assert group.settle(plan) == {"a": {0, 1, 4, 5}, "x": {2, 3}}
    group = Group({"a": range(6), "x": (), "y": ()})
    assert group.settle(plan) == {"a": {0, 1}, "x": {2, 3}, "y": {4, 5}}


def test_the_cross_rack_load_of_a_target_is_known() -> None:
    """If the plan's heuristic weighs racks: b reads two partitions of 20 bytes/s from another rack."""
    share: dict[str, Iterable[int]] = {"a": range(4), "b": [4, 5]}
    group = Group(share)
    group.data = {n: replace(group.data[n], rack=rack) for n, rack in (("a", "east"), ("b", "west"))}
    group.load_replica_racks = lambda index: ReplicaRacks.from_topics(
        index, {"t": {n: {"east"} for n in range(6)}}
    )
    decision = group.round(plan_of(share, heuristic="steady:rack_cost=0.5")).placement_decision
    assert decision is not None
    assert decision.cross_rack_load == pytest.approx(40.0)


def test_one_partition_elsewhere_is_told_as_one() -> None:
    """In the log of the leader."""
    group = Group({"a": range(6)})
    assert group.round(plan_of({"a": range(5), "gone": [5]})).note == (
        "plan 7 carried out; 1 partition elsewhere: gone left"
    )


def test_joiners_beyond_a_plan_whose_heuristic_is_unknown_get_what_is_too_much() -> None:
    """The heuristic of a later version counts as one that packs by capacity."""
    group = Group({"a": [0, 1, 2, 3, 4], "b": [5]})
    plan = plan_of({"a": [0, 1, 2, 3, 4], "b": [5]}, heuristic="of-a-later-version")
    group.settle(plan)
    group.join("c")
    assert group.settle(plan) == {"a": {1, 2, 3, 4}, "b": {5}, "c": {0}}


def test_a_target_of_two_topics_is_carried_out_by_those_who_read_them() -> None:
    """Member b no longer reads u: a keeps what was planned for b, and b keeps its share of t."""
    t, u = [TopicPartition("t", n) for n in range(3)], [TopicPartition("u", n) for n in range(2)]
    target = PlanTarget.from_assignment(1, ["a", "b"], 0, {"a": [t[0], u[1]], "b": [t[1], t[2], u[0]]})
    plan = replace(plan_of({"a": [], "b": []}), target=target)
    group = Group({"a": (), "b": ()}, topics="tu")
    group.owned["a"] = frozenset([*t, *u])
    group.rates = dict.fromkeys([*t, *u], 20.0)
    for _ in range(2):
        group.round(plan, partitions=[*t, *u])
    assert group.owned == {"a": frozenset([t[0], u[1]]), "b": frozenset([t[1], t[2], u[0]])}
    group.topics["b"] = frozenset("t")
    outcome = group.round(plan, partitions=[*t, *u])
    assert (outcome.fault, outcome.off_plan) == ("", 1)
    group.round(plan, partitions=[*t, *u])
    assert group.owned == {"a": frozenset([t[0], *u]), "b": frozenset([t[1], t[2]])}


@pytest.mark.parametrize("rates", [(0, 0, 0, 31, 1, 60), (0, 0, 7, 60, 24, 24)])
def test_a_move_that_waited_for_room_is_made_with_the_relief(rates: tuple[float, ...]) -> None:
    """Not only with the next plan: t-5, of a consumer that is overdue, leaves a, and t-4 comes to it."""
    group = Group({"a": [0, 1, 2, 3, 5], "b": [4]})
    group.members_overdue = True
    group.rates = dict(zip(PARTITIONS, map(float, rates), strict=True))
    settled = group.settle(plan_of({"a": range(5), "b": [], "+1": [5]}, 1))
    assert settled == {"a": {0, 1, 2, 3, 4}, "b": {5}}


@settings(deadline=None)
@given(st.data())
def test_a_target_is_carried_out_exactly_in_two_rounds(data: st.DataObject) -> None:
    """Whoever reads what before, and whatever the write rates are now."""
    members = st.sampled_from(["a", "b", "c", None])
    before = data.draw(st.lists(members, min_size=6, max_size=6))
    target = data.draw(st.lists(st.sampled_from("abc"), min_size=6, max_size=6))
    group = Group({m: [n for n in range(6) if before[n] == m] for m in "abc"})
    group.rates = dict(
        zip(PARTITIONS, data.draw(st.lists(st.floats(0, 200), min_size=6, max_size=6)), strict=True)
    )
    share = {m: {n for n in range(6) if target[n] == m} for m in "abc"}
    assert group.settle(plan_of(share)) == share
    assert not group.round(plan_of(share)).is_new_decision
    assert group.moved <= sum(b not in (None, t) for b, t in zip(before, target, strict=True))


@settings(deadline=None)
@given(st.data())
def test_a_target_that_is_carried_out_as_far_as_it_can_be_moves_nothing_more(data: st.DataObject) -> None:
    """Whoever of its consumers is there, and whatever they read before: a new epoch with the same target."""
    names = sorted(data.draw(st.sets(st.sampled_from(["a", "b", "x"]), min_size=1)))
    before = data.draw(st.lists(st.sampled_from([*names, None]), min_size=6, max_size=6))
    target = data.draw(st.lists(st.sampled_from(["a", "b", "+1"]), min_size=6, max_size=6))
    group = Group({name: [n for n in range(6) if before[n] == name] for name in names})
    group.members_overdue = data.draw(st.booleans())
    rates = data.draw(st.lists(st.integers(0, 60), min_size=6, max_size=6))
    group.rates = dict(zip(PARTITIONS, map(float, rates), strict=True))
    plan = plan_of({m: [n for n in range(6) if target[n] == m] for m in ("a", "b", "+1")}, 1)
    settled = group.settle(plan)
    assert sorted(chain.from_iterable(settled.values())) == list(range(6))
    again = group.settle(replace(plan, epoch=8))
    # A joiner with half of what a dead consumer had, by repair, stands for it from then on.
    assert again == settled or ("x" in names and not {"a", "b"} <= {*names})
    assert group.settle(replace(plan, epoch=9)) == again
