"""Tasks of co-partitioned topics."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from trimtab.assignor import ConsumerGroup, Load, Member, PlacementPolicy, TopicPartition, place_partitions
from trimtab.assignor.model import UNASSIGNED, PlacementPlan
from trimtab.assignor.model.problem import IndexedProblem, build_problem, index_group
from trimtab.assignor.modes.task_groups import list_task_warnings, merge_tasks
from trimtab.assignor.rebalance.plan_target import carry_out_target
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget

ORDERS, PAYMENTS = (tuple(TopicPartition(t, n) for n in range(3)) for t in ("orders", "payments"))
CLICKS = (TopicPartition("clicks", 0),)
BOTH = frozenset({"orders", "payments", "clicks"})
GROUPS = (("payments", "orders"),)
POLICY = PlacementPolicy("bfd", capacity=100.0, consolidate=True, co_partitioned=GROUPS)
RATES = dict(zip((*CLICKS, *ORDERS, *PAYMENTS), (7.0, 1.0, 2.0, 3.0, 10.0, 20.0, 30.0), strict=True))


def group(*topics: frozenset[str], owners: dict[TopicPartition, str] | None = None) -> ConsumerGroup:
    members = tuple(Member(f"m{n}", names) for n, names in enumerate(topics))
    return ConsumerGroup(members, (*CLICKS, *ORDERS, *PAYMENTS), owners or {})


def index(given: ConsumerGroup) -> IndexedProblem:
    return build_problem(index_group(given), Load(RATES, RATES, RATES), POLICY)


def find_members(plan: PlacementPlan) -> dict[TopicPartition, str]:
    return {p: m for m, held in plan.assignment.items() for p in held}


def test_a_task_weighs_what_its_partitions_weigh_together() -> None:
    """Write rates, lags and variances add up; topics of no group keep their partitions."""
    tasks = merge_tasks(index(group(BOTH)), GROUPS)
    assert tasks.problem.weight.tolist() == tasks.problem.lag.tolist() == [7, 11, 22, 33]
    assert tasks.problem.topic.tolist() == [0, 1, 1, 1]
    assert tasks.task.tolist() == [0, 1, 2, 3, 1, 2, 3]
    assert tasks.problem.forecast is not None
    assert tasks.problem.forecast.variance.tolist() == [49, 101, 404, 909]
    assert tasks.expand(np.array([3, 0, 1, 2], dtype=np.int32)).tolist() == [3, 0, 1, 2, 0, 1, 2]


def test_a_task_belongs_to_the_owner_of_most_of_its_weight() -> None:
    """The other owner gives up its part; a tie goes to the first member."""
    owners = {ORDERS[0]: "m0", PAYMENTS[0]: "m1", ORDERS[1]: "m1", ORDERS[2]: "gone"}
    tasks = merge_tasks(index(group(BOTH, BOTH, owners=owners)), GROUPS)
    assert tasks.problem.owner.tolist() == [UNASSIGNED, 1, 1, UNASSIGNED]


def test_an_idle_task_belongs_to_the_owner_of_most_partitions() -> None:
    """Without write rates the partitions count."""
    three = tuple(TopicPartition(t, 0) for t in ("clicks", "orders", "payments"))
    given = ConsumerGroup(
        (Member("m0", BOTH), Member("m1", BOTH)), three, dict(zip(three, ("m0", "m1", "m1"), strict=True))
    )
    idle = build_problem(index_group(given), Load(dict.fromkeys(three, 0.0)), POLICY)
    assert merge_tasks(idle, [("clicks", "orders", "payments")]).problem.owner.tolist() == [1]


@pytest.mark.parametrize("part", ["orders", "payments"])
def test_an_owner_that_reads_a_part_of_a_task_cannot_keep_it(part: str) -> None:
    """Only who reads all topics of the group can have its tasks."""
    owners = {TopicPartition(part, 0): "m0"}
    given = group(frozenset({part}), BOTH, owners=owners)
    tasks = merge_tasks(index(given), GROUPS)
    assert tasks.problem.owner.tolist() == [UNASSIGNED] * 4
    assert tasks.problem.subscribed.tolist() == [[False, True], [False, True]]
    members = find_members(place_partitions(given, Load(RATES), POLICY))
    assert {members[p] for p in (*ORDERS, *PAYMENTS)} == {"m1"}


def test_topics_that_no_member_reads_together_are_left_apart() -> None:
    """A note names them."""
    given = group(frozenset({"orders", "clicks"}), frozenset({"payments"}))
    plan = place_partitions(given, Load(RATES), POLICY)
    assert not plan.unassigned
    assert "no member subscribes to all of payments, orders: their partitions are placed apart" in plan.notes


@pytest.mark.parametrize("groups", [(), (("orders",),), (("orders", "orders"),), (("orders", "missing"),)])
def test_without_two_topics_to_join_the_problem_stays(groups: tuple[tuple[str, ...], ...]) -> None:
    """It is the same object, so that decisions without tasks are as before."""
    indexed = index(group(BOTH))
    assert merge_tasks(indexed, groups).problem is indexed.problem


def test_a_topic_of_two_groups_belongs_to_the_first() -> None:
    """A plan may hold anything."""
    tasks = merge_tasks(index(group(BOTH)), (*GROUPS, ("orders", "clicks")))
    assert len(tasks.problem.weight) == 4


def test_numbers_that_one_topic_lacks_are_tasks_of_their_own() -> None:
    """Topics of a group may have grown unequally; a warning says so."""
    partitions = (*ORDERS, *PAYMENTS[:1], TopicPartition("payments", 7))
    given = replace(group(BOTH), partitions=partitions)
    assert merge_tasks(index(given), GROUPS).task.tolist() == [0, 1, 2, 0, 3]
    assert (
        "co-partitioned topics have different numbers of partitions (payments 2, orders 3): "
        "equal keys may be in different ones"
    ) in place_partitions(given, Load(RATES), POLICY).notes


def test_without_trouble_there_is_no_warning() -> None:
    """Nor for a topic alone, whose number of partitions cannot differ."""
    assert not list(list_task_warnings(index(group(BOTH)), [*GROUPS, ("clicks",)]))


def test_a_misspelt_topic_is_named() -> None:
    """It has no effect otherwise."""
    policy = replace(POLICY, co_partitioned=(("orders", "payment"),))
    notes = place_partitions(group(BOTH), Load(RATES), policy).notes
    assert "co-partitioned topics that the group does not read: payment" in notes
    many = replace(POLICY, co_partitioned=(("orders", "a", "b", "c", "d"),))
    notes = place_partitions(group(BOTH), Load(RATES), many).notes
    assert "co-partitioned topics that the group does not read: a, b, c and 1 more" in notes


@pytest.mark.parametrize(
    ("orders", "payments", "remote"),
    [
        (1.0, 10.0, [True, False]),
        (5.0, 4.0, [False, True]),
        (5.0, 5.0, [True, True]),
        (0.1, 0.3, [True, False]),
        (0.0, 0.0, [True, True]),
    ],
)
def test_a_task_is_remote_where_half_of_its_weight_is(
    orders: float, payments: float, remote: list[bool]
) -> None:
    """The weight decides between racks with replicas of one topic only; without any, the partitions."""
    given = ConsumerGroup(
        (Member("m0", BOTH, rack="a"), Member("m1", BOTH, rack="b")),
        (ORDERS[0], PAYMENTS[0]),
        {},
        {ORDERS[0]: ["a"], PAYMENTS[0]: ["b"]},
    )
    rates = {ORDERS[0]: orders, PAYMENTS[0]: payments}
    indexed = build_problem(index_group(given), Load(rates), POLICY, weigh_racks=True)
    merged = merge_tasks(indexed, GROUPS).problem.racks
    assert merged is not None
    assert merged.remote.tolist() == [[*remote, False]]  # the last: an unknown rack


def test_a_target_of_partitions_becomes_one_of_tasks() -> None:
    """The consumer with most of a task's weight gets all of it."""
    tasks = merge_tasks(index(group(BOTH, BOTH)), GROUPS)
    bins = np.array([0, 0, UNASSIGNED, 1, 1, UNASSIGNED, 0], dtype=np.int32)
    assert tasks.merge_bins(bins).tolist() == [0, 1, UNASSIGNED, 0]


@pytest.mark.parametrize("name", ["sticky", "lag-aware", "rack-aware", "rack-aware:balance_subtopology"])
def test_balances_by_count_count_tasks(name: str) -> None:
    """Partitions that one topic has more of do not stand for a task of the other."""
    more = tuple(TopicPartition("payments", n) for n in range(3, 9))
    given = replace(group(BOTH, BOTH, BOTH), partitions=(*ORDERS, *PAYMENTS, *more))
    members = find_members(place_partitions(given, Load(), replace(POLICY, heuristic=name)))
    tasks = Counter(members[p] for p in (*PAYMENTS, *more))
    assert tasks == {"m0": 3, "m1": 3, "m2": 3}
    assert [members[p] for p in ORDERS] == [members[p] for p in PAYMENTS]


def test_a_move_to_the_rest_of_its_task_says_so() -> None:
    """Its reason names the partition that draws it; the move of a whole task has the usual reason."""
    owners = {
        ORDERS[0]: "m0",
        PAYMENTS[0]: "m1",
        **dict.fromkeys((*ORDERS[1:], *PAYMENTS[1:], *CLICKS), "m1"),
    }
    plan = place_partitions(group(BOTH, BOTH, owners=owners), Load(RATES), POLICY)
    (move,) = plan.moves
    assert (move.partition, move.target) == (ORDERS[0], "m1")
    assert move.reason == "bfd: joins payments-0 on m1"


def test_a_plan_carried_out_keeps_tasks_together() -> None:
    """Also where its target is repaired: a consumer is gone, and a partition is new."""
    there = {"worker-0": (ORDERS[0], PAYMENTS[0]), "worker-1": (ORDERS[1], PAYMENTS[1]), "gone": (ORDERS[2],)}
    target = PlanTarget.from_assignment(1, list(there), 0, there)
    plan = GroupPlan("g", 1, 0.0, 3, "bfd", 100.0, target=target, co_partitioned=GROUPS)
    members = tuple(Member(f"m{n}", BOTH, instance=f"worker-{n}") for n in range(2))
    given = ConsumerGroup(members, (*CLICKS, *ORDERS, *PAYMENTS), {PAYMENTS[2]: "m0", ORDERS[2]: "m1"})
    carried = carry_out_target(plan, index_group(given), Load(RATES), POLICY, members_overdue=False)
    assert carried.decision is not None
    readers = carried.decision.target[1:].reshape(2, 3)  # without clicks
    assert readers[0].tolist() == readers[1].tolist() == [0, 1, 0]
    assert carried.elsewhere.tolist() == [False, False, False, True, False, False, False]
