"""Carries out the target of a plan: members stand for its consumers, and what changed is repaired.

Who stands for a consumer, in this order:

1. The member of its name, unless that drains. Members that share a name are numbered (`replica_names`).
2. Of the other members, the joiners, the one that has at least half of its partitions, by ownership or
   by promise: so a second joiner does not reshuffle the first one's. Less may be a repair.
3. Joiners by name for what is left: places first, then consumers that are gone, as a pod's of another
   name. A joiner takes only a consumer all of whose topics it reads.

The plan is decided anew if no member stands for a consumer and there are no places, and if joiners
are left over that nothing would be given to: they get what is above the others' headroom, which takes
measured write rates and a heuristic that packs by capacity.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, Load, PlacementPolicy
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.model.problem import IndexedGroup, IndexedProblem, build_problem, member_capacity
from trimtab.assignor.modes.task_groups import merge_tasks
from trimtab.assignor.rebalance.placement_repair import repair_placement
from trimtab.assignor.scores.fill_levels import PlacementDecision, evaluate_placement
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import NOT_PLACED, PlanTarget
from trimtab.common.errors import SettingError
from trimtab.common.replica_names import number_shared_names
from trimtab.common.units import format_count, format_name_list

MAX_NAMES_IN_NOTE: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class TargetMatch:
    """Members that stand for the C consumers and places of a target, and its P partitions."""

    member: IntArray  # (C,) member of each consumer; UNASSIGNED: absent
    consumer: IntArray  # (P,) consumer of each partition, from 0; UNASSIGNED: the target has none

    def resolve_target(self) -> IntArray:
        """Return the member of each partition (P,); UNASSIGNED if its consumer is absent."""
        return _look_up(self.member, self.consumer)


@dataclass(frozen=True, slots=True, eq=False)
class CarriedPlan:
    """Decision that carries out a plan's target, and what could not be."""

    note: str = ""  # "plan 7 carried out; 3 partitions elsewhere: worker-2 left"
    decision: PlacementDecision | None = None  # None: the plan is to be decided anew
    # (P,) of the decision's partitions: not on the consumer of the target
    elsewhere: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


def name_members(ids: Sequence[str], instances: Sequence[str]) -> tuple[str, ...]:
    """Return each member's instance name, its id where the instance is shared or empty."""
    # a client id is optional: without one all librdkafka members are called "rdkafka"
    count = Counter(instances)
    return tuple(name if name and count[name] == 1 else id_ for id_, name in zip(ids, instances, strict=True))


def match_consumers(
    target: PlanTarget, group: IndexedGroup, promised_to: IntArray | None = None
) -> TargetMatch:
    """Return the members that stand for the target's consumers, and each partition's consumer.

    `promised_to` (P,): member that an earlier round promised a partition, or UNASSIGNED.
    """
    names = name_members([m.id for m in group.members], [m.instance for m in group.members])
    staying = [i for i, m in enumerate(group.members) if not m.draining]
    eligible = staying or range(len(names))
    numbered = number_shared_names(m.instance for m in group.members)
    by_name = {numbered[i]: i for i in eligible} | {names[i]: i for i in eligible}
    match = TargetMatch(
        np.full(target.size, UNASSIGNED, dtype=np.int32), _find_consumers(target, group.partition_index)
    )
    match.member[: len(target.consumers)] = [by_name.get(name, UNASSIGNED) for name in target.consumers]
    joiners = sorted(set(eligible) - set(match.member.tolist()), key=names.__getitem__)
    if joiners:
        held_by = group.owner
        if promised_to is not None:
            held_by = np.where(promised_to != UNASSIGNED, promised_to, held_by)
        _match_by_overlap(match, joiners, held_by)
        if not _is_void(target, match):
            _match_by_name(match, joiners, target, group)
    return match


def carry_out_target(
    plan: GroupPlan,
    group: IndexedGroup,
    load: Load,
    policy: PlacementPolicy,
    promised_to: IntArray | None = None,
    *,
    members_overdue: bool,
) -> CarriedPlan:
    """Place the partitions as the plan's target says; without a decision if that has to be made anew.

    Once absent members are overdue, no member keeps partitions for them above its headroom.
    Raises InvalidProblemError, as `decide_placement` does.
    """
    if plan.target is None:
        return CarriedPlan()
    match = match_consumers(plan.target, group, promised_to)
    if _is_void(plan.target, match):
        return CarriedPlan(f"plan {plan.epoch} names no consumer that is here: its placement is decided anew")
    indexed = build_problem(group, load, policy, weigh_racks=group.replica_racks is not None)
    number = np.full(len(group.members), UNASSIGNED, dtype=np.int32)
    number[indexed.eligible] = np.arange(len(indexed.eligible), dtype=np.int32)
    planned = _look_up(number, match.resolve_target()[indexed.item])
    surplus = ~np.isin(indexed.eligible, match.member)
    if surplus.any() and not _can_relieve(plan.heuristic, indexed):
        return CarriedPlan(_explain_surplus(plan, indexed, surplus))
    tasks = merge_tasks(indexed, policy.co_partitioned)
    smaller = _find_smaller(plan, policy, indexed)
    bins = tasks.expand(
        repair_placement(
            tasks.problem,
            tasks.merge_bins(planned),  # UNASSIGNED for a member that does not read the topic
            smaller,
            surplus,
            members_overdue=members_overdue,
        )
    )
    elsewhere = (match.consumer[indexed.item] != UNASSIGNED) & (bins != planned)
    causes = _explain_elsewhere(plan.target, match, indexed, elsewhere)
    note = f"plan {plan.epoch} carried out{causes}"
    return CarriedPlan(note, evaluate_placement(indexed, policy, bins), elsewhere)


def _is_void(target: PlanTarget, match: TargetMatch) -> bool:
    return not target.places and bool((match.member == UNASSIGNED).all())


def _can_relieve(heuristic: str, indexed: IndexedProblem) -> bool:
    """Return whether joiners beyond the target get something as soon as others have too much."""
    try:
        packs = get_heuristic(heuristic).packs_by_capacity
    except SettingError:  # of a later version: a target needs no heuristic
        packs = True
    return packs and bool(indexed.measured.any())


def _explain_surplus(plan: GroupPlan, indexed: IndexedProblem, surplus: BoolArray) -> str:
    members = indexed.members
    names = sorted(members[i].instance or members[i].id for i in np.flatnonzero(surplus).tolist())
    listed = format_name_list(names[:MAX_NAMES_IN_NOTE], len(names))
    return f"plan {plan.epoch} has no place for {listed}: its placement is decided anew"


def _look_up(values: IntArray, index: IntArray) -> IntArray:
    """Return the value at each index, UNASSIGNED at UNASSIGNED."""
    return np.append(values, np.int32(UNASSIGNED))[index]  # UNASSIGNED (-1) picks the last one


def _find_consumers(target: PlanTarget, index: PartitionIndex) -> IntArray:
    """Return the consumer of each partition (P,), from 0; UNASSIGNED where the target has none."""
    found = np.full(len(index), NOT_PLACED, dtype=np.int32)
    for i, topic in enumerate(index.topics):
        consumers = np.array(target.partitions.get(topic, ()), dtype=np.int32)
        items = slice(index.start[i], index.start[i + 1])
        number = index.number[items]
        known = number < len(consumers)
        found[items][known] = consumers[number[known]]
    return found - 1


def _match_by_overlap(match: TargetMatch, joiners: Sequence[int], held_by: IntArray) -> None:
    free = np.append(match.member == UNASSIGNED, np.False_)
    shared = free[match.consumer] & np.isin(held_by, joiners)
    rank = {joiner: i for i, joiner in enumerate(joiners)}
    pairs = Counter(zip(held_by[shared].tolist(), match.consumer[shared].tolist(), strict=True))
    size = np.bincount(match.consumer[match.consumer != UNASSIGNED], minlength=1).tolist()
    share = {pair: count / size[pair[1]] for pair, count in pairs.items() if 2 * count >= size[pair[1]]}
    left = set(joiners)
    for joiner, consumer in sorted(share, key=lambda pair: (-share[pair], rank[pair[0]], pair[1])):
        if joiner in left and match.member[consumer] == UNASSIGNED:
            match.member[consumer] = joiner
            left.remove(joiner)


def _match_by_name(
    match: TargetMatch, joiners: Sequence[int], target: PlanTarget, group: IndexedGroup
) -> None:
    free = np.flatnonzero(match.member == UNASSIGNED).tolist()
    free.sort(key=lambda consumer: consumer < len(target.consumers))  # places first
    topics = _list_topics(match, group.partition_index)
    standing = set(match.member.tolist())
    for joiner in joiners:
        reads = group.members[joiner].topics
        consumer = next((c for c in free if topics.get(c, frozenset()) <= reads), UNASSIGNED)
        if joiner not in standing and consumer != UNASSIGNED:
            match.member[consumer] = joiner
            free.remove(consumer)


def _list_topics(match: TargetMatch, index: PartitionIndex) -> dict[int, set[str]]:
    """Return the topics of each consumer that has a partition."""
    topics: dict[int, set[str]] = {}
    for consumer, topic in set(zip(match.consumer.tolist(), index.topic.tolist(), strict=True)):
        topics.setdefault(consumer, set()).add(index.topics[topic])
    return topics


def _find_smaller(plan: GroupPlan, policy: PlacementPolicy, indexed: IndexedProblem) -> BoolArray:
    """Return which of the problem's members (M,) have less capacity than the plan assumed."""
    assumed = [plan.capacities.get(m.instance, plan.capacity) for m in indexed.members]
    own = [member_capacity(m, policy) for m in indexed.members]
    return np.array(own, dtype=np.float64) < np.array(assumed, dtype=np.float64)


def _explain_elsewhere(
    target: PlanTarget, match: TargetMatch, indexed: IndexedProblem, elsewhere: BoolArray
) -> str:
    count = int(elsewhere.sum())
    if not count:
        return ""
    lacking = np.unique(match.consumer[indexed.item[elsewhere]]).tolist()
    causes = list(_list_causes(target, match, indexed.group, lacking))
    what = format_count(count, "partition")
    return f"; {what} elsewhere: {format_name_list(causes[:MAX_NAMES_IN_NOTE], len(causes))}"


def _list_causes(
    target: PlanTarget, match: TargetMatch, group: IndexedGroup, lacking: Sequence[int]
) -> Iterator[str]:
    """Yield why these consumers lack partitions; those that are absent, if any, hold up the others."""
    absent = [c for c in lacking if match.member[c] == UNASSIGNED]
    draining = {m.instance or m.id for m in group.members if m.draining}
    named = [target.consumers[c] for c in absent if c < len(target.consumers)]
    yield from (f"{name} {'drains' if name in draining else 'left'}" for name in named)
    waiting = len(absent) - len(named)
    if waiting:
        yield f"{waiting} consumer{'s have' if waiting > 1 else ' has'} yet to join"
    for consumer in () if absent else lacking:
        member = group.members[match.member[consumer]]
        topics = _list_topics(match, group.partition_index)[consumer] - member.topics
        why = f"does not subscribe to {min(topics)}" if topics else "would be above its headroom"
        yield f"{member.instance or member.id} {why}"
