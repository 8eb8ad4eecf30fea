"""The door between names and numbers: `Group`, `Load`, `Policy` in; dense integers out.

Members are numbered by their ids in order, partitions by topic and number, so the order in which
they are given does not matter. A draining member holds nothing, and so is not numbered; where all
are draining, and no member may be added, they go on as if none were.

A `Census` is a group already in numbers: a rebalance makes it from what the members sent, without
any names of partitions; `census` makes it from a `Group`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from trimtab.assignor.load_arrays import deviations_of, lags_of, speeds_of
from trimtab.assignor.model import (
    NOBODY,
    BoolArray,
    FloatArray,
    Group,
    IntArray,
    Load,
    Member,
    Outlook,
    Policy,
    Problem,
    TopicPartition,
)
from trimtab.assignor.partition_index import Universe
from trimtab.assignor.racks.replica_racks import Replicas, racks_of
from trimtab.common.errors import BadProblem


@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """Who is there, what there is to read, and who reads it: P partitions, M members.

    `owner` is an index into `members`, NOBODY, or M + i for the i-th of `gone`: owners that are
    not there any more. `replicas` is None where nothing is known of them.
    """

    members: tuple[Member, ...]  # (M,) sorted by id
    universe: Universe  # P partitions
    owner: IntArray  # (P,)
    gone: tuple[str, ...] = ()
    replicas: Replicas | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Framed:
    """A `Problem` with the way back to names."""

    problem: Problem
    census: Census
    eligible: IntArray  # who may hold something: index in the census of each problem's member
    item: IntArray  # index in the universe of each problem's partition
    unassigned: IntArray  # indexes of what no member may read
    known: BoolArray  # (items,) whether the speed was measured
    notes: tuple[str, ...]

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The problem's partitions by name; what is to be fast does without."""
        names = self.census.universe.names()
        return tuple(names[p] for p in self.item.tolist())

    @property
    def members(self) -> tuple[Member, ...]:
        """Who may hold something; member m of the problem."""
        return tuple(self.census.members[m] for m in self.eligible.tolist())


def census(group: Group) -> Census:
    """Give a group its numbers. Raises BadProblem where two members have one id."""
    members = tuple(sorted(group.members, key=lambda m: m.id))
    _check_ids(members)
    universe = Universe.named(set(group.partitions))
    number = {m.id: i for i, m in enumerate(members)}
    gone = tuple(sorted(set(group.owners.values()) - set(number)))
    number |= {name: len(members) + i for i, name in enumerate(gone)}
    owners = (group.owners.get(name) for name in universe.names()) if group.owners else ()
    owner = np.full(len(universe), NOBODY, dtype=np.int32)
    for item, name in enumerate(owners):
        if name is not None:
            owner[item] = number[name]
    replicas = Replicas.named(universe, group.replicas) if group.replicas else None
    return Census(members, universe, owner, gone, replicas)


def frame(
    group: Group, load: Load, policy: Policy, *, spare: bool = False, racks: bool = False
) -> Framed:
    """Turn names into a problem; with `spare`, members of the policy's capacity may be added.

    With `racks` it says who is where. Raises BadProblem for duplicate member ids, and for speeds,
    capacities or a headroom that make no sense.
    """
    return frame_census(census(group), load, policy, spare=spare, racks=racks)


def frame_census(
    there: Census, load: Load, policy: Policy, *, spare: bool = False, racks: bool = False
) -> Framed:
    """Turn a census into a problem; otherwise as `frame`."""
    _check(there.members, policy)
    universe = there.universe
    if racks and there.replicas is None and not spare:
        there = replace(there, replicas=Replicas.of(universe, {}))
    eligible = _eligible(there.members, spare=spare)
    members = [there.members[m] for m in eligible.tolist()]
    reads = subscribed(universe.topics, [m.topics for m in members])
    topic_is_read = np.array([spare or row.any() for row in reads], dtype=np.bool_)
    is_read = topic_is_read[universe.topic]
    item = np.flatnonzero(is_read).astype(np.int32)
    weight, known = _weights(universe, speeds_of(load.speeds, universe))
    reads = reads[topic_is_read]
    topic = (np.cumsum(topic_is_read, dtype=np.int32) - 1)[universe.topic[item]]
    problem = Problem(
        weight=weight[item],
        owner=_owners(there, eligible, item, reads, topic),
        topic=topic.astype(np.int32),
        lag=lags_of(load.lags, universe)[item],
        capacity=np.array([own_capacity(m, policy) * policy.headroom for m in members]),
        subscribed=reads,
        spare=policy.capacity * policy.headroom if spare else None,
        outlook=Outlook(np.zeros(len(item)), deviations_of(load.deviations, universe)[item] ** 2),
        racks=racks_of(members, there.replicas, item) if racks and there.replicas else None,
    )
    unassigned = np.flatnonzero(~is_read).astype(np.int32)
    known = known[item]
    return Framed(problem, there, eligible, item, unassigned, known, _unknown_note(known))


def own_capacity(member: Member, policy: Policy) -> float:
    """Return the member's capacity in bytes/s, before headroom; else the policy's."""
    return policy.capacity if member.capacity is None else member.capacity


def _check(members: Sequence[Member], policy: Policy) -> None:
    """Raise BadProblem where members or policy make no sense."""
    _check_ids(members)
    for member in members:
        if member.capacity is not None:
            _positive(f"capacity of member {member.id!r}", member.capacity)
    _positive("capacity of the policy", policy.capacity)
    if not 0 < policy.headroom <= 1:
        raise BadProblem(f"headroom {policy.headroom} must be above 0 and at most 1")


def _check_ids(members: Sequence[Member]) -> None:
    twice = next((a.id for a, b in pairwise(members) if a.id == b.id), None)
    if twice is not None:
        raise BadProblem(f"member {twice!r} is there twice; member ids must differ")


def _positive(what: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise BadProblem(f"{what} is {value} bytes/s; it must be a finite number above 0")


def _eligible(members: Sequence[Member], *, spare: bool) -> IntArray:
    staying = [i for i, m in enumerate(members) if not m.draining]
    return np.array(staying if staying or spare else range(len(members)), dtype=np.int32)


def _owners(
    there: Census, eligible: IntArray, item: IntArray, may_read: BoolArray, topic: IntArray
) -> IntArray:
    """Return each partition's owner; NOBODY where it left, drains or no longer subscribes."""
    number = np.full(len(there.members) + len(there.gone) + 1, NOBODY, dtype=np.int32)
    number[eligible] = np.arange(len(eligible), dtype=np.int32)
    owner = number[there.owner[item]]  # the last entry of `number` is NOBODY's
    reads = owner != NOBODY
    reads[reads] = may_read[topic[reads], owner[reads]]
    return np.where(reads, owner, NOBODY).astype(np.int32)


def subscribed(topics: Sequence[str], of: Sequence[frozenset[str]]) -> BoolArray:
    """Return who reads which topic, (T, M); members that subscribe alike are looked up once."""
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(of))}
    rows = [[topic in kind for kind in kinds] for topic in topics]
    by_kind = np.array(rows, dtype=np.bool_).reshape(len(topics), len(kinds))
    found: BoolArray = by_kind[:, np.array([kinds[kind] for kind in of], dtype=np.int32)]
    return found


def _weights(universe: Universe, speed: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return the weights and which of them were measured.

    An unknown one is the mean of its topic's known ones, else the mean of all known ones, else 1.
    """
    known = ~np.isnan(speed)
    if known.all():
        return speed, known
    overall = float(speed[known].mean()) if known.any() else 1.0
    mean = np.full(len(universe.topics), overall)
    measured = np.bincount(universe.topic[known], minlength=len(mean))
    total = np.bincount(universe.topic[known], speed[known], minlength=len(mean))
    np.divide(total, measured, out=mean, where=measured > 0)
    return np.where(known, speed, mean[universe.topic]), known


def _unknown_note(known: BoolArray) -> tuple[str, ...]:
    missing = int((~known).sum())
    if not missing:
        return ()
    if missing == len(known):
        return ("no write speed is known: every partition weighs the same",)
    count = f"{missing} of {len(known)}"
    return (f"no write speed of {count} partitions: their topic's mean, else the overall, serves",)
