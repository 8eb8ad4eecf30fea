"""What became of a plan's target: owners compared with it once the group is stable. Pure.

1. A plan is known by its epoch and its target's revision. A plan without a target has no outcome.
2. Owners are compared only while the group is stable; in between the last outcome stands.
3. A plan is settled once every partition has an owner, no consumer has yet to join, and the owners are
   those of the target, but for consumers that are gone, or have changed since the decision. Moves,
   R-score and fill stay those of that moment; later differences only count as off plan.
4. Moves and R-score are changes of owner since the observation that the plan was decided on, with the
   loads of then: those of a plan that is carried out are the planned ones.
5. Partitions are off plan since the first comparison that found some: a further plan that is not followed
   either begins nothing anew. After a start of the sidecar it is the time of the plan.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from trimtab.assignor.model import (
    UNASSIGNED,
    ConsumerGroup,
    IntArray,
    Load,
    Member,
    PlacementPolicy,
    TopicPartition,
)
from trimtab.assignor.model.problem import IndexedGroup, build_problem, index_group
from trimtab.assignor.rebalance.plan_target import TargetMatch, match_consumers, name_members
from trimtab.common.control_topics.number_ranges import Count, Figure
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.replica_names import get_replica
from trimtab.common.units import format_count, format_name_list
from trimtab.sidecar.model.observation import GroupState, Observation

MAX_LISTED_ELSEWHERE: Final = 20  # partitions listed one by one in an outcome; the others are only counted
MAX_NAMED_REASONS: Final = 3  # in a line


@dataclass(frozen=True, slots=True)
class PartitionElsewhere:
    """A partition that another consumer than the planned one owns."""

    topic: str
    partition: int
    planned: str  # consumer, or "+1" for a place that no consumer has taken
    owner: str | None
    reason: str = ""  # empty if the planned consumer is there and subscribes to the topic


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """How far the target of a plan is carried out."""

    epoch: Count
    revision: Count
    moves: Count | None  # None, as the R-score: the plan was decided before this sidecar started
    r_score: Figure | None
    max_fill: Figure | None  # required rate / capacity of the fullest consumer
    off_plan: Count  # partitions elsewhere
    is_settled: bool
    elsewhere: tuple[PartitionElsewhere, ...] = ()  # the first `MAX_LISTED_ELSEWHERE`
    # those that took the places, there or gone since: {"+1": "worker-3"}
    consumer_by_place: Mapping[str, str] = field(default_factory=dict[str, str])

    def format_line(self) -> str:
        """Return the outcome as one log line."""
        moves = format_count(self.moves, "move")
        cost = None if self.moves is None else f"{moves}, R {self.r_score or 0.0:.2f}"
        fill = None if self.max_fill is None else f"fullest {self.max_fill:.0%}"
        figures = ", ".join(filter(None, (cost, fill)))
        done = "carried out" if self.is_settled else "is being carried out"
        return f"plan {self.epoch} {done}: {'; '.join(filter(None, (figures, self.describe_difference())))}"

    def describe_difference(self) -> str:
        """Return "as planned" or "2 partitions elsewhere (worker-2 left)"."""
        if not self.off_plan:
            return "as planned"
        reasons = sorted({one.reason for one in self.elsewhere} - {""})
        why = f" ({format_name_list(reasons[:MAX_NAMED_REASONS], len(reasons))})" if reasons else ""
        return f"{format_count(self.off_plan, 'partition')} elsewhere{why}"


class UnfollowedPlan(NamedTuple):
    """The last comparison, and since when each one has found partitions elsewhere (rule 5)."""

    since: float  # seconds since the epoch
    outcome: PlanOutcome


@dataclass(frozen=True, slots=True)
class DecisionBasis:
    """What a plan was decided on: the last known owners, by instance, and the loads."""

    owners: Mapping[TopicPartition, str]
    write_rates: Mapping[TopicPartition, PartitionLoad]


@dataclass(frozen=True, slots=True)
class PlanTracker:
    """Follows the plan in force from one observation to the next."""

    consumers_per_replica: int = 1
    outcome: PlanOutcome | None = None
    last: Observation | None = None
    last_owners: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    basis: DecisionBasis | None = None  # of the plan in force; None: it is older than this sidecar
    unfollowed: UnfollowedPlan | None = None

    def track_outcome(
        self, seen: Observation, last_owners: Mapping[TopicPartition, str], now: float
    ) -> "PlanTracker":
        """Return the tracker with the outcome as of an observation, `now` in seconds since the epoch.

        `last_owners` are those of the memory of the decision on this observation.
        """
        last, basis, outcome, unfollowed = self.last, self.basis, self.outcome, self.unfollowed
        if last is None or _get_key(last.plan) != _get_key(seen.plan):
            basis = None if last is None else DecisionBasis(self.last_owners, last.write_rates)
            outcome = None
        # a comparison of 100,000 partitions takes a while
        is_old = last is not None and outcome is not None and outcome.is_settled and _is_unchanged(last, seen)
        if not is_old and seen.group.state is GroupState.STABLE:
            outcome = _update_outcome(outcome, basis, seen, self.consumers_per_replica)
            unfollowed = self._track_difference(outcome, seen.plan, now)
        return PlanTracker(self.consumers_per_replica, outcome, seen, last_owners, basis, unfollowed)

    def _track_difference(
        self, outcome: PlanOutcome | None, plan: GroupPlan | None, now: float
    ) -> UnfollowedPlan | None:
        if plan is None or outcome is None or not outcome.off_plan:
            return None
        first = now if self.last is not None else plan.time
        return UnfollowedPlan(first if self.unfollowed is None else self.unfollowed.since, outcome)


def _get_key(plan: GroupPlan | None) -> tuple[int, int] | None:
    return None if plan is None or plan.target is None else (plan.epoch, plan.target.revision)


def _is_unchanged(last: Observation, seen: Observation) -> bool:
    return (last.group, _list_running(last)) == (seen.group, _list_running(seen))


def _list_running(seen: Observation) -> frozenset[str]:
    return frozenset(replica.name for replica in seen.replicas or () if replica.alive)


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """A target of C consumers beside the owners of P partitions, numbered as the leader numbers them."""

    plan: GroupPlan
    target: PlanTarget
    group: IndexedGroup
    match: TargetMatch
    running: frozenset[str]  # replicas, joined or not
    consumers_per_replica: int
    last_by_place: Mapping[str, str]  # gone consumers that had taken places: {"+1": "worker-3"}

    @property
    def elsewhere(self) -> IntArray:
        """Partitions that another consumer than the planned one owns."""
        planned = self.match.resolve_target()
        differs = (planned == UNASSIGNED) | (planned != self.group.owner)
        return np.flatnonzero(differs & (self.match.consumer != UNASSIGNED)).astype(np.int32)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the consumers, those of places "+1", "+2" and so on (C,)."""
        return (*self.target.consumers, *(f"+{n + 1}" for n in range(self.target.places)))

    @property
    def awaited(self) -> frozenset[int]:
        """Consumers that have yet to join: running replicas, and a place for each further planned one."""
        absent = np.flatnonzero(self.match.member == UNASSIGNED).tolist()
        starting = self.running.difference(self.plan.draining)
        named = [c for c in absent if c < len(self.target.consumers) and self._is_of(c, starting)]
        places = [c for c in absent if c >= len(self.target.consumers)]
        staying = sum(not member.draining for member in self.group.members)
        planned = self.plan.replicas * self.consumers_per_replica
        return frozenset((*named, *places[: max(0, planned - staying - len(named))]))

    def _is_of(self, consumer: int, replicas: Collection[str]) -> bool:
        name = self.display_consumer(consumer)
        return name in replicas or get_replica(name) in replicas

    def explain_elsewhere(self, consumer: int, topic: str) -> str:
        """Return why a consumer does not have its partitions of a topic; empty if it may have them."""
        member = int(self.match.member[consumer])
        if member != UNASSIGNED:
            reads = topic in self.group.members[member].topics
            return "" if reads else f"{self.display_consumer(consumer)} does not subscribe to {topic}"
        name = self.display_consumer(consumer)
        if self.plan.drains(name):
            return f"{name} drains"
        had_joined = name != self.names[consumer] or consumer < len(self.target.consumers)
        is_awaited = self._is_of(consumer, self.running) if had_joined else consumer in self.awaited
        if is_awaited:
            return f"{name} has yet to join"
        # a place: its replica was stopped before it joined
        return f"{name} left" if had_joined else f"{name} is no longer to join"

    def display_consumer(self, consumer: int) -> str:
        """Return the instance of the member that stands for a consumer or last did, else its name."""
        member, name = int(self.match.member[consumer]), self.names[consumer]
        if member == UNASSIGNED:
            return self.last_by_place.get(name, name)
        return self.group.members[member].instance


def _compare_target(
    seen: Observation,
    plan: GroupPlan,
    target: PlanTarget,
    last_by_place: Mapping[str, str],
    consumers_per_replica: int,
) -> _Comparison:
    topics = frozenset(p.topic for p in seen.write_rates)
    observed = seen.group.members
    names = name_members([m.id for m in observed], [m.instance for m in observed])
    members = tuple(
        Member(
            id=m.id,
            topics=topics if m.topics is None else m.topics,
            capacity=plan.capacities.get(name) if m.capacity is None else m.capacity,
            instance=name,
            draining=plan.drains(name),
        )
        for name, m in zip(names, observed, strict=True)
    )
    owners = {p: m.id for m in observed for p in m.owned_partitions}
    group = index_group(ConsumerGroup(members, tuple(seen.write_rates), owners))
    match = match_consumers(target, group)
    return _Comparison(plan, target, group, match, _list_running(seen), consumers_per_replica, last_by_place)


def _update_outcome(
    previous: PlanOutcome | None, basis: DecisionBasis | None, seen: Observation, consumers_per_replica: int
) -> PlanOutcome | None:
    if seen.plan is None or seen.plan.target is None:
        return None
    present = {member.instance for member in seen.group.members}
    before = {} if previous is None else previous.consumer_by_place
    last_by_place = {place: name for place, name in before.items() if name not in present}
    compared = _compare_target(seen, seen.plan, seen.plan.target, last_by_place, consumers_per_replica)
    new = _compute_outcome(basis, seen, compared)
    if previous is None or not previous.is_settled:
        return new
    # the figures of the moment in which the plan was settled
    return replace(
        previous, off_plan=new.off_plan, elsewhere=new.elsewhere, consumer_by_place=new.consumer_by_place
    )


def _compute_outcome(basis: DecisionBasis | None, seen: Observation, compared: _Comparison) -> PlanOutcome:
    plan, group, match = compared.plan, compared.group, compared.match
    elsewhere = compared.elsewhere
    moves, r_score = (None, None) if basis is None else _sum_moves(basis, group, plan)
    is_owned = UNASSIGNED not in group.owner
    lacking = match.consumer[elsewhere]
    is_awaited = not compared.awaited.isdisjoint(lacking.tolist())
    is_begun = moves != 0 or bool((match.member[lacking] == UNASSIGNED).all())
    return PlanOutcome(
        epoch=plan.epoch,
        revision=compared.target.revision,
        moves=moves,
        r_score=r_score,
        max_fill=_compute_max_fill(seen, group, plan),
        off_plan=len(elsewhere),
        is_settled=is_owned and is_begun and not is_awaited and not seen.group.unreleased,
        elsewhere=tuple(_list_elsewhere(compared, elsewhere[:MAX_LISTED_ELSEWHERE])),
        consumer_by_place=_map_places(compared),
    )


def _list_elsewhere(compared: _Comparison, items: IntArray) -> Iterator[PartitionElsewhere]:
    group = compared.group
    for item, owner in zip(items.tolist(), group.owner[items].tolist(), strict=True):
        consumer = int(compared.match.consumer[item])
        topic, number = group.partition_index.partition_at(item)
        yield PartitionElsewhere(
            topic,
            number,
            planned=compared.display_consumer(consumer),
            owner=None if owner == UNASSIGNED else group.members[owner].instance,
            reason=compared.explain_elsewhere(consumer, topic),
        )


def _map_places(compared: _Comparison) -> dict[str, str]:
    first = len(compared.target.consumers)
    places = [c for c in np.flatnonzero(compared.match.member != UNASSIGNED).tolist() if c >= first]
    names = compared.names
    now = {names[place]: compared.display_consumer(place) for place in places}
    return {**compared.last_by_place, **now}


def _sum_moves(basis: DecisionBasis, group: IndexedGroup, plan: GroupPlan) -> tuple[int, float]:
    """Return the number and the R-score of the changes of owner, as `PlacementDecision` counts them."""
    owners = zip(group.partition_index.list_partitions(), group.owner.tolist(), strict=True)
    now = {p: group.members[owner].instance for p, owner in owners if owner != UNASSIGNED}
    moved = [p for p in basis.write_rates if p in now and now[p] != basis.owners.get(p)]
    loads = _estimate_loads(basis.write_rates, plan)
    # a partition that nobody had read interrupts no reading
    return len(moved), sum((loads[p] for p in moved if p in basis.owners), 0.0) / plan.capacity


def _compute_max_fill(seen: Observation, group: IndexedGroup, plan: GroupPlan) -> float | None:
    if all(load.weight is None for load in seen.write_rates.values()):
        return None
    loads = _estimate_loads(seen.write_rates, plan)
    capacity = {m.id: plan.capacity if m.capacity is None else m.capacity for m in group.members}
    fills = (sum(loads.get(p, 0.0) for p in m.owned_partitions) / capacity[m.id] for m in seen.group.members)
    return max(fills, default=None)


def _estimate_loads(
    write_rates: Mapping[TopicPartition, PartitionLoad], plan: GroupPlan
) -> dict[TopicPartition, float]:
    """Return the loads in bytes/s; an unknown one is estimated as for a placement."""
    known = {p: s.weight for p, s in write_rates.items() if s.weight is not None}
    if len(known) == len(write_rates):
        return known
    group = index_group(ConsumerGroup((), tuple(write_rates)))
    policy = PlacementPolicy(plan.heuristic, plan.capacity, plan.headroom)
    indexed = build_problem(group, Load(known), policy, open_mode=True)
    return dict(zip(indexed.partitions, indexed.problem.weight.tolist(), strict=True))
