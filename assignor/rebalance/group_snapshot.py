"""The members of a round in arrays, and the fingerprint of a decision's cause."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from trimtab.assignor.model import BoolArray, IntArray, Member, PlacementPolicy
from trimtab.assignor.model.partition_index import OwnedPartitions, PartitionIndex, index_owners
from trimtab.assignor.model.problem import subscription_matrix
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.cooperative import OwnershipClaims
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.common.control_topics.plan import GroupPlan

_INT32_LE: Final = np.dtype("<i4")


@dataclass(frozen=True, slots=True, eq=False)
class GroupSnapshot:
    """M members sorted by id, the P partitions of their topics, and their claims."""

    member_ids: tuple[str, ...]
    topics: tuple[frozenset[str], ...]
    user_data: tuple[MemberUserData, ...]
    claims: OwnershipClaims
    partition_index: PartitionIndex

    def resolve_members(self, plan: GroupPlan | None) -> tuple[Member, ...]:
        """Return the members for a decision under this plan."""
        learned = plan.capacities if plan else {}
        return tuple(
            Member(
                id=name,
                topics=topics,
                capacity=learned.get(data.instance) if data.capacity is None else data.capacity,
                instance=data.instance,
                draining=data.draining or (plan is not None and plan.drains(data.instance)),
                rack=data.rack,
            )
            for name, topics, data in zip(self.member_ids, self.topics, self.user_data, strict=True)
        )

    def repeats_decision(self, fingerprint: str) -> BoolArray:
        """Return which members repeat a decision of the last round, (M,)."""
        same = [data.decision_fingerprint == fingerprint for data in self.user_data]
        return np.array(same, dtype=bool) & self._was_in_last_round()

    def index_promised(self, fingerprint: str) -> IntArray:
        """Return the member that a decision has promised each partition to (P,), or UNASSIGNED."""
        return self._index_promises(self.repeats_decision(fingerprint))

    def index_last_promises(self) -> IntArray:
        """Return the same for the decision of the last round, whichever that was."""
        # A join tells its generation before the assignment, which may get lost: then what a member repeats
        # is an earlier decision's, and others have what that promised it. Earlier versions tell none (-1).
        generation = self._assignment_generations()
        is_last = (generation < 0) | (generation == self.claims.generation)
        return self._index_promises(self._was_in_last_round() & is_last)

    def _was_in_last_round(self) -> BoolArray:
        # a member that missed a round repeats what is no longer decided, nor its own
        generation = self.claims.generation
        return np.asarray(generation == generation.max(initial=-1))

    def _assignment_generations(self) -> IntArray:
        return np.array([data.generation for data in self.user_data], dtype=np.int32)

    def _index_promises(self, counts: BoolArray) -> IntArray:
        promised = [
            OwnedPartitions.from_grouped(data.promised if repeats else ())
            for data, repeats in zip(self.user_data, counts.tolist(), strict=True)
        ]
        member, partition = self.partition_index.locate_owned(promised)
        # One cause may be decided twice: a member that missed the second time repeats what is another's now.
        # Its other promises hold, as those of a member that missed the round which carries them out.
        newest_last = np.argsort(self._assignment_generations()[member], kind="stable")
        return index_owners(member[newest_last], partition[newest_last], len(self.partition_index))

    def index_subscriptions(self) -> BoolArray:
        """Return which member subscribes to which topic of the index, (T, M)."""
        return subscription_matrix(self.partition_index.topics, self.topics)


def snapshot_from_subscriptions(
    subscriptions: Mapping[str, MemberSubscription],
    user_data: Mapping[str, MemberUserData],
    partition_index: PartitionIndex,
) -> GroupSnapshot:
    """Build a snapshot; claims on partitions outside the index are ignored."""
    # A rack in the protocol (version 3) precedes the one in the user data of an eager client.
    ids = tuple(sorted(subscriptions))
    joined = [subscriptions[name] for name in ids]
    kinds: dict[tuple[str, ...], frozenset[str]] = {}
    member, partition = partition_index.locate_owned([s.owned for s in joined])
    return GroupSnapshot(
        member_ids=ids,
        topics=tuple(kinds.setdefault(s.topics, frozenset(s.topics)) for s in joined),  # one set a kind
        user_data=tuple(
            replace(user_data[name], rack=s.rack) if s.rack else user_data[name]
            for name, s in zip(ids, joined, strict=True)
        ),
        claims=OwnershipClaims(member, partition, np.array([s.generation for s in joined], dtype=np.int32)),
        partition_index=partition_index,
    )


def compute_decision_fingerprint(
    members: Sequence[Member],
    partition_index: PartitionIndex,
    plan: GroupPlan | None,
    policy: PlacementPolicy,
    *,
    members_overdue: bool = False,
) -> str:
    """Return the digest of a decision's cause (rule 1 of `leader`)."""
    staying = [m for m in members if not m.draining]  # so a drained member's leave changes nothing
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(m.topics for m in staying))}
    decided_by: list[object] = [0 if plan is None else plan.epoch]
    decided_by += [policy.heuristic, policy.capacity, policy.headroom]
    if plan is not None and plan.target is not None:
        decided_by.append(plan.target.revision)  # else as in versions without targets
        if members_overdue:
            decided_by.append("overdue")
    if policy.co_partitioned:
        decided_by.append(policy.co_partitioned)
    cause = [
        [sorted(kind) for kind in kinds],
        [[m.id, kinds[m.topics], m.capacity, m.rack] for m in staying],
        [partition_index.topics, partition_index.start.tolist()],
        decided_by,
    ]
    digest = hashlib.blake2b(json.dumps(cause).encode(), digest_size=8)
    # Leaders of a group may run on different machines: the byte order is fixed.
    digest.update(partition_index.number.astype(_INT32_LE).tobytes())
    return digest.hexdigest()
