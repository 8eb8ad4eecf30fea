"""The placement that a pilot asks the broker for: a plan's target on the members that are there. Pure.

1. The placement is the one that the leader of a classic group would assign (`assign_round`). What the
   broker wants the members to own counts as owned: it is on its way.
2. A decision lasts until its cause changes: the plan, the members, their topics, the partitions.
3. A partition whose planned consumer is absent stays where it is, in the slot of that consumer: the next
   member that joins takes the slot at once, before its pilot has seen it.
4. A named consumer that is gone counts as overdue at once, a place after `MEMBER_WAIT_TIMEOUT_S`: until
   it is back, no member keeps its partitions above the headroom.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.assignor.model import UNASSIGNED, IntArray, PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import OwnedPartitions, PartitionIndex
from trimtab.assignor.model.problem import IndexedGroup
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.cooperative import resolve_ownership
from trimtab.assignor.rebalance.group_snapshot import (
    GroupSnapshot,
    compute_decision_fingerprint,
    snapshot_from_subscriptions,
)
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound, assign_round
from trimtab.assignor.rebalance.plan_target import TargetMatch, match_consumers
from trimtab.assignor.rebalance.user_data import MemberUserData, group_by_topic
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.model.observation import ObservedGroup, ObservedMember

GENERATION: Final = 1  # of every member: the broker fences, so no claim is outdated


@dataclass(frozen=True, slots=True)
class CarriedTarget:
    """Target of member ids and free slots, the owners it leads to, and the cause of the decision."""

    cause: str
    members: frozenset[str]
    target: PlanTarget  # its consumers are member ids
    expected: Mapping[TopicPartition, str]  # member id by partition, until another member joins
    note: str = ""  # what could not be carried out

    def list_differences(self, group: ObservedGroup) -> list[TopicPartition]:
        """Return the partitions that the broker gives to another member, sorted."""
        given = {p: m.id for m in group.members for p in m.target_partitions or ()}
        return sorted(p for p, member in self.expected.items() if given.get(p) != member)


def build_carried_target(
    group: ObservedGroup,
    partitions: Mapping[str, Sequence[int]],
    view: LeaderView,
    policy: PlacementPolicy,
    last: CarriedTarget | None = None,
) -> CarriedTarget:
    """Return the target for a group; the last one if nothing has changed since (rule 2).

    `partitions` has the numbers of each topic; `policy` applies without a plan.
    """
    snapshot = _build_snapshot(group, partitions)
    cause = _describe_cause(snapshot, view, policy)
    members = frozenset(snapshot.member_ids)
    if last is not None and cause == last.cause and members <= last.members:
        return last
    done = assign_round(snapshot, view, policy)
    target, expected = _reserve_slots(done, view.plan)
    return CarriedTarget(cause, members, target, expected, done.fault or done.note)


def has_lost_consumer(plan: GroupPlan, group: ObservedGroup) -> bool:
    """Return whether a consumer that the plan names is not in the group (rule 4)."""
    names = {member.instance for member in group.members}
    return plan.target is not None and not names.issuperset(plan.target.consumers)


def _build_snapshot(group: ObservedGroup, partitions: Mapping[str, Sequence[int]]) -> GroupSnapshot:
    index = PartitionIndex.from_numbers({t: np.array(n, dtype=np.int32) for t, n in partitions.items()})
    subscriptions = {m.id: _describe_subscription(m, index.topics) for m in group.members}
    user_data = {m.id: MemberUserData(m.capacity, m.instance) for m in group.members}
    return snapshot_from_subscriptions(subscriptions, user_data, index)


def _describe_subscription(member: ObservedMember, all_topics: tuple[str, ...]) -> MemberSubscription:
    # the topics of a pattern are unknown: the plugin ignores what the member does not read
    topics = all_topics if member.topics is None else tuple(sorted(member.topics))
    owned = OwnedPartitions.from_grouped(group_by_topic(sorted(member.target_partitions or ())))
    return MemberSubscription(topics, owned=owned, generation=GENERATION, rack=member.rack)


def _describe_cause(snapshot: GroupSnapshot, view: LeaderView, policy: PlacementPolicy) -> str:
    members = snapshot.resolve_members(view.plan)
    index, overdue = snapshot.partition_index, view.members_overdue
    return compute_decision_fingerprint(members, index, view.plan, policy, members_overdue=overdue)


def _reserve_slots(
    done: RebalanceRound, plan: GroupPlan | None
) -> tuple[PlanTarget, dict[TopicPartition, str]]:
    """Return the round's placement as a target, and the owners that it leads to (rule 3)."""
    ids, index = done.snapshot.member_ids, done.snapshot.partition_index
    owner = resolve_ownership(done.snapshot.claims, len(index)).owner
    slot = done.target.copy()
    match = _match_target(done.snapshot, plan, owner)
    if match is not None:
        absent = (match.consumer != UNASSIGNED) & (match.resolve_target() == UNASSIGNED)
        reserved = absent & (owner != UNASSIGNED) & (done.target == owner)
        slot[reserved] = len(ids) + match.consumer[reserved]
    return _build_target(ids, index, slot), _name_owners(ids, index, done.target)


def _match_target(snapshot: GroupSnapshot, plan: GroupPlan | None, owner: IntArray) -> TargetMatch | None:
    if plan is None or plan.target is None:
        return None
    group = IndexedGroup(snapshot.resolve_members(plan), snapshot.partition_index, owner)
    return match_consumers(plan.target, group)


def _build_target(ids: tuple[str, ...], index: PartitionIndex, slot: IntArray) -> PlanTarget:
    """Return the target of members and, above their number, of absent consumers, places first."""
    free = sorted(set(slot[slot >= len(ids)].tolist()), reverse=True)
    names = dict(enumerate(ids)) | {consumer: f"+{n + 1}" for n, consumer in enumerate(free)}
    assignment: dict[str, list[tuple[str, int]]] = {}
    for partition, number in _list_items(index, slot):
        assignment.setdefault(names[number], []).append(partition)
    return PlanTarget.from_assignment(0, ids, len(free), assignment)


def _name_owners(ids: tuple[str, ...], index: PartitionIndex, target: IntArray) -> dict[TopicPartition, str]:
    return {partition: ids[number] for partition, number in _list_items(index, target)}


def _list_items(index: PartitionIndex, numbers: IntArray) -> Iterator[tuple[TopicPartition, int]]:
    items: Iterable[tuple[TopicPartition, int]] = zip(index.list_partitions(), numbers.tolist(), strict=True)
    return ((partition, number) for partition, number in items if number != UNASSIGNED)
