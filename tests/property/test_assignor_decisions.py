"""Promises of `place_partitions` and `size_group` for any group, any load, every heuristic."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trimtab.assignor import (
    UNASSIGNED,
    ConsumerGroup,
    Load,
    Member,
    PlacementPlan,
    PlacementPolicy,
    TopicPartition,
    get_heuristic,
    list_heuristics,
    place_partitions,
    size_group,
)
from trimtab.assignor.model.problem import build_problem, index_group
from trimtab.assignor.scores.feasibility import confine_partitions

TOPICS = ("a", "b", "c")
COUNTING = tuple(n for n in list_heuristics() if get_heuristic(n).packs_by_capacity)
SETTLING = tuple(n for n in list_heuristics() if get_heuristic(n).idempotent)
SLACK = 1 + 1e-6

speeds = st.one_of(st.none(), st.just(0.0), st.floats(0.001, 250.0), st.integers(1, 20).map(float))


@dataclass(frozen=True)
class Situation:
    """Input of a decision."""

    group: ConsumerGroup
    load: Load
    policy: PlacementPolicy

    def with_owners(self, plan: PlacementPlan) -> "Situation":
        owners = {p: m for m, held in plan.assignment.items() for p in held}
        return replace(self, group=replace(self.group, owners=owners))


@st.composite
def situations(draw: st.DrawFn, heuristics: tuple[str, ...] = list_heuristics()) -> Situation:
    partitions = tuple(TopicPartition(t, p) for t in TOPICS for p in range(draw(st.integers(0, 6), label=t)))
    members = tuple(
        Member(
            id=f"m{n}",
            topics=draw(st.frozensets(st.sampled_from(TOPICS)) | st.just(frozenset(TOPICS))),
            capacity=draw(st.none() | st.floats(20.0, 300.0)),
            instance=draw(st.sampled_from(["", f"worker-{n}"])),
            draining=draw(st.sampled_from([False, False, False, True])),
        )
        for n in range(draw(st.integers(0, 6), label="members"))
    )
    anybody = st.sampled_from([*(m.id for m in members), "gone"])
    known = draw(st.lists(speeds, min_size=len(partitions), max_size=len(partitions)))
    lags = draw(st.lists(st.integers(0, 50), min_size=len(partitions), max_size=len(partitions)))
    return Situation(
        ConsumerGroup(members, partitions, {p: draw(anybody) for p in partitions if draw(st.booleans())}),
        Load(dict(zip(partitions, known, strict=True)), dict(zip(partitions, lags, strict=True))),
        PlacementPolicy(
            heuristic=draw(st.sampled_from(heuristics)),
            capacity=100.0,
            headroom=draw(st.sampled_from([1.0, 0.8])),
            consolidate=draw(st.booleans()),
        ),
    )


def decided(situation: Situation) -> PlacementPlan:
    return place_partitions(situation.group, situation.load, situation.policy)


def sized(situation: Situation) -> PlacementPlan:
    return size_group(situation.group, situation.load, situation.policy)


def eligible(group: ConsumerGroup) -> dict[str, Member]:
    staying = {m.id: m for m in group.members if not m.draining}
    return staying or {m.id: m for m in group.members}


def weights(situation: Situation) -> Mapping[TopicPartition, float]:
    indexed = build_problem(index_group(situation.group), situation.load, situation.policy, open_mode=True)
    return dict(zip(indexed.partitions, indexed.problem.weight.tolist(), strict=True))


def joined(situation: Situation, plan: PlacementPlan) -> Situation:
    """Let the members that a plan adds join, with ids that sort last."""
    names_last = {name: f"n{int(name[1:]):03}" if name.startswith("+") else name for name in plan.assignment}
    added = [name for name in plan.assignment if name.startswith("+")]
    fresh = tuple(Member(names_last[name], frozenset(TOPICS)) for name in added)
    owners = {p: names_last[m] for m, held in plan.assignment.items() for p in held}
    members = (*situation.group.members, *fresh)
    return replace(situation, group=ConsumerGroup(members, situation.group.partitions, owners))


@given(situations())
def test_every_partition_has_exactly_one_subscribed_owner(situation: Situation) -> None:
    """A partition with an eligible subscriber has exactly one owner, which subscribes to it."""
    plan = decided(situation)
    held = Counter(p for partitions in plan.assignment.values() for p in partitions)
    able = eligible(situation.group)
    read = {p for p in situation.group.partitions if any(p.topic in m.topics for m in able.values())}
    assert held == Counter(read)
    assert set(plan.unassigned) == set(situation.group.partitions) - read
    for member, partitions in plan.assignment.items():
        assert all(p.topic in able[member].topics for p in partitions)


@given(situations())
def test_sizing_assigns_every_partition(situation: Situation) -> None:
    """In open mode every partition has one owner: a subscriber, or an added member."""
    plan = sized(situation)
    held = Counter(p for partitions in plan.assignment.values() for p in partitions)
    able = {m.id: m for m in situation.group.members if not m.draining}
    assert held == Counter(situation.group.partitions)
    for member, partitions in plan.assignment.items():
        assert member.startswith("+") or all(p.topic in able[member].topics for p in partitions)
    assert plan.consumers == sum(1 for partitions in plan.assignment.values() if partitions)


@given(situations(COUNTING))
def test_no_added_consumer_is_overfull_unless_by_one_partition(situation: Situation) -> None:
    """In open mode only a member with a single oversized partition exceeds its headroom."""
    plan, weight = sized(situation), weights(situation)
    for member, partitions in plan.assignment.items():
        load = sum(weight[p] for p in partitions)
        assert load <= room(situation, member) * SLACK or len(partitions) == 1


@given(situations(COUNTING))
def test_no_member_is_overfull_if_the_load_fits(situation: Situation) -> None:
    """With `consolidate` a member exceeds its headroom only by a single oversized partition, or noted.

    The note on overload is there if the heuristic finds no room at the given capacities.
    """
    situation = replace(situation, policy=replace(situation.policy, consolidate=True))
    indexed = build_problem(index_group(situation.group), situation.load, situation.policy)
    assume(indexed.measured.any())
    plan, weight = decided(situation), weights(situation)
    # under a plan a heuristic sees only readers that can hold a partition
    problem = confine_partitions(indexed.problem)
    left_out = (get_heuristic(situation.policy.heuristic).pack(problem) == UNASSIGNED).any()
    over = [
        held
        for member, held in plan.assignment.items()
        if sum(weight[p] for p in held) > room(situation, member) * SLACK and len(held) > 1
    ]
    assert not over or left_out
    assert bool(over) == any(note.startswith("overload") for note in plan.notes)


@given(situations(), st.randoms(use_true_random=False))
def test_equal_input_gives_equal_bytes(situation: Situation, chance: random.Random) -> None:
    """The order of members, partitions, owners and write rates changes no byte."""
    other = shuffled(situation, chance)
    assert repr(asdict(decided(situation))) == repr(asdict(decided(other)))
    assert repr(asdict(sized(situation))) == repr(asdict(sized(other)))


@given(situations(SETTLING))
def test_idempotent_heuristics_keep_their_own_output(situation: Situation) -> None:
    """They move nothing in a second decision: consolidating, and in open mode if they pack by capacity."""
    if get_heuristic(situation.policy.heuristic).packs_by_capacity:
        assert not sized(joined(situation, sized(situation))).moves
    situation = replace(situation, policy=replace(situation.policy, consolidate=True))
    indexed = build_problem(index_group(situation.group), situation.load, situation.policy)
    assume(indexed.measured.any())
    # else another one decides, and this one again once it has owners
    problem = confine_partitions(indexed.problem)
    assume(not (get_heuristic(situation.policy.heuristic).pack(problem) == UNASSIGNED).any())
    assert not decided(situation.with_owners(decided(situation))).moves


@given(situations(COUNTING))
def test_spreading_again_moves_only_at_a_gain(situation: Situation) -> None:
    """Moves without a change lower the maximum fill by 5 % or employ one more member."""
    situation = replace(situation, policy=replace(situation.policy, consolidate=False))
    first = decided(situation)
    second = decided(situation.with_owners(first))
    better = second.fill * 1.049 <= first.fill or second.consumers > first.consumers
    assert not second.moves or better


@given(situations())
def test_draining_members_end_empty(situation: Situation) -> None:
    """A draining member gets no partition; if all drain, only in open mode."""
    draining = [m.id for m in situation.group.members if m.draining]
    assert not any(sized(situation).assignment[m] for m in draining)
    if len(draining) < len(situation.group.members):
        assert not any(decided(situation).assignment[m] for m in draining)


@given(situations(("sticky",)))
def test_sticky_is_as_even_by_count_as_subscriptions_allow(situation: Situation) -> None:
    """No member could give a partition to a subscriber with at least two fewer."""
    plan, able = decided(situation), eligible(situation.group)
    count = {m: len(held) for m, held in plan.assignment.items() if m in able}
    for donor in able:
        for partition in plan.assignment[donor]:
            recipients = [m for m in able.values() if partition.topic in m.topics]
            assert all(count[donor] - count[m.id] < 2 for m in recipients)


@given(situations(("sticky",)))
def test_sticky_moves_only_what_exceeds_the_fair_share(situation: Situation) -> None:
    """If all subscribe to all, only partitions above the fair share leave their owner."""
    members = tuple(replace(m, topics=frozenset(TOPICS)) for m in situation.group.members)
    assume(members)
    situation = replace(situation, group=replace(situation.group, members=members))
    able = eligible(situation.group)
    had = sorted(Counter(o for o in situation.group.owners.values() if o in able).values(), reverse=True)
    share, larger = divmod(len(situation.group.partitions), len(able))
    fair = [share + (n < larger) for n in range(len(able))]
    excess = sum(max(0, n - f) for n, f in zip(had, fair, strict=False))
    left = [m for m in decided(situation).moves if m.source in able]
    assert len(left) == excess


@given(situations())
def test_r_score_counts_partitions_with_an_owner(situation: Situation) -> None:
    """R is the write rate of the partitions taken from a member ÷ the capacity (eq. 10)."""
    plan, weight = decided(situation), weights(situation)
    there = {m.id for m in situation.group.members}
    target = {p: m for m, held in plan.assignment.items() for p in held}
    stopped = [
        weight[p]
        for p, owner in situation.group.owners.items()
        if owner in there and p in target and target[p] != owner
    ]
    assert plan.r_score == pytest.approx(sum(stopped) / situation.policy.capacity)


@given(situations())
def test_owners_plus_moves_give_the_assignment(situation: Situation) -> None:
    """Every move has a reason."""
    plan = decided(situation)
    after = dict(situation.group.owners)
    for move in plan.moves:
        assert move.reason
        assert move.source in {after.get(move.partition), None}
        after[move.partition] = move.target
    target = {p: m for m, held in plan.assignment.items() for p in held}
    assert {p: after[p] for p in target} == target


def room(situation: Situation, member: str) -> float:
    own = {m.id: m.capacity for m in situation.group.members}.get(member)
    return (own or situation.policy.capacity) * situation.policy.headroom


def shuffled(situation: Situation, chance: random.Random) -> Situation:
    group, load = situation.group, situation.load
    members, partitions = list(group.members), list(group.partitions)
    owners, known = list(group.owners.items()), list(load.write_rates.items())
    for order in (members, partitions, owners, known):
        chance.shuffle(order)
    return replace(
        situation,
        group=ConsumerGroup(tuple(members), tuple(partitions), dict(owners)),
        load=replace(load, write_rates=dict(known)),
    )


@given(situations(COUNTING))
def test_heuristics_do_not_write_to_their_problem(situation: Situation) -> None:
    """The arrays of a problem are the same after a decision."""
    problem = build_problem(
        index_group(situation.group), situation.load, situation.policy, open_mode=True
    ).problem
    arrays = (problem.weight, problem.owner, problem.topic, problem.capacity, problem.subscribed)
    before = [np.copy(a) for a in arrays]
    get_heuristic(situation.policy.heuristic).pack(problem)
    assert all(np.array_equal(a, b) for a, b in zip(before, arrays, strict=True))
