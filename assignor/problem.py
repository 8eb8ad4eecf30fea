"""Conversion of `ConsumerGroup`, `Load` and `PlacementPolicy` into a `PackingProblem` of integers.

Members are numbered by id, partitions by topic and number, so the order of the input does not
matter. A draining member is not numbered. If all members drain and none may be added, they count as
not draining.

An `IndexedGroup` is a group in numbers. A rebalance builds it from the members' subscriptions
without partition names, `index_group` from a `ConsumerGroup`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from trimtab.assignor.load_arrays import align_deviations, align_lags, align_write_rates
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
from trimtab.assignor.partition_index import PartitionIndex
from trimtab.assignor.racks.replica_racks import ReplicaRacks, build_rack_topology
from trimtab.common.errors import InvalidProblemError


@dataclass(frozen=True, slots=True, eq=False)
class IndexedGroup:
    """Members, partitions and owners of a group in arrays: P partitions, M members.

    `owner` is an index into `members`, UNASSIGNED, or M + i for the i-th of `departed_owners`.
    `replica_racks` is None if unknown.
    """

    members: tuple[Member, ...]  # (M,) sorted by id
    partition_index: PartitionIndex  # P partitions
    owner: IntArray  # (P,)
    departed_owners: tuple[str, ...] = ()
    replica_racks: ReplicaRacks | None = None


@dataclass(frozen=True, slots=True, eq=False)
class IndexedProblem:
    """A `PackingProblem` with the mapping back to the group it was built from."""

    problem: PackingProblem
    indexed_group: IndexedGroup
    eligible: IntArray  # group index of each of the problem's members
    item: IntArray  # group index of each of the problem's partitions
    unassigned: IntArray  # group indexes of the partitions without a subscriber
    measured: BoolArray  # (items,) whether the write rate is measured
    notes: tuple[str, ...]

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The problem's partitions by name; slow for many partitions."""
        names = self.indexed_group.partition_index.list_partitions()
        return tuple(names[p] for p in self.item.tolist())

    @property
    def members(self) -> tuple[Member, ...]:
        """The problem's members, in its order."""
        return tuple(self.indexed_group.members[m] for m in self.eligible.tolist())


def index_group(group: ConsumerGroup) -> IndexedGroup:
    """Convert a group into arrays. Raises InvalidProblemError for a duplicate member id."""
    members = tuple(sorted(group.members, key=lambda m: m.id))
    _check_unique_ids(members)
    partition_index = PartitionIndex.from_partitions(set(group.partitions))
    number = {m.id: i for i, m in enumerate(members)}
    departed = tuple(sorted(set(group.owners.values()) - set(number)))
    number |= {name: len(members) + i for i, name in enumerate(departed)}
    owners = (group.owners.get(name) for name in partition_index.list_partitions()) if group.owners else ()
    owner = np.full(len(partition_index), UNASSIGNED, dtype=np.int32)
    for item, name in enumerate(owners):
        if name is not None:
            owner[item] = number[name]
    replicas = (
        ReplicaRacks.from_partitions(partition_index, group.replica_racks) if group.replica_racks else None
    )
    return IndexedGroup(members, partition_index, owner, departed, replicas)


def build_problem(
    group: ConsumerGroup | IndexedGroup,
    load: Load,
    policy: PlacementPolicy,
    *,
    open_mode: bool = False,
    weigh_racks: bool = False,
) -> IndexedProblem:
    """Build a group's problem; with `open_mode`, members of the policy's capacity may be added.

    With `weigh_racks` it has the rack topology. Raises InvalidProblemError for duplicate member ids
    and for invalid write rates, deviations, capacities or headroom.
    """
    indexed_group = index_group(group) if isinstance(group, ConsumerGroup) else group
    _check_members_and_policy(indexed_group.members, policy)
    partition_index = indexed_group.partition_index
    if weigh_racks and indexed_group.replica_racks is None and not open_mode:
        indexed_group = replace(indexed_group, replica_racks=ReplicaRacks.from_topics(partition_index, {}))
    eligible = _select_eligible(indexed_group.members, open_mode=open_mode)
    members = [indexed_group.members[m] for m in eligible.tolist()]
    reads = subscription_matrix(partition_index.topics, [m.topics for m in members])
    topic_is_read = np.array([open_mode or row.any() for row in reads], dtype=np.bool_)
    is_read = topic_is_read[partition_index.topic]
    item = np.flatnonzero(is_read).astype(np.int32)
    weight, known = _fill_unknown_weights(
        partition_index, align_write_rates(load.write_rates, partition_index)
    )
    reads = reads[topic_is_read]
    topic = (np.cumsum(topic_is_read, dtype=np.int32) - 1)[partition_index.topic[item]]
    problem = PackingProblem(
        weight=weight[item],
        owner=_index_owners(indexed_group, eligible, item, reads, topic),
        topic=topic.astype(np.int32),
        lag=align_lags(load.lags, partition_index)[item],
        capacity=np.array([member_capacity(m, policy) * policy.headroom for m in members]),
        subscribed=reads,
        new_member_capacity=policy.capacity * policy.headroom if open_mode else None,
        forecast=RateForecast(
            np.zeros(len(item)), align_deviations(load.deviations, partition_index)[item] ** 2
        ),
        racks=build_rack_topology(members, indexed_group.replica_racks, item)
        if weigh_racks and indexed_group.replica_racks
        else None,
    )
    unassigned = np.flatnonzero(~is_read).astype(np.int32)
    known = known[item]
    return IndexedProblem(
        problem, indexed_group, eligible, item, unassigned, known, _note_unknown_rates(known)
    )


def member_capacity(member: Member, policy: PlacementPolicy) -> float:
    """Return the member's capacity in bytes/s before headroom, the policy's if it has none."""
    return policy.capacity if member.capacity is None else member.capacity


def _check_members_and_policy(members: Sequence[Member], policy: PlacementPolicy) -> None:
    """Raise InvalidProblemError for invalid members or an invalid policy."""
    _check_unique_ids(members)
    for member in members:
        if member.capacity is not None:
            _check_positive(f"capacity of member {member.id!r}", member.capacity)
    _check_positive("capacity of the policy", policy.capacity)
    if not 0 < policy.headroom <= 1:
        raise InvalidProblemError(f"headroom {policy.headroom} must be above 0 and at most 1")


def _check_unique_ids(members: Sequence[Member]) -> None:
    twice = next((a.id for a, b in pairwise(members) if a.id == b.id), None)
    if twice is not None:
        raise InvalidProblemError(f"member {twice!r} is there twice; member ids must differ")


def _check_positive(label: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidProblemError(f"{label} is {value} bytes/s; it must be a finite number above 0")


def _select_eligible(members: Sequence[Member], *, open_mode: bool) -> IntArray:
    staying = [i for i, m in enumerate(members) if not m.draining]
    return np.array(staying if staying or open_mode else range(len(members)), dtype=np.int32)


def _index_owners(
    indexed_group: IndexedGroup, eligible: IntArray, item: IntArray, subscription: BoolArray, topic: IntArray
) -> IntArray:
    """Return each partition's owner; UNASSIGNED if it left, drains or no longer subscribes."""
    number = np.full(
        len(indexed_group.members) + len(indexed_group.departed_owners) + 1, UNASSIGNED, dtype=np.int32
    )
    number[eligible] = np.arange(len(eligible), dtype=np.int32)
    owner = number[indexed_group.owner[item]]  # UNASSIGNED (-1) picks the last entry
    reads = owner != UNASSIGNED
    reads[reads] = subscription[topic[reads], owner[reads]]
    return np.where(reads, owner, UNASSIGNED).astype(np.int32)


def subscription_matrix(topics: Sequence[str], subscriptions: Sequence[frozenset[str]]) -> BoolArray:
    """Return which member subscribes to which topic, (T, M)."""
    # Members mostly subscribe alike: one look-up per distinct subscription, not per member.
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(subscriptions))}
    rows = [[topic in kind for kind in kinds] for topic in topics]
    by_kind = np.array(rows, dtype=np.bool_).reshape(len(topics), len(kinds))
    matrix: BoolArray = by_kind[:, [kinds[kind] for kind in subscriptions]]
    return matrix


def _fill_unknown_weights(
    partition_index: PartitionIndex, write_rate: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return the weights and which of them are measured.

    An unknown weight is the mean of its topic, else the mean of all, else 1.
    """
    # Not 0: an unknown topic among busy ones would weigh nothing and end up on one member.
    known = ~np.isnan(write_rate)
    if known.all():
        return write_rate, known
    overall = float(write_rate[known].mean()) if known.any() else 1.0
    mean = np.full(len(partition_index.topics), overall)
    measured = np.bincount(partition_index.topic[known], minlength=len(mean))
    total = np.bincount(partition_index.topic[known], write_rate[known], minlength=len(mean))
    np.divide(total, measured, out=mean, where=measured > 0)
    return np.where(known, write_rate, mean[partition_index.topic]), known


def _note_unknown_rates(measured: BoolArray) -> tuple[str, ...]:
    missing = int((~measured).sum())
    if not missing:
        return ()
    if missing == len(measured):
        return ("no write rate is known: every partition weighs the same",)
    count = f"{missing} of {len(measured)}"
    return (f"no write rate of {count} partitions: their topic's mean, else the overall, serves",)
