"""The two decisions on small cases: closed and open mode, and their reasons."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from trimtab.assignor import (
    ConsumerGroup,
    InvalidProblemError,
    Load,
    Member,
    PlacementPlan,
    PlacementPolicy,
    TopicPartition,
    place_partitions,
    size_group,
)

CAPACITY = 100.0
SPREAD = PlacementPolicy("mbf", CAPACITY)
PACKED = PlacementPolicy("mbf", CAPACITY, consolidate=True)


def members(*ids: str) -> tuple[Member, ...]:
    return tuple(Member(i, frozenset({"t"})) for i in ids)


def parts(count: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, p) for p in range(count))


def load(*rates: float | None) -> Load:
    return Load(dict(zip(parts(len(rates)), rates, strict=True)))


def owned(*owners: str) -> Mapping[TopicPartition, str]:
    return {p: o for p, o in zip(parts(len(owners)), owners, strict=True) if o}


def shares(plan: PlacementPlan) -> dict[str, list[int]]:
    return {m: [p.partition for p in held] for m, held in plan.assignment.items()}


def reasons(plan: PlacementPlan) -> dict[int, str]:
    return {m.partition.partition: m.reason for m in plan.moves}


def test_consolidating_packs_the_members_full() -> None:
    """With a plan in force three half-empty members become two."""
    group = ConsumerGroup(members("a", "b", "c"), parts(3), owned("a", "b", "c"))
    plan = place_partitions(group, load(60, 30, 35), PACKED)
    assert shares(plan) == {"a": [0, 2], "b": [1], "c": []}
    assert plan.consumers == 2
    assert plan.fill == pytest.approx(0.95)


def test_an_overloaded_consumer_is_named_with_its_load() -> None:
    """The reason of a move from an overloaded consumer has the fill that it avoids."""
    group = ConsumerGroup(members("c1", "c2"), parts(3), owned("c1", "c1", "c2"))
    plan = place_partitions(group, load(80, 52, 10), PACKED)
    assert reasons(plan)[1] == "mbf: c1 would be at 132% of its capacity"


def test_headroom_is_part_of_the_reason() -> None:
    """With a headroom below 1 the reason names it."""
    group = ConsumerGroup(members("c1", "c2"), parts(3), owned("c1", "c1", "c2"))
    plan = place_partitions(group, load(50, 40, 10), replace(PACKED, headroom=0.8))
    assert reasons(plan)[1] == "mbf: c1 would be at 90% of its capacity (80% may be filled)"


def test_an_emptied_consumer_is_named() -> None:
    """The reason of a move from an emptied consumer is that its load fits elsewhere."""
    group = ConsumerGroup(members("a", "c3"), parts(2), owned("a", "c3"))
    plan = place_partitions(group, load(60, 30), PACKED)
    assert reasons(plan) == {1: "mbf: c3 is emptied: its load fits elsewhere"}
    assert plan.r_score == pytest.approx(0.3)


def test_forced_moves_have_their_own_reasons() -> None:
    """Departed, draining, unsubscribed and missing owners each have their own reason."""
    group = ConsumerGroup(
        (
            Member("a", frozenset({"t"})),
            Member("b", frozenset({"t"}), instance="worker-2", draining=True),
            Member("c", frozenset({"other"})),
        ),
        parts(4),
        owned("gone", "b", "c", ""),
    )
    explained = reasons(place_partitions(group, load(10, 10, 10, 10), PACKED))
    assert explained[0].startswith("its owner gone left; a comes to 40% of its capacity")
    assert explained[1].startswith("worker-2 is draining; ")
    assert explained[2].startswith("c no longer subscribes to t; ")
    assert explained[3].startswith("no member owned it; ")


def test_a_departed_owner_does_not_count_in_r() -> None:
    """R counts partitions taken from a member, not those of an owner that left before."""
    group = ConsumerGroup(
        (*members("a"), Member("b", frozenset({"t"}), draining=True)), parts(2), owned("gone", "b")
    )
    plan = place_partitions(group, load(10, 20), PACKED)
    assert [(m.source, m.target) for m in plan.moves] == [(None, "a"), ("b", "a")]
    assert plan.r_score == pytest.approx(0.2)


def test_spreading_fills_all_members_alike() -> None:
    """Without a plan the maximum fill is minimal, and no member idles."""
    plan = place_partitions(
        ConsumerGroup(members("a", "b", "c"), parts(6)), load(30, 30, 20, 20, 10, 10), SPREAD
    )
    assert plan.fill == pytest.approx(0.4)
    assert plan.consumers == 3


def test_spreading_employs_a_newcomer() -> None:
    """A member that joins gets partitions of the others, and the reason names it."""
    group = ConsumerGroup(members("a", "b", "new"), parts(6), owned("a", "a", "a", "b", "b", "b"))
    plan = place_partitions(group, load(*[10.0] * 6), SPREAD)
    assert sorted(map(len, plan.assignment.values())) == [2, 2, 2]
    assert set(reasons(plan).values()) == {"mbf: spread onto new, which read nothing"}
    assert len(plan.moves) == 2


def test_spreading_keeps_owners_that_are_nearly_as_good() -> None:
    """No partition moves to lower the maximum fill by less than 5 %."""
    group = ConsumerGroup(members("a", "b"), parts(4), owned("a", "a", "b", "b"))
    assert not place_partitions(group, load(26, 21, 20, 23), SPREAD).moves  # 47 beside 46
    assert place_partitions(group, load(30, 24, 20, 16), SPREAD).moves  # 54 beside 46


def test_spreading_leaves_no_member_idle() -> None:
    """Best fit would put four partitions on two of three members; all three get some."""
    plan = place_partitions(ConsumerGroup(members("a", "b", "c"), parts(4)), load(*[10.0] * 4), SPREAD)
    assert sorted(len(held) for held in plan.assignment.values()) == [1, 1, 2]


def test_spreading_keeps_the_only_partition_of_a_member() -> None:
    """It stays although another member of more capacity idles."""
    group = ConsumerGroup(
        (
            Member("a", frozenset({"t"}), 20.0),
            Member("b", frozenset({"t"}), 50.0),
            Member("c", frozenset({"u"}), 100.0),
        ),
        (*parts(1), *parts(2, "u")),
        {parts(1)[0]: "a", **dict.fromkeys(parts(2, "u"), "c")},
    )
    rates = dict(zip(group.partitions, (0.1, 1.0, 1.0), strict=True))
    assert not place_partitions(group, Load(rates), SPREAD).moves


def test_spreading_after_a_leave_moves_only_its_partitions() -> None:
    """The partitions of a member that left go to the others; nothing else moves."""
    group = ConsumerGroup(members("a", "b"), parts(6), owned("a", "a", "b", "b", "gone", "gone"))
    plan = place_partitions(group, load(*[10.0] * 6), SPREAD)
    assert [m.source for m in plan.moves] == [None, None]
    assert sorted(map(len, plan.assignment.values())) == [3, 3]


@pytest.mark.parametrize("policy", [SPREAD, PACKED])
def test_an_idle_or_unknown_group_is_spread_by_count(policy: PlacementPolicy) -> None:
    """Without any known rate, or without load and plan, counts are even."""
    group = ConsumerGroup(members("a", "b", "c"), parts(9))
    unknown = place_partitions(group, Load(), policy)
    assert [len(held) for held in unknown.assignment.values()] == [3, 3, 3]
    assert unknown.notes[0] == "no write rate is known: every partition weighs the same"
    idle = place_partitions(group, load(*[0.0] * 9), SPREAD)
    assert [len(held) for held in idle.assignment.values()] == [3, 3, 3]


def test_an_overload_is_spread_in_proportion() -> None:
    """In an overload a member of twice the capacity gets twice the load, and a note is made."""
    group = ConsumerGroup((Member("big", frozenset({"t"}), 200.0), *members("small")), parts(12))
    plan = place_partitions(group, load(*[50.0] * 12), PACKED)
    assert [len(held) for held in plan.assignment.values()] == [8, 4]
    assert plan.fill == pytest.approx(2.0)
    (note,) = plan.notes
    assert note.startswith("overload: 600 B/s for members that may take 300 B/s; ")
    assert note.endswith("spread in proportion: big at 200%, small at 200%")


def test_an_oversized_partition_is_noted() -> None:
    """The note names the partition and the remedy."""
    plan = place_partitions(ConsumerGroup(members("a", "b"), parts(2)), load(250, 10), PACKED)
    assert plan.notes == (
        "t-0 writes 250 B/s, more than a may take (100 B/s): split the key or raise the capacity",
    )


def test_unknown_rates_count_as_the_mean_of_the_topic() -> None:
    """An unknown rate weighs its topic's mean, else the mean of all."""
    other = TopicPartition("u", 0)
    group = ConsumerGroup((Member("a", frozenset({"t", "u"})),), (*parts(3), other))
    plan = place_partitions(group, load(10, 30, None), SPREAD)
    assert [m.write_rate for m in plan.moves] == [10, 30, 20, 20]
    assert plan.notes[0].startswith("no write rate of 2 of 4 partitions")


def test_partitions_without_a_subscriber_are_listed() -> None:
    """They are unassigned, and the plan has a note."""
    plan = place_partitions(ConsumerGroup(members("a"), (*parts(1), *parts(2, "x"))), load(1), SPREAD)
    assert plan.unassigned == parts(2, "x")
    assert "no member subscribes to x-0, x-1" in plan.notes


def test_a_group_without_members_gets_an_empty_plan() -> None:
    """Without members all partitions are unassigned."""
    plan = place_partitions(ConsumerGroup((), parts(2)), load(1, 1), PACKED)
    assert (dict(plan.assignment), plan.unassigned, plan.consumers) == ({}, parts(2), 0)


def test_all_draining_members_go_on_reading() -> None:
    """If all members drain, partitions stay with their owners and the plan has a note."""
    group = ConsumerGroup(
        tuple(replace(m, draining=True) for m in members("a", "b")), parts(2), owned("a", "b")
    )
    plan = place_partitions(group, load(40, 40), SPREAD)
    assert not plan.moves
    assert plan.notes == ("all members are draining: they go on reading",)
    assert set(size_group(group, load(40, 40), SPREAD).assignment["+1"]) == set(parts(2))


def test_sizing_adds_members() -> None:
    """A load above the members' capacities needs new ones, "+1" and so on."""
    plan = size_group(ConsumerGroup(members("a"), parts(3), owned("a", "a", "a")), load(90, 80, 70), PACKED)
    assert plan.consumers == 3
    assert shares(plan) == {"+1": [1], "+2": [2], "a": [0]}


def test_sizing_empties_members() -> None:
    """Members that the load does not need are left empty."""
    group = ConsumerGroup(members("a", "b", "c"), parts(3), owned("a", "b", "c"))
    plan = size_group(group, load(10, 10, 10), SPREAD)
    assert plan.consumers == 1


@pytest.mark.parametrize("name", ["sticky", "lag-aware"])
def test_sizing_a_heuristic_that_only_places_takes_load_over_capacity(name: str) -> None:
    """The group gets load ÷ capacity members, rounded up, at least one."""
    policy = replace(SPREAD, heuristic=name)
    group = ConsumerGroup(members("a", "b", "c"), parts(6), owned("c", "c", "c", "c", "b", "a"))
    assert size_group(group, load(*[40.0] * 6), policy).consumers == 3
    assert size_group(group, load(*[60.0] * 6), policy).consumers == 4
    idle = size_group(group, load(*[0.0] * 6), policy)
    assert [m for m, held in idle.assignment.items() if held] == ["c"]


def test_sizing_a_heuristic_that_only_places_keeps_the_fullest_members() -> None:
    """The members with most of the load stay."""
    group = ConsumerGroup(members("a", "b", "c"), parts(3), owned("a", "c", "c"))
    plan = size_group(group, load(10, 30, 30), replace(SPREAD, heuristic="sticky"))
    assert shares(plan) == {"a": [], "b": [], "c": [0, 1, 2]}


def test_sizing_a_heuristic_that_only_places_keeps_a_reader_of_every_topic() -> None:
    """The only subscriber of a topic stays although one member could carry the load."""
    group = ConsumerGroup(
        (Member("a", frozenset({"t"})), Member("b", frozenset({"u"}))), (*parts(2), *parts(1, "u"))
    )
    plan = size_group(group, load(1, 1), replace(SPREAD, heuristic="sticky"))
    assert plan.assignment == {"a": parts(2), "b": parts(1, "u")}


@pytest.mark.parametrize(
    ("group", "given", "policy", "message"),
    [
        (ConsumerGroup(members("a", "a"), ()), Load(), SPREAD, "member 'a' is there twice"),
        (ConsumerGroup(members("a"), parts(1)), load(-1), SPREAD, "write rate of t-0 is -1 bytes/s"),
        (ConsumerGroup(members("a"), parts(1)), load(float("nan")), SPREAD, "write rate of t-0 is nan"),
        (ConsumerGroup(members("a"), parts(1)), load(float("inf")), SPREAD, "write rate of t-0 is inf"),
        (
            ConsumerGroup((Member("a", frozenset(), capacity=0.0),), ()),
            Load(),
            SPREAD,
            "capacity of member 'a' is 0.0",
        ),
        (ConsumerGroup((), ()), Load(), PlacementPolicy(capacity=-1.0), "capacity of the policy is -1.0"),
        (
            ConsumerGroup((), ()),
            Load(),
            PlacementPolicy(capacity=float("nan")),
            "capacity of the policy is nan",
        ),
        (ConsumerGroup((), ()), Load(), PlacementPolicy(headroom=0.0), "headroom 0.0 must be above 0"),
        (ConsumerGroup((), ()), Load(), PlacementPolicy(headroom=1.1), "headroom 1.1 must be above 0"),
        (
            ConsumerGroup((), ()),
            Load(),
            PlacementPolicy(headroom=float("nan")),
            "headroom nan must be above 0",
        ),
    ],
)
def test_invalid_figures_are_refused_by_name(
    group: ConsumerGroup, given: Load, policy: PlacementPolicy, message: str
) -> None:
    """InvalidProblemError names the member or partition."""
    for decision in (place_partitions, size_group):
        with pytest.raises(InvalidProblemError, match=message):
            decision(group, given, policy)
