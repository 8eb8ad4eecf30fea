"""A leader's rebalance round with members and partitions by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import UNASSIGNED, PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import OwnedPartitions, PartitionIndex
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.group_snapshot import snapshot_from_subscriptions
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound, assign_round
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData, group_by_topic


@dataclass(frozen=True)
class JoinedMember:
    """A joined member: its subscription, owned partitions and user data."""

    id: str
    topics: frozenset[str]
    data: MemberUserData
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1


@dataclass(frozen=True)
class MemberAssignment:
    """Partitions a member gets in this round, and those promised to it for the next."""

    assigned: frozenset[TopicPartition]
    promised: frozenset[TopicPartition]


def assign_by_name(
    joined: Sequence[JoinedMember],
    partitions: Sequence[TopicPartition],
    view: LeaderView,
    default_policy: PlacementPolicy,
) -> RebalanceRound:
    subscriptions = {
        j.id: MemberSubscription(
            topics=tuple(sorted(j.topics)),
            owned=OwnedPartitions.from_grouped(group_by_topic(j.owned)),
            generation=j.generation,
        )
        for j in joined
    }
    data = {j.id: j.data for j in joined}
    index = PartitionIndex.from_partitions(partitions)
    return assign_round(snapshot_from_subscriptions(subscriptions, data, index), view, default_policy)


def assignments(outcome: RebalanceRound) -> Mapping[str, MemberAssignment]:
    """Assigned and promised partitions of each member id."""
    index, names = outcome.snapshot.partition_index, outcome.snapshot.member_ids

    def held(member: int, *, now: bool) -> frozenset[TopicPartition]:
        items = (outcome.target == member) & (outcome.assigned_now == now)
        return frozenset(map(index.partition_at, np.flatnonzero(items).tolist()))

    return {name: MemberAssignment(held(m, now=True), held(m, now=False)) for m, name in enumerate(names)}


def sent_user_data(outcome: RebalanceRound, member: str) -> AssignmentUserData:
    """The user data of one member's assignment."""
    promised = group_by_topic(assignments(outcome)[member].promised)
    more = bool(((outcome.target != UNASSIGNED) & ~outcome.assigned_now).any())
    return AssignmentUserData(outcome.decision_fingerprint, promised, more)
