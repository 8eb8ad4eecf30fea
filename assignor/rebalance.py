"""One round of a rebalance as the leader sees it: claims and load in, shares and reasons out.

A decision is made once per cause. Its cause is the plan's epoch, the members that may hold
something (capacity, subscription) and the partitions there are; write speeds alone are no cause,
and neither is the end of a member that was drained. As long as the cause is
the same, a further round (the second of a cooperative move, a forced rejoin) only completes what
was decided, so nothing moves when nothing changed, whatever the heuristic.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab.assignor.control import GroupPlan
from trimtab.assignor.decide import place
from trimtab.assignor.model import Group, Load, Member, Move, Plan, Policy, TopicPartition
from trimtab.assignor.staging import Claim, Share, settle, stage
from trimtab.assignor.userdata import MemberData, PlacementData


@dataclass(frozen=True, slots=True)
class Joined:
    """A member as it joined: its subscription, what it reads, and what it says of itself."""

    id: str
    topics: frozenset[str]
    data: MemberData
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1


@dataclass(frozen=True, slots=True)
class View:
    """What the leader knows beside the group: the newest write speeds and the plan, if any."""

    load: Load
    plan: GroupPlan | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """A leader's answer: each member's share, the decision it belongs to, the moves and notes."""

    shares: Mapping[str, Share]
    decision: str
    moves: tuple[Move, ...]
    notes: tuple[str, ...]
    fresh: bool  # False where an earlier decision was completed
    r_score: float = 0.0
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # member id → instance

    def name(self, member: str | None) -> str:
        """Return a member's name as people know it."""
        return "nobody" if member is None else self.names.get(member) or member

    def data(self, member: str) -> PlacementData:
        """User data of one member's assignment."""
        return PlacementData(self.decision, self.shares[member].promised)


def lead(
    joined: Sequence[Joined], partitions: Sequence[TopicPartition], view: View, own: Policy
) -> Round:
    """Decide, or complete the decision in force, and stage it (KIP-429).

    `partitions` are those of all subscribed topics; `own` is the leader's policy, used where there
    is no plan.
    """
    claims = tuple(Claim(j.id, j.generation, j.owned) for j in joined)
    members = tuple(_member(j, view.plan) for j in joined)
    policy = _policy(view.plan, own)
    decision = _cause(members, partitions, view.plan, policy)
    owners = settle(claims)
    if all(j.data.decision == decision for j in joined):
        target = _decided(joined, owners, partitions)
        if target is not None:
            return Round(stage(target, claims), decision, (), (), fresh=False)
    plan = place(Group(members, tuple(partitions), owners), view.load, policy)
    names = {m.id: m.instance for m in members}
    return _fresh(plan, claims, decision, names)


def _fresh(plan: Plan, claims: Sequence[Claim], decision: str, names: Mapping[str, str]) -> Round:
    return Round(
        shares=stage(plan.assignment, claims),
        decision=decision,
        moves=plan.moves,
        notes=plan.notes,
        fresh=True,
        r_score=plan.r_score,
        names=names,
    )


def _member(joined: Joined, plan: GroupPlan | None) -> Member:
    told_to_drain = plan is not None and joined.data.instance in plan.draining
    return Member(
        id=joined.id,
        topics=joined.topics,
        capacity=joined.data.capacity,
        instance=joined.data.instance,
        draining=joined.data.draining or told_to_drain,
        rack=joined.data.rack,
    )


def _policy(plan: GroupPlan | None, own: Policy) -> Policy:
    if plan is None:
        return own
    return replace(
        own,
        heuristic=plan.heuristic,
        capacity=plan.capacity,
        headroom=plan.headroom,
        consolidate=True,
    )


def _cause(
    members: Sequence[Member],
    partitions: Sequence[TopicPartition],
    plan: GroupPlan | None,
    policy: Policy,
) -> str:
    cause = [
        sorted([m.id, sorted(m.topics), m.capacity, m.rack] for m in members if not m.draining),
        sorted(partitions),
        [0 if plan is None else plan.epoch, policy.heuristic, policy.capacity, policy.headroom],
    ]
    return hashlib.blake2b(json.dumps(cause).encode(), digest_size=8).hexdigest()


def _decided(
    joined: Sequence[Joined],
    owners: Mapping[TopicPartition, str],
    partitions: Sequence[TopicPartition],
) -> dict[str, set[TopicPartition]] | None:
    """Return the target of the decision in force, or None where it is not wholly known."""
    heirs = {p: j.id for j in joined for p in j.data.promised}
    target: dict[str, set[TopicPartition]] = {j.id: set() for j in joined}
    topics = {j.id: j.topics for j in joined}
    for partition in partitions:
        member = heirs.get(partition, owners.get(partition))
        if member is None or partition.topic not in topics[member]:
            return None
        target[member].add(partition)
    return target
