"""One round of a rebalance as the leader sees it: claims and load in, shares and reasons out.

A decision is made once per cause. Its cause is the plan's epoch, the members that may hold
something (capacity, subscription) and the partitions there are; write speeds alone are no cause,
and neither is the end of a member that was drained. As long as the cause is
the same, a further round (the second of a cooperative move, a forced rejoin) only completes what
was decided, so nothing moves when nothing changed, whatever the heuristic.

All of it is arrays over the partitions of a `PartitionIndex`, from the claims (`group_snapshot`) to the
bytes of the assignments (`consumer_protocol`); names of partitions are made only for the few moves
that are logged, and by `assign_round_by_name` and `RebalanceRound.member_assignments`, which speak of names throughout.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.assignor.decisions import decide_placement
from trimtab.assignor.fill_levels import PlacementDecision
from trimtab.assignor.heuristics.registry import get_heuristic
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
from trimtab.assignor.rebalance.cooperative import (
    Ownership,
    resolve_ownership,
    withhold_moving_partitions,
)
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
    """A member as it joined: its subscription, what it reads, and what it says of itself."""

    id: str
    topics: frozenset[str]
    data: MemberUserData
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1


@dataclass(frozen=True, slots=True)
class LeaderView:
    """What the leader knows beside the group: the newest write speeds and the plan, if any.

    `load_replica_racks` says where partitions have their replicas; it is asked where racks are weighed.
    """

    load: Load
    plan: GroupPlan | None = None
    load_replica_racks: Callable[[PartitionIndex], ReplicaRacks] | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """One member's part of a round: what it reads now, what it is promised for the next."""

    assigned: frozenset[TopicPartition]
    promised: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, eq=False)
class RebalanceRound:
    """A leader's answer: each member's share, the decision it belongs to, the moves and notes."""

    snapshot: GroupSnapshot
    target: IntArray  # (P,) member of each partition, NOBODY for none
    assigned_now: BoolArray  # (P,) handed out in this round; the rest of the target is promised
    decision_fingerprint: str
    placement_decision: PlacementDecision | None = (
        None  # None where an earlier decision was completed
    )

    @property
    def is_new_decision(self) -> bool:
        """Whether this round decided; False where it completed an earlier decision."""
        return self.placement_decision is not None

    @property
    def moves(self) -> Sequence[Move]:
        """The changes of owner that were decided, each put into words when it is asked for."""
        return DecidedMoves(self.placement_decision) if self.placement_decision else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the decision as a whole."""
        return list_plan_notes(self.placement_decision) if self.placement_decision else ()

    @property
    def r_score(self) -> float:
        """What the decision costs: load that stops being read, over the capacity."""
        return self.placement_decision.r_score if self.placement_decision else 0.0

    @property
    def cross_rack_load(self) -> float | None:
        """Load that crosses racks by the decision, bytes/s; None where racks are not weighed."""
        return self.placement_decision.cross_rack_load if self.placement_decision else None

    @property
    def member_assignments(self) -> Mapping[str, MemberAssignment]:
        """Each member's share by name."""
        now, promised = (
            self._partitions_by_member(assigned_now=True),
            self._partitions_by_member(assigned_now=False),
        )
        return {
            name: MemberAssignment(frozenset(now[m]), frozenset(promised[m]))
            for m, name in enumerate(self.snapshot.member_ids)
        }

    def display_name(self, member: str | None) -> str:
        """Return a member's name as people know it."""
        if member is None:
            return "nobody"
        return self.snapshot.user_data[self.snapshot.member_ids.index(member)].instance or member

    def build_user_data(self, member: str) -> AssignmentUserData:
        """User data of one member's assignment."""
        shares = self.member_assignments
        more = any(share.promised for share in shares.values())
        return AssignmentUserData(
            self.decision_fingerprint, group_by_topic(shares[member].promised), more
        )

    def encode(self, *, eager: bool = False) -> dict[str, bytes]:
        """Return each member's ConsumerProtocolAssignment.

        With `eager` the whole target is handed out at once, since all have stopped.
        """
        promised = {} if eager else self._promised_by_member()
        more = bool(promised)
        plain = AssignmentUserData(self.decision_fingerprint, round_follows=more).encode()
        user_data = [
            AssignmentUserData(self.decision_fingerprint, promised[m], more).encode()
            if m in promised
            else plain
            for m in range(len(self.snapshot.member_ids))
        ]
        given = self.target if eager else np.where(self.assigned_now, self.target, UNASSIGNED)
        encoded = encode_assignments(self.snapshot.partition_index, given, user_data)
        return dict(zip(self.snapshot.member_ids, encoded, strict=True))

    def _partitions_by_member(self, *, assigned_now: bool) -> list[list[TopicPartition]]:
        held: list[list[TopicPartition]] = [[] for _ in self.snapshot.member_ids]
        universe = self.snapshot.partition_index
        for item in np.flatnonzero(
            (self.target != UNASSIGNED) & (self.assigned_now == assigned_now)
        ).tolist():
            held[self.target[item]].append(universe.partition_at(item))
        return held

    def _promised_by_member(self) -> dict[int, PartitionsByTopic]:
        """Return what is promised to each member that is promised anything."""
        held = self._partitions_by_member(assigned_now=False)
        return {m: group_by_topic(partitions) for m, partitions in enumerate(held) if partitions}


def assign_round_by_name(
    joined: Sequence[JoinedMember],
    partitions: Sequence[TopicPartition],
    view: LeaderView,
    default_policy: PlacementPolicy,
) -> RebalanceRound:
    """Lead a round of members and partitions given by name; else as `assign_round`."""
    subscriptions = {
        j.id: MemberSubscription(
            topics=tuple(sorted(j.topics)),
            owned=OwnedPartitions.from_grouped(group_by_topic(j.owned)),
            generation=j.generation,
        )
        for j in joined
    }
    roll = snapshot_from_subscriptions(
        subscriptions, {j.id: j.data for j in joined}, PartitionIndex.from_partitions(partitions)
    )
    return assign_round(roll, view, default_policy)


def assign_round(
    snapshot: GroupSnapshot, view: LeaderView, default_policy: PlacementPolicy
) -> RebalanceRound:
    """Decide, or complete the decision in force, and stage it (KIP-429).

    The roll's partitions are those of all subscribed topics; `default_policy` is the leader's policy, used
    where there is no plan. Raises InvalidProblemError, UnknownHeuristicError, BrokenHeuristicError.
    """
    members = snapshot.resolve_members(view.plan)
    policy = _select_policy(view.plan, default_policy)
    decision = compute_decision_fingerprint(members, snapshot.partition_index, view.plan, policy)
    settled = resolve_ownership(snapshot.claims, len(snapshot.partition_index))
    if all(data.decision_fingerprint == decision for data in snapshot.user_data):
        target = _complete_decision(snapshot, settled)
        if target is not None:
            return RebalanceRound(
                snapshot, target, withhold_moving_partitions(target, settled), decision
            )
    there = IndexedGroup(members, snapshot.partition_index, settled.owner)
    if view.load_replica_racks is not None and get_heuristic(policy.heuristic).weighs_racks:
        there = replace(there, replica_racks=view.load_replica_racks(snapshot.partition_index))
    decided = decide_placement(there, view.load, policy)
    target = np.full(len(snapshot.partition_index), UNASSIGNED, dtype=np.int32)
    target[decided.indexed.item] = decided.target
    return RebalanceRound(
        snapshot, target, withhold_moving_partitions(target, settled), decision, decided
    )


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
    """Return the target of the decision in force, or None where it is not wholly known."""
    heir = snapshot.index_promised()
    target = np.where(heir != UNASSIGNED, heir, ownership.owner)
    if (target == UNASSIGNED).any() or not snapshot.index_subscriptions()[
        snapshot.partition_index.topic, target
    ].all():
        return None
    return target
