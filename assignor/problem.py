"""The door between names and numbers: `Group`, `Load`, `Policy` in; dense integers out.

Members are numbered by their ids in order, partitions by topic and number, so the order in which
they are given does not matter. A draining member holds nothing, and so is not numbered; where all
are draining, and no member may be added, they go on as if none were.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trimtab.assignor.errors import BadProblem
from trimtab.assignor.model import (
    NOBODY,
    BoolArray,
    FloatArray,
    Group,
    IntArray,
    Load,
    Member,
    Policy,
    Problem,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class Framed:
    """A `Problem` with the names of its numbers."""

    problem: Problem
    members: tuple[Member, ...]  # who may hold something; member m of the problem
    partitions: tuple[TopicPartition, ...]  # partition p of the problem
    unassigned: tuple[TopicPartition, ...]  # no member may read these
    known: BoolArray  # (P,) whether the speed was measured
    notes: tuple[str, ...]


def frame(group: Group, load: Load, policy: Policy, *, spare: bool = False) -> Framed:
    """Turn names into numbers; with `spare`, members of the policy's capacity may be added.

    Raises BadProblem for duplicate member ids, and for speeds, capacities or a headroom that make
    no sense.
    """
    check(group, policy)
    members = _eligible(group, spare=spare)
    read = frozenset[str]().union(*(m.topics for m in members))
    everything = sorted(set(group.partitions))
    there = np.array([spare or p.topic in read for p in everything], dtype=np.bool_)
    partitions = tuple(p for p, is_read in zip(everything, there, strict=True) if is_read)
    topics = sorted({p.topic for p in partitions})
    weight, known = _weights(everything, load)
    problem = Problem(
        weight=weight[there],
        owner=_owners(group, partitions, members),
        topic=_numbers(partitions, topics),
        lag=np.array([max(0, load.lags.get(p, 0)) for p in partitions], dtype=np.float64),
        capacity=np.array([own_capacity(m, policy) * policy.headroom for m in members]),
        subscribed=_subscribed(topics, members),
        spare=policy.capacity * policy.headroom if spare else None,
    )
    unassigned = tuple(p for p, is_read in zip(everything, there, strict=True) if not is_read)
    known = known[there]
    return Framed(problem, members, partitions, unassigned, known, _unknown_note(known))


def own_capacity(member: Member, policy: Policy) -> float:
    """Return the member's capacity in bytes/s, before headroom; else the policy's."""
    return policy.capacity if member.capacity is None else member.capacity


def check(group: Group, policy: Policy) -> None:
    """Raise BadProblem where members or policy make no sense."""
    ids = sorted(m.id for m in group.members)
    twice = next((a for a, b in pairwise(ids) if a == b), None)
    if twice is not None:
        raise BadProblem(f"member {twice!r} is there twice; member ids must differ")
    for member in group.members:
        if member.capacity is not None:
            _positive(f"capacity of member {member.id!r}", member.capacity)
    _positive("capacity of the policy", policy.capacity)
    if not 0 < policy.headroom <= 1:
        raise BadProblem(f"headroom {policy.headroom} must be above 0 and at most 1")


def _positive(what: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise BadProblem(f"{what} is {value} bytes/s; it must be a finite number above 0")


def _eligible(group: Group, *, spare: bool) -> tuple[Member, ...]:
    members = sorted(group.members, key=lambda m: m.id)
    staying = tuple(m for m in members if not m.draining)
    return staying if staying or spare else tuple(members)


def _owners(
    group: Group, partitions: Sequence[TopicPartition], members: tuple[Member, ...]
) -> IntArray:
    """Return each partition's owner; NOBODY where it left, drains or no longer subscribes."""
    number = {m.id: i for i, m in enumerate(members)}
    owners: list[int] = []
    for partition in partitions:
        owner = number.get(group.owners.get(partition, ""), NOBODY)
        reads = owner != NOBODY and partition.topic in members[owner].topics
        owners.append(owner if reads else NOBODY)
    return np.array(owners, dtype=np.int32)


def _numbers(partitions: Sequence[TopicPartition], topics: Sequence[str]) -> IntArray:
    number = {topic: i for i, topic in enumerate(topics)}
    return np.array([number[p.topic] for p in partitions], dtype=np.int32)


def _subscribed(topics: Sequence[str], members: Sequence[Member]) -> BoolArray:
    rows = [[topic in member.topics for member in members] for topic in topics]
    return np.array(rows, dtype=np.bool_).reshape(len(topics), len(members))


def _weights(partitions: Sequence[TopicPartition], load: Load) -> tuple[FloatArray, BoolArray]:
    """Return the weights and which of them were measured.

    An unknown one is the mean of its topic's known ones, else the mean of all known ones, else 1.
    """
    weight = np.array([_speed(p, load) for p in partitions], dtype=np.float64)
    known = ~np.isnan(weight)
    overall = float(weight[known].mean()) if known.any() else 1.0
    topic = _numbers(partitions, sorted({p.topic for p in partitions}))
    for number in np.unique(topic[~known]).tolist():
        mine = topic == number
        measured = weight[mine & known]
        weight[mine & ~known] = measured.mean() if measured.size else overall
    return weight, known


def _speed(partition: TopicPartition, load: Load) -> float:
    speed = load.speeds.get(partition)
    if speed is None:
        return math.nan
    if not math.isfinite(speed) or speed < 0:
        raise BadProblem(
            f"speed of {partition} is {speed} bytes/s; "
            "it must be finite and not negative, or None if unknown"
        )
    return speed


def _unknown_note(known: BoolArray) -> tuple[str, ...]:
    missing = int((~known).sum())
    if not missing:
        return ()
    if missing == len(known):
        return ("no write speed is known: every partition weighs the same",)
    count = f"{missing} of {len(known)}"
    return (f"no write speed of {count} partitions: their topic's mean, else the overall, serves",)
