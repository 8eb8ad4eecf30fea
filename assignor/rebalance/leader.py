"""One rebalance round of the leader: claims and load in, assignments and reasons out.

1. The cause of a decision is the plan's epoch, the eligible members (capacity, subscription), the
   partitions and the policy. Changed write rates are no cause; neither is the leave of a drained
   member.
2. One cause has one decision. Further rounds with the same cause, such as the second round of a
   cooperative move or a forced rejoin, complete the decision and move nothing else.

From the claims to the encoded assignments all steps work on arrays: only logged moves have names.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.assignor.decisions import decide_placement
from trimtab.assignor.fill_levels import PlacementDecision
from trimtab.assignor.model import (
    UNASSIGNED,
    BoolArray,
    IntArray,
    Load,
    Move,
    PlacementPolicy,
    TopicPartition,
)
from trimtab.assignor.move_reasons import DecidedMoves
from trimtab.assignor.partition_index import PartitionIndex
from trimtab.assignor.problem import IndexedGroup
from trimtab.assignor.racks.replica_racks import ReplicaRacks
from trimtab.assignor.rebalance.consumer_protocol import encode_assignments
from trimtab.assignor.rebalance.cooperative import Ownership, resolve_ownership, withhold_moving_partitions
from trimtab.assignor.rebalance.group_snapshot import GroupSnapshot, compute_decision_fingerprint
from trimtab.assignor.rebalance.user_data import AssignmentUserData, group_by_topic
from trimtab.common.control_topics.plan import GroupPlan


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The leader's newest load and plan."""

    load: Load
    plan: GroupPlan | None = None
    # Called only if the heuristic weighs racks.
    load_replica_racks: Callable[[PartitionIndex], ReplicaRacks] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RebalanceRound:
    """Result of one round: the target, its assigned part, and the decision behind it."""

    snapshot: GroupSnapshot
    target: IntArray  # (P,) member of each partition, or UNASSIGNED
    assigned_now: BoolArray  # (P,) assigned in this round; the rest of the target is promised
    decision_fingerprint: str
    placement_decision: PlacementDecision | None = None  # None: completes an earlier decision

    @property
    def is_new_decision(self) -> bool:
        """Whether this round decided; False if it completed an earlier decision."""
        return self.placement_decision is not None

    @property
    def moves(self) -> Sequence[Move]:
        """The decided changes of owner, described on access."""
        return DecidedMoves(self.placement_decision) if self.placement_decision else ()

    def display_name(self, member: str | None) -> str:
        """Return a member's instance name, its id without one, "unassigned" for None."""
        if member is None:
            return "unassigned"
        return self.snapshot.user_data[self.snapshot.member_ids.index(member)].instance or member

    def encode(self, *, eager: bool = False) -> dict[str, bytes]:
        """Return each member's ConsumerProtocolAssignment.

        With `eager` the whole target is assigned at once, since all members have stopped reading.
        """
        promised = {} if eager else self._promised_by_member()
        # Most members are promised nothing: encode their user data once.
        plain = AssignmentUserData(self.decision_fingerprint, round_follows=bool(promised))
        user_data = [plain.encode()] * len(self.snapshot.member_ids)
        for member, partitions in promised.items():
            user_data[member] = replace(plain, promised=group_by_topic(partitions)).encode()
        assigned = self.target if eager else np.where(self.assigned_now, self.target, UNASSIGNED)
        encoded = encode_assignments(self.snapshot.partition_index, assigned, user_data)
        return dict(zip(self.snapshot.member_ids, encoded, strict=True))

    def _promised_by_member(self) -> Mapping[int, list[TopicPartition]]:
        promised: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for item in np.flatnonzero((self.target != UNASSIGNED) & ~self.assigned_now).tolist():
            promised[int(self.target[item])].append(self.snapshot.partition_index.partition_at(item))
        return promised


def assign_round(
    snapshot: GroupSnapshot, view: LeaderView, default_policy: PlacementPolicy
) -> RebalanceRound:
    """Decide, or complete the decision in force, and withhold moving partitions (KIP-429).

    `default_policy` applies without a plan. Raises InvalidProblemError, UnknownHeuristicError,
    BrokenHeuristicError.
    """
    members = snapshot.resolve_members(view.plan)
    plan = view.plan
    policy = default_policy
    if plan is not None:
        policy = PlacementPolicy(plan.heuristic, plan.capacity, plan.headroom, consolidate=True)
    decision = compute_decision_fingerprint(members, snapshot.partition_index, view.plan, policy)
    ownership = resolve_ownership(snapshot.claims, len(snapshot.partition_index))
    # A leader keeps no memory, since another member may lead the next round: members repeat the digest.
    if all(data.decision_fingerprint == decision for data in snapshot.user_data):
        target = _complete_decision(snapshot, ownership)
        if target is not None:
            return RebalanceRound(snapshot, target, withhold_moving_partitions(target, ownership), decision)
    group = IndexedGroup(members, snapshot.partition_index, ownership.owner)
    decided = decide_placement(group, view.load, policy, view.load_replica_racks)
    target = np.full(len(snapshot.partition_index), UNASSIGNED, dtype=np.int32)
    target[decided.indexed.item] = decided.target
    return RebalanceRound(snapshot, target, withhold_moving_partitions(target, ownership), decision, decided)


def _complete_decision(snapshot: GroupSnapshot, ownership: Ownership) -> IntArray | None:
    promised_to = snapshot.index_promised()
    target = np.where(promised_to != UNASSIGNED, promised_to, ownership.owner)
    if (target == UNASSIGNED).any():
        return None  # a member that was promised something has lost its user data: decide again
    reads = snapshot.index_subscriptions()[snapshot.partition_index.topic, target]
    return target if reads.all() else None
