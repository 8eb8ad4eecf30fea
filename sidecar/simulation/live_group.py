"""A consumer group without broker: replicas start, join, lead, hand over and stop.

A rebalance is the leader's own (`assign_round`), both of its rounds at once. Consumers are numbered in
the order of their start.
"""

from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.rebalance.cooperative import OwnershipClaims
from trimtab.assignor.rebalance.group_snapshot import GroupSnapshot
from trimtab.assignor.rebalance.leader import LeaderView, assign_round
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember, ReplicaInstance


class LiveGroup:
    """The group: `owner` (P,) is the number of each partition's consumer, or UNASSIGNED."""

    def __init__(self, partitions: Sequence[TopicPartition], owner: IntArray, startup: float) -> None:
        self._partitions = partitions
        self._startup = startup
        self._topics = frozenset(p.topic for p in partitions)
        self._started_at = [-startup] * (int(owner.max(initial=UNASSIGNED)) + 1)  # by number
        self._joined = set(range(len(self._started_at)))
        self._starting: set[int] = set()
        self._fingerprint = ""
        self.owner = owner

    @property
    def members(self) -> IntArray:
        """Numbers of the consumers that have joined, sorted."""
        return np.array(sorted(self._joined), dtype=np.int32)

    @property
    def is_starting(self) -> bool:
        """Whether a consumer has yet to join."""
        return bool(self._starting)

    def list_replicas(self, epoch: float) -> tuple[ReplicaInstance, ...]:
        """Return the replicas; `epoch` is the wall clock at second 0."""
        numbers = sorted(self._joined | self._starting)
        return tuple(
            ReplicaInstance(format_name(n), alive=True, started_at=epoch + self._started_at[n])
            for n in numbers
        )

    def describe(self) -> ObservedGroup:
        """Return the group as its coordinator describes it between two rebalances."""
        owned: dict[int, list[TopicPartition]] = {n: [] for n in sorted(self._joined)}
        for partition, number in zip(self._partitions, self.owner.tolist(), strict=True):
            if number != UNASSIGNED:
                owned[number].append(partition)
        members = (
            ObservedMember(format_name(n), format_name(n), frozenset(held), topics=self._topics)
            for n, held in owned.items()
        )
        return ObservedGroup(GroupState.STABLE if owned else GroupState.EMPTY, tuple(members))

    def start(self, count: int, now: float) -> None:
        """Start consumers."""
        first = len(self._started_at)
        self._started_at += [now] * count
        self._starting |= set(range(first, first + count))

    def stop(self, names: Iterable[str]) -> None:
        """Stop consumers, which leave the group at once."""
        stopped = {int(name.rpartition("-")[2]) for name in names}
        self._joined -= stopped
        self._starting -= stopped
        self.owner = np.where(np.isin(self.owner, list(stopped)), UNASSIGNED, self.owner).astype(np.int32)

    def next_join(self) -> float | None:
        """Return the second of the next join; None if all have joined."""
        return min((self._started_at[n] + self._startup for n in self._starting), default=None)

    def join(self, now: float) -> bool:
        """Let the consumers join that are ready at `now`; return whether there are any."""
        ready = {n for n in self._starting if self._started_at[n] + self._startup <= now}
        self._starting -= ready
        self._joined |= ready
        return bool(ready)

    def forget_absent(self, there: BoolArray) -> bool:
        """Drop the owners of partitions that no longer exist; return whether the partitions changed."""
        changed = bool(((self.owner != UNASSIGNED) != there).any())
        self.owner = np.where(there, self.owner, UNASSIGNED).astype(np.int32)
        return changed

    def rebalance(self, view: LeaderView, there: BoolArray, policy: PlacementPolicy) -> bool:
        """Let the leader assign; return whether it decided, not completed an earlier decision."""
        numbers = self.members
        if not len(numbers):
            self.owner = np.full_like(self.owner, UNASSIGNED)
            return False
        index = PartitionIndex.from_partitions(compress(self._partitions, there.tolist()))
        owner = self.owner[there]
        member = np.where(owner == UNASSIGNED, UNASSIGNED, np.searchsorted(numbers, owner)).astype(np.int32)
        names = tuple(map(format_name, numbers.tolist()))
        snapshot = build_snapshot(names, index, member, self._fingerprint)
        done = assign_round(snapshot, view, policy)
        self._fingerprint = done.decision_fingerprint
        self.owner = np.full_like(self.owner, UNASSIGNED)
        self.owner[there] = np.where(done.target == UNASSIGNED, UNASSIGNED, numbers[done.target])
        return done.is_new_decision


def build_snapshot(
    names: Sequence[str], index: PartitionIndex, owner: IntArray, fingerprint: str = ""
) -> GroupSnapshot:
    """Return the group as its leader sees it: sorted members, which all subscribe to all topics.

    `owner` (P,) are numbers of members, or UNASSIGNED; `fingerprint` is of the decision in force.
    """
    owned = np.flatnonzero(owner != UNASSIGNED)
    claims = OwnershipClaims(
        member=owner[owned].astype(np.int32),
        partition=owned.astype(np.int32),
        generation=np.ones(len(names), dtype=np.int32),
    )
    data = tuple(MemberUserData(instance=name, decision_fingerprint=fingerprint) for name in names)
    topics = (frozenset(index.topics),) * len(names)
    return GroupSnapshot(tuple(names), topics, data, claims, index)


def format_name(number: int) -> str:
    """Return a consumer's name; names sort like numbers."""
    return f"consumer-{number:05}"
