"""Maps the members of a group to the replicas that run them: n consumers each, one by default. Pure.

1. A member is a replica's by its instance name: that of the replica, or with several consumers a replica one
   that begins with it and a slash (`replica_names`). Who names members by address is `member_names`.
2. Partitions are placed on consumers. Replicas are started, drained and stopped, with all of theirs.
3. A replica has joined once all of its consumers have. Those that have yet to join have names, too.
4. All other members are foreign.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from trimtab.assignor.model import TopicPartition
from trimtab.common.replica_names import get_replica, list_consumer_names
from trimtab.common.units import format_count
from trimtab.sidecar.model.member_names import count_members
from trimtab.sidecar.model.observation import ObservedMember, TargetStatus


@dataclass(frozen=True)  # without slots, which hold no cached property
class RunningReplicas:
    """Live replicas and their consumers."""

    running: tuple[str, ...]  # sorted
    members: Mapping[str, ObservedMember]  # ours, by name of the consumer
    consumers_per_replica: int

    @cached_property
    def _consumers_by_replica(self) -> Mapping[str, tuple[str, ...]]:
        if self.consumers_per_replica == 1:
            return {name: (name,) for name in self.running}
        joined: dict[str, list[str]] = {name: [] for name in self.running}
        for name in self.members:
            joined[name if name in joined else get_replica(name)].append(name)
        return {n: list_consumer_names(n, known, self.consumers_per_replica) for n, known in joined.items()}

    def list_consumers(self, replicas: Iterable[str]) -> tuple[str, ...]:
        """Return the consumers of these live replicas, joined or not."""
        return tuple(name for replica in replicas for name in self._consumers_by_replica[replica])

    def count_replicas(self, consumers: int) -> int:
        """Return how many replicas so many consumers take."""
        return -(-consumers // self.consumers_per_replica)

    def has_joined(self, replica: str) -> bool:
        """Return whether all consumers of a live replica are members of the group."""
        return all(name in self.members for name in self._consumers_by_replica[replica])

    def partitions_of(self, consumer: str) -> frozenset[TopicPartition]:
        """Return the partitions that a consumer owns now."""
        member = self.members.get(consumer)
        return frozenset() if member is None else member.owned_partitions

    def owned_partitions(self, replica: str) -> frozenset[TopicPartition]:
        """Return the partitions that a live replica's consumers own now."""
        return frozenset().union(*map(self.partitions_of, self._consumers_by_replica[replica]))


def map_members(
    members: Iterable[ObservedMember], running: Iterable[str], consumers_per_replica: int
) -> RunningReplicas:
    """Return the live replicas with those of the members that are theirs."""
    replicas = dict.fromkeys(sorted(running))
    ours: dict[str, ObservedMember] = {}
    for member in members:
        of = member.instance if consumers_per_replica == 1 else get_replica(member.instance)
        if replicas.keys().isdisjoint((member.instance, of)):
            continue
        earlier = ours.get(member.instance, member)  # it may have two member ids while it rejoins
        ours[member.instance] = replace(
            member,
            owned_partitions=earlier.owned_partitions | member.owned_partitions,
            capacity=earlier.capacity if member.capacity is None else member.capacity,
            topics=earlier.topics if member.topics is None else member.topics,
        )
    return RunningReplicas(tuple(replicas), ours, consumers_per_replica)


def describe_crowded_replica(
    members: Iterable[ObservedMember], status: TargetStatus, consumers_per_replica: int
) -> str | None:
    """Return the replica that runs most consumers if it is to run fewer, and what to set."""
    counts = count_members(members, status.replicas_by_address)
    if max(counts.values(), default=0) <= consumers_per_replica:
        return None
    name = min(counts, key=lambda name: (-counts[name], name))
    return (
        f"{name} runs {format_count(counts[name], 'consumer')}: set consumers-per-replica to {counts[name]}"
    )
