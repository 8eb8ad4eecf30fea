"""Co-partitioned topics: equal partition numbers have equal consumers, in every heuristic."""

from dataclasses import dataclass, replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor import (
    ConsumerGroup,
    Load,
    Member,
    PlacementPlan,
    PlacementPolicy,
    TopicPartition,
    list_heuristics,
    place_partitions,
    size_group,
)

VARIANTS = (*list_heuristics(), "rack-aware:balance_subtopology", "steady:rack_cost=0.5")
SUBSCRIPTIONS = [frozenset(topics) for topics in ("abc", "abc", "ab", "ac", "b")]
RACKS = ("east", "west")
GROUPS = (("a", "b"),)


@dataclass(frozen=True)
class Situation:
    """Input of a decision; the topics a and b are co-partitioned."""

    group: ConsumerGroup
    load: Load
    policy: PlacementPolicy


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    counts = [draw(st.integers(0, 6), label=topic) for topic in "abc"]
    partitions = tuple(TopicPartition(t, n) for t, c in zip("abc", counts, strict=True) for n in range(c))
    members = tuple(
        Member(
            id=f"m{n}",
            topics=draw(st.sampled_from(SUBSCRIPTIONS)),
            capacity=draw(st.sampled_from([None, 50.0, 200.0])),
            draining=draw(st.sampled_from([False, False, False, True])),
            rack=draw(st.sampled_from([*RACKS, None])),
        )
        for n in range(draw(st.integers(0, 5), label="members"))
    )
    ids = st.sampled_from([None, "gone", *(m.id for m in members)])
    owners = {p: owner for p in partitions if (owner := draw(ids)) is not None}
    rates = {p: draw(st.sampled_from([None, 0.0, 3.0, 10.0, 30.0, 120.0])) for p in partitions}
    replicas = {p: draw(st.sampled_from([("east",), ("west",), RACKS])) for p in partitions}
    return Situation(
        ConsumerGroup(members, partitions, owners, replicas),
        Load(rates, rates, rates),
        PlacementPolicy(
            draw(st.sampled_from(VARIANTS)),
            capacity=100.0,
            headroom=0.9,
            consolidate=draw(st.booleans()),
            co_partitioned=GROUPS,
        ),
    )


def find_members(plan: PlacementPlan) -> dict[TopicPartition, str]:
    return {p: member for member, held in plan.assignment.items() for p in held}


def is_read_together(situation: Situation, *, if_all_drain: bool) -> bool:
    """Return whether a member that may read subscribes to both topics, or there is none."""
    members = [m for m in situation.group.members if not m.draining]
    members = members or list(situation.group.members) * if_all_drain
    return not members or any({"a", "b"} <= m.topics for m in members)


def assert_together(plan: PlacementPlan) -> None:
    members = find_members(plan)
    for p in members:
        if p.topic == "a":
            assert members.get(p._replace(topic="b"), members[p]) == members[p]


@given(situations(), st.integers(0, 2))
def test_equal_partition_numbers_have_equal_consumers(situation: Situation, added: int) -> None:
    """In closed mode, also with members to be added, and in open mode."""
    placed = place_partitions(situation.group, situation.load, situation.policy, added)
    if is_read_together(situation, if_all_drain=added == 0):
        assert_together(placed)
    if is_read_together(situation, if_all_drain=False):
        assert_together(size_group(situation.group, situation.load, situation.policy))


@given(situations())
def test_the_same_partitions_have_a_reader_as_without_tasks(situation: Situation) -> None:
    """A member that reads one topic of a group is given nothing of it, but nothing is left out."""
    apart = replace(situation.policy, co_partitioned=())
    for decide, policy in product((place_partitions, size_group), (situation.policy, apart)):
        plan = decide(situation.group, situation.load, policy)
        left = set(situation.group.partitions) - set(plan.unassigned)
        assert sorted(p for held in plan.assignment.values() for p in held) == sorted(left)
