"""One rebalance round of the leader: claims and load in, assignments and reasons out.

1. The cause of a decision is the plan's epoch and the revision of its target, whether its absent members
   are overdue, the eligible members (capacity, subscription), the partitions and the policy. Changed
   write rates are no cause; neither is the leave of a drained member.
2. One cause has one decision. Further rounds with the same cause, such as the second round of a
   cooperative move or a forced rejoin, complete the decision and move nothing else. A member that
   repeats no decision, or another one, does not prevent that. A member that has missed a round repeats
   what the others may have decided otherwise since: it does not count.
3. A plan with a target is carried out, not decided again (`plan_target`); again in each round, until all
   members repeat that. Without a target, and without a plan, the leader decides.
4. A round never fails: an error would end the leader, then its successor, and so the group. If the
   target cannot be carried out the plan's heuristic decides, then the leader's own; if that fails the
   owners keep their partitions and the others are spread by count. Each round tries the plan again.

From the claims to the encoded assignments all steps work on arrays: only logged moves have names.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

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
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.model.problem import IndexedGroup
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.modes.decisions import decide_placement
from trimtab.assignor.modes.move_reasons import DecidedMoves
from trimtab.assignor.rebalance.consumer_protocol import encode_assignments
from trimtab.assignor.rebalance.cooperative import Ownership, resolve_ownership, withhold_moving_partitions
from trimtab.assignor.rebalance.group_snapshot import GroupSnapshot, compute_decision_fingerprint
from trimtab.assignor.rebalance.plan_target import CarriedPlan, carry_out_target
from trimtab.assignor.rebalance.user_data import AssignmentUserData, group_by_topic
from trimtab.assignor.scores.fill_levels import PlacementDecision
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.errors import SettingError

MAX_FAULT_CHARACTERS: Final = 300  # of each text in every member's user data
MIN_FAULT_CHARACTERS: Final = 40  # enough for the beginning; the leader's log has it all
MAX_GROUP_FAULT_CHARACTERS: Final = 50_000  # of all members: the broker stores them in one record


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The leader's newest load and plan."""

    load: Load
    plan: GroupPlan | None = None
    # Called only if the heuristic weighs racks.
    load_replica_racks: Callable[[PartitionIndex], ReplicaRacks] | None = None
    # Called only if the heuristic places by lag and `load` lacks one.
    load_lags: Callable[[PartitionIndex], Mapping[TopicPartition, float | None]] | None = None
    members_overdue: bool = False  # the plan's absent members are waited for no longer


@dataclass(frozen=True, slots=True, eq=False)
class RebalanceRound:
    """Result of one round: the target, its assigned part, and the decision behind it."""

    snapshot: GroupSnapshot
    target: IntArray  # (P,) member of each partition, or UNASSIGNED
    assigned_now: BoolArray  # (P,) assigned in this round; the rest of the target is promised
    decision_fingerprint: str
    # None: completes an earlier decision, or keeps the owners
    placement_decision: PlacementDecision | None = None
    fault: str = ""  # why the plan, or the leader's own heuristic, could not decide
    note: str = ""  # how far a plan's target was carried out
    off_plan: int = 0  # partitions that are not on the target's consumer
    co_partitioned: bool = False  # partitions of one number change their consumer together

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

        With `eager` the whole target is assigned at once, since all members have stopped reading. So is that
        of an only round, whose members begin what is promised when it has been released.
        """
        promised = {} if eager else self._promised_by_member()
        only = self.is_only_round
        # Most members are promised nothing: encode their user data once.
        members = len(self.snapshot.member_ids)
        fault = self.fault[: max(MIN_FAULT_CHARACTERS, MAX_GROUP_FAULT_CHARACTERS // max(1, members))]
        plain = AssignmentUserData(
            self.decision_fingerprint, (), bool(promised), fault, is_only_round=only and not eager
        )
        user_data = [plain.encode()] * members
        single_claimant = self._find_single_claims()
        for member, items in promised.items():
            partitions = group_by_topic(map(self.snapshot.partition_index.partition_at, items))
            single = bool(single_claimant[items].all())
            user_data[member] = replace(plain, promised=partitions, starts_at_release=single).encode()
        whole = eager or only
        assigned = self.target if whole else np.where(self.assigned_now, self.target, UNASSIGNED)
        encoded = encode_assignments(self.snapshot.partition_index, assigned, user_data)
        return dict(zip(self.snapshot.member_ids, encoded, strict=True))

    @property
    def is_only_round(self) -> bool:
        """Whether confirmed releases make the second round unnecessary (rules of `release_watch`)."""
        moving = (self.target != UNASSIGNED) & ~self.assigned_now
        claims = self.snapshot.claims
        if self.co_partitioned or not self.decision_fingerprint or not moving.any():
            return False
        if np.bincount(claims.partition).max() > 1:
            return False
        givers = np.unique(claims.member[moving[claims.partition]])
        # One that is left with nothing may be stopped, or leaves, as soon as the group shows it so.
        if not np.isin(givers, self.target).all():
            return False
        involved = {*givers.tolist(), *self.target[moving].tolist()}
        return all(self.snapshot.user_data[member].confirms_releases for member in involved)

    def _promised_by_member(self) -> Mapping[int, list[int]]:
        promised: defaultdict[int, list[int]] = defaultdict(list)
        for item in np.flatnonzero((self.target != UNASSIGNED) & ~self.assigned_now).tolist():
            promised[int(self.target[item])].append(item)
        return promised

    def _find_single_claims(self) -> BoolArray:
        # The release of one of several claimants does not tell that the others have stopped.
        claimants = np.bincount(self.snapshot.claims.partition, minlength=len(self.target))
        return np.asarray((claimants == 1) & (not self.co_partitioned), dtype=np.bool_)


def assign_round(
    snapshot: GroupSnapshot, view: LeaderView, default_policy: PlacementPolicy
) -> RebalanceRound:
    """Decide, or complete the decision in force, and withhold moving partitions (KIP-429).

    `default_policy` applies without a plan. Raises nothing (rule 4).
    """
    ownership = resolve_ownership(snapshot.claims, len(snapshot.partition_index))
    faults: list[str] = []
    for attempt in _list_attempts(view.plan, default_policy):
        try:
            outcome = _assign_by_policy(snapshot, ownership, view, attempt)
        except Exception as error:  # noqa: BLE001 - a heuristic, or a value in the plan, may raise anything
            faults.append(f"{attempt.name}: {error}")
        else:
            return replace(outcome, fault=_describe_faults(faults, attempt.name))
    target = keep_owners(snapshot, ownership)
    now = withhold_moving_partitions(target, ownership)
    return RebalanceRound(snapshot, target, now, "", fault=_describe_faults(faults, "keeping owners"))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A way to decide a round."""

    name: str
    plan: GroupPlan | None
    policy: PlacementPolicy


def _list_attempts(plan: GroupPlan | None, default_policy: PlacementPolicy) -> Iterator[_Attempt]:
    own = default_policy.heuristic
    if plan is not None:
        policy = PlacementPolicy(
            plan.heuristic, plan.capacity, plan.headroom, consolidate=True, co_partitioned=plan.co_partitioned
        )
        yield _Attempt(f"plan {plan.epoch}", plan, policy)
        if plan.target is not None:
            plan = replace(plan, target=None)
            yield _Attempt(f"plan {plan.epoch} without its target", plan, policy)
        if plan.heuristic != own:
            yield _Attempt(f"plan {plan.epoch} with {own}", plan, replace(policy, heuristic=own))
    yield _Attempt(f"{own} without a plan", None, default_policy)


def _describe_faults(faults: Sequence[str], instead: str) -> str:
    """Return what failed and what decided instead; empty if nothing failed."""
    if not faults:
        return ""
    shown = "; ".join(fault[:MAX_FAULT_CHARACTERS] for fault in faults)
    text = f"{shown}; decided instead by {instead}"
    return text.encode(errors="replace").decode()  # a plan may hold "\ud800", which no member reads


def _assign_by_policy(
    snapshot: GroupSnapshot, ownership: Ownership, view: LeaderView, attempt: _Attempt
) -> RebalanceRound:
    members = snapshot.resolve_members(attempt.plan)
    index, policy = snapshot.partition_index, attempt.policy
    overdue = view.members_overdue
    decision = compute_decision_fingerprint(members, index, attempt.plan, policy, members_overdue=overdue)
    # A member that the last assignment did not reach has lost its promises, which their claimants may still
    # hold; it may be of the newest generation, which the answer to its JoinGroup told. The target of a plan
    # gives it the same again; without one, what others were promised would be placed again.
    has_target = attempt.plan is not None and attempt.plan.target is not None
    anew = has_target and not snapshot.repeats_decision(decision).all()
    target = None if anew else _complete_decision(snapshot, ownership, decision)
    tasks = bool(policy.co_partitioned)
    if target is not None:
        now = withhold_moving_partitions(target, ownership)
        return RebalanceRound(snapshot, target, now, decision, co_partitioned=tasks)
    group = IndexedGroup(members, index, ownership.owner)
    carried = _carry_out(snapshot, group, view, attempt)
    decided = carried.decision or decide_placement(
        group, view.load, policy, view.load_replica_racks, load_lags=view.load_lags
    )
    target = np.full(len(index), UNASSIGNED, dtype=np.int32)
    target[decided.indexed.item] = decided.target
    now = withhold_moving_partitions(target, ownership)
    off_plan = int(carried.elsewhere.sum())
    outcome = RebalanceRound(snapshot, target, now, decision, decided, co_partitioned=tasks)
    return replace(outcome, note=carried.note, off_plan=off_plan)


def _carry_out(
    snapshot: GroupSnapshot, group: IndexedGroup, view: LeaderView, attempt: _Attempt
) -> CarriedPlan:
    if attempt.plan is None or attempt.plan.target is None:
        return CarriedPlan()
    if view.load_replica_racks is not None and _weighs_racks(attempt.policy.heuristic):
        group = replace(group, replica_racks=view.load_replica_racks(group.partition_index))
    return carry_out_target(
        attempt.plan,
        group,
        view.load,
        attempt.policy,
        snapshot.index_last_promises(),
        members_overdue=view.members_overdue,
    )


def _weighs_racks(heuristic: str) -> bool:
    try:
        return get_heuristic(heuristic).weighs_racks
    except SettingError:  # of a later version: a target needs no heuristic
        return False


def _complete_decision(snapshot: GroupSnapshot, ownership: Ownership, decision: str) -> IntArray | None:
    # A leader keeps no memory, since another member may lead the next round: members repeat the digest.
    if not snapshot.repeats_decision(decision).any():
        return None
    promised_to = snapshot.index_promised(decision)
    target = np.where(promised_to != UNASSIGNED, promised_to, ownership.owner)
    if (target == UNASSIGNED).any():
        return None  # a member that was promised something has lost its user data: decide again
    reads = snapshot.index_subscriptions()[snapshot.partition_index.topic, target]
    return target if reads.all() else None


def keep_owners(snapshot: GroupSnapshot, ownership: Ownership) -> IntArray:
    """Return each partition's owner (P,) if it subscribes, else the subscriber with the fewest."""
    topic, reads = snapshot.partition_index.topic, snapshot.index_subscriptions()
    target = ownership.owner.copy()
    owned = np.flatnonzero(target != UNASSIGNED)
    target[owned[~reads[topic[owned], target[owned]]]] = UNASSIGNED
    count = np.bincount(target[target != UNASSIGNED], minlength=len(snapshot.member_ids))
    readers = [np.flatnonzero(row) for row in reads]
    for item in np.flatnonzero(target == UNASSIGNED).tolist():
        candidates = readers[topic[item]]
        if candidates.size:
            target[item] = candidates[count[candidates].argmin()]
            count[target[item]] += 1
    return target
