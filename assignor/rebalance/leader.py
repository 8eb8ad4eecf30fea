"""One round of a rebalance as the leader sees it: claims and load in, shares and reasons out.

A decision is made once per cause. Its cause is the plan's epoch, the members that may hold
something (capacity, subscription) and the partitions there are; write speeds alone are no cause,
and neither is the end of a member that was drained. As long as the cause is
the same, a further round (the second of a cooperative move, a forced rejoin) only completes what
was decided, so nothing moves when nothing changed, whatever the heuristic.

All of it is arrays over the partitions of a `Universe`, from the claims (`group_snapshot`) to the
bytes of the assignments (`consumer_protocol`); names of partitions are made only for the few moves
that are logged, and by `lead` and `Round.shares`, which speak of names throughout.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.assignor.decisions import placed
from trimtab.assignor.fill_levels import Outcome
from trimtab.assignor.heuristics.registry import get
from trimtab.assignor.model import NOBODY, BoolArray, IntArray, Load, Move, Policy, TopicPartition
from trimtab.assignor.move_reasons import Moves, notes
from trimtab.assignor.partition_index import Holding, Universe
from trimtab.assignor.problem import Census
from trimtab.assignor.racks.replica_racks import Replicas
from trimtab.assignor.rebalance.consumer_protocol import Subscription, encode_assignments
from trimtab.assignor.rebalance.cooperative import Settled, settle, stage
from trimtab.assignor.rebalance.group_snapshot import Roll, cause, enroll
from trimtab.assignor.rebalance.user_data import Grouped, MemberData, PlacementData, group_by_topic
from trimtab.common.control_topics.values import GroupPlan


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
    """What the leader knows beside the group: the newest write speeds and the plan, if any.

    `replicas` says where partitions have their replicas; it is asked where racks are weighed.
    """

    load: Load
    plan: GroupPlan | None = None
    replicas: Callable[[Universe], Replicas] | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """One member's part of a round: what it reads now, what it is promised for the next."""

    now: frozenset[TopicPartition]
    promised: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """A leader's answer: each member's share, the decision it belongs to, the moves and notes."""

    roll: Roll
    target: IntArray  # (P,) member of each partition, NOBODY for none
    now: BoolArray  # (P,) handed out in this round; the rest of the target is promised
    decision: str
    decided: Outcome | None = None  # None where an earlier decision was completed

    @property
    def fresh(self) -> bool:
        """Whether this round decided; False where it completed an earlier decision."""
        return self.decided is not None

    @property
    def moves(self) -> Sequence[Move]:
        """The changes of owner that were decided, each put into words when it is asked for."""
        return Moves(self.decided) if self.decided else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the decision as a whole."""
        return notes(self.decided) if self.decided else ()

    @property
    def r_score(self) -> float:
        """What the decision costs: load that stops being read, over the capacity."""
        return self.decided.r_score if self.decided else 0.0

    @property
    def crossing(self) -> float | None:
        """Load that crosses racks by the decision, bytes/s; None where racks are not weighed."""
        return self.decided.crossing if self.decided else None

    @property
    def shares(self) -> Mapping[str, Share]:
        """Each member's share by name."""
        now, promised = self._held(now=True), self._held(now=False)
        return {
            name: Share(frozenset(now[m]), frozenset(promised[m]))
            for m, name in enumerate(self.roll.ids)
        }

    def name(self, member: str | None) -> str:
        """Return a member's name as people know it."""
        if member is None:
            return "nobody"
        return self.roll.data[self.roll.ids.index(member)].instance or member

    def data(self, member: str) -> PlacementData:
        """User data of one member's assignment."""
        shares = self.shares
        more = any(share.promised for share in shares.values())
        return PlacementData(self.decision, group_by_topic(shares[member].promised), more)

    def encode(self, *, eager: bool = False) -> dict[str, bytes]:
        """Return each member's ConsumerProtocolAssignment.

        With `eager` the whole target is handed out at once, since all have stopped.
        """
        promised = {} if eager else self._promised()
        more = bool(promised)
        plain = PlacementData(self.decision, more=more).encode()
        user_data = [
            PlacementData(self.decision, promised[m], more).encode() if m in promised else plain
            for m in range(len(self.roll.ids))
        ]
        given = self.target if eager else np.where(self.now, self.target, NOBODY)
        encoded = encode_assignments(self.roll.universe, given, user_data)
        return dict(zip(self.roll.ids, encoded, strict=True))

    def _held(self, *, now: bool) -> list[list[TopicPartition]]:
        held: list[list[TopicPartition]] = [[] for _ in self.roll.ids]
        universe = self.roll.universe
        for item in np.flatnonzero((self.target != NOBODY) & (self.now == now)).tolist():
            held[self.target[item]].append(universe.name(item))
        return held

    def _promised(self) -> dict[int, Grouped]:
        """Return what is promised to each member that is promised anything."""
        held = self._held(now=False)
        return {m: group_by_topic(partitions) for m, partitions in enumerate(held) if partitions}


def lead(
    joined: Sequence[Joined], partitions: Sequence[TopicPartition], view: View, own: Policy
) -> Round:
    """Lead a round of members and partitions given by name; else as `answer`."""
    subscriptions = {
        j.id: Subscription(
            topics=tuple(sorted(j.topics)),
            owned=Holding.of(group_by_topic(j.owned)),
            generation=j.generation,
        )
        for j in joined
    }
    roll = enroll(subscriptions, {j.id: j.data for j in joined}, Universe.named(partitions))
    return answer(roll, view, own)


def answer(roll: Roll, view: View, own: Policy) -> Round:
    """Decide, or complete the decision in force, and stage it (KIP-429).

    The roll's partitions are those of all subscribed topics; `own` is the leader's policy, used
    where there is no plan. Raises BadProblem, UnknownHeuristic, BrokenHeuristic.
    """
    members = roll.members(view.plan)
    policy = _policy(view.plan, own)
    decision = cause(members, roll.universe, view.plan, policy)
    settled = settle(roll.claims, len(roll.universe))
    if all(data.decision == decision for data in roll.data):
        target = _decided(roll, settled)
        if target is not None:
            return Round(roll, target, stage(target, settled), decision)
    there = Census(members, roll.universe, settled.owner)
    if view.replicas is not None and get(policy.heuristic).racks:
        there = replace(there, replicas=view.replicas(roll.universe))
    decided = placed(there, view.load, policy)
    target = np.full(len(roll.universe), NOBODY, dtype=np.int32)
    target[decided.framed.item] = decided.target
    return Round(roll, target, stage(target, settled), decision, decided)


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


def _decided(roll: Roll, settled: Settled) -> IntArray | None:
    """Return the target of the decision in force, or None where it is not wholly known."""
    heir = roll.promised()
    target = np.where(heir != NOBODY, heir, settled.owner)
    if (target == NOBODY).any() or not roll.reads()[roll.universe.topic, target].all():
        return None
    return target
