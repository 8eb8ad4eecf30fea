"""Everybody who joined a round, in arrays: what the leader decides on, and the digest of its cause.

The digest (`compute_decision_fingerprint`) is made of compact bytes in a canonical order: members by id, each kind of
subscription once, partitions as they are numbered.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, Member, PlacementPolicy
from trimtab.assignor.partition_index import OwnedPartitions, PartitionIndex
from trimtab.assignor.problem import subscription_matrix
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.cooperative import OwnershipClaims
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.common.control_topics.plan import GroupPlan

_INT32_LE: Final = np.dtype("<i4")


@dataclass(frozen=True, slots=True, eq=False)
class GroupSnapshot:
    """M members sorted by id, the P partitions of what they subscribe to, and their claims."""

    member_ids: tuple[str, ...]
    topics: tuple[frozenset[str], ...]
    user_data: tuple[MemberUserData, ...]
    claims: OwnershipClaims
    partition_index: PartitionIndex

    def resolve_members(self, plan: GroupPlan | None) -> tuple[Member, ...]:
        """Return the members as a decision sees them.

        What a member says of its capacity counts before what the plan has learned of it.
        """
        draining = frozenset(plan.draining) if plan else frozenset[str]()
        learned = plan.capacities if plan else {}
        return tuple(
            Member(
                id=name,
                topics=topics,
                capacity=learned.get(data.instance) if data.capacity is None else data.capacity,
                instance=data.instance,
                draining=data.draining or data.instance in draining,
                rack=data.rack,
            )
            for name, topics, data in zip(self.member_ids, self.topics, self.user_data, strict=True)
        )

    def index_promised(self) -> IntArray:
        """Return which member each partition is promised to (P,), NOBODY where to none."""
        holdings = [OwnedPartitions.from_grouped(data.promised) for data in self.user_data]
        heir: IntArray = np.full(len(self.partition_index), UNASSIGNED, dtype=np.int32)
        member, partition = self.partition_index.locate_owned(holdings)
        heir[partition] = member
        return heir

    def index_subscriptions(self) -> BoolArray:
        """Return who subscribes to which topic of the universe, (T, M)."""
        return subscription_matrix(self.partition_index.topics, self.topics)


def snapshot_from_subscriptions(
    subscriptions: Mapping[str, MemberSubscription],
    user_data: Mapping[str, MemberUserData],
    partition_index: PartitionIndex,
) -> GroupSnapshot:
    """Put what each member sent into arrays; what it owns outside the universe is passed over."""
    ids = tuple(sorted(subscriptions))
    joined = [subscriptions[name] for name in ids]
    kinds: dict[tuple[str, ...], frozenset[str]] = {}
    member, partition = partition_index.locate_owned([s.owned for s in joined])
    return GroupSnapshot(
        member_ids=ids,
        topics=tuple(kinds.setdefault(s.topics, frozenset(s.topics)) for s in joined),
        user_data=tuple(
            replace(user_data[name], rack=s.rack) if s.rack else user_data[name]
            for name, s in zip(ids, joined, strict=True)
        ),
        claims=OwnershipClaims(
            member, partition, np.array([s.generation for s in joined], dtype=np.int32)
        ),
        partition_index=partition_index,
    )


def compute_decision_fingerprint(
    members: Sequence[Member],
    partition_index: PartitionIndex,
    plan: GroupPlan | None,
    policy: PlacementPolicy,
) -> str:
    """Return the digest of what a decision was made for."""
    staying = [m for m in members if not m.draining]
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(m.topics for m in staying))}
    said = [
        [sorted(kind) for kind in kinds],
        [[m.id, kinds[m.topics], m.capacity, m.rack] for m in staying],
        [partition_index.topics, partition_index.start.tolist()],
        [0 if plan is None else plan.epoch, policy.heuristic, policy.capacity, policy.headroom],
    ]
    digest = hashlib.blake2b(json.dumps(said).encode(), digest_size=8)
    digest.update(partition_index.number.astype(_INT32_LE).tobytes())
    return digest.hexdigest()
