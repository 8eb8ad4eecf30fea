"""One rebalance round of the leader: claims and load in, assignments and reasons out.

1. The cause of a decision is the plan's epoch, the eligible members (capacity, subscription), the
   partitions and the policy. Changed write rates are no cause; neither is the leave of a drained
   member.
2. One cause has one decision. Further rounds with the same cause, such as the second round of a
   cooperative move or a forced rejoin, complete the decision and move nothing else.

All steps work on arrays over the partitions of a `PartitionIndex`, from the claims
(`group_snapshot`) to the encoded assignments (`consumer_protocol`). Only logged moves,
`assign_round_by_name` and `RebalanceRound.member_assignments` use partition names.
"""

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
from trimtab.assignor.move_reasons import DecidedMoves, list_plan_notes
from trimtab.assignor.partition_index import OwnedPartitions, PartitionIndex
from trimtab.assignor.problem import IndexedGroup
from trimtab.assignor.racks.replica_racks import ReplicaRacks
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription, encode_assignments
from trimtab.assignor.rebalance.cooperative import Ownership, resolve_ownership, withhold_moving_partitions
from trimtab.assignor.rebalance.group_snapshot import (
    GroupSnapshot,
    compute_decision_fingerprint,
    snapshot_from_subscriptions,
)
from trimtab.assignor.rebalance.user_data import (
    AssignmentUserData,
    MemberUserData,
    PartitionsByTopic,
    group_by_topic,
)
from trimtab.common.control_topics.plan import GroupPlan


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A joined member: its subscription, owned partitions and user data."""

    id: str
    topics: frozenset[str]
    data: MemberUserData
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The leader's newest load and plan; `load_replica_racks` is called if racks are weighed."""

    load: Load
    plan: GroupPlan | None = None
    load_replica_racks: Callable[[PartitionIndex], ReplicaRacks] | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """Partitions a member gets in this round, and those promised to it for the next."""

    assigned: frozenset[TopicPartition]
    promised: frozenset[TopicPartition]


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

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the decision as a whole."""
        return list_plan_notes(self.placement_decision) if self.placement_decision else ()

    @property
    def r_score(self) -> float:
        """R-score of the decision: moved load ÷ capacity."""
        return self.placement_decision.r_score if self.placement_decision else 0.0

    @property
    def cross_rack_load(self) -> float | None:
        """Cross-rack load of the decision in bytes/s; None if racks are not weighed."""
        return self.placement_decision.cross_rack_load if self.placement_decision else None

    @property
    def member_assignments(self) -> Mapping[str, MemberAssignment]:
        """Assigned and promised partitions of each member id."""
        now, promised = (
            self._partitions_by_member(assigned_now=True),
            self._partitions_by_member(assigned_now=False),
        )
        return {
            name: MemberAssignment(frozenset(now[m]), frozenset(promised[m]))
            for m, name in enumerate(self.snapshot.member_ids)
        }

    def display_name(self, member: str | None) -> str:
        """Return a member's instance name, its id without one, "unassigned" for None."""
        if member is None:
            return "unassigned"
        return self.snapshot.user_data[self.snapshot.member_ids.index(member)].instance or member

    def build_user_data(self, member: str) -> AssignmentUserData:
        """Return the user data of one member's assignment."""
        assignments = self.member_assignments
        round_follows = any(a.promised for a in assignments.values())
        promised = group_by_topic(assignments[member].promised)
        return AssignmentUserData(self.decision_fingerprint, promised, round_follows)

    def encode(self, *, eager: bool = False) -> dict[str, bytes]:
        """Return each member's ConsumerProtocolAssignment.

        With `eager` the whole target is assigned at once, since all members have stopped reading.
        """
        promised = {} if eager else self._promised_by_member()
        more = bool(promised)
        # Most members are promised nothing: encode their user data once.
        plain = AssignmentUserData(self.decision_fingerprint, round_follows=more).encode()
        user_data = [
            AssignmentUserData(self.decision_fingerprint, promised[m], more).encode()
            if m in promised
            else plain
            for m in range(len(self.snapshot.member_ids))
        ]
        assigned = self.target if eager else np.where(self.assigned_now, self.target, UNASSIGNED)
        encoded = encode_assignments(self.snapshot.partition_index, assigned, user_data)
        return dict(zip(self.snapshot.member_ids, encoded, strict=True))

    def _partitions_by_member(self, *, assigned_now: bool) -> list[list[TopicPartition]]:
        held: list[list[TopicPartition]] = [[] for _ in self.snapshot.member_ids]
        partition_index = self.snapshot.partition_index
        for item in np.flatnonzero(
            (self.target != UNASSIGNED) & (self.assigned_now == assigned_now)
        ).tolist():
            held[self.target[item]].append(partition_index.partition_at(item))
        return held

    def _promised_by_member(self) -> dict[int, PartitionsByTopic]:
        """Return the promised partitions of each member that has any."""
        held = self._partitions_by_member(assigned_now=False)
        return {m: group_by_topic(partitions) for m, partitions in enumerate(held) if partitions}


def assign_round_by_name(
    joined: Sequence[JoinedMember],
    partitions: Sequence[TopicPartition],
    view: LeaderView,
    default_policy: PlacementPolicy,
) -> RebalanceRound:
    """Lead a round as `assign_round` does, with members and partitions by name."""
    subscriptions = {
        j.id: MemberSubscription(
            topics=tuple(sorted(j.topics)),
            owned=OwnedPartitions.from_grouped(group_by_topic(j.owned)),
            generation=j.generation,
        )
        for j in joined
    }
    snapshot = snapshot_from_subscriptions(
        subscriptions, {j.id: j.data for j in joined}, PartitionIndex.from_partitions(partitions)
    )
    return assign_round(snapshot, view, default_policy)


def assign_round(
    snapshot: GroupSnapshot, view: LeaderView, default_policy: PlacementPolicy
) -> RebalanceRound:
    """Decide, or complete the decision in force, and withhold moving partitions (KIP-429).

    The snapshot has the partitions of all subscribed topics. `default_policy` applies without a
    plan. Raises InvalidProblemError, UnknownHeuristicError, BrokenHeuristicError.
    """
    members = snapshot.resolve_members(view.plan)
    policy = _select_policy(view.plan, default_policy)
    decision = compute_decision_fingerprint(members, snapshot.partition_index, view.plan, policy)
    ownership = resolve_ownership(snapshot.claims, len(snapshot.partition_index))
    if all(data.decision_fingerprint == decision for data in snapshot.user_data):
        target = _complete_decision(snapshot, ownership)
        if target is not None:
            return RebalanceRound(snapshot, target, withhold_moving_partitions(target, ownership), decision)
    group = IndexedGroup(members, snapshot.partition_index, ownership.owner)
    decided = decide_placement(group, view.load, policy, view.load_replica_racks)
    target = np.full(len(snapshot.partition_index), UNASSIGNED, dtype=np.int32)
    target[decided.indexed.item] = decided.target
    return RebalanceRound(snapshot, target, withhold_moving_partitions(target, ownership), decision, decided)


def _select_policy(plan: GroupPlan | None, default_policy: PlacementPolicy) -> PlacementPolicy:
    if plan is None:
        return default_policy
    return replace(
        default_policy,
        heuristic=plan.heuristic,
        capacity=plan.capacity,
        headroom=plan.headroom,
        consolidate=True,
    )


def _complete_decision(snapshot: GroupSnapshot, ownership: Ownership) -> IntArray | None:
    """Return the target of the decision in force, or None if some of it is unknown."""
    promised_to = snapshot.index_promised()
    target = np.where(promised_to != UNASSIGNED, promised_to, ownership.owner)
    if (target == UNASSIGNED).any() or not snapshot.index_subscriptions()[
        snapshot.partition_index.topic, target
    ].all():
        return None
    return target
