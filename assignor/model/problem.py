"""Conversion of `ConsumerGroup`, `Load` and `PlacementPolicy` into a `PackingProblem` of integers.

Members are numbered by id, partitions by topic and number, so the order of the input does not
matter. A draining member is not numbered. If all members drain and none may be added, they count as
not draining.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from trimtab.assignor.capacity import GREATEST_CAPACITY, LEAST_CAPACITY, is_valid_capacity
from trimtab.assignor.model import (
    UNASSIGNED,
    BoolArray,
    ConsumerGroup,
    FloatArray,
    IntArray,
    Load,
    Member,
    PackingProblem,
    PlacementPolicy,
    RateForecast,
    TopicPartition,
)
from trimtab.assignor.model.load_arrays import align_deviations, align_lags, align_write_rates
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.model.replica_racks import ReplicaRacks, build_rack_topology
from trimtab.common.errors import InvalidProblemError

LEAST_HEADROOM: Final = 1e-6  # as for the least capacity, which it multiplies


@dataclass(frozen=True, slots=True, eq=False)
class IndexedGroup:
    """Members, partitions and owners of a group in arrays: P partitions, M members."""

    members: tuple[Member, ...]  # (M,) sorted by id
    partition_index: PartitionIndex  # P partitions
    owner: IntArray  # (P,) index of a member, UNASSIGNED, or M + i for the i-th departed owner
    departed_owners: tuple[str, ...] = ()  # kept for the reasons of moves
    replica_racks: ReplicaRacks | None = None  # None if unknown


@dataclass(frozen=True, slots=True, eq=False)
class IndexedProblem:
    """A `PackingProblem` with the mapping back to the group it was built from."""

    problem: PackingProblem
    group: IndexedGroup
    eligible: IntArray  # group index of each of the problem's members
    item: IntArray  # group index of each of the problem's partitions
    unassigned: IntArray  # group indexes of the partitions without a subscriber
    measured: BoolArray  # (items,) whether the write rate is measured
    lag_known: BoolArray | None = None  # (items,) None if the heuristic does not place by lag

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The problem's partitions by name; slow for many partitions."""
        names = self.group.partition_index.list_partitions()
        return tuple(names[p] for p in self.item.tolist())

    def find_owner(self, partition: TopicPartition) -> int:
        """Return the problem's number of a partition's owner; UNASSIGNED without one."""
        found = self.group.partition_index.find_partition(partition)
        items = np.flatnonzero(self.item == found)
        return int(self.problem.owner[items[0]]) if items.size else UNASSIGNED

    @property
    def members(self) -> tuple[Member, ...]:
        """The problem's members, in its order."""
        return tuple(self.group.members[m] for m in self.eligible.tolist())


def index_group(group: ConsumerGroup, partition_index: PartitionIndex | None = None) -> IndexedGroup:
    """Convert a group into arrays; `partition_index` is that of its partitions, if the caller has it."""
    members = tuple(sorted(group.members, key=lambda m: m.id))
    index = partition_index or PartitionIndex.from_partitions(set(group.partitions))
    number = {m.id: i for i, m in enumerate(members)}
    departed = tuple(sorted(set(group.owners.values()) - set(number)))
    number |= {name: len(members) + i for i, name in enumerate(departed)}
    owner = np.full(len(index), UNASSIGNED, dtype=np.int32)
    if group.owners:  # otherwise the names, which take time, are not needed
        names = map(group.owners.get, index.list_partitions())
        owner[:] = [UNASSIGNED if name is None else number[name] for name in names]
    racks = ReplicaRacks.from_partitions(index, group.replica_racks) if group.replica_racks else None
    return IndexedGroup(members, index, owner, departed, racks)


def build_problem(
    group: IndexedGroup,
    load: Load,
    policy: PlacementPolicy,
    *,
    open_mode: bool = False,
    weigh_racks: bool = False,
    place_by_lag: bool = False,
) -> IndexedProblem:
    """Build a group's problem; with `open_mode`, members of the policy's capacity may be added.

    With `weigh_racks` it has the rack topology; with `place_by_lag` it tells which lags are known.
    Raises InvalidProblemError for duplicate member ids and for invalid write rates, deviations,
    capacities or headroom.
    """
    _check_inputs(group.members, policy)
    index = group.partition_index
    if weigh_racks and group.replica_racks is None and not open_mode:
        group = replace(group, replica_racks=ReplicaRacks.from_topics(index, {}))
    eligible = _select_eligible(group.members, open_mode=open_mode)
    members = [group.members[m] for m in eligible.tolist()]
    reads = subscription_matrix(index.topics, [m.topics for m in members])
    is_read: BoolArray = np.logical_or(reads.any(axis=1), open_mode)  # an added member reads every topic
    item = np.flatnonzero(is_read[index.topic]).astype(np.int32)
    weight, known = _fill_unknown_weights(index, align_write_rates(load.write_rates, index))
    reads = reads[is_read]
    topic = (np.cumsum(is_read, dtype=np.int32) - 1)[index.topic[item]]
    lag = align_lags(load.lags, index)[item]
    variance = align_deviations(load.deviations, index)[item] ** 2
    racks = group.replica_racks if weigh_racks else None
    problem = PackingProblem(
        weight=weight[item],
        owner=_index_owners(group, eligible, item, reads, topic),
        topic=topic,
        lag=np.nan_to_num(lag, posinf=np.inf),
        capacity=np.array([member_capacity(m, policy) * policy.headroom for m in members]),
        subscribed=reads,
        new_member_capacity=policy.capacity * policy.headroom if open_mode else None,
        forecast=RateForecast(np.zeros(len(item)), variance),
        racks=None if racks is None else build_rack_topology(members, racks, item),
    )
    unread = np.flatnonzero(~is_read[index.topic]).astype(np.int32)
    lag_known = ~np.isnan(lag) if place_by_lag else None
    return IndexedProblem(problem, group, eligible, item, unread, known[item], lag_known)


def member_capacity(member: Member, policy: PlacementPolicy) -> float:
    """Return the member's capacity in bytes/s before headroom, the policy's if it has none."""
    return policy.capacity if member.capacity is None else member.capacity


def _check_inputs(members: Sequence[Member], policy: PlacementPolicy) -> None:
    twice = next((a.id for a, b in pairwise(members) if a.id == b.id), None)
    if twice is not None:
        raise InvalidProblemError(f"member {twice!r} is there twice; member ids must differ")
    for member in members:
        if member.capacity is not None:
            _check_capacity(f"capacity of member {member.id!r}", member.capacity)
    _check_capacity("capacity of the policy", policy.capacity)
    if not LEAST_HEADROOM <= policy.headroom <= 1:
        raise InvalidProblemError(f"headroom {policy.headroom} must be above 0 and at most 1")


def _check_capacity(label: str, value: float) -> None:
    if not is_valid_capacity(value):
        raise InvalidProblemError(
            f"{label} is {value} bytes/s; it must be from {LEAST_CAPACITY:g} to {GREATEST_CAPACITY:g}"
        )


def _select_eligible(members: Sequence[Member], *, open_mode: bool) -> IntArray:
    staying = [i for i, m in enumerate(members) if not m.draining]
    return np.array(staying if staying or open_mode else range(len(members)), dtype=np.int32)


def _index_owners(
    group: IndexedGroup, eligible: IntArray, item: IntArray, reads: BoolArray, topic: IntArray
) -> IntArray:
    """Return each partition's owner; UNASSIGNED if it left, drains or no longer subscribes."""
    number = np.full(len(group.members) + len(group.departed_owners) + 1, UNASSIGNED, dtype=np.int32)
    number[eligible] = np.arange(len(eligible), dtype=np.int32)
    owner = number[group.owner[item]]  # UNASSIGNED (-1) picks the last entry
    keeps = owner != UNASSIGNED
    keeps[keeps] = reads[topic[keeps], owner[keeps]]
    return np.where(keeps, owner, UNASSIGNED).astype(np.int32)


def subscription_matrix(topics: Sequence[str], subscriptions: Sequence[frozenset[str]]) -> BoolArray:
    """Return which member subscribes to which topic, (T, M)."""
    # Members mostly subscribe alike: one look-up per distinct subscription, not per member.
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(subscriptions))}
    rows = [[topic in kind for kind in kinds] for topic in topics]
    by_kind = np.array(rows, dtype=np.bool_).reshape(len(topics), len(kinds))
    matrix: BoolArray = by_kind[:, [kinds[kind] for kind in subscriptions]]
    return matrix


def _fill_unknown_weights(index: PartitionIndex, rate: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return the weights, and which of them are measured."""
    known = ~np.isnan(rate)
    if known.all():
        return rate, known
    # Not 0: an unknown topic among busy ones would weigh nothing and end up on one member.
    mean = np.full(len(index.topics), float(rate[known].mean()) if known.any() else 1.0)
    measured = np.bincount(index.topic[known], minlength=len(mean))
    total = np.bincount(index.topic[known], rate[known], minlength=len(mean))
    np.divide(total, measured, out=mean, where=measured > 0)
    return np.where(known, rate, mean[index.topic]), known
