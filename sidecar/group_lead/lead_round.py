"""One rebalance of a group that the sidecar leads: its members' subscriptions in, assignments out. Pure.

1. Clients of others repeat no decision. So the sidecar remembers the last round (`LeadMemory`): what it
   decided, assigned and promised, and passes that to the leader's functions as if the members had said so.
2. Claims are those of the subscriptions (KIP-429), whatever the assignor is called: a claimed partition
   moves in two rounds. A member of an eager group has stopped reading and claims nothing. What it had
   been assigned keeps its partitions where they are, and is free to move at once.
3. A subscription without a generation (before KIP-792) counts as of the remembered round if the member
   was in it, else as outdated: two claims of one partition must not cancel each other for ever.
4. Assignments carry no user data: no client expects any, and it would block the group's way to KIP-848.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Final

import numpy as np

from trimtab.assignor.clients.leader_plugin import decode_subscriptions, index_partitions
from trimtab.assignor.model import UNASSIGNED, PlacementPolicy
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.rebalance.consumer_protocol import (
    MemberSubscription,
    ReceivedAssignment,
    SubscriptionDecoder,
    encode_assignments,
)
from trimtab.assignor.rebalance.cooperative import resolve_ownership, withhold_moving_partitions
from trimtab.assignor.rebalance.group_snapshot import snapshot_from_subscriptions
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound, assign_round
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData
from trimtab.common.control_topics.plan_target import MAX_TOPIC_PARTITIONS, PlanTarget

# Every client reads version 0, and later ones add nothing.
PLAIN_ASSIGNMENT_VERSION: Final = 0
_STICKY_GENERATION: Final = Struct(">i")  # user data of Java's CooperativeStickyAssignor before KIP-792


@dataclass(frozen=True, slots=True, eq=False)
class LeadMemory:
    """The last completed round, by member id; of another leader's only what it assigned."""

    generation: int = -1
    assigned: Mapping[str, ReceivedAssignment] = field(default_factory=dict[str, ReceivedAssignment])


@dataclass(frozen=True, slots=True, eq=False)
class LedRound:
    """Result of a round."""

    outcome: RebalanceRound
    assignments: Mapping[str, bytes]  # ConsumerProtocolAssignment by member id
    memory: LeadMemory  # valid once the members have the assignments

    @property
    def withheld(self) -> int:
        """Number of partitions that wait for their owners to revoke them."""
        return int(((self.outcome.target != UNASSIGNED) & ~self.outcome.assigned_now).sum())


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """Partition numbers by topic, as the brokers tell them."""

    partitions: Mapping[str, Collection[int]] = field(default_factory=dict[str, Collection[int]])
    deleted: frozenset[str] = frozenset()
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])  # why; their owners keep them

    @property
    def names(self) -> frozenset[str]:
        """The topics that were asked for."""
        return self.deleted.union(self.partitions, self.unknown)

    def has_changed(self, before: "KnownTopics") -> bool:
        """Return whether a topic is told otherwise than before; one that is not told has not changed."""
        told = self.names - self.unknown.keys()
        return any(
            (t in self.deleted, self.partitions.get(t)) != (t in before.deleted, before.partitions.get(t))
            for t in told
        )


@dataclass(frozen=True, slots=True, eq=False)
class JoinedGroup:
    """The members of a generation, without the sidecar's own."""

    generation: int
    subscriptions: Mapping[str, MemberSubscription]  # by member id
    names: Mapping[str, str]  # instance names by member id
    topics: KnownTopics


def decide_led_round(
    group: JoinedGroup, view: LeaderView, policy: PlacementPolicy, memory: LeadMemory
) -> LedRound:
    """Decide, or complete the decision in force; `policy` applies without a plan."""
    dated = {member: _date_subscription(s, memory, member) for member, s in group.subscriptions.items()}
    found = {t: group.topics.partitions.get(t) for s in dated.values() for t in s.topics}
    index = index_partitions(dated, found, group.topics.deleted)
    kept = {member: _recall_owned(s, memory, member) for member, s in dated.items()}
    data = {member: _recall_decision(memory, member, group.names) for member in dated}
    outcome = assign_round(snapshot_from_subscriptions(kept, data, index), view, policy)
    claims = snapshot_from_subscriptions(dated, data, index).claims
    now = withhold_moving_partitions(outcome.target, resolve_ownership(claims, len(index)))
    outcome = replace(outcome, assigned_now=now)
    return LedRound(outcome, _encode_plain(outcome, index), _remember(group.generation, outcome))


def build_found_target(memory: LeadMemory, names: Mapping[str, str]) -> PlanTarget | None:
    """Return the placement that is remembered, by instance name; None if nothing is assigned."""
    owned = {name: memory.assigned[m].owned for m, name in names.items() if m in memory.assigned}
    if not any(one.topics for one in owned.values()):
        return None
    # whatever another leader has assigned
    known = {
        name: [p for p in one.list_partitions() if 0 <= p.partition < MAX_TOPIC_PARTITIONS]
        for name, one in owned.items()
    }
    return PlanTarget.from_assignment(memory.generation, tuple(owned), 0, known)


def recall_owners(group: JoinedGroup, memory: LeadMemory) -> JoinedGroup:
    """Return the group with the partitions that its members were assigned since they joined."""
    assigned = memory.assigned
    subscriptions = {
        m: replace(s, owned=assigned[m].owned, generation=memory.generation) if m in assigned else s
        for m, s in group.subscriptions.items()
    }
    return replace(group, subscriptions=subscriptions)


def read_subscriptions(metadata: Mapping[str, bytes]) -> dict[str, MemberSubscription]:
    """Return the subscriptions by member id; a malformed one becomes an empty subscription."""
    return {m: _read_sticky_generation(s) for m, s in decode_subscriptions(metadata).items()}


def _read_sticky_generation(subscription: MemberSubscription) -> MemberSubscription:
    user_data = subscription.user_data or b""
    if subscription.generation >= 0 or len(user_data) != _STICKY_GENERATION.size:
        return subscription
    return replace(subscription, generation=_STICKY_GENERATION.unpack(user_data)[0])


def _date_subscription(
    subscription: MemberSubscription, memory: LeadMemory, member: str
) -> MemberSubscription:
    if subscription.generation >= 0 or member not in memory.assigned:
        return subscription
    return replace(subscription, generation=memory.generation)


def _recall_owned(subscription: MemberSubscription, memory: LeadMemory, member: str) -> MemberSubscription:
    if subscription.owned.topics or member not in memory.assigned:
        return subscription
    return replace(subscription, owned=memory.assigned[member].owned)


def _recall_decision(memory: LeadMemory, member: str, names: Mapping[str, str]) -> MemberUserData:
    name = names.get(member, member)
    if member not in memory.assigned:
        return MemberUserData(instance=name)
    last = AssignmentUserData.decode(memory.assigned[member].user_data)
    return MemberUserData(
        instance=name, decision_fingerprint=last.decision_fingerprint, promised=last.promised
    )


def _encode_plain(outcome: RebalanceRound, index: PartitionIndex) -> dict[str, bytes]:
    members = outcome.snapshot.member_ids
    assigned = np.where(outcome.assigned_now, outcome.target, UNASSIGNED)
    encoded = encode_assignments(index, assigned, [b""] * len(members), PLAIN_ASSIGNMENT_VERSION)
    return dict(zip(members, encoded, strict=True))


def _remember(generation: int, outcome: RebalanceRound) -> LeadMemory:
    decoder = SubscriptionDecoder()
    return LeadMemory(generation, {m: decoder.decode_assignment(d) for m, d in outcome.encode().items()})
